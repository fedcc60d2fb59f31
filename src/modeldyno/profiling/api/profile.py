"""``modeldyno.profile`` and ``modeldyno.inspect``, and reading, storing and saving Results."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from modeldyno.base import codec, plugins
from modeldyno.base.errors import NotStoredWarning, RequestError, RunFailed, StoreError
from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.job.probe_options import ProbeOptions, parse_token_counts
from modeldyno.base.metrics.constraints import Verdict
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.metrics.metric import canonical_statistic
from modeldyno.base.progress import showing_progress
from modeldyno.base.result.cost import Price
from modeldyno.base.stats.units import read_time
from modeldyno.engine.runtime.time_limit import TimeLimit
from modeldyno.engine.trace.carbon import Emission
from modeldyno.profiling.api.arrays import with_batches
from modeldyno.profiling.api.error_wording import reword_errors
from modeldyno.profiling.api.live_evaluation import LiveEvaluation
from modeldyno.profiling.api.live_functions import check_functions, with_functions
from modeldyno.profiling.api.options import (
    DetailOptions,
    FunctionOptions,
    InspectOptions,
    PriceOptions,
    ProfileOptions,
    RunOptions,
    StoreOptions,
    take,
)
from modeldyno.profiling.request import Request, make_inspection
from modeldyno.profiling.run import JudgedResult, run_request
from modeldyno.stores import catalog
from modeldyno.stores.catalog import store_conclusion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from modeldyno.base.document import Conclusion, Document
    from modeldyno.base.job.knob import KnobValue
    from modeldyno.base.result.result import Event, Result

INSPECT_TIME = 600.0
"""Seconds that an inspection may take."""
_INPUTS = "example=x gives the inputs of a live model, inputs='x=1x3x224x224' their shapes"
_WARM_UP = "warm-up ends by evidence; min_warmup= leaves out so many calls at least"
_RUNS = "as many calls are made as the precision needs; min_runs= asks for so many at least"
_HABITS = {
    **dict.fromkeys(("input", "input_size", "input_shape", "input_data", "input_res", "args"), _INPUTS),
    **dict.fromkeys(("warmup", "num_warmup", "warmup_runs"), _WARM_UP),
    **dict.fromkeys(("runs", "repeat", "number", "iterations", "num_runs", "num_iter", "n"), _RUNS),
}
"""Arguments of other tools, and what to give here instead."""


@reword_errors
def profile(
    model: Any,
    example: Any = None,
    *,
    backend: str | None = None,
    inputs: str | Sequence[str | InputSpec] = (),
    probes: str | Sequence[str] | None = None,
    mode: str = "inference",
    optimizer: str | None = None,
    require: str | Sequence[str] = (),
    plan: Plan | None = None,
    beside: str | Sequence[str] = (),
    name: str | None = None,
    inline: bool = False,
    **settings: Unpack[ProfileOptions],
) -> Result:
    """Profile a model, as ``modeldyno profile`` does.

    Args:
        model: a reference (``"m.onnx"``, ``"torch:file.py:factory"``), or a live object: a
            ``torch.nn.Module``, an estimator of scikit-learn, XGBoost or LightGBM, or any callable; it
            runs inside this process.
        example: inputs of a live object: an array, a tuple of them, a dict by name (for a module of one
            parameter that has no such name, the dict that it takes), or a
            ``torch.utils.data.DataLoader``, whose first batches are used in turn.
        backend: what runs it; by default the one for the model's format.
        inputs: shapes or files, as ``--input`` takes them.
        probes: what to measure, such as ``("latency", "layers")`` or ``"latency,layers"``; the default
            depends on the mode.
        mode: ``"inference"`` for calls, ``"train"`` for training steps.
        optimizer: optimizer of the training steps: adamw (if None), adam, sgd, sgd-momentum, adafactor,
            adagrad or none.
        layers: parts of paths or classes of modules, such as ``"attention"``; the probe ``layers`` times
            only these.
        prompt: prompt length in tokens, one number or several, for the probe ``generate``.
        generate: tokens to generate, one number or several.
        trace: a file for a Perfetto trace of a few calls, for the probe ``ops``.
        outputs: a file (.npz) for the outputs of one call.
        pre: function that makes the inputs of the model: ``"file.py:name"``, or of a live object a function
            as well. It gets `example` or `inputs`, or has no parameter; it returns an array, or several by
            name. The latency then also has the scopes preprocess, copy, compute, copy_back, postprocess and
            end_to_end: ``result["latency.p50@end_to_end"]``.
        post: likewise, function that gets the outputs of a call: an array, or a dict by name of several.
        evaluate: metrics of labelled samples: accuracy, top_5, misclassification, f1, evaluation_loss,
            mean_absolute_error; or functions ``f(model, loader)``, perhaps with ``device``, of a live object.
            A function returns a number, a dict of numbers, or an array with a score for each sample, whose
            mean then has a 95 % interval.
        data: the labelled samples (.npz), perhaps with ``:`` and the name of the labels; by default `inputs`.
            Of a live object also an iterable of batches (inputs, labels), such as a DataLoader or a
            ``tf.data.Dataset``; it is evaluated after the measurement.
        carbon: intensity of the grid, such as ``"400g/kWh"``: the metric ``carbon`` are the grams of CO2
            equivalent of 1,000 inferences, where power can be read.
        power: power to assume for `carbon` where none can be read, such as ``"65W"``.
        price: price of the machine, such as ``"1.20/h"``: the metric ``cost`` is that of a million
            inferences, and ``token_cost`` that of a million tokens.
        require: bounds, such as ``"latency.p99 <= 50ms"``.
        percentiles: percentiles to measure until certified, such as ``"p99"``.
        plan: time and precision of the measurement.
        beside: other models on the same server at the same time, such as ``"b.onnx concurrency=4"``.
        name: name of the model in the results.
        trust: allow files that run code when loaded (in the child process).
        inline: also run a referenced model inside this process.
        store: keep the Result in the store, as the command line does; if the store cannot be written, it
            warns (`NotStoredWarning`).
        tags: names by which `read` and the command line find it again.
        progress: show progress on standard error after two seconds, in a terminal or a notebook.
        watch: called with every event while it runs.
        settings: the backend's knobs, such as ``batch_size=8``, and fields of `plan`, such as
            ``max_time=5``, in seconds or as text such as ``"10m"``.

    Returns:
        The Result; ``result["latency.p50"]`` is a number in base units, ``result.keys()`` lists all numbers.
        A failed run (out of memory, a crash) is in ``result.failures``.

    Raises:
        RequestError: the request is invalid; nothing was measured.
        MissingExtra: an optional package is not installed.
        BoundBroken: a bound of `require` is broken; the Result is the exception's ``result``. An undecided
            bound does not raise: see ``result.judge("latency.p99 <= 50ms").verdict``.
    """
    details = take(DetailOptions, settings)
    functions = take(FunctionOptions, settings)
    price = take(PriceOptions, settings)
    run, kept = take(RunOptions, settings), take(StoreOptions, settings)
    plan, knobs = split_plan(plan, settings)
    example, knobs = with_batches(model, example, knobs, mode)
    inspection_options = make_inspection(mode=mode, optimizer=optimizer, modules=False)
    bounds = as_tuple(require, "require")
    live = LiveEvaluation.of(model, functions.evaluate, functions.data, bounds)
    request = Request(
        model="",
        backend=backend,
        settings=knobs,
        inputs=as_tuple(inputs, "inputs"),
        probes=() if probes is None else parse_names(probes, "probes"),
        require=tuple(text for text in bounds if live is None or text not in live.bounds),
        plan=plan,
        inspection=inspection_options,
        observation=replace(
            parse_observation(details),
            **({} if live else parse_evaluation(functions.evaluate, functions.data)),
        ),
        name=name,
        trust=run.trust,
        beside=as_tuple(beside, "beside"),
        emission=Emission.parse(price.carbon, price.power),
        price=None if price.price is None else Price.parse(price.price),
    )
    check_functions(functions.pre, functions.post, example, live=inline or not isinstance(model, str | Path))
    with (
        showing_progress(run.watch, progress=run.progress) as on_event,
        with_functions(request.observation, functions.pre, functions.post, example) as observation,
    ):
        request = replace(request, observation=observation)
        example = example if functions.pre is None else None  # it is what `pre` is called with
        outcome = measure_request(request, model, example, inline=inline, watch=on_event)
        if live:
            outcome = live.judge(outcome, model, knobs.get("device"))
    store_if(outcome.result, condition=kept.store, tags=kept.tags)
    return result_or_raise(outcome)


@reword_errors
def inspect(
    model: Any,
    example: Any = None,
    *,
    inputs: str | Sequence[str | InputSpec] = (),
    mode: str = "inference",
    optimizer: str | None = None,
    vary: str | Sequence[str] | Mapping[str, int | Sequence[int]] | None = None,
    devices: str | Sequence[str] = (),
    device: str | Sequence[str] = (),
    memory: str | int | None = None,
    batch_size: int | None = None,
    max_time: float | str = INSPECT_TIME,
    plan: Plan | None = None,
    name: str | None = None,
    inline: bool = False,
    **settings: Unpack[InspectOptions],
) -> Result:
    """Count what a model costs without running it, as ``modeldyno inspect`` does.

    Args:
        model: a reference (``"m.onnx"``, ``"torch:file.py:factory"``), or a live ``torch.nn.Module``,
            which is analysed inside this process.
        example: inputs of a live object, of which shapes and dtypes are used: an array, a tuple of them, a
            dict by name, or a ``torch.utils.data.DataLoader``.
        inputs: shapes, as ``--input`` takes them.
        mode: ``"inference"``, or ``"train"`` for forward, backward and optimizer step.
        optimizer: optimizer whose state and step count in training: adamw (if None), adam, sgd,
            sgd-momentum, adafactor, adagrad or none.
        vary: further sizes to compute costs at: ``{"batch": (1, 8, 64)}``, or text as ``--vary`` takes it,
            ``"batch=1..64 seq=128,512"``.
        devices: devices to estimate lower time bounds on, such as ``"a100"``, or ``"here"``.
        device: the same, named like ``--device``.
        memory: bytes, or text such as ``"24GiB"``; find the largest batch that fits.
        batch_size: samples in one call.
        max_time: time for all of it, loading included, in seconds or as text such as ``"10m"``; what runs
            inside this process is not cut off.
        plan: time and memory limits of a child process, and the seed of random weights.
        name: name of the model in the results.
        trust: allow files that run code when loaded (in the child process).
        inline: also analyse a referenced model inside this process.
        store: keep the Result in the store, as the command line does; if the store cannot be written, it
            warns (`NotStoredWarning`).
        tags: names by which `read` and the command line find it again.
        progress: show progress on standard error after two seconds, in a terminal or a notebook.
        watch: called with every event.
        settings: further knobs that change what is computed, as ``--set`` takes them.

    Returns:
        The Result; ``result["macs"]`` is a count, ``result["macs@encoder.layer.0"]`` that of a module.

    Raises:
        RequestError: the request is invalid.
        MissingExtra: an optional package is not installed.
        OutOfTime: nothing was counted within `max_time`.
    """
    run, kept = take(RunOptions, settings), take(StoreOptions, settings)
    knobs = check_settings(settings) | ({} if batch_size is None else {"batch_size": batch_size})
    example, knobs = with_batches(model, example, knobs, mode)
    request = Request(
        model="",
        settings=knobs,
        inputs=as_tuple(inputs, "inputs"),
        probes=("static",),
        plan=plan or Plan(),
        inspection=make_inspection(
            mode=mode,
            optimizer=optimizer,
            vary=vary,
            devices=(*as_tuple(devices, "devices"), *as_tuple(device, "device")),
            memory=memory,
        ),
        name=name,
        trust=run.trust,
    )
    with showing_progress(run.watch, progress=run.progress) as on_event:
        limit = TimeLimit.begin(read_time(max_time, "max_time"))
        result = measure_request(request, model, example, inline=inline, watch=on_event, limit=limit).result
    store_if(result, condition=kept.store, tags=kept.tags)
    return result


def measure_request(
    request: Request,
    model: Any,
    example: Any,
    *,
    inline: bool,
    watch: Callable[[Event], None],
    limit: TimeLimit | None = None,
) -> JudgedResult:
    """Run a Request: a referenced model in a child process, a live object in this one."""
    if isinstance(model, str | Path):
        named = replace(request, model=str(model))
        return run_request(named, in_process=inline, watch=watch, limit=limit)
    with offered(model, request.name, example) as (ref, own):
        live = replace(request, model=ref, backend=request.backend or own)
        return run_request(live, in_process=True, watch=watch, limit=limit)


@contextmanager
def offered(model: Any, name: str | None = None, example: Any = None) -> Iterator[tuple[str, str]]:
    """Offer a live object to runs in this process, and yield its reference and its backend.

    Raises:
        RequestError: it cannot be called here.
    """
    objects = plugins.objects()
    ref = objects.offer(model, name=name, example=example)
    try:
        yield str(ref), objects.backend_of(model)
    finally:
        objects.withdraw(ref)


def as_tuple(values: Any, name: str) -> tuple[Any, ...]:
    """Return a sequence as a tuple, and one string as a tuple of one; refuse other types."""
    items = (values,) if isinstance(values, str | InputSpec) else tuple(values)
    for item in items:
        if not isinstance(item, str | InputSpec):
            raise RequestError(
                f"{name} takes text, such as 'x=8x128:int64' or a file, not {type(item).__name__}; "
                "give arrays and tensors as example=."
            )
    return items


def parse_names(names: str | Sequence[str], name: str) -> tuple[str, ...]:
    """Parse names: one, several, or text with commas as on the command line."""
    texts = as_tuple(names, name)
    return tuple(part.strip() for text in texts for part in str(text).split(",") if part.strip())


def parse_evaluation(evaluate: Any, data: str | Path | None) -> dict[str, Any]:
    """Return the fields of an ProbeOptions for `evaluate` and `data`; names as on the command line."""
    return {
        "evaluate": parse_names(evaluate, "evaluate"),
        "data": None if data is None else str(Path(data).absolute()),
    }


def parse_observation(details: DetailOptions) -> ProbeOptions:
    """Build the ProbeOptions of the arguments of `profile`."""
    return ProbeOptions(
        layers=parse_names(details.layers, "layers"),
        prompts=_parse_token_counts(details.prompt, "prompt"),
        generated=_parse_token_counts(details.generate, "generate"),
        trace=None if details.trace is None else str(Path(details.trace).absolute()),
        outputs=None if details.outputs is None else str(Path(details.outputs).absolute()),
    )


def _parse_token_counts(counts: int | str | Sequence[int], name: str) -> tuple[int, ...]:
    """Parse token counts: one, several, or text as on the command line."""
    numbers = (counts,) if isinstance(counts, int | str) else counts
    return parse_token_counts(",".join(map(str, numbers)), name)


def split_plan(plan: Plan | None, settings: Mapping[str, Any]) -> tuple[Plan, dict[str, KnobValue]]:
    """Separate fields of a Plan given as keyword arguments, such as ``max_time=5``, from knobs.

    Raises:
        RequestError: the plan is invalid.
    """
    _check_habits(settings)
    fields: dict[str, Any] = {
        name: _read_plan_field(name, value) for name, value in settings.items() if _is_plan_field(name, value)
    }
    try:
        planned = replace(plan or Plan(), **fields)
    except (TypeError, ValueError) as error:
        raise RequestError(f"{error}.") from None
    return planned, {name: value for name, value in settings.items() if name not in fields}


def _read_plan_field(name: str, value: Any) -> Any:
    """Read a field of a Plan: a time may be text, and a percentile stand alone."""
    if name == "percentiles":
        return tuple(map(canonical_statistic, as_tuple(value, name)))
    return read_time(value, name) if name in _TIMES and isinstance(value, str) else value


_TIMES = frozenset({"max_time", "min_time", "timeout"})


def _check_habits(settings: Mapping[str, Any]) -> None:
    """Refuse arguments that other tools have, with what to give here."""
    for name in settings:
        if name in _HABITS:
            raise RequestError(f"There is no argument '{name}'; {_HABITS[name]}.")


def _is_plan_field(name: str, value: Any) -> bool:
    """Check whether a setting is a field of Plan; `precision` as text, such as fp16, is a knob."""
    return name in Plan.__dataclass_fields__ and not (name == "precision" and isinstance(value, str))


def check_settings(settings: Mapping[str, Any]) -> dict[str, KnobValue]:
    """Return the knobs; refuse arguments of other tools, and fields of Plan, with a hint to give a `plan`."""
    _check_habits(settings)
    for name, value in settings.items():
        if _is_plan_field(name, value):
            raise RequestError(f"{name} is part of the plan: plan=modeldyno.Plan({name}=...), in base units.")
    return dict(settings)


class BoundBroken(RunFailed):
    """A bound of `require` is broken; `result` is the measured Result."""

    exit_code = 1

    def __init__(self, message: str, result: Result) -> None:
        """Store the Result."""
        super().__init__(message)
        self.result = result


def result_or_raise(outcome: JudgedResult) -> Result:
    """Return the Result; raise BoundBroken if a bound is broken."""
    broken = [j.sentence() for j in outcome.judgements if j.verdict is Verdict.BROKEN]
    if broken:
        raise BoundBroken("; ".join(broken), outcome.result)
    return outcome.result


def store(result: Result, tags: str | Sequence[str] = ()) -> str:
    """Keep a Result in the store, with tags by which `read` and the command line find it again.

    Returns:
        Its id, which also finds it.

    Raises:
        StoreError: the store cannot be written.
    """
    catalog.store_results([result], as_tuple(tags, "tags"))
    return result.id


def store_if(result: Result, *, condition: bool, tags: str | Sequence[str] = ()) -> None:
    """Store a Result if `condition`; if the store cannot be written, warn, or raise if there are tags.

    Raises:
        StoreError: the store cannot be written, and there are tags.
    """
    if not condition:
        return
    try:
        store(result, tags)
    except StoreError as error:
        if tags:
            raise
        _warn_not_stored(error)


def store_conclusion_if(document: Conclusion, *, condition: bool) -> None:
    """Store a comparison, a load series or a conversion if `condition`; warn if it cannot be stored."""
    if not condition:
        return
    try:
        store_conclusion(document)
    except StoreError as error:
        _warn_not_stored(error)


def _warn_not_stored(error: StoreError) -> None:
    text = f"The result is not stored. {error} To skip the store: store=False"
    warnings.warn(text, NotStoredWarning, stacklevel=5)


def read_all(path: str | Path) -> tuple[Result, ...]:
    """Read all Results of a file: a document, or an array as `ModelProfiler.export_json` writes it.

    Raises:
        RequestError: it cannot be read.
    """
    return codec.read_all(Path(path))


def save(document: Document, path: str | Path) -> None:
    """Write any document, whole or not at all: .json is the document; .html .md .csv .pdf are reports of it.

    The report of a gate is also written as JUnit (.xml) and SARIF (.sarif); its .md is the comment for a pull
    request.

    Raises:
        RequestError: no report has this suffix, or the file cannot be written.
        MissingExtra: the format needs a program that is not installed.
    """
    document.save(path)
