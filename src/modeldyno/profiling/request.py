"""From a user's words to a Job: everything that can be checked before anything runs is checked here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno import plugins
from modeldyno.core.load.multi_model import Neighbour, called, check_names, each
from modeldyno.core.metrics.constraints import Constraint
from modeldyno.core.metrics.measurement_plan import Plan
from modeldyno.core.metrics.metric import canonical_statistic, fraction_of
from modeldyno.core.spec.devices import device_named
from modeldyno.core.spec.input_spec import BATCH, InputSpec, parse_input
from modeldyno.core.spec.job import Job, default_probes
from modeldyno.core.spec.knob import BATCH_SIZE, KnobValue, configure
from modeldyno.core.spec.load_spec import Load
from modeldyno.core.spec.probe_options import RECORD_FORMATS, Observation
from modeldyno.core.spec.static_options import HERE, Inspection, Mode, parse_vary
from modeldyno.core.stats.units import BYTES, parse_quantity
from modeldyno.errors import RequestError, UnknownName
from modeldyno.interfaces import ServesSeveral
from modeldyno.profiling.resolve_model import reference
from modeldyno.runtime.engine import serves

if TYPE_CHECKING:
    from collections.abc import Iterable

    from modeldyno.core.spec.knob import Knob

LAYERS, STATIC, OPERATORS, GENERATE, OUTPUTS = "layers", "static", "ops", "generate", "outputs"
"""Probes that are asked for with others: what a layer takes is held to what it costs, and `ops` traces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a user asked for, in words."""

    model: str
    backend: str | None = None
    settings: Mapping[str, KnobValue]
    inputs: tuple[str | InputSpec, ...] = ()
    probes: tuple[str, ...] = ()
    """Empty: what is usual for this backend and mode."""
    load: Load | None = None
    """What a server is put under; None leaves that to the backend."""
    require: tuple[str, ...] = ()
    percentiles: tuple[str, ...] = ()
    plan: Plan
    inspection: Inspection = field(default_factory=Inspection)
    observation: Observation = field(default_factory=Observation)
    name: str | None = None
    trust: bool = False
    beside: tuple[str, ...] = ()
    """Models on the same server at the same time, each as `core.load.multi_model.Neighbour` reads it."""

    def constraints(self) -> tuple[Constraint, ...]:
        """Read the bounds; one that names no model is meant of each."""
        found = tuple(map(Constraint.parse, self.require))
        if not self.beside:
            return found
        own = self.name or called(reference(self.model).locator)
        others = [Neighbour.parse(text).name for text in self.beside]
        return tuple(replace(c, query=query) for c in found for query in each(c.query, own, others))

    def job(self) -> Job:
        """Resolve every name and check every value.

        Raises:
            RequestError: something is wrong with it.
            MissingExtra: an optional package is not installed.
        """
        ref = reference(self.model)
        loader = plugins.loader(ref.scheme)
        name = self.backend or loader.backend
        if not self.probes:
            return replace(self, probes=default_probes(self.inspection.mode, served=serves(name))).job()
        backend = plugins.backend(name)
        config = configure(backend.knobs, self.settings)
        if any(plugins.probe(probe).needs is not None for probe in self._together()):
            backend.check(config)
            plugins.require(loader.requires, f"model {ref}")
            plugins.require(backend.requires, f"backend '{name}'")
        else:  # to look at a model needs no backend
            plugins.require(loader.requires, f"model {ref}")
            self._check_idle(backend.knobs)
        self._check_batch(config)
        self._check_written()
        self._check_records()
        self._check_mode()
        self.constraints()
        made = Job(
            model=ref,
            backend=name,
            inputs=tuple(map(_input, self.inputs)),
            config=config,
            probes=self._together(),
            plan=self._careful(),
            inspection=self._inspected().checked(),
            observation=self.observation,
            load=self._loaded(name),
            name=self.name,
            trust=self.trust,
        )
        return self._together_with(made) if self.beside else made

    def _together_with(self, first: Job) -> Job:
        """Add the models beside the first, each with its knobs and its load.

        Raises:
            RequestError: the backend serves one model alone, or something is wrong with one of them.
        """
        backend, others = plugins.backend(first.backend), tuple(map(Neighbour.parse, self.beside))
        if first.load is None or not isinstance(backend, ServesSeveral):
            raise RequestError(
                f"The backend '{first.backend}' has one model at a time; models are put side by side with "
                f"--backend {SERVER}."
            )
        own = first.name or called(first.model.locator)
        check_names(own, others)
        beside = []
        for other in others:
            server = next((name for name in other.settings if name in backend.common), None)
            if server is not None:
                raise RequestError(
                    f"The knob {server} is the server's, which has all models; set it by --set, "
                    f"and not for {other.name}."
                )
            single = replace(
                self, model=other.model, backend=first.backend, settings=other.settings, inputs=other.inputs,
                probes=("load",), load=other.load(first.load), name=other.name, require=(), beside=(),
            )  # fmt: skip
            beside.append(replace(single.job(), plan=first.plan, observation=Observation()))
        return replace(first, name=own, beside=tuple(beside))

    def _loaded(self, backend: str) -> Load | None:
        """Give the load, with the latency up to which an answer counts as good."""
        if not serves(backend):
            if self.load is not None:
                raise RequestError(
                    f"The backend '{backend}' calls the model within a process; a load needs a server: "
                    "choose one with --backend triton, or give its URL."
                )
            return None
        latency = [c for c in self.constraints() if c.query.metric == "latency" and not c.query.scope]
        bounds = [c.bound for c in latency if c.at_most]
        load = self.load or Load()
        return load if load.within is not None or not bounds else replace(load, within=min(bounds))

    def _check_idle(self, knobs: Iterable[Knob]) -> None:
        """Refuse knobs that only what runs a model would heed; the size of the batch is no such knob."""
        heeded = {BATCH_SIZE.name, *BATCH_SIZE.aliases}
        for name in (name for name in self.settings if name not in heeded):
            meant = next((knob.name for knob in knobs if name in {knob.name, *knob.aliases}), name)
            raise RequestError(
                f"{meant}={self.settings[name]} has no effect: nothing is run, and the analysis takes "
                "the model as it is stored; leave it out, or use modeldyno profile."
            )

    def _check_written(self) -> None:
        """Refuse files of the second pass that could not be written, before anything is measured."""
        for what, path in (("trace", self.observation.trace), ("outputs", self.observation.outputs)):
            if path and not Path(path).parent.is_dir():
                raise RequestError(
                    f"There is no directory '{Path(path).parent}' for the {what}; make it, or name another."
                )

    def _check_records(self) -> None:
        """Refuse a file of requests that could not be written, before anything is measured."""
        path = Path(self.observation.records) if self.observation.records else None
        if path is None:
            return
        if path.suffix not in RECORD_FORMATS:
            raise RequestError(
                f"The records cannot be written as '{path.suffix or path.name}'; known: "
                f"{', '.join(RECORD_FORMATS)}."
            )
        if not path.parent.is_dir():
            raise RequestError(
                f"There is no directory '{path.parent}' for the records; make it, or name another."
            )

    def _check_mode(self) -> None:
        """Refuse to watch calls where training steps are asked for: their costs are not those of calls."""
        calls = [probe for probe in (LAYERS, OPERATORS) if probe in self._together()]
        if self.inspection.mode is Mode.TRAIN and calls:
            raise RequestError(
                f"The probe '{calls[0]}' watches calls of the model, and no training steps; ask for it "
                f"without --mode {Mode.TRAIN}."
            )

    def _check_batch(self, config: Mapping[str, KnobValue]) -> None:
        """Refuse two sizes of the batch."""
        if BATCH_SIZE.name in config and BATCH in self.inspection.vary:
            raise RequestError(
                f"batch_size={config[BATCH_SIZE.name]} and --vary {BATCH} both say how large the batch is; "
                "give one of them."
            )

    def _together(self) -> tuple[str, ...]:
        """Add to the probe of layers the analysis that says what they cost, and what heeds an observation."""
        look, usual = self.observation, Observation()
        heeding = {
            LAYERS: bool(look.layers),
            OPERATORS: bool(look.trace),
            OUTPUTS: bool(look.outputs),
            GENERATE: (look.prompts, look.generated) != (usual.prompts, usual.generated),
        }
        named = (*self.probes, *(probe for probe, asked in heeding.items() if asked))
        return tuple(dict.fromkeys((*((STATIC,) if LAYERS in named else ()), *named)))

    def _inspected(self) -> Inspection:
        """Have an analysis tell what each module costs, and what this machine does at most."""
        if LAYERS not in self._together():
            return self.inspection
        devices = tuple(dict.fromkeys((*self.inspection.devices, HERE)))
        return replace(self.inspection, modules=True, devices=devices)

    def _careful(self) -> Plan:
        """Add the percentiles that a constraint names: they must be certified, so the run goes on."""
        asked = (canonical_statistic(name) for name in self.percentiles)
        named = (c.percentile for c in self.constraints() if c.query.metric == "latency")
        wanted = dict.fromkeys((*self.plan.percentiles, *asked, *filter(None, named)))
        for name in wanted:
            if fraction_of(name) is None:
                raise RequestError(f"'{name}' is no percentile; write p99 or p99.9.")
        return replace(self.plan, percentiles=tuple(wanted))


SERVER = "triton"
"""What serves a model that nobody serves yet, when the user names nothing."""


def server_for(model: str) -> str | None:
    """Name the backend that serves a model; None where its own loader knows.

    Raises:
        RequestError: as `reference`.
    """
    own = plugins.loader(reference(model).scheme).backend
    return None if serves(own) else SERVER


def settings(pairs: Iterable[str]) -> dict[str, KnobValue]:
    """Read ``knob=value`` pairs; the backend gives the values their types.

    Raises:
        RequestError: a pair has no equals sign, or a knob is set twice.
    """
    found: dict[str, KnobValue] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name:
            raise RequestError(f"--set '{pair}' is not knob=value, such as batch_size=8.")
        if name in found:
            raise RequestError(f"--set gives the knob {name} twice: {found[name]} and {value}.")
        found[name] = value
    return found


def cores(text: str) -> tuple[int, ...]:
    """Read numbers of cores, such as ``0,1`` or ``0-3``.

    Raises:
        RequestError: it is no such list.
    """
    found: list[int] = []
    for part in text.split(","):
        low, _, high = part.partition("-")
        try:
            found += range(int(low), int(high or low) + 1) if part else ()
        except ValueError:
            raise RequestError(f"--pin '{text}' is no list of cores; write 0,1 or 0-3.") from None
    return tuple(found)


def inspection(
    *,
    mode: str = Mode.INFERENCE,
    optimizer: str | None = None,
    vary: str | Iterable[str] | Mapping[str, int | Iterable[int]] | None = None,
    devices: Iterable[str] = (),
    memory: str | int | None = None,
    modules: bool = True,
) -> Inspection:
    """Read how a model is to be looked at; without an optimizer training has that of Inspection.

    Raises:
        RequestError: a word or a number of it is wrong, or an optimizer is given where nothing is trained.
    """
    if mode not in set(Mode):
        raise UnknownName.among("mode", mode, Mode)
    several = (devices,) if isinstance(devices, str) else devices
    found = Inspection(
        mode=Mode(mode),
        optimizer=optimizer or Inspection().optimizer,
        vary=parse_vary(_vary(vary)),
        devices=tuple(dict.fromkeys(_device(name) for name in several)),
        memory=int(parse_quantity(memory, BYTES)) if isinstance(memory, str) else memory,
        modules=modules,
    ).checked()
    if optimizer is not None and found.mode is not Mode.TRAIN:
        raise RequestError(f"The optimizer {optimizer} has no effect without --mode {Mode.TRAIN}; add that.")
    return found


def _device(name: str) -> str:
    """Give the name by which a device is in the table."""
    return HERE if name.lower() == HERE else device_named(name).name


def _vary(given: str | Iterable[str] | Mapping[str, int | Iterable[int]] | None) -> Iterable[str]:
    """Write sizes by dimension as the command line does; text stays as it is."""
    if given is None or isinstance(given, str):
        return (given or "",)
    if not isinstance(given, Mapping):
        return given
    return [
        f"{name}={','.join(map(str, (sizes,) if isinstance(sizes, int | str) else sizes))}"
        for name, sizes in given.items()
    ]


def _input(given: str | InputSpec) -> InputSpec:
    spec = parse_input(given) if isinstance(given, str) else given
    if spec.source is not None and not Path(spec.source).expanduser().exists():
        raise RequestError(
            f"--input '{spec.source}' is neither a file nor a shape such as name=8x128:int64:0..30521."
        )
    return spec
