"""Runs the source: what it returns, and how far it is from itself in other ways of computing (the floor)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from modeldyno.base import codec, plugins
from modeldyno.base.clock import monotonic
from modeldyno.base.errors import RequestError
from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.job.knob import configure
from modeldyno.base.job.model_ref import ModelIdentity
from modeldyno.conversion import codec as codec_conversion
from modeldyno.conversion.agreement.compare import relative_floor, source_fault, uncompared, unstable
from modeldyno.conversion.agreement.rule import BOUNDS, PRECISION
from modeldyno.conversion.check_inputs import (
    SAMPLES_FILE,
    CheckCall,
    CheckPlan,
    example_samples,
    first_axis,
    measured_inputs,
    own_names,
)
from modeldyno.conversion.interface import ConversionSource
from modeldyno.engine.interfaces.session import LocalSession
from modeldyno.models.interface import Feed, Form, source_kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from numpy import ndarray

    from modeldyno.models.interface import Model

Run = Callable[[Feed], Feed]
"""Calls a model with inputs by name, and returns outputs by name."""

_INPUT, _OUTPUT, _UNSTEADY = "input ", "output ", "unsteady "
"""Prefixes of array names in the file of a call."""
_RECORD = "reference.json"
_FLOOR_SECONDS = 60.0
"""Seconds after which no further way of computing is tried."""
_BRIEF = 200
"""Characters of an error of the source in a note."""
_OTHER_SIZES = 2
"""Sizes of a free dimension besides the usual one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceCall:
    """One call of the source, whose arrays are in a file."""

    file: str
    words: str
    batch: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What the source returned."""

    model: ModelIdentity
    kind: str
    """As `source_kind` gives it."""
    inputs: tuple[InputSpec, ...]
    outputs: tuple[InputSpec, ...]
    """Of the example: names, concrete shapes and dtypes."""
    calls: tuple[ReferenceCall, ...]
    floors: dict[str, float]
    """Output to its noise floor, as a share of a sample's largest value."""
    floor_names: tuple[str, ...]
    computed: str
    """The coarsest dtype that it computes in; empty if its outputs show it."""
    samples: int
    notes: tuple[str, ...] = ()
    measured: tuple[InputSpec, ...] = ()
    """What it is measured with, as `measured_inputs` gives it."""


class SourceInvalidError(Exception):
    """The source returns what no model can be compared with."""


def run_reference(
    model: Model, backend: str, requested: tuple[InputSpec, ...], seed: int, folder: Path
) -> Reference:
    """Call the source, measure its noise floor, and write everything into a folder.

    Raises:
        RequestError: the inputs do not fit the model, or it does not run in this process.
        SourceInvalidError: it returns NaN, or nothing but infinities.
    """
    plan = CheckPlan.of(model, requested)
    notes: list[str] = []
    with opened(plan.model, backend) as run:
        try:
            outputs, calls = _usual_calls(run, plan, seed)
        except SourceInvalidError:
            raise
        except Exception as error:  # of any kind: of the model
            fewer = plan.with_batches_accepted(partial(_accepts, run), seed)
            if fewer == plan:
                raise
            outputs, calls = _usual_calls(run, fewer, seed)
            ours, kept = (", ".join(map(str, each.batches)) for each in (plan, fewer))
            notes.append(
                f"the batch was checked at {kept}, not at all of {ours}: the source refuses others "
                f"({_brief(error)})"
            )
            plan = fewer
        example = plan.example(seed)
        for words, call in plan.scaled_calls(seed):
            try:
                calls.append((call, _valid(run(call.feed))))
            except Exception as error:  # noqa: BLE001 - the magnitude is ours: what the source refuses is no fault
                notes.append(f"inputs {words} were left out: with them, the source fails ({_brief(error)})")
        for name, other in plan.other_sizes(seed):
            accepted = list(_accepted(run, other))
            calls += accepted
            if len(accepted) < _OTHER_SIZES:
                notes.append(f"{name} was checked at {1 + len(accepted)} sizes: the source accepts no others")
        floors, names, unsteady = _noise(plan.model, backend, run, calls)
    files = tuple(
        _write(folder, number, call, returned, unsteady.get(number, {}))
        for number, (call, returned) in enumerate(calls)
    )
    write_arrays(folder / "example.npz", {f"{_INPUT}{name}": array for name, array in example.items()})
    write_arrays(folder / SAMPLES_FILE, example_samples(model, requested))
    reference = Reference(
        model=model.identity,
        kind=source_kind(model),
        inputs=_in_order(plan.model.inputs, example),
        outputs=tuple(
            InputSpec(name=name, shape=array.shape, dtype=_dtype(array)) for name, array in outputs.items()
        ),
        calls=files,
        floors=floors,
        floor_names=names,
        computed=_computed(model),
        samples=_distinct([call.feed for call, _ in calls]),
        notes=(*notes, *_blind(calls)),
        measured=measured_inputs(model, requested),
    )
    codec.write(folder / _RECORD, codec_conversion.encode_part(reference))
    return reference


def read_reference(folder: Path) -> Reference:
    """Read what `run_reference` wrote."""
    return codec_conversion.decode_part(Reference, (folder / _RECORD).read_bytes())


def stored_reference(folder: Path) -> Reference | None:
    """Return what `run_reference` wrote whole into a folder; None if it did not."""
    return read_reference(folder) if (folder / _RECORD).is_file() else None


def read_call(folder: Path, call: ReferenceCall) -> tuple[Feed, Feed, Feed]:
    """Read a call: its inputs, the outputs of the source, and where integers of them are undecided."""
    arrays = read_arrays(folder / call.file)
    inputs, outputs, unsteady = (
        {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
        for prefix in (_INPUT, _OUTPUT, _UNSTEADY)
    )
    return inputs, outputs, unsteady


def conversion_source(model: Model, reference: Reference, folder: Path) -> ConversionSource:
    """Return the model for a converter, with the example that the source was called with."""
    arrays = read_arrays(folder / "example.npz")
    return ConversionSource(
        model=model,
        inputs=reference.inputs,
        example={name.removeprefix(_INPUT): array for name, array in arrays.items()},
        outputs=reference.outputs,
    )


# -- calling --------------------------------------------------------------------------------------


STEADY: dict[str, dict[str, str]] = {"openvino": {"precision": "f32"}, "tensorrt": {"device": "cuda"}}
"""Settings in which the outputs of a backend are compared, besides the CPU: left to itself, OpenVINO may
compute in bf16, and TensorRT runs on a GPU only."""


def steady_config(backend: str, **settings: Any) -> dict[str, Any]:
    """Return the configuration in which outputs are compared: on the CPU if it can be, in full precision."""
    knob_names = {name for knob in plugins.backend(backend).knobs for name in knob.names}
    config = {"device": "cpu"} | STEADY.get(backend, {}) | settings
    return configure(plugins.backend(backend).knobs, {n: v for n, v in config.items() if n in knob_names})


@contextmanager
def opened(model: Model, backend: str, **settings: Any) -> Iterator[Run]:
    """Open a model; yield a function that calls it and returns named arrays of its own.

    Raises:
        RequestError: the backend does not run models in this process.
    """
    with plugins.backend(backend).open(model, steady_config(backend, **settings)) as session:
        if not isinstance(session, LocalSession):
            raise RequestError(
                f"The backend '{backend}' does not run a model in this process, so nothing can be compared."
            )

        def run(feed: Feed) -> Feed:
            return {name: _own(array) for name, array in session.arrays(session.prepare(feed)()).items()}

        yield run


def fitted(feed: Feed, model: Model) -> Feed:
    """Give the inputs the names and dtypes of the converted model, which may leave out unused ones."""
    declared = {spec.name: spec for spec in model.inputs}
    names = own_names(list(feed), list(declared))
    named = {names[name]: array for name, array in feed.items() if name in names} or feed
    return {
        name: array.astype(declared[name].dtype)
        if name in declared and declared[name].dtype in {"float32", "float64"} and array.dtype.kind == "f"
        else array
        for name, array in named.items()
    }


def _own(array: ndarray) -> ndarray:
    """Copy an array: runtimes reuse the memory of their outputs. Texts become characters."""
    return array.astype(str) if array.dtype == object else array.copy()


def _valid(outputs: Feed) -> Feed:
    if fault := source_fault(outputs):
        raise SourceInvalidError(fault)
    return outputs


def _usual_calls(run: Run, plan: CheckPlan, seed: int) -> tuple[Feed, list[tuple[CheckCall, Feed]]]:
    """Return what the source returns for the example, and the calls at its usual sizes with theirs."""
    outputs = run(plan.example(seed))
    if not outputs:
        raise SourceInvalidError("it returns no arrays, which could be compared")
    return outputs, [(call, _valid(run(call.feed))) for call in plan.calls(seed)]


def _accepts(run: Run, feed: Feed) -> bool:
    try:
        return not source_fault(run(feed))
    except Exception:  # noqa: BLE001 - of any kind: of the model
        return False


def _brief(error: Exception) -> str:
    """Return the end of what a runtime says, which names the values, in the length of a note."""
    message = " ".join(str(error).rpartition("Status Message: ")[2].split()) or type(error).__name__
    return message if len(message) <= _BRIEF else f"... {message[-_BRIEF:].partition(' ')[2]}"


def _accepted(run: Run, calls: Sequence[CheckCall]) -> Iterator[tuple[CheckCall, Feed]]:
    """Yield the first calls of other sizes that the source accepts."""
    accepted = 0
    for call in calls:
        if accepted == _OTHER_SIZES:
            return
        with suppress(Exception):  # the sizes are ours: what the source refuses is no fault
            outputs = _valid(run(call.feed))
            accepted += 1
            yield call, outputs


# -- the noise floor ------------------------------------------------------------------------------


def _noise(
    model: Model, backend: str, run: Run, calls: Sequence[tuple[CheckCall, Feed]]
) -> tuple[dict[str, float], tuple[str, ...], dict[int, Feed]]:
    """Compute each call again in every way; return the widest floors, the ways, and undecided places."""
    floors: dict[str, float] = dict.fromkeys(calls[0][1], 0.0)
    names: list[str] = []
    unsteady: dict[int, dict[str, ndarray]] = {}
    begin = monotonic()
    for name, way in _ways(model, backend, run):
        if monotonic() - begin > _FLOOR_SECONDS:
            break
        with suppress(Exception), way() as again:  # a way that this model does not allow, such as float64
            for number, (call, reference) in enumerate(calls):
                outputs = again(call.feed)
                if outputs.keys() != reference.keys():
                    continue
                names.append(name)
                for output, floor in relative_floor(reference, outputs, call.batch).items():
                    floors[output] = max(floors.get(output, 0.0), floor)
                for output, array in reference.items():
                    if array.dtype.kind not in "fc":
                        of_call = unsteady.setdefault(number, {})
                        mask = unstable(array, outputs[output])
                        of_call[output] = of_call[output] | mask if output in of_call else mask
    return floors, tuple(dict.fromkeys(names)), unsteady


def _ways(
    model: Model, backend: str, run: Run
) -> Iterator[tuple[str, Callable[[], AbstractContextManager[Run]]]]:
    """Yield the ways of computing the same again, each as a function that opens it."""
    knobs = {name for knob in plugins.backend(backend).knobs for name in knob.names}
    if model.form == Form.TORCH and (wide := _in_float64(model)) is not None:
        yield "float64", partial(_with_feeds, partial(opened, wide, backend), widened)
    yield "another batch", lambda: nullcontext(partial(_in_parts, run))
    if "threads" in knobs and model.form != Form.TENSORFLOW:
        yield "one thread", partial(opened, model, backend, threads=1)
    if "graph_optimization" in knobs:
        yield "unoptimised", partial(opened, model, backend, graph_optimization="disable")
    if model.form == Form.ONNX:
        yield "inputs moved by their last bit", lambda: nullcontext(lambda feed: run(_moved(feed)))


@contextmanager
def _with_feeds(
    opener: Callable[[], AbstractContextManager[Run]], change: Callable[[Feed], Feed]
) -> Iterator[Run]:
    with opener() as run:
        yield lambda feed: run(change(feed))


def _in_float64(model: Model) -> Model | None:
    """Return the model computing in float64; None if it cannot be copied or converted."""
    with suppress(Exception):
        return replace(model, value=copy.deepcopy(model.value).double())
    return None


def widened(feed: Feed) -> Feed:
    """Return inputs with their floats in float64."""
    import numpy as np  # slow to import

    return {
        name: array.astype(np.float64) if array.dtype.kind == "f" else array for name, array in feed.items()
    }


def _moved(feed: Feed) -> Feed:
    """Move each number by half of its last bit, up or down."""
    import numpy as np  # slow to import

    generator = np.random.default_rng(0)
    return {
        name: np.nextafter(array, generator.choice([-np.inf, np.inf], array.shape).astype(array.dtype))
        if array.dtype.kind == "f"
        else array
        for name, array in feed.items()
    }


def _in_parts(run: Run, feed: Feed) -> Feed:
    """Call the first sample alone and the others together; no arrays if outputs have no batch axis."""
    import numpy as np  # slow to import

    batch = first_axis(feed)
    if batch is None or batch == 1:
        return {}
    sizes = 1, batch - 1
    spans = slice(0, 1), slice(1, None)
    parts = [run({name: array[span] for name, array in feed.items()}) for span in spans]
    for part, size in zip(parts, sizes, strict=True):
        if any(array.shape[:1] != (size,) for array in part.values()):
            return {}
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


# -- what was compared ----------------------------------------------------------------------------


def _computed(model: Model) -> str:
    """Return the coarsest dtype of the floating weights."""
    dtypes = {weight.dtype for weight in (model.weights() if model.weights is not None else ())}
    bounded = dtypes & BOUNDS.keys()
    return min(bounded, key=PRECISION.index) if bounded else ""


def _distinct(feeds: Sequence[Feed]) -> int:
    """Count distinct samples."""
    contents = set()
    for feed in feeds:
        rows = first_axis(feed) or 1
        unbatched = first_axis(feed) is None
        for row in range(rows):
            contents.add(tuple((array if unbatched else array[row]).tobytes() for array in feed.values()))
    return len(contents)


def _blind(calls: Sequence[tuple[CheckCall, Feed]]) -> Iterator[str]:
    """Note outputs of which nothing is compared, or that are the same for every sample."""
    numberless = uncompared([outputs for _, outputs in calls])
    for name in numberless:
        yield f"the output '{name}' has no finite number in any call, so none was compared; give other inputs"
    call, outputs = max(calls, key=lambda pair: pair[0].batch or 0)
    for name, array in outputs.items():
        rows = call.batch or 1
        if name in numberless or rows == 1 or array.shape[:1] != (rows,):
            continue
        if bool((array == array[:1]).all()):
            yield f"the output '{name}' is the same for every sample; give other inputs"


def _in_order(inputs: Sequence[InputSpec], example: Feed) -> tuple[InputSpec, ...]:
    declared = {spec.name: spec for spec in inputs}
    return tuple(
        replace(declared[name], dtype=declared[name].dtype or str(array.dtype))
        if name in declared
        else InputSpec(name=name, shape=array.shape, dtype=str(array.dtype))
        for name, array in example.items()
    )


def _dtype(array: ndarray) -> str:
    return "string" if array.dtype.kind in "OU" else str(array.dtype)


def _write(folder: Path, number: int, call: CheckCall, outputs: Feed, unsteady: Feed) -> ReferenceCall:
    file = f"call-{number}.npz"
    arrays = {f"{_INPUT}{n}": a for n, a in call.feed.items()} | {
        f"{_OUTPUT}{n}": a for n, a in outputs.items()
    }
    write_arrays(folder / file, arrays | {f"{_UNSTEADY}{name}": array for name, array in unsteady.items()})
    return ReferenceCall(file=file, words=call.words, batch=call.batch)


def write_arrays(path: Path, arrays: Feed) -> None:
    """Write named arrays into a file."""
    import numpy as np  # slow to import

    plain = {name: array.astype(str) if array.dtype == object else array for name, array in arrays.items()}
    with path.open("wb") as file:
        np.savez(file, **plain)  # type: ignore[arg-type]


def read_arrays(path: Path) -> Feed:
    """Read what `write_arrays` wrote."""
    import numpy as np  # slow to import

    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    return {
        name: array.astype(object) if array.dtype.kind == "U" and name.startswith(_INPUT) else array
        for name, array in arrays.items()
    }
