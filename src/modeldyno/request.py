"""From a user's words to a Job: everything that can be checked before anything runs is checked here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno import plugins
from modeldyno.core.goal import Constraint
from modeldyno.core.inputs import InputSpec, parse_input
from modeldyno.core.inspection import Inspection, Mode, parse_vary
from modeldyno.core.job import DEFAULT_PROBES, Job
from modeldyno.core.knob import KnobValue, configure
from modeldyno.core.metric import canonical_statistic, fraction_of
from modeldyno.core.model import ModelRef
from modeldyno.core.observation import Observation
from modeldyno.core.plan import Plan
from modeldyno.core.units import BYTES, parse_quantity
from modeldyno.errors import RequestError, UnknownName

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a user asked for, in words."""

    model: str
    backend: str | None = None
    settings: Mapping[str, KnobValue]
    inputs: tuple[str | InputSpec, ...] = ()
    probes: tuple[str, ...] = DEFAULT_PROBES
    require: tuple[str, ...] = ()
    percentiles: tuple[str, ...] = ()
    plan: Plan
    inspection: Inspection = field(default_factory=Inspection)
    observation: Observation = field(default_factory=Observation)
    name: str | None = None
    trust: bool = False

    def constraints(self) -> tuple[Constraint, ...]:
        """Read the bounds."""
        return tuple(map(Constraint.parse, self.require))

    def job(self) -> Job:
        """Resolve every name and check every value.

        Raises:
            RequestError: something is wrong with it.
            MissingExtra: an optional package is not installed.
        """
        ref = reference(self.model)
        loader = plugins.loader(ref.scheme)
        name = self.backend or loader.backend
        backend = plugins.backend(name)
        config = configure(backend.knobs, self.settings)
        backend.check(config)
        plugins.require(loader.requires, f"model {ref}")
        probes = [plugins.probe(probe) for probe in self.probes]
        if any(probe.needs is not None for probe in probes):  # to look at a model needs no backend
            plugins.require(backend.requires, f"backend '{name}'")
        self.constraints()
        return Job(
            model=ref,
            backend=name,
            inputs=tuple(map(_input, self.inputs)),
            config=config,
            probes=self.probes,
            plan=self._careful(),
            inspection=self.inspection.checked(),
            observation=self.observation,
            name=self.name,
            trust=self.trust,
        )

    def _careful(self) -> Plan:
        """Add the percentiles that a constraint names: they must be certified, so the run goes on."""
        asked = (canonical_statistic(name) for name in self.percentiles)
        named = (c.percentile for c in self.constraints() if c.query.metric == "latency")
        wanted = dict.fromkeys((*self.plan.percentiles, *asked, *filter(None, named)))
        for name in wanted:
            if fraction_of(name) is None:
                raise RequestError(f"'{name}' is no percentile; write p99 or p99.9.")
        return replace(self.plan, percentiles=tuple(wanted))


def reference(text: str) -> ModelRef:
    """Parse a reference; a bare path is resolved by suffix and content, which executes nothing.

    Raises:
        RequestError: the path does not exist, or no loader claims it.
    """
    ref = ModelRef.parse(text)
    if ref.scheme:
        return ref
    path = Path(ref.locator)
    for scheme in plugins.names("loader"):
        if plugins.loader(scheme).claims(path):
            return ModelRef(scheme=scheme, locator=ref.locator)
    if not path.exists():
        raise RequestError(
            f"There is no file or directory '{text}'; check the path, or write scheme:locator "
            f"with one of {', '.join(plugins.names('loader'))}."
        )
    raise RequestError(f"'{text}' {_why_not(path)}.")


def _why_not(path: Path) -> str:
    """Say why a path that is there is no model, and what to write instead."""
    if path.is_dir():
        return "holds no config.json, so it is no Hugging Face model; name a model's file in it"
    if path.suffix == ".py":
        return f"is code; name a function in it that makes the model: {path}:make"
    if path.suffix in {".pt", ".pth", ".bin", ".ckpt", ".safetensors"}:
        return (
            "holds weights without an architecture; write a function that makes the module and loads "
            "them, and name it: torch:file.py:make"
        )
    schemes = ", ".join(plugins.names("loader"))
    return f"is nothing that a loader recognises by its content; write scheme:{path}, a scheme of {schemes}"


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


def inspection(
    *,
    mode: str = Mode.INFERENCE,
    optimizer: str = "adamw",
    vary: str | Iterable[str] | Mapping[str, int | Iterable[int]] | None = None,
    devices: Iterable[str] = (),
    memory: str | int | None = None,
    modules: bool = True,
) -> Inspection:
    """Read how a model is to be looked at.

    Raises:
        RequestError: a word or a number of it is wrong.
    """
    if mode not in set(Mode):
        raise UnknownName.among("mode", mode, Mode)
    return Inspection(
        mode=Mode(mode),
        optimizer=optimizer,
        vary=parse_vary(_vary(vary)),
        devices=tuple(dict.fromkeys((devices,) if isinstance(devices, str) else devices)),
        memory=int(parse_quantity(memory, BYTES)) if isinstance(memory, str) else memory,
        modules=modules,
    ).checked()


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
