"""The words of the command line, as functions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno import plugins, wire
from modeldyno.api.words import in_python
from modeldyno.core.goal import Verdict
from modeldyno.core.inputs import InputSpec
from modeldyno.core.observation import Observation, tokens
from modeldyno.core.plan import Plan
from modeldyno.errors import RequestError, RunFailed
from modeldyno.measure import Outcome, measure
from modeldyno.request import Request, inspection

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from modeldyno.core.knob import KnobValue
    from modeldyno.core.result import Event, Result


@in_python
def profile(  # noqa: PLR0913 - one function per command, one parameter per option
    model: Any,
    *,
    example: Any = None,
    backend: str | None = None,
    inputs: Sequence[str | InputSpec] = (),
    probes: Sequence[str] | None = None,
    mode: str = "inference",
    optimizer: str | None = None,
    layers: str | Sequence[str] = (),
    prompt: int | str | Sequence[int] = 128,
    generate: int | str | Sequence[int] = 32,
    trace: str | Path | None = None,
    outputs: str | Path | None = None,
    require: Sequence[str] = (),
    percentiles: Sequence[str] = (),
    plan: Plan | None = None,
    beside: str | Sequence[str] = (),
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
        probes: what to measure, such as ``("latency", "layers")``; by default what suits the mode.
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
    check_settings(settings)
    looked = inspection(mode=mode, optimizer=optimizer, modules=False)
    asked = Request(
        model="",
        backend=backend,
        settings=settings,
        inputs=several(inputs, "inputs"),
        probes=() if probes is None else several(probes, "probes"),
        require=several(require, "require"),
        percentiles=several(percentiles, "percentiles"),
        plan=plan or Plan(),
        inspection=looked,
        observation=Observation(
            layers=_parts(layers),
            prompts=_tokens(prompt, "prompt"),
            generated=_tokens(generate, "generate"),
            trace=None if trace is None else str(Path(trace).absolute()),
            outputs=None if outputs is None else str(Path(outputs).absolute()),
        ),
        name=name,
        trust=trust,
        beside=several(beside, "beside"),
    )
    return held(carried_out(asked, model, example, inline=inline, watch=watch))


@in_python
def inspect(  # noqa: PLR0913 - one function per command, one parameter per option
    model: Any,
    *,
    example: Any = None,
    inputs: Sequence[str | InputSpec] = (),
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
    watch: Callable[[Event], None] = lambda _event: None,
) -> Result:
    """Say what a model costs without running it, as ``modeldyno inspect`` does.

    Args:
        model: a reference (``"m.onnx"``, ``"torch:file.py:factory"``), or a live ``torch.nn.Module``,
            which is looked at inside this process.
        example: inputs of a live object, whose shapes and dtypes count: an array, a tuple of them, or a
            dict by name.
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
        watch: told of every event.

    Returns:
        The Result; ``result["macs"]`` is a count, ``result["macs@encoder.layer.0"]`` that of a module.

    Raises:
        RequestError: the request is wrong.
        MissingExtra: an optional package is not installed.
    """
    asked = Request(
        model="",
        settings={} if batch_size is None else {"batch_size": batch_size},
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
    return carried_out(asked, model, example, inline=inline, watch=watch).result


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


def _parts(given: str | Sequence[str]) -> tuple[str, ...]:
    """Read parts of names: one, several, or text with commas as the command line takes it."""
    texts = several(given, "layers")
    return tuple(part.strip() for text in texts for part in str(text).split(",") if part.strip())


def _tokens(given: int | str | Sequence[int], name: str) -> tuple[int, ...]:
    """Read numbers of tokens: one, several, or text as the command line takes it."""
    numbers = (given,) if isinstance(given, int | str) else given
    return tokens(",".join(map(str, numbers)), name)


def check_settings(settings: Mapping[str, Any]) -> None:
    """Refuse what is no knob with a hint at where it belongs."""
    for name, value in settings.items():
        knob = name == "precision" and isinstance(value, str)  # of numbers; that of the plan is a fraction
        if name in Plan.__dataclass_fields__ and not knob:
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


def read(source: str | Path) -> Result:
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
