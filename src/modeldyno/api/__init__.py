"""The Python API: the words of the command line, as functions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno import plugins, wire
from modeldyno.core.goal import Verdict
from modeldyno.core.inputs import InputSpec
from modeldyno.core.job import DEFAULT_PROBES
from modeldyno.core.plan import Plan
from modeldyno.errors import RequestError, RunFailed
from modeldyno.measure import measure
from modeldyno.request import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from modeldyno.core.knob import KnobValue
    from modeldyno.core.model import ModelRef
    from modeldyno.core.result import Event, Result


def profile(  # noqa: PLR0913 - one function per command, one parameter per option
    model: Any,
    *,
    example: Any = None,
    backend: str | None = None,
    inputs: Sequence[str | InputSpec] = (),
    probes: Sequence[str] = DEFAULT_PROBES,
    require: Sequence[str] = (),
    percentiles: Sequence[str] = (),
    plan: Plan | None = None,
    name: str | None = None,
    trust: bool = False,
    inline: bool = False,
    watch: Callable[[Event], None] = lambda _event: None,
    **settings: KnobValue,
) -> Result:
    """Profile a model, as ``modeldyno profile`` does.

    Args:
        model: a reference (``"m.onnx"``, ``"torch:file.py:factory"``), or a live object: a
            ``torch.nn.Module`` or any callable, which runs inside this process.
        example: inputs of a live object: an array, a tuple of them, or a dict by name.
        backend: what runs it; by default what suits the model.
        inputs: shapes or files, as ``--input`` takes them.
        probes: what to measure.
        require: bounds, such as ``"latency.p99 <= 50ms"``.
        percentiles: measured until certified, such as ``"p99"``.
        plan: how carefully to measure.
        name: what to call the model.
        trust: allow files that run code when loaded (in the child process).
        inline: run a referenced model inside this process too.
        watch: told of every event while it runs.
        settings: the backend's knobs, such as ``batch_size=8``.

    Returns:
        The Result; ``result["latency.p50"]`` is a number in base units. A wrong outcome (out of
        memory, a crash) is in ``result.failures``.

    Raises:
        RequestError: the request is wrong; nothing was measured.
        MissingExtra: an optional package is not installed.
        BoundBroken: a bound of `require` is broken; the Result is the exception's ``result``. One that
            is undecided raises nothing: ask ``result.judge("latency.p99 <= 50ms").verdict``.
    """
    _check_settings(settings)
    ref: ModelRef | None = None
    if not isinstance(model, str | Path):
        objects = plugins.resolve("loader", "object")
        ref = objects.offer(model, name=name, example=example)
        backend = backend or objects.backend_of(model)
    asked = Request(
        model=str(model if ref is None else ref),
        backend=backend,
        settings=settings,
        inputs=_several(inputs, "inputs"),
        probes=_several(probes, "probes"),
        require=_several(require, "require"),
        percentiles=_several(percentiles, "percentiles"),
        plan=plan or Plan(),
        name=name,
        trust=trust,
    )
    try:
        outcome = measure(asked, in_process=inline or ref is not None, watch=watch)
    finally:
        if ref is not None:
            objects.withdraw(ref)
    broken = [j.sentence() for j in outcome.judgements if j.verdict is Verdict.BROKEN]
    if broken:
        raise BoundBroken("; ".join(broken), outcome.result)
    return outcome.result


def _several(given: Any, name: str) -> tuple[Any, ...]:
    """Take one string for a sequence of one; refuse what is neither text nor an InputSpec."""
    found = (given,) if isinstance(given, str | InputSpec) else tuple(given)
    for one in found:
        if not isinstance(one, str | InputSpec):
            raise RequestError(
                f"{name} takes text, such as 'x=8x128:int64' or a file, not {type(one).__name__}; "
                "give arrays and tensors as example=."
            )
    return found


def _check_settings(settings: Mapping[str, Any]) -> None:
    """Refuse what is no knob with a hint at where it belongs."""
    for name in settings:
        if name in Plan.__dataclass_fields__:
            raise RequestError(f"{name} is part of the plan: plan=modeldyno.Plan({name}=...), in base units.")


class BoundBroken(RunFailed):
    """A bound of `require` is broken; `result` is what was measured."""

    exit_code = 1

    def __init__(self, message: str, result: Result) -> None:
        """Keep the Result."""
        super().__init__(message)
        self.result = result


def load(source: str | Path) -> Result:
    """Read a saved Result from a file, or from the store by id, prefix or tag.

    Raises:
        RequestError: there is none, or it cannot be read.
    """
    path = Path(source)
    if path.is_file():
        return wire.read(path)
    with plugins.store() as store:
        return store.get(str(source))


def save(result: Result, path: str | Path) -> None:
    """Write a Result as JSON, whole or not at all.

    Raises:
        RequestError: the file cannot be written.
    """
    wire.write(Path(path), wire.encode(result))
