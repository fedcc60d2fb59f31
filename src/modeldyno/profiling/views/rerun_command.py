"""Shell command that repeats a measurement or a study."""

from __future__ import annotations

import shlex
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from modeldyno.base import options, plugins
from modeldyno.base.errors import UnknownName
from modeldyno.base.job.job import default_probes
from modeldyno.base.job.load_spec import Arrivals, Load, format_sequence
from modeldyno.base.job.probe_options import ProbeOptions
from modeldyno.base.job.static_options import Mode, StaticOptions
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.result.multi_model import default_model_name
from modeldyno.base.stats.units import BYTES, SECONDS, format_quantity, plain_number
from modeldyno.base.views.text import format_knob_value
from modeldyno.engine.trace.regions import PROMPT, SCRIPT, WATCHED
from modeldyno.profiling.views.result.totals import is_inspection

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from modeldyno.base.job.input_spec import InputSpec
    from modeldyno.base.job.job import Job
    from modeldyno.base.job.knob import KnobValue
    from modeldyno.base.metrics.constraints import Constraint
    from modeldyno.base.options import Option
    from modeldyno.base.result.result import Result


def rerun_command_line(result: Result, bounds: Sequence[Constraint] = ()) -> str:
    """Return the command line that repeats a measurement, with its `bounds` as ``--require``.

    Of a live object it is the call in Python, as no command can name it.
    """
    job = result.job
    if job.model.live:
        return _python_call(job)
    if job.model.scheme == SCRIPT:
        if job.model.locator == PROMPT:
            return PROMPT
        runner = ("python",) if WATCHED in job.probes else ("modeldyno", "run")
        return shlex.join([*runner, job.model.locator])
    return shlex.join(["modeldyno", *rerun_words(result, bounds)])


def rerun_words(result: Result, bounds: Sequence[Constraint] = ()) -> list[str]:
    """Return the words of that command line after ``modeldyno``: the command, the model, options."""
    options = _options(result.job, inspected=is_inspection(result))
    return [_subcommand(result), result.job.model.argument, *options, *repeated_options("--require", bounds)]


def _python_call(job: Job) -> str:
    """Return the call that measures a live object with the settings and probes of a job."""
    given = {"inputs": tuple(map(format_input_option, job.inputs))} if job.inputs else {}
    probes = {} if job.probes == default_probes(job.inspection.mode) else {"probes": ",".join(job.probes)}
    mode = {} if job.inspection.mode is Mode.INFERENCE else {"mode": str(job.inspection.mode)}
    words = [f"{name}={value!r}" for name, value in {**given, **job.config, **probes, **mode}.items()]
    return f"modeldyno.profile({', '.join(['model', *([] if given else ['example=...']), *words])})"


def advise_command_line(job: Job, usual_backend: str) -> str:
    """Return the command line that tries optimizations of a job's model on the same inputs and settings.

    Args:
        job: its `config` without what is usual.
        usual_backend: that of the model's loader, which need not be named.
    """
    command = ["modeldyno", "advise", job.model.argument]
    if job.backend != usual_backend:
        command += ["--backend", job.backend]
    command += [
        *setting_options(job.config),
        *input_options(job),
        *observation_options(job.observation, ("evaluate", "data")),
    ]
    return shlex.join([*command, *name_and_trust(job)])


def _subcommand(result: Result) -> str:
    if is_inspection(result):
        return "inspect"
    return "profile" if result.job.load is None else "load"


def _options(job: Job, *, inspected: bool) -> Iterator[str]:
    """Yield the options that differ from the defaults."""
    if not inspected:
        yield from ("--backend", job.backend)
        yield from setting_options(job.config)
    yield from input_options(job)
    defaults = default_probes(job.inspection.mode, served=job.load is not None)
    if not inspected and job.probes != defaults:
        yield from ("--probe", ",".join(job.probes))
    if job.load is not None:
        yield from _load_options(job.load)
    yield from _inspection_options(job.inspection, inspected=inspected)
    if not inspected:
        yield from observation_options(job.observation)
        yield from _changed_options(job.plan, Plan(), options.PLAN)
        yield from repeated_options("--beside", format_neighbours(job))
    yield from name_and_trust(job)


def format_neighbours(job: Job, *, settings: bool = True) -> list[str]:
    """Format the other models of a job's server as ``--beside`` takes them."""
    return [shlex.join(_neighbour_words(other, job, settings=settings)) for other in job.beside]


def _neighbour_words(other: Job, first: Job, *, settings: bool) -> Iterator[str]:
    yield other.model.argument
    if other.name != default_model_name(other.model.locator):
        yield f"name={other.name}"
    yield from _own_load(other, first)
    for name, value in _unusual_settings(other).items() if settings else ():
        yield f"{name}={format_knob_value(value)}"
    for spec in inputs_to_give(other):
        yield f"input={format_input_option(spec)}"


def _own_load(other: Job, first: Job) -> Iterator[str]:
    """Yield the load of another model where it is not that of the first one."""
    if other.load is None or first.load is None or str(other.load) == str(first.load):
        return
    if other.load.slots is not None:
        yield f"concurrency={other.load.slots}"
    if not other.load.closed:
        yield f"rate={format_rate(other.load)}"


def _unusual_settings(job: Job) -> dict[str, KnobValue]:
    """Return the settings that are not at their default; those of the whole server are its first model's."""
    try:
        defaults = {knob.name: knob.default for knob in plugins.backend(job.backend).knobs}
    except UnknownName:  # of a plugin that is not installed here
        defaults = {}
    return {name: value for name, value in job.config.items() if defaults.get(name) != value}


def repeated_options(option: str, values: Iterable[object]) -> Iterator[str]:
    """Yield an option once for each value."""
    for value in values:
        yield from (option, str(value))


def setting_options(config: Mapping[str, KnobValue]) -> Iterator[str]:
    """Yield the options that set knobs."""
    return repeated_options("--set", (f"{name}={format_knob_value(value)}" for name, value in config.items()))


def input_options(job: Job) -> Iterator[str]:
    """Yield the options of the inputs that a model does not get by itself."""
    return repeated_options("--input", map(format_input_option, inputs_to_give(job)))


def inputs_to_give(job: Job) -> list[InputSpec]:
    """Return the inputs of a job without those that a registered model brings along, beside its own file."""
    if job.model.registered is None:
        return list(job.inputs)
    folder = PurePath(job.model.locator).parent
    return [
        spec for spec in job.inputs if spec.source is None or not PurePath(spec.source).is_relative_to(folder)
    ]


def name_to_give(job: Job) -> str | None:
    """Return the name of a job's model, unless it is that of its registered name."""
    registered = job.model.registered
    return None if registered and registered.startswith(f"{job.name}/") else job.name


def name_and_trust(job: Job) -> Iterator[str]:
    """Yield the options of a name that is not the model's own, and of trust in its file."""
    if name := name_to_give(job):
        yield from ("--name", name)
    if job.trust:
        yield "--trust"


def format_input_option(spec: InputSpec) -> str:
    """Format an input as ``--input`` takes it."""
    name = f"{spec.name}=" if spec.name else ""
    if spec.source or spec.shape is None:
        return name + (spec.source or "")
    joint = "," if any(isinstance(dimension, str) for dimension in spec.shape) else "x"
    shape = joint.join(map(str, spec.shape)) or "scalar"
    dtype = f":{spec.dtype}" if spec.dtype else ""
    values = "" if spec.low is None or spec.high is None else f":{spec.low:g}..{spec.high:g}"
    return f"{name}{shape}{dtype}{values}"


def _load_options(load: Load) -> Iterator[str]:
    if load.closed:
        yield from ("--concurrency", str(load.slots))
    elif load.arrivals is Arrivals.TRACE:
        yield from ("--replay", str(load.trace))
        if load.speed != 1:
            yield from ("--replay-speed", f"{load.speed:g}")
        if load.window is not None:
            yield from ("--replay-window", *format_option_values(SECONDS, load.window))
    else:
        yield from ("--rate", format_rate(load))
    yield from _changed_options(load, Load(), options.LOAD)


def format_rate(load: Load) -> str:
    """Format the rate of an open loop as ``--rate`` takes it."""
    kind = f":{load.arrivals}" if load.arrivals is not Arrivals.CONSTANT else ""
    shapes = {Arrivals.BURST: f"={load.burst}", Arrivals.GAMMA: f"={plain_number(load.burstiness or 1)}"}
    size = shapes.get(load.arrivals, "")
    return f"{plain_number(load.rate or 0)}{kind}{size}"


def _inspection_options(inspection: StaticOptions, *, inspected: bool) -> Iterator[str]:
    if inspection.mode is Mode.TRAIN:
        yield from ("--mode", str(inspection.mode), "--optimizer", inspection.optimizer)
    if not inspected:
        return
    for name, sizes in inspection.vary.items():
        yield from ("--vary", f"{name}={','.join(map(str, sizes))}")
    yield from repeated_options("--device", inspection.devices)
    if inspection.memory is not None:
        yield from ("--memory", format_quantity(inspection.memory, BYTES, None).replace(" ", ""))


_OBSERVED = {
    "layers": "--layers", "prompts": "--prompt", "generated": "--generate", "preprocess": "--pre",
    "postprocess": "--post", "evaluate": "--evaluate", "data": "--data",
}  # fmt: skip
"""Field of what is observed to its option."""


def observation_options(observation: ProbeOptions, fields: Iterable[str] = _OBSERVED) -> Iterator[str]:
    """Yield the options of the fields that differ from the defaults."""
    for name in fields:
        value = getattr(observation, name)
        if value != getattr(ProbeOptions(), name):
            yield from (_OBSERVED[name], value if isinstance(value, str) else ",".join(map(str, value)))


def _changed_options(settings: Any, defaults: Any, rows: Iterable[Option]) -> Iterator[str]:
    """Yield the options of the fields that differ from the defaults."""
    for row in rows:
        value = getattr(settings, row.field)
        if value != getattr(defaults, row.field):
            for text in format_option_values(row.kind, value):
                yield from (row.flag, text)


def format_option_values(kind: str, value: Any) -> Iterable[str]:
    """Return the text of each time that an option of this kind is given."""
    if kind == options.PERCENTILES:
        return tuple(value)
    if kind == options.CORES:
        return (",".join(map(str, value)),)
    if kind == options.SEQUENCE:
        return (format_sequence(value),)
    if kind == options.SHARE:
        return (f"{value:.3g}",)
    if kind == SECONDS:  # that of a share of a budget has as many digits as a float
        value = round(value, 2) if value >= 1 else float(f"{value:.3g}")
    if kind in {SECONDS, BYTES}:
        return (format_quantity(value, kind, None).replace(" ", ""),)
    return (str(value),)
