"""From the words of a sweep to a Study: those of a file, of options or of Python are read alike.

Everything that can be checked before anything runs is checked here; a mistake tells its line where the
words came from a file.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno import plugins
from modeldyno.core.load import multi_model
from modeldyno.core.load.multi_model import Neighbour
from modeldyno.core.metrics.constraints import Constraint
from modeldyno.core.metrics.measurement_plan import Plan
from modeldyno.core.metrics.metric import Query
from modeldyno.core.result.summary import ALONE
from modeldyno.core.spec.knob import KnobValue, configure
from modeldyno.core.spec.load_spec import Arrivals, Load, parse_rate
from modeldyno.core.stats.units import RATE, SECONDS, parse_bound
from modeldyno.core.study.goal import Goal, Objective, Rank
from modeldyno.core.study.multi_model_goal import goal_of_each_model
from modeldyno.core.study.search_space import Axis, Space
from modeldyno.core.study.study import LOADS, Budget, Study
from modeldyno.environment import machine
from modeldyno.errors import RequestError, UnknownName
from modeldyno.profiling import request, resolve_model
from modeldyno.runtime.engine import serves
from modeldyno.sweeps import axes, value_parsers
from modeldyno.sweeps.point_to_job import check_axes
from modeldyno.sweeps.schema import AIMS, FOREIGN, KEYS, STRATEGY

if TYPE_CHECKING:
    from modeldyno.core.spec.job import Job
    from modeldyno.core.spec.knob import Knob
    from modeldyno.core.spec.model_ref import ModelRef
    from modeldyno.sweeps.yaml_file import Tree, Words

PLAN = Plan(max_time=10.0)
"""What verifies is measured so; the search looks more shortly, as `core.study.trial_effort` says."""
THROUGHPUT = "throughput"
_SEARCHED = {"concurrency": "1..64*2"}
"""The loads that a server is put under where nobody names any."""


def study(words: Words, *, trust: bool = False) -> tuple[Study, tuple[Axis, ...]]:
    """Resolve every name and check every value; give the Study, and the axes that nobody named.

    Raises:
        RequestError: something is wrong with it; nothing was measured.
        MissingExtra: an optional package is not installed.
    """
    _check_names(words)
    tree = words.tree
    if not tree.get("model"):
        raise RequestError(f"{words.origin or 'A sweep'} names no model; write model: model.onnx.")
    beside = tuple(_neighbours(words))
    names = tuple(each.name for each in beside)
    goal = goal_of(words)
    with words.at("model"):
        model = str(tree["model"])
        backend = str(tree.get("backend") or _backend(model, tree))
    with words.at("backend"):
        knobs = multi_model.knobs(plugins.backend(backend).knobs, names)
    named = axes.axes(words, backend, names)
    settings = {**_told(beside, knobs), **_settings(words, knobs)}
    chosen = () if named else _usual(words, backend, settings, beside)
    chosen = (*chosen, *_loads(words, backend, (*named, *chosen), beside))
    space = Space(axes=(*named, *chosen))
    if not space.axes:
        raise RequestError(
            f"There is nothing to vary; give --space, with a knob of: modeldyno plugins {backend}"
        )
    plan = _plan(words)
    asked = request.Request(
        model=model,
        backend=backend,
        settings=multi_model.parts(settings, names)[0],
        inputs=_inputs(words),
        probes=_probes(words, goal, served=serves(backend)),
        load=_load(words, space) if serves(backend) else None,
        require=tuple(map(str, _bounds(words))),
        percentiles=tuple(
            o.percentile for o in goal.objectives if o.percentile and o.query.metric == "latency"
        ),
        plan=plan,
        name=value_parsers.text(tree.get("name")),
        trust=trust,
        beside=tuple(map(str, value_parsers.several(tree.get("beside")))),
    )
    with words.at("beside"):
        job = asked.job()
    goal = goal_for(goal, job)
    made = Study(
        id=secrets.token_hex(6),
        created=datetime.now(UTC).isoformat(timespec="milliseconds"),
        job=job,
        space=space,
        goal=goal,
        settings=settings,
        default=axes.default(space, backend, knobs, settings),
        strategy=_strategy(words),
        seed=plan.seed,
        budget=budget(words, Budget()),
        name=value_parsers.text(tree.get("name")) or _name(job.model),
    )
    with words.at("space"):
        check_axes(made)
    return made, chosen


def _name(model: ModelRef) -> str:
    """Name a study for its model: for the file, the function, or the model of a URL."""
    last = re.split(r"[/#:]", model.locator.rstrip("/"))[-1]
    return Path(last).stem or last


# --- names -----------------------------------------------------------------------------------------


def _check_names(words: Words) -> None:
    """Refuse a name that means nothing, with the one that was meant."""
    for name, value in words.tree.items():
        with words.at(name):
            if name not in KEYS:
                raise _unknown(name, KEYS)
            parts: dict[str, Any] = KEYS[name].get("properties", {})
            if KEYS[name].get("type") == "object" and not isinstance(value, dict):
                raise RequestError(f"'{name}' holds names with values, such as {_LIKE[name]}.")
        for part in value if parts else ():
            with words.at(name, part):
                if part not in parts:
                    raise _unknown(part, parts, within=name)


_LIKE = {
    "set": "instances: 2", "space": "batch_size: [1, 2, 4]", "budget": "max_time: 10m",
    "plan": "max_time: 5s", "load": "concurrency: 8",
}  # fmt: skip


def _unknown(name: str, known: Iterable[str], within: str = "") -> RequestError:
    if not within and name in FOREIGN:
        return RequestError(f"There is no '{name}' in a sweep; {FOREIGN[name]}.")
    return UnknownName.among(f"'{within}' part" if within else "part of a sweep", name, known)


# --- goal ------------------------------------------------------------------------------------------


def goal_of(words: Words) -> Goal:
    """Read objectives, bounds and the rule of ranking; without any objective, it is the throughput.

    Raises:
        RequestError: one of them is wrong.
    """
    aims = [each for name, maximize in AIMS.items() for each in _objectives(words, name, maximize=maximize)]
    aims = aims or [Objective.parse(THROUGHPUT)]
    with words.at("rank"):
        rank = value_parsers.chosen("rank", words.tree.get("rank", Rank.BEST), [str(rank) for rank in Rank])
    return Goal(objectives=tuple(aims), constraints=tuple(_bounds(words)), rank=Rank(rank))


def goal_over(words: Words, before: Goal, job: Job) -> Goal:
    """Give the goal of a study with what the words speak of in its stead: objectives, bounds, the rule.

    Raises:
        RequestError: one of them is wrong.
    """
    anew, told = goal_for(goal_of(words), job), words.tree.keys()
    return Goal(
        objectives=anew.objectives if told & AIMS.keys() else before.objectives,
        constraints=anew.constraints or before.constraints,
        rank=anew.rank if "rank" in told else before.rank,
    )


def goal_for(goal: Goal, job: Job) -> Goal:
    """Give a goal that speaks of every model of the server, where there are several."""
    names = [str(each.name) for each in job.beside]
    return goal_of_each_model(goal, str(job.name), names) if names else goal


def _objectives(words: Words, name: str, *, maximize: bool | None) -> Iterator[Objective]:
    given = words.tree.get(name)
    if isinstance(given, Mapping):
        for metric, weight in given.items():
            with words.at(name, metric):
                yield replace(Objective.parse(metric, maximize=maximize), weight=value_parsers.number(weight))
        return
    for number, text in enumerate(value_parsers.several(given)):
        with words.at(name, str(number)):
            yield Objective.parse(str(text), maximize=maximize)


def _bounds(words: Words) -> Iterator[Constraint]:
    for number, text in enumerate(value_parsers.several(words.tree.get("require"))):
        with words.at("require", str(number)):
            yield Constraint.parse(str(text))
    with words.at("mode"):
        if "mode" in words.tree:
            value_parsers.chosen("mode", words.tree["mode"], KEYS["mode"]["enum"])
    for name, (query, at_most, unit) in _SHORTHANDS.items():
        if name in words.tree:
            with words.at(name):
                bound = value_parsers.quantity(words.tree[name], unit, parse_bound)
                yield Constraint(query=Query.parse(query), at_most=at_most, bound=bound)


_SHORTHANDS = {"latency_budget": ("latency.p99", True, SECONDS), "min_throughput": (THROUGHPUT, False, RATE)}
"""Of what each is the bound, whether it is an upper one, and its unit."""


# --- what is run -----------------------------------------------------------------------------------


def _backend(model: str, tree: Tree) -> str:
    """Take a server where loads are spoken of, and else what runs the model in a process."""
    loads = "mode" in tree or "load" in tree or any(name in LOADS for name in tree.get("space", ()))
    own = plugins.loader(resolve_model.reference(model).scheme).backend
    return (request.server_for(model) if loads else None) or own


def _settings(words: Words, knobs: Iterable[Knob]) -> dict[str, KnobValue]:
    """Check the knobs that stay as they are, one by one, and give them the names of the backend."""
    known = tuple(knobs)
    defaults = configure(known, {})
    found: dict[str, KnobValue] = {}
    for name, value in words.tree.get("set", {}).items():
        with words.at("set", name):
            if isinstance(value, dict | list):
                raise RequestError(f"The knob {name} takes one value; to vary it, write it below space:.")
            given = configure(known, {name: value})
            canonical = axes.canonical(name, known)
            if canonical in found:
                raise RequestError(f"The knob {canonical} is set twice; {name} is another name of it.")
            found[canonical] = given.get(canonical, defaults.get(canonical, value))
    return found


def _neighbours(words: Words) -> Iterator[Neighbour]:
    """Read which models the server has beside the first."""
    for number, text in enumerate(value_parsers.several(words.tree.get("beside"))):
        with words.at("beside", str(number)):
            yield Neighbour.parse(str(text))


def _told(beside: Iterable[Neighbour], knobs: tuple[Knob, ...]) -> dict[str, KnobValue]:
    """Give the knobs of models beside the first, by the names that they have in a space."""
    given = {
        axes.canonical(f"{each.name}.{name}", knobs): value
        for each in beside
        for name, value in each.settings.items()
    }
    return {name: value for name, value in configure(knobs, given).items() if name in given}


def _usual(
    words: Words, backend: str, settings: Mapping[str, KnobValue], beside: Sequence[Neighbour]
) -> tuple[Axis, ...]:
    """Give the axes that are worth a look, of every model."""
    cores, names = len(machine.allowed_cores()), [each.name for each in beside]
    own, *theirs = multi_model.parts(settings, names)
    found = axes.usual(backend, own, cores, _inputs(words))
    for each, given in zip(beside, theirs, strict=True):
        found += axes.usual(backend, given, cores, each.inputs, each.name)
    return found


def _inputs(words: Words) -> tuple[str, ...]:
    return tuple(map(str, value_parsers.several(words.tree.get("input"))))


def _probes(words: Words, goal: Goal, *, served: bool) -> tuple[str, ...]:
    """Measure what is asked for; else what a run gives, and an analysis only for what it alone tells."""
    asked = [
        name.strip()
        for text in value_parsers.several(words.tree.get("probe"))
        for name in str(text).split(",")
    ]
    if asked:
        return tuple(dict.fromkeys(asked))
    static = any(query.metric not in _RUNNING for query in goal.queries)
    return (*(("static",) if static else ()), *(("load",) if served else ("latency", "throughput")))


_RUNNING = ALONE.keys() - {"weight_bytes"}
"""Metrics that need no look at the model itself."""


def _strategy(words: Words) -> str:
    with words.at("strategy"):
        name = str(words.tree.get("strategy") or STRATEGY)
        plugins.require(getattr(plugins.resolve("strategy", name), "requires", ()), f"strategy '{name}'")
        return name


# --- how carefully, and how long -------------------------------------------------------------------


def _plan(words: Words) -> Plan:
    found: dict[str, Any] = {}
    for name, value in words.tree.get("plan", {}).items():
        with words.at("plan", name):
            found[name] = value_parsers.PLANNED[name](value)
    with words.at("plan"):
        try:
            return replace(PLAN, **found)
        except ValueError as error:
            raise RequestError(f"{error}.") from None


def budget(words: Words, before: Budget) -> Budget:
    """Read when a sweep ends; what is not told stays as it was."""
    found: dict[str, Any] = {}
    for name, value in words.tree.get("budget", {}).items():
        with words.at("budget", name):
            found[name] = value_parsers.BUDGETED[name](value)
            if not found[name] > 0 or (name == "certain" and found[name] >= 1):
                share = str(value).rpartition("=")[2].strip()
                raise RequestError(f"{name} is {share}, but must be {_WITHIN[name]}.")
    return replace(before, **found)


_WITHIN = {"max_time": "longer than nothing", "max_trials": "1 or more", "certain": value_parsers.CERTAIN}


def _loads(
    words: Words, backend: str, varied: Iterable[Axis], beside: Iterable[Neighbour]
) -> tuple[Axis, ...]:
    """Vary the concurrency of each model of a server where nobody speaks of its load."""
    if not serves(backend):
        return ()
    names = {axis.name for axis in varied}
    told = {"": bool(words.tree.get("load", {}).keys() & set(LOADS))}
    told |= {f"{each.name}.": each.rate is not None or each.concurrency is not None for each in beside}
    return tuple(
        axes.read(f"{front}{name}", text)
        for front, known in told.items()
        if not (known or any(f"{front}{load}" in names for load in LOADS))
        for name, text in _SEARCHED.items()
    )


def _load(words: Words, space: Space) -> Load:
    found: dict[str, Any] = {}
    given = words.tree.get("load", {})
    for name, value in given.items():
        if name not in {"rate", "arrivals"}:
            with words.at("load", name):
                found[name] = value_parsers.LOADED[name](value)
    rates = next((axis.values for axis in space.axes if axis.name == "rate"), ())
    with words.at("load", "rate"):
        if "rate" in given:
            found["rate"], found["arrivals"], found["burst"] = parse_rate(str(given["rate"]))
        elif rates:
            found |= {"rate": float(rates[0]), "arrivals": Arrivals.CONSTANT}
    with words.at("load", "arrivals"):
        if "arrivals" in given:
            found["arrivals"] = Arrivals(value_parsers.chosen("arrivals", given["arrivals"], _OPEN))
        return Load(**found)


_OPEN = [str(kind) for kind in (Arrivals.CONSTANT, Arrivals.POISSON, Arrivals.BURST)]
