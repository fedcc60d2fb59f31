"""Turn a user's request into a Job, checking everything that can be checked before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base import options, plugins
from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.base.job.devices import find_device
from modeldyno.base.job.input_spec import BATCH, InputSpec, parse_input
from modeldyno.base.job.job import Job, default_probes
from modeldyno.base.job.knob import BATCH_SIZE, KnobValue, configure
from modeldyno.base.job.load_spec import Load
from modeldyno.base.job.probe_options import (
    EVALUATION,
    RECORD_FORMATS,
    ProbeOptions,
    check_evaluations,
    evaluation_name,
    is_evaluation,
)
from modeldyno.base.job.prompt_lengths import (
    SCHEME,
    TRACE_SCHEME,
    format_trace_source,
    parse_prompt_lengths,
    parse_trace_source,
)
from modeldyno.base.job.static_options import HERE, Mode, StaticOptions, parse_vary
from modeldyno.base.metrics.constraints import Constraint, bounds_of_answers
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.metrics.metric import canonical_statistic, fraction_of
from modeldyno.base.result.cost import Price, check_price
from modeldyno.base.result.multi_model import (
    CoHostedModelSpec,
    bounds_of_each_model,
    check_names,
    default_model_name,
)
from modeldyno.base.stats.units import BYTES, check_time_limit, parse_quantity
from modeldyno.engine.data.labelled_samples import read_labels
from modeldyno.engine.trace.carbon import Emission
from modeldyno.models.interface import Executes
from modeldyno.profiling.resolve_model import ResolvedModel, resolve_model

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from modeldyno.base.job.knob import Knob

LAYERS, STATIC, OPERATORS, GENERATE, OUTPUTS, STAGES = (
    "layers", "static", "ops", "generate", "outputs", "stages",
)  # fmt: skip
"""Probes that are added to others: a layer's time is compared with its cost, and `ops` traces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a user asked for, as text and values."""

    model: str | ResolvedModel
    registered: str | None = None
    """Its name in the registry, where `model` is the reference of what is kept under that name."""
    backend: str | None = None
    settings: Mapping[str, KnobValue]
    inputs: tuple[str | InputSpec, ...] = ()
    probes: tuple[str, ...] = ()
    """Empty for the usual ones of this backend and mode."""
    load: Load | None = None
    """The load on a server; None leaves it to the backend."""
    require: tuple[str, ...] = ()
    percentiles: tuple[str, ...] = ()
    plan: Plan
    inspection: StaticOptions = field(default_factory=StaticOptions)
    observation: ProbeOptions = field(default_factory=ProbeOptions)
    name: str | None = None
    trust: bool = False
    beside: tuple[str, ...] = ()
    """Models on the same server at the same time, each as `multi_model.CoHostedModelSpec` parses it."""
    emission: Emission | None = None
    """What the power drawn emits; None if that is not asked for."""
    price: Price | None = None
    """Price of the machine, for the cost; None if that is not asked for."""

    def resolve(self) -> ResolvedRequest:
        """Resolve every name and check every value, each once.

        Raises:
            RequestError: something is wrong with it.
            TrustRequired: the model's file holds pickles, and is not trusted.
            MissingExtra: an optional package is not installed.
        """
        constraints = self._parse_bounds()
        model = self.model if isinstance(self.model, ResolvedModel) else resolve_model(self.model)
        ref = model.ref if self.registered is None else replace(model.ref, registered=self.registered)
        if self.beside:
            own = self.name or model.name or default_model_name(ref.locator)
            others = [CoHostedModelSpec.parse(text).name for text in self.beside]
            constraints = bounds_of_each_model(constraints, own, others)
        loader = plugins.loader(ref.scheme)
        name = self.backend or loader.backend
        observation = replace(self.observation, evaluate=_evaluated_metrics(self.observation, constraints))
        requested = self.probes or default_probes(self.inspection.mode, served=plugins.serves(name))
        probes = _needed_probes(requested, observation, constraints)
        backend = plugins.backend(name)
        config = configure(backend.knobs, self.settings)
        if any(plugins.probe(probe).needs is not None for probe in probes):
            backend.check(config)
            plugins.require(loader.requires, f"model {ref.argument}")
            plugins.require(backend.requires, f"backend '{name}'")
        else:  # a static analysis needs no backend
            plugins.require(loader.requires, f"model {ref.argument}")
            self._check_unused_knobs(backend.knobs)
        if loader.executes is Executes.PICKLE and not self.trust:
            loader.load(ref, seed=0, trust=False)  # which says what is missing, and unpickles nothing
        self._check_batch(config)
        self._check_times()
        _check_output_paths(observation)
        inputs = tuple(map(_input, self.inputs))
        _check_evaluation(observation, inputs)
        _check_mode(self.inspection.mode, probes)
        check_stages(probes, name)
        _check_samples(observation)
        load = self._checked_load(name, constraints)
        plan = self._plan_with_percentiles(constraints)
        job = Job(
            model=ref,
            backend=name,
            inputs=inputs or tuple(map(_input, model.inputs)),
            config=config,
            probes=probes,
            plan=plan if load is None else replace(plan, bounds=constraints),
            inspection=_with_modules(self.inspection, probes).checked(),
            observation=observation,
            load=load,
            name=self.name or model.name,
            trust=self.trust,
        )
        return ResolvedRequest(
            request=self,
            job=self._with_neighbours(job) if self.beside else job,
            constraints=constraints,
        )

    def job(self) -> Job:
        """Return the Job of it; raise as `resolve` does."""
        return self.resolve().job

    def _parse_bounds(self) -> tuple[Constraint, ...]:
        """Parse the constraints.

        Raises:
            RequestError: one of them is wrong, or bounds a cost, and there is no price.
        """
        constraints = tuple(map(Constraint.parse, self.require))
        if self.price is None:
            check_price(constraint.query for constraint in constraints)
        return constraints

    def _with_neighbours(self, first: Job) -> Job:
        """Add the other models of the server, each with its knobs and its load.

        Raises:
            RequestError: the backend hosts one model only, or one of them is wrong.
        """
        backend, others = plugins.backend(first.backend), tuple(map(CoHostedModelSpec.parse, self.beside))
        if first.load is None or backend.common is None:
            raise RequestError(
                f"The backend '{first.backend}' runs one model at a time; to host several on one server, use "
                f"`backend={SERVER}`."
            )
        own = first.name or default_model_name(first.model.locator)
        check_names(own, others)
        beside = []
        for other in others:
            server = next((name for name in other.settings if name.partition(".")[0] in backend.common), None)
            if server is not None:
                raise RequestError(
                    f"The knob {server} belongs to the server, which all models share; set it for all, "
                    f"not for {other.name}."
                )
            single = replace(
                self, model=other.model, backend=first.backend, settings=other.settings, inputs=other.inputs,
                probes=("load",), load=other.load(first.load), name=other.name, require=(), beside=(),
            )  # fmt: skip
            beside.append(replace(single.job(), plan=first.plan, observation=ProbeOptions()))
        return replace(first, name=own, beside=tuple(beside))

    def _checked_load(self, backend: str, constraints: Iterable[Constraint]) -> Load | None:
        """Return the load, with the times up to which an answer counts as good, from the constraints."""
        if not plugins.serves(backend):
            if self.load is not None:
                raise RequestError(
                    f"The backend '{backend}' calls the model within a process; a load needs a server: "
                    "choose one with `backend=triton`, or give its URL."
                )
            return None
        load = self.load or Load()
        if load.times_of_good_answers:
            return load
        return load.with_good_answers(bounds_of_answers(constraints))

    def _check_unused_knobs(self, knobs: Iterable[Knob]) -> None:
        """Refuse knobs that only running the model would use; the batch size is no such knob."""
        used = {BATCH_SIZE.name, *BATCH_SIZE.aliases}
        for name in (name for name in self.settings if name not in used):
            canonical = next((knob.name for knob in knobs if name in {knob.name, *knob.aliases}), name)
            raise RequestError(
                f"{canonical}={self.settings[name]} has no effect: nothing is run, and the analysis takes "
                "the model as it is stored; leave it out, or use modeldyno profile."
            )

    def _check_times(self) -> None:
        """Refuse a time that nothing can wait for; the plan and the load refuse what contradicts itself."""
        for rows, values in ((options.PLAN, self.plan), (options.LOAD, self.load)):
            for row in rows if values is not None else ():
                seconds = getattr(values, row.field)
                if row.kind == options.SECONDS and seconds is not None:
                    check_time_limit(seconds, f"`{row.name}`", zero=row.zero)

    def _check_batch(self, config: Mapping[str, KnobValue]) -> None:
        """Refuse two different batch sizes."""
        if BATCH_SIZE.name in config and BATCH in self.inspection.vary:
            raise RequestError(
                f"batch_size={config[BATCH_SIZE.name]} and `vary={BATCH}` both set the batch size; "
                "give one of them."
            )

    def _plan_with_percentiles(self, constraints: Iterable[Constraint]) -> Plan:
        """Return the plan, with the percentiles of the constraints added, so that they are certified."""
        requested = (canonical_statistic(name) for name in self.percentiles)
        named = (c.percentile for c in constraints if c.query.metric == "latency")
        percentiles = dict.fromkeys((*self.plan.percentiles, *requested, *filter(None, named)))
        for name in percentiles:
            if fraction_of(name) is None:
                raise RequestError(f"'{name}' is not a percentile; write p99 or p99.9.")
        return replace(self.plan, percentiles=tuple(percentiles))


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedRequest:
    """A Request whose names are resolved and whose values are checked."""

    request: Request
    job: Job
    constraints: tuple[Constraint, ...]
    """One that names no model applies to each."""


def _check_output_paths(observation: ProbeOptions) -> None:
    """Refuse files that could not be written, before anything is measured."""
    for kind in ("trace", "outputs", "records"):
        path = Path(getattr(observation, kind) or "")
        if kind == "records" and path.name and path.suffix not in RECORD_FORMATS:
            raise RequestError(
                f"The records cannot be written as '{path.suffix or path.name}'; known formats: "
                f"{', '.join(RECORD_FORMATS)}."
            )
        if path.name and not path.parent.is_dir():
            raise RequestError(
                f"There is no directory '{path.parent}' for the {kind}; create it, or name another."
            )


def _evaluated_metrics(observation: ProbeOptions, constraints: Iterable[Constraint]) -> tuple[str, ...]:
    """Return the metrics that are evaluated, by their own names: those asked for and those bounded."""
    named = (evaluation_name(name) for name in observation.evaluate)
    bounded = (bound.query.metric for bound in constraints if is_evaluation(bound.query.metric))
    return tuple(dict.fromkeys((*named, *bounded)))


def _check_evaluation(observation: ProbeOptions, inputs: Iterable[InputSpec]) -> None:
    """Refuse to evaluate what is unknown, and data that nothing evaluates or that have no labels."""
    data = observation.data
    check_evaluations(observation.evaluate, needed=bool(data))
    if data and not any(Path(text).expanduser().is_file() for text in (data, data.rpartition(":")[0])):
        raise RequestError(f"There are no labelled samples at {data}; check the path given to `data`.")
    sources = (spec.source for spec in inputs if spec.source)
    if not observation.evaluate:
        return
    source = data or next(sources, None)
    if source is None:
        raise RequestError("To evaluate a model, name labelled samples with `data`, such as test.npz.")
    read_labels(source)


def _check_mode(mode: Mode, probes: Collection[str]) -> None:
    """Refuse probes that watch calls in training mode, whose costs are those of training steps."""
    calls = [probe for probe in (LAYERS, OPERATORS, STAGES) if probe in probes]
    if mode is Mode.TRAIN and calls:
        raise RequestError(
            f"The probe '{calls[0]}' watches calls of the model, not training steps; use it "
            f"without `mode={Mode.TRAIN}`."
        )


def _check_samples(observation: ProbeOptions) -> None:
    """Refuse raw data as labelled samples of a model whose inputs a function makes."""
    if observation.preprocess and observation.evaluate and not observation.data:
        raise RequestError(
            "`inputs` is what the function of `pre` takes; name the labelled samples of the model with "
            "`data`."
        )


def _needed_probes(
    requested: Iterable[str], observation: ProbeOptions, constraints: Iterable[Constraint]
) -> tuple[str, ...]:
    """Return the probes, with the analysis that `layers` needs and what observation options need."""
    defaults = ProbeOptions()
    needed_by = {
        LAYERS: bool(observation.layers),
        OPERATORS: bool(observation.trace),
        OUTPUTS: bool(observation.outputs),
        EVALUATION: bool(observation.evaluate),
        STAGES: bool(observation.preprocess or observation.postprocess),
        GENERATE: (observation.prompts, observation.generated) != (defaults.prompts, defaults.generated),
    }
    named = (*requested, *(probe for probe, needed in needed_by.items() if needed))
    named += plugins.probes_of(constraint.query.metric for constraint in constraints)
    return tuple(dict.fromkeys((*((STATIC,) if LAYERS in named else ()), *named)))


def _with_modules(inspection: StaticOptions, probes: Collection[str]) -> StaticOptions:
    """Return the inspection, with costs by module and this machine's peaks if layers are measured."""
    if LAYERS not in probes:
        return inspection
    devices = tuple(dict.fromkeys((*inspection.devices, HERE)))
    return replace(inspection, modules=True, devices=devices)


def check_stages(probes: Iterable[str], backend: str) -> None:
    """Refuse the stages of a call where a server makes it.

    Raises:
        RequestError: they are to be measured, and the backend serves.
    """
    if STAGES in probes and plugins.serves(backend):
        raise RequestError(
            f"The stages of a call are measured in the process of the model, and the backend '{backend}' "
            "sends requests; leave out `pre` and `post`."
        )


SERVER = "triton"
"""Default backend for serving a model that is not on a server yet."""


def server_for(model: str | ResolvedModel) -> str | None:
    """Return the backend that serves a model; None if its own loader chooses.

    Raises:
        RequestError: as `resolve_model`.
    """
    resolved = model if isinstance(model, ResolvedModel) else resolve_model(model)
    own = plugins.loader(resolved.ref.scheme).backend
    return None if plugins.serves(own) else SERVER


def parse_function(text: str | None, field: str) -> str | None:
    """Read a function around a model, ``file.py:name`` or ``package.module:name``, as an absolute path.

    Raises:
        RequestError: it is neither, or there is no such file.
    """
    if text is None:
        return None
    where, _, name = text.removeprefix("call:").rpartition(":")
    if not where or not name:
        raise RequestError(
            f"`{field}` takes a function as file.py:name or package.module:name, not '{text}'."
        )
    if not where.endswith(".py"):
        return f"{where}:{name}"
    path = Path(where).expanduser().absolute()
    if not path.is_file():
        raise RequestError(f"`{field}`: there is no file '{where}'; give the path of a Python file.")
    return f"{path}:{name}"


def parse_settings(pairs: Iterable[str]) -> dict[str, KnobValue]:
    """Parse ``knob=value`` pairs; the backend converts the values.

    Raises:
        RequestError: a pair has no equals sign, or a knob is set twice.
    """
    values: dict[str, KnobValue] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name:
            raise RequestError(f"'{pair}' is not knob=value, such as batch_size=8.")
        if name in values:
            raise RequestError(f"The knob {name} is set twice: {values[name]} and {value}.")
        values[name] = value
    return values


def parse_cores(text: str) -> tuple[int, ...]:
    """Parse core numbers, such as ``0,1`` or ``0-3``.

    Raises:
        RequestError: it is not such a list.
    """
    numbers: list[int] = []
    for part in text.split(","):
        low, _, high = part.partition("-")
        try:
            numbers += range(int(low), int(high or low) + 1) if part else ()
        except ValueError:
            raise RequestError(f"`pin` '{text}' is not a list of cores; write 0,1 or 0-3.") from None
    return tuple(numbers)


def make_inspection(
    *,
    mode: str = Mode.INFERENCE,
    optimizer: str | None = None,
    vary: str | Iterable[str] | Mapping[str, int | Iterable[int]] | None = None,
    devices: Iterable[str] = (),
    memory: str | int | None = None,
    modules: bool = True,
) -> StaticOptions:
    """Build the options of a static inspection; training without an optimizer uses the default one.

    Raises:
        RequestError: a word or number is wrong, or an optimizer is given without training.
    """
    if mode not in set(Mode):
        raise UnknownName.among("mode", mode, Mode)
    names = (devices,) if isinstance(devices, str) else devices
    options = StaticOptions(
        mode=Mode(mode),
        optimizer=optimizer or StaticOptions().optimizer,
        vary=parse_vary(_vary(vary)),
        devices=tuple(dict.fromkeys(_device(name) for name in names)),
        memory=int(parse_quantity(memory, BYTES)) if isinstance(memory, str) else memory,
        modules=modules,
    ).checked()
    if optimizer is not None and options.mode is not Mode.TRAIN:
        raise RequestError(f"The optimizer {optimizer} has no effect without `mode={Mode.TRAIN}`; add that.")
    return options


def _device(name: str) -> str:
    """Return the canonical name of a device."""
    return HERE if name.lower() == HERE else find_device(name).name


def _vary(sizes_by_name: str | Iterable[str] | Mapping[str, int | Iterable[int]] | None) -> Iterable[str]:
    """Format sizes by dimension as on the command line; text stays as it is."""
    if sizes_by_name is None or isinstance(sizes_by_name, str):
        return (sizes_by_name or "",)
    if not isinstance(sizes_by_name, Mapping):
        return sizes_by_name
    return [
        f"{name}={','.join(map(str, (sizes,) if isinstance(sizes, int | str) else sizes))}"
        for name, sizes in sizes_by_name.items()
    ]


def _input(value: str | InputSpec) -> InputSpec:
    spec = parse_input(value) if isinstance(value, str) else value
    if spec.source is not None and spec.source.startswith(SCHEME):
        parse_prompt_lengths(spec.source)
        return spec
    if spec.source is not None and spec.source.startswith(TRACE_SCHEME):
        name, window = parse_trace_source(spec.source)
        path = Path(name).expanduser().absolute()
        if not path.is_file():
            raise RequestError(f"`inputs` '{spec.source}' names no file; write trace:FILE.")
        return replace(spec, source=format_trace_source(str(path), window))
    if spec.source is not None and not Path(spec.source).expanduser().exists():
        raise RequestError(
            f"`inputs` '{spec.source}' is neither a file nor a shape such as name=8x128:int64:0..30521."
        )
    return spec
