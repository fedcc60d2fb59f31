"""The words of the command line, as functions."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno import codec, plugins
from modeldyno.api.arrays import with_batches
from modeldyno.api.error_wording import in_python
from modeldyno.core.metrics.constraints import Verdict
from modeldyno.core.metrics.measurement_plan import Plan
from modeldyno.core.spec.input_spec import InputSpec
from modeldyno.core.spec.probe_options import Observation, tokens
from modeldyno.documents import lookup as documents_lookup
from modeldyno.errors import NotStoredWarning, RequestError, RunFailed, StoreError
from modeldyno.profiling.request import Request, inspection
from modeldyno.profiling.run import Outcome, measure
from modeldyno.progress import showing_progress

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from modeldyno.core.result.result import Event, Result
    from modeldyno.core.spec.knob import KnobValue


@in_python
def profile(  # noqa: PLR0913 - one function per command, one parameter per option
    model: Any,
    example: Any = None,
    *,
    backend: str | None = None,
    inputs: str | Sequence[str | InputSpec] = (),
    probes: str | Sequence[str] | None = None,
    mode: str = "inference",
    optimizer: str | None = None,
    layers: str | Sequence[str] = (),
    prompt: int | str | Sequence[int] = 128,
    generate: int | str | Sequence[int] = 32,
    trace: str | Path | None = None,
    outputs: str | Path | None = None,
    require: str | Sequence[str] = (),
    percentiles: str | Sequence[str] = (),
    plan: Plan | None = None,
    beside: str | Sequence[str] = (),
    name: str | None = None,
    trust: bool = False,
    inline: bool = False,
    store: bool = True,
    tags: str | Sequence[str] = (),
    progress: bool = True,
    watch: Callable[[Event], None] | None = None,
    **settings: KnobValue,
) -> Result:
    """Profile a model, as ``modeldyno profile`` does.

    Args:
        model: a reference (``"m.onnx"``, ``"torch:file.py:factory"``), or a live object: a
            ``torch.nn.Module`` or any callable, which runs inside this process.
        example: inputs of a live object: an array, a tuple of them, a dict by name, or a
            ``torch.utils.data.DataLoader``, whose first batches are used in turn.
        backend: what runs it; by default what suits the model.
        inputs: shapes or files, as ``--input`` takes them.
        probes: what to measure, such as ``("latency", "layers")`` or ``"latency,layers"``; by default what
            suits the mode.
        mode: ``"inference"`` for calls, ``"train"`` for training steps.
        optimizer: of the training steps: adamw (if None), adam, sgd, sgd-momentum, adafactor or none.
        layers: parts of paths or classes of modules, such as ``"attention"``; only these are watched one
            by one, by the probe ``layers``.
        prompt: tokens to generate from, one number or several, for the probe ``generate``.
        generate: tokens to generate, one number or several.
        trace: a file for a trace of a few calls that Perfetto opens, for the probe ``ops``.
        outputs: a file (.npz) for what one call returns.
        require: bounds, such as ``"latency.p99 <= 50ms"``.
        percentiles: measured until certified, such as ``"p99"``.
        plan: how carefully to measure.
        beside: other models on the same server at the same time, such as ``"b.onnx concurrency=4"``.
        name: what to call the model.
        trust: allow files that run code when loaded (in the child process).
        inline: run a referenced model inside this process too.
        store: keep the Result in the store, as the command line does; where the store cannot be written a
            warning says so (`NotStoredWarning`).
        tags: names by which `read` and the command line find it again.
        progress: say on standard error how far it is, after two seconds, in a terminal or a notebook.
        watch: called with every event while it runs.
        settings: the backend's knobs, such as ``batch_size=8``, and fields of `plan`, such as
            ``max_time=5`` (seconds).

    Returns:
        The Result; ``result["latency.p50"]`` is a number in base units, ``result.keys()`` lists what there
        is. A wrong outcome (out of memory, a crash) is in ``result.failures``.

    Raises:
        RequestError: the request is wrong; nothing was measured.
        MissingExtra: an optional package is not installed.
        BoundBroken: a bound of `require` is broken; the Result is the exception's ``result``. One that
            is undecided raises nothing: ask ``result.judge("latency.p99 <= 50ms").verdict``.
    """
    plan, settings = split_plan(plan, settings)
    example, settings = with_batches(model, example, settings, mode)
    looked = inspection(mode=mode, optimizer=optimizer, modules=False)
    asked = Request(
        model="",
        backend=backend,
        settings=settings,
        inputs=several(inputs, "inputs"),
        probes=() if probes is None else _parts(probes, "probes"),
        require=several(require, "require"),
        percentiles=several(percentiles, "percentiles"),
        plan=plan,
        inspection=looked,
        observation=Observation(
            layers=_parts(layers, "layers"),
            prompts=_tokens(prompt, "prompt"),
            generated=_tokens(generate, "generate"),
            trace=None if trace is None else str(Path(trace).absolute()),
            outputs=None if outputs is None else str(Path(outputs).absolute()),
        ),
        name=name,
        trust=trust,
        beside=several(beside, "beside"),
    )
    with showing_progress(watch, progress=progress) as seen:
        outcome = carried_out(asked, model, example, inline=inline, watch=seen)
    store_if(outcome.result, wanted=store, tags=tags)
    return held(outcome)


@in_python
def inspect(  # noqa: PLR0913 - one function per command, one parameter per option
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
    plan: Plan | None = None,
    name: str | None = None,
    trust: bool = False,
    inline: bool = False,
    store: bool = True,
    tags: str | Sequence[str] = (),
    progress: bool = True,
    watch: Callable[[Event], None] | None = None,
) -> Result:
    """Say what a model costs without running it, as ``modeldyno inspect`` does.

    Args:
        model: a reference (``"m.onnx"``, ``"torch:file.py:factory"``), or a live ``torch.nn.Module``,
            which is looked at inside this process.
        example: inputs of a live object, whose shapes and dtypes count: an array, a tuple of them, a dict
            by name, or a ``torch.utils.data.DataLoader``.
        inputs: shapes, as ``--input`` takes them.
        mode: ``"inference"``, or ``"train"`` for forward, backward and the optimiser's step.
        optimizer: whose state and step are part of training: adamw (if None), adam, sgd, sgd-momentum,
            adafactor or none.
        vary: sizes to answer for beside those of the inputs: ``{"batch": (1, 8, 64)}``, or text as
            ``--vary`` takes it, ``"batch=1..64 seq=128,512"``.
        devices: whose lower bounds to estimate, such as ``"a100"``, or ``"here"``.
        device: the same, as ``--device`` calls it.
        memory: bytes, or text such as ``"24GiB"``; the largest batch that fits is sought.
        batch_size: samples in one call.
        plan: its time and memory limits, and the seed of random weights.
        name: what to call the model.
        trust: allow files that run code when loaded (in the child process).
        inline: look at a referenced model inside this process too.
        store: keep the Result in the store, as the command line does; where the store cannot be written a
            warning says so (`NotStoredWarning`).
        tags: names by which `read` and the command line find it again.
        progress: say on standard error how far it is, after two seconds, in a terminal or a notebook.
        watch: called with every event.

    Returns:
        The Result; ``result["macs"]`` is a count, ``result["macs@encoder.layer.0"]`` that of a module.

    Raises:
        RequestError: the request is wrong.
        MissingExtra: an optional package is not installed.
    """
    settings: dict[str, KnobValue] = {} if batch_size is None else {"batch_size": batch_size}
    example, settings = with_batches(model, example, settings, mode)
    asked = Request(
        model="",
        settings=settings,
        inputs=several(inputs, "inputs"),
        probes=("static",),
        plan=plan or Plan(),
        inspection=inspection(
            mode=mode,
            optimizer=optimizer,
            vary=vary,
            devices=(*several(devices, "devices"), *several(device, "device")),
            memory=memory,
        ),
        name=name,
        trust=trust,
    )
    with showing_progress(watch, progress=progress) as seen:
        result = carried_out(asked, model, example, inline=inline, watch=seen).result
    store_if(result, wanted=store, tags=tags)
    return result


def carried_out(
    asked: Request, model: Any, example: Any, *, inline: bool, watch: Callable[[Event], None]
) -> Outcome:
    """Carry a Request out on a model: a reference in a child process, a live object in this one."""
    if isinstance(model, str | Path):
        return measure(replace(asked, model=str(model)), in_process=inline, watch=watch)
    objects = plugins.resolve("loader", "object")
    ref = objects.offer(model, name=asked.name, example=example)
    backend = asked.backend or objects.backend_of(model)
    try:
        return measure(replace(asked, model=str(ref), backend=backend), in_process=True, watch=watch)
    finally:
        objects.withdraw(ref)


def several(given: Any, name: str) -> tuple[Any, ...]:
    """Take one string for a sequence of one; refuse what is neither text nor an InputSpec."""
    found = (given,) if isinstance(given, str | InputSpec) else tuple(given)
    for one in found:
        if not isinstance(one, str | InputSpec):
            raise RequestError(
                f"{name} takes text, such as 'x=8x128:int64' or a file, not {type(one).__name__}; "
                "give arrays and tensors as example=."
            )
    return found


def _parts(given: str | Sequence[str], name: str) -> tuple[str, ...]:
    """Read names: one, several, or text with commas as the command line takes it."""
    texts = several(given, name)
    return tuple(part.strip() for text in texts for part in str(text).split(",") if part.strip())


def _tokens(given: int | str | Sequence[int], name: str) -> tuple[int, ...]:
    """Read numbers of tokens: one, several, or text as the command line takes it."""
    numbers = (given,) if isinstance(given, int | str) else given
    return tokens(",".join(map(str, numbers)), name)


def split_plan(plan: Plan | None, settings: Mapping[str, Any]) -> tuple[Plan, dict[str, KnobValue]]:
    """Part fields of a Plan that were given as arguments, such as ``max_time=5``, from knobs.

    Raises:
        RequestError: such a plan cannot be carried out.
    """
    fields = {name: value for name, value in settings.items() if _is_of_plan(name, value)}
    try:
        planned = replace(plan or Plan(), **fields)
    except (TypeError, ValueError) as error:
        raise RequestError(f"{error}.") from None
    return planned, {name: value for name, value in settings.items() if name not in fields}


def _is_of_plan(name: str, value: Any) -> bool:
    """Tell fields of a Plan from knobs; `precision` is of numbers where it is text, such as fp16."""
    return name in Plan.__dataclass_fields__ and not (name == "precision" and isinstance(value, str))


def check_settings(settings: Mapping[str, Any]) -> None:
    """Refuse what is no knob with a hint at where it belongs."""
    for name, value in settings.items():
        if _is_of_plan(name, value):
            raise RequestError(f"{name} is part of the plan: plan=modeldyno.Plan({name}=...), in base units.")


class BoundBroken(RunFailed):
    """A bound of `require` is broken; `result` is what was measured."""

    exit_code = 1

    def __init__(self, message: str, result: Result) -> None:
        """Keep the Result."""
        super().__init__(message)
        self.result = result


def held(outcome: Outcome) -> Result:
    """Give the Result, unless a bound is broken."""
    broken = [j.sentence() for j in outcome.judgements if j.verdict is Verdict.BROKEN]
    if broken:
        raise BoundBroken("; ".join(broken), outcome.result)
    return outcome.result


def store(result: Result, tags: str | Sequence[str] = ()) -> str:
    """Keep a Result in the store, under tags by which `read` and the command line find it again.

    Returns:
        Its id, which finds it, too.

    Raises:
        StoreError: the store cannot be written.
    """
    documents_lookup.keep([result], several(tags, "tags"))
    return result.id


def store_if(result: Result, *, wanted: bool, tags: str | Sequence[str] = ()) -> None:
    """Keep a Result where that is wanted; one with tags must be kept, of any other a warning is enough.

    Raises:
        StoreError: the store cannot be written, and tags are to name the Result in it.
    """
    if not wanted:
        return
    try:
        store(result, tags)
    except StoreError as error:
        if tags:
            raise
        text = f"The result is not stored. {error} To skip the store: store=False"
        warnings.warn(text, NotStoredWarning, stacklevel=4)


def read(source: str | Path) -> Result:
    """Read a saved Result from a file, or from the store by id, prefix or tag.

    Raises:
        RequestError: there is none, or it cannot be read.
    """
    path = Path(source)
    if path.is_file():
        return codec.read(path)
    with plugins.store() as store:
        return store.get(str(source))


def read_all(path: str | Path) -> tuple[Result, ...]:
    """Read all Results of a file: a document, or an array as `ModelProfiler.export_json` writes it.

    Raises:
        RequestError: it cannot be read.
    """
    return codec.read_all(Path(path))


def save(result: Result, path: str | Path) -> None:
    """Write a Result, whole or not at all: .json is the document; .html .md .csv .pdf are reports of it.

    Raises:
        RequestError: no report has this suffix, or the file cannot be written.
        MissingExtra: the format needs a program that is not there.
    """
    result.save(path)
