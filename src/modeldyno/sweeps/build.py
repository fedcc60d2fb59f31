"""Build a Study from the configuration of a sweep: a file, options or Python arguments, all read alike.

Everything that can be checked before anything runs is checked here; an error in a file is reported with its
line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.base import plugins
from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.base.identity import new_identity
from modeldyno.base.job.knob import BATCH_SIZE, KnobValue, configure
from modeldyno.base.job.load_spec import OPEN_LOOP, Arrivals, Load, parse_rate
from modeldyno.base.job.probe_options import ProbeOptions, is_evaluation
from modeldyno.base.metrics.constraints import Constraint
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.metrics.metric import METRICS, Query
from modeldyno.base.report.chosen_plot import ChosenPlot, plot_of_parts
from modeldyno.base.result import multi_model
from modeldyno.base.result.cost import Price
from modeldyno.base.result.multi_model import CoHostedModelSpec
from modeldyno.base.stats.units import RATE, SECONDS, parse_bound
from modeldyno.conversion.request import make_output_check
from modeldyno.engine.environment import machine
from modeldyno.profiling import request
from modeldyno.profiling.resolve_model import ResolvedModel, resolve_model
from modeldyno.serving.servers import triton_repository_reader, triton_written_knobs
from modeldyno.sweeps import axes, value_parsers
from modeldyno.sweeps.model_analyzer_keys import KEYS as ANALYZER_KEYS
from modeldyno.sweeps.point_to_job import backends, canonical_name, check_axes
from modeldyno.sweeps.schema import AIMS, FOREIGN, KEYS, STRATEGY
from modeldyno.sweeps.study.goal import Goal, Objective, Rank, goal_of_each_model
from modeldyno.sweeps.study.search_space import Axis, Space, parse_axis
from modeldyno.sweeps.study.study import LOADS, Budget, Study

if TYPE_CHECKING:
    from collections.abc import Callable

    from modeldyno.base.job.job import Job
    from modeldyno.base.job.knob import Knob
    from modeldyno.base.job.model_ref import ModelRef
    from modeldyno.base.yaml_file import FileConfig, Tree
    from modeldyno.conversion.agreement.rule import OutputCheck
    from modeldyno.serving.servers.triton_repository_reader import TritonRepository

PLAN = Plan(max_time=10.0, may_extend=True)
"""Plan of verification trials; search trials are shorter, see `sweeps.study.trial_effort`."""
THROUGHPUT = "throughput"
_DEFAULT_LOADS = "1..64*2"
"""Concurrency of a server where no load is given."""
_BATCHES = f"{BATCH_SIZE.name}=1,8,64"
"""What is suggested where nothing is varied by default."""
_OFFLINE, _OFFLINE_BATCHES, _OFFLINE_LOADS = "offline", f"{BATCH_SIZE.name}=1..64*2", "1..4*2"
"""The mode without a latency to hold: requests have many samples, and few are in flight."""


def build_study(
    config: FileConfig, *, trust: bool = False, observation: ProbeOptions | None = None
) -> tuple[Study, tuple[Axis, ...]]:
    """Resolve every name and check every value; return the Study, and the axes that were chosen by default.

    Args:
        config: the configuration.
        trust: allow files that run code when loaded.
        observation: has the functions around the model, where they are objects of this process.

    Raises:
        RequestError: the configuration is wrong; nothing was measured.
        MissingExtra: an optional package is not installed.
    """
    _check_names(config)
    tree = config.tree
    if "models" in tree:
        raise RequestError("These are several models; sweep each by itself, or all with sweep_models.")
    if not tree.get("model"):
        raise RequestError(f"{config.origin or 'A sweep'} names no model; add model: model.onnx.")
    beside = tuple(_read_neighbours(config))
    names = tuple(neighbour.name for neighbour in beside)
    goal = read_goal(config)
    with config.at("model"):
        model = resolve_model(str(tree["model"]))
        backend = str(tree.get("backend") or _default_backend(model, tree))
    with config.at("backend"):
        knobs = multi_model.all_models_knobs(plugins.backend(backend).knobs, names)
    named = axes.read_axes(config, backend, names)
    settings = {**_neighbour_settings(beside, knobs), **_read_settings(config, knobs)}
    default_axes = () if named else _suggested_axes(config, model, backend, settings, beside)
    default_axes = (*default_axes, *_default_load_axes(config, backend, (*named, *default_axes), beside))
    space = Space(axes=(*named, *default_axes))
    if not space.axes:
        takes_batch = BATCH_SIZE in plugins.backend(backend).knobs and BATCH_SIZE.name not in settings
        example = f"such as `space={_BATCHES}` if the model takes a batch, or " if takes_batch else ""
        raise RequestError(
            f"There is nothing to vary by default; give `space`, {example}with a knob of: modeldyno plugins "
            f"{backend}"
        )
    with config.at("space"):
        axes.check_batch_axis(space, _read_inputs(config))
    plan = _read_plan(config)
    job_request = request.Request(
        model=model,
        backend=backend,
        settings=multi_model.split_config(settings, names)[0],
        inputs=_read_inputs(config),
        probes=_select_probes(config, goal, served=plugins.serves(backend)),
        load=_read_load(config, space) if plugins.serves(backend) else None,
        observation=_read_observation(config, goal, observation or ProbeOptions()),
        require=tuple(map(str, _read_constraints(config))),
        percentiles=tuple(
            o.percentile for o in goal.objectives if o.percentile and o.query.metric == "latency"
        ),
        plan=plan,
        name=value_parsers.as_text(tree.get("name")),
        trust=trust,
        beside=tuple(map(str, value_parsers.as_list(tree.get("beside")))),
        price=goal.price,
    )
    with config.at("beside"):
        job = job_request.job()
    goal = goal_for_all_models(goal, job)
    default = axes.default_point(
        space, backend, knobs, settings, plugins.backend(backend).check, _written_knobs(job.model)
    )
    result = Study(
        **new_identity(),
        job=job,
        space=space,
        goal=goal,
        settings=settings,
        default=space.named(axes.first_sizes(space, knobs, _read_inputs(config)) | default),
        outputs=_read_output_check(config),
        strategy=_read_strategy(config),
        seed=plan.seed,
        budget=read_budget(config, Budget()),
        name=job.name or _study_name(job.model),
        plots=tuple(_read_plots(config)),
    )
    with config.at("space"):
        check_axes(result)
        for name in backends(result):
            request.check_stages(job.probes, name)
    return result, default_axes


def _read_output_check(config: FileConfig) -> OutputCheck | None:
    """Read what the outputs of a trial must hold."""
    with config.at("tolerance" if "tolerance" in config.tree else "verify"):
        return make_output_check(
            config.tree.get("tolerance"), value_parsers.as_text(config.tree.get("verify"))
        )


def _read_plots(config: FileConfig) -> Iterator[ChosenPlot]:
    """Read the charts that the page of the study shall have."""
    for name, parts in (config.tree.get("plots") or {}).items():
        with config.at("plots", name):
            if not isinstance(parts, Mapping):
                raise RequestError(f"The plot '{name}' needs x and y: {{x: latency.p99, y: throughput}}.")
            texts = {str(part): str(value) for part, value in parts.items()}
            yield plot_of_parts({"title": name, **texts}, name)


def _study_name(model: ModelRef) -> str:
    """Name a study after its model: the file, the function, or the model of a URL."""
    last = re.split(r"[/#:]", model.locator.rstrip("/"))[-1]
    return Path(last).stem or last


# --- names -----------------------------------------------------------------------------------------


def _check_names(config: FileConfig) -> None:
    """Refuse an unknown name, suggesting the nearest known one."""
    for name, value in config.tree.items():
        with config.at(name):
            if name not in KEYS:
                raise _unknown(name, KEYS)
            parts: dict[str, Any] = KEYS[name].get("properties", {})
            if KEYS[name].get("type") == "object" and not isinstance(value, dict):
                raise RequestError(f"'{name}' holds names with values, such as {_EXAMPLES[name]}.")
        for part in value if parts else ():
            with config.at(name, part):
                if part not in parts:
                    raise _unknown(part, parts, within=name)


_EXAMPLES = {
    "set": "instances: 2", "space": "batch_size: [1, 2, 4]", "budget": "max_time: 10m",
    "plan": "max_time: 5s", "load": "concurrency: 8", "plots": "a: {x: latency.p99, y: throughput}",
}  # fmt: skip


def _unknown(name: str, names: Iterable[str], within: str = "") -> RequestError:
    if not within and name in FOREIGN:
        translates = "; modeldyno sweep --from-model-analyzer FILE translates a whole file"
        translator = translates if name in ANALYZER_KEYS else ""
        return RequestError(f"There is no '{name}' in a sweep; {FOREIGN[name]}{translator}.")
    return UnknownName.among(f"'{within}' part" if within else "part of a sweep", name, names)


# --- goal ------------------------------------------------------------------------------------------


def read_goal(config: FileConfig, before: Goal | None = None) -> Goal:
    """Read objectives, constraints, the ranking rule and the price; the default objective is throughput.

    A price that is not given is that of the goal `before`.

    Raises:
        RequestError: one of them is wrong.
    """
    aims = [
        objective
        for name, maximize in AIMS.items()
        for objective in _read_objectives(config, name, maximize=maximize)
    ]
    aims = aims or [Objective.parse(THROUGHPUT)]
    with config.at("rank"):
        rank = value_parsers.parse_choice(
            "rank", config.tree.get("rank", Rank.BEST), [str(rank) for rank in Rank]
        )
    with config.at("price"):
        given = value_parsers.as_text(config.tree.get("price"))
        price = None if given is None else Price.parse(given)
    return Goal(
        objectives=tuple(aims),
        constraints=tuple(_read_constraints(config)),
        rank=Rank(rank),
        price=price or (None if before is None else before.price),
    )


def override_goal(config: FileConfig, before: Goal, job: Job) -> Goal:
    """Return the goal of a study, with the parts replaced that the configuration contains.

    Raises:
        RequestError: one of them is wrong.
    """
    new, configured = goal_for_all_models(read_goal(config, before), job), config.tree.keys()
    return Goal(
        objectives=new.objectives if configured & AIMS.keys() else before.objectives,
        constraints=new.constraints or before.constraints,
        rank=new.rank if "rank" in configured else before.rank,
        price=new.price,
    )


def goal_for_all_models(goal: Goal, job: Job) -> Goal:
    """Return a goal that covers every model of the server, if there are several."""
    names = [str(spec.name) for spec in job.beside]
    return goal_of_each_model(goal, str(job.name), names) if names else goal


def _read_objectives(config: FileConfig, name: str, *, maximize: bool | None) -> Iterator[Objective]:
    value = config.tree.get(name)
    if isinstance(value, Mapping):
        for metric, weight in value.items():
            with config.at(name, metric):
                yield replace(
                    Objective.parse(metric, maximize=maximize), weight=value_parsers.parse_number(weight)
                )
        return
    for number, text in enumerate(value_parsers.as_list(value)):
        with config.at(name, str(number)):
            yield Objective.parse(str(text), maximize=maximize)


def _read_constraints(config: FileConfig) -> Iterator[Constraint]:
    for number, text in enumerate(value_parsers.as_list(config.tree.get("require"))):
        with config.at("require", str(number)):
            yield Constraint.parse(str(text))
    with config.at("mode"):
        if "mode" in config.tree:
            value_parsers.parse_choice("mode", config.tree["mode"], KEYS["mode"]["enum"])
    for name, (query, at_most, unit) in _SHORTHANDS.items():
        if name in config.tree:
            with config.at(name):
                bound = value_parsers.read_quantity(config.tree[name], unit, parse_bound)
                yield Constraint(query=Query.parse(query), at_most=at_most, bound=bound)


_SHORTHANDS = {"latency_budget": ("latency.p99", True, SECONDS), "min_throughput": (THROUGHPUT, False, RATE)}
"""Query of each shorthand, whether it is an upper bound, and its unit."""


# --- what is run -----------------------------------------------------------------------------------


def _default_backend(model: ResolvedModel, tree: Tree) -> str:
    """Return a server backend if loads are configured, otherwise the loader's own backend."""
    loads = "mode" in tree or "load" in tree or any(name in LOADS for name in tree.get("space", ()))
    own = plugins.loader(model.ref.scheme).backend
    return (request.server_for(model) if loads else None) or own


def _read_settings(config: FileConfig, knobs: Iterable[Knob]) -> dict[str, KnobValue]:
    """Check the fixed knobs one by one, and return them under their canonical names."""
    all_knobs = tuple(knobs)
    defaults = configure(all_knobs, {})
    values: dict[str, KnobValue] = {}
    for name, value in config.tree.get("set", {}).items():
        with config.at("set", name):
            if isinstance(value, dict | list):
                raise RequestError(f"The knob {name} takes one value; to vary it, move it below space:.")
            parsed = configure(all_knobs, {name: value})
            canonical = canonical_name(name, all_knobs)
            if canonical in values:
                raise RequestError(f"The knob {canonical} is set twice; {name} is another name of it.")
            values[canonical] = parsed.get(canonical, defaults.get(canonical, value))
    return values


def _read_neighbours(config: FileConfig) -> Iterator[CoHostedModelSpec]:
    """Read the other models of the server."""
    for number, text in enumerate(value_parsers.as_list(config.tree.get("beside"))):
        with config.at("beside", str(number)):
            yield CoHostedModelSpec.parse(str(text))


def _written_knobs(model: ModelRef) -> Callable[[str], KnobValue | None]:
    """Return what the configuration of a model in a repository says of a knob; None where it has none."""
    repository = _repository_of(model)
    if repository is None:
        return lambda _name: None
    return partial(triton_written_knobs.written_knob, repository)


def _repository_of(model: ModelRef) -> TritonRepository | None:
    """Return the repository that a model is in, if it is in one."""
    if model.scheme != "repository":
        return None
    directory, _, name = model.locator.partition("#")
    return triton_repository_reader.read_repository(Path(directory).expanduser().absolute(), name)


def _neighbour_settings(beside: Iterable[CoHostedModelSpec], knobs: tuple[Knob, ...]) -> dict[str, KnobValue]:
    """Return the knobs of the other models, by their names in a space."""
    named = {
        canonical_name(f"{neighbour.name}.{name}", knobs): value
        for neighbour in beside
        for name, value in neighbour.settings.items()
    }
    return {name: value for name, value in configure(knobs, named).items() if name in named}


def _suggested_axes(
    config: FileConfig,
    model: ResolvedModel,
    backend: str,
    settings: Mapping[str, KnobValue],
    beside: Sequence[CoHostedModelSpec],
) -> tuple[Axis, ...]:
    """Return the axes that the backend suggests, for every model."""
    cores, names = len(machine.allowed_cores()), [neighbour.name for neighbour in beside]
    own, *others = multi_model.split_config(settings, names)
    parts = _composing_models(model)
    if parts:
        suggested = _axes_of_parts(backend, own, cores, parts)
    else:
        suggested = axes.suggested_axes(backend, own, cores, _read_inputs(config))
    for neighbour, neighbour_settings in zip(beside, others, strict=True):
        suggested += axes.suggested_axes(backend, neighbour_settings, cores, neighbour.inputs, neighbour.name)
    return suggested


_OF_PARTS = ("instances", "dynamic_batching")
"""Knobs of each model of an ensemble that are varied by default; with all it would be thousands of points."""


def _axes_of_parts(
    backend: str, settings: Mapping[str, KnobValue], cores: int, parts: Sequence[str]
) -> tuple[Axis, ...]:
    """Return the usual axes of the models that an ensemble consists of, as it has no such knobs itself."""
    suggested = (each for each in axes.suggested_axes(backend, {}, cores, ()) if each.name in _OF_PARTS)
    usual = {axis.name: axis for axis in suggested}
    of_parts = (
        replace(axis, name=f"composing.{part}.{name}", values=tuple(str(v).lower() for v in axis.values))
        for part in parts
        for name, axis in usual.items()
    )
    return tuple(axis for axis in of_parts if axis.name not in settings)


def _composing_models(model: ResolvedModel) -> tuple[str, ...]:
    """Return the models that run in an ensemble of a repository, also within another one; else none."""
    repository = _repository_of(model.ref)
    if repository is None or not triton_repository_reader.is_ensemble(repository.config):
        return ()
    configs = repository.configs.items()
    return tuple(name for name, each in configs if not triton_repository_reader.is_ensemble(each))


def _read_inputs(config: FileConfig) -> tuple[str, ...]:
    return tuple(map(str, value_parsers.as_list(config.tree.get("input"))))


def _read_names(config: FileConfig, key: str) -> list[str]:
    """Return names: in a list, or in text with commas."""
    texts = value_parsers.as_list(config.tree.get(key))
    return list(dict.fromkeys(name.strip() for text in texts for name in str(text).split(",")))


def _read_observation(config: FileConfig, goal: Goal, observation: ProbeOptions) -> ProbeOptions:
    """Add the functions around the model, and what is evaluated: what is named, and what the goal needs."""
    functions: dict[str, Any] = {}
    for name, field in (("pre", "preprocess"), ("post", "postprocess")):
        if name in config.tree:
            with config.at(name):
                functions[field] = request.parse_function(str(config.tree[name]), name)
    data = value_parsers.as_text(config.tree.get("data"))
    requested = _read_names(config, "evaluate")
    needed = [query.metric for query in goal.queries if is_evaluation(query.metric)]
    return replace(
        observation,
        **functions,
        evaluate=tuple(dict.fromkeys((*requested, *needed))),
        data=None if data is None else str(Path(data).absolute()),
    )


def _select_probes(config: FileConfig, goal: Goal, *, served: bool) -> tuple[str, ...]:
    """Return the requested probes, or those of a run, with the static analysis if the goal needs it."""
    own = plugins.probes_of(query.metric for query in goal.queries)
    if requested := _read_names(config, "probe"):
        return tuple(dict.fromkeys((*requested, *own)))
    static = any(METRICS[query.metric].computed for query in goal.queries)
    return (*(("static",) if static else ()), *(("load",) if served else ("latency", "throughput")), *own)


def _read_strategy(config: FileConfig) -> str:
    with config.at("strategy"):
        name = str(config.tree.get("strategy") or STRATEGY)
        plugins.require(getattr(plugins.resolve("strategy", name), "requires", ()), f"strategy '{name}'")
        return name


# --- how carefully, and how long -------------------------------------------------------------------


def _read_plan(config: FileConfig) -> Plan:
    values: dict[str, Any] = {}
    for name, value in config.tree.get("plan", {}).items():
        with config.at("plan", name):
            values[name] = value_parsers.PLANNED[name](value)
    with config.at("plan"):
        try:
            return replace(PLAN, **values)
        except ValueError as error:
            raise RequestError(f"{error}.") from None


def read_budget(config: FileConfig, before: Budget) -> Budget:
    """Read the budget of a sweep; keep what is not configured."""
    values: dict[str, Any] = {}
    for name, value in config.tree.get("budget", {}).items():
        with config.at("budget", name):
            values[name] = value_parsers.BUDGETED[name](value)
            if not values[name] > 0 or (name == "certain" and values[name] >= 1):
                share = str(value).rpartition("=")[2].strip()
                raise RequestError(f"{name} is {share}, but must be {_VALID_RANGE[name]}.")
    return replace(before, **values)


_VALID_RANGE = {
    "max_time": "greater than zero",
    "max_trials": "1 or more",
    "certain": value_parsers.CERTAIN,
    "curves": "1 or more",
    "bisect": "1 or more",
}


def _default_load_axes(
    config: FileConfig, backend: str, varied: Iterable[Axis], beside: Iterable[CoHostedModelSpec]
) -> tuple[Axis, ...]:
    """Vary the concurrency of each model of a server whose load is not configured."""
    if not plugins.serves(backend):
        return ()
    names = {axis.name for axis in varied}
    configured = {"": bool(config.tree.get("load", {}).keys() & {*LOADS, "replay"})}
    configured |= {
        f"{neighbour.name}.": neighbour.rate is not None or neighbour.concurrency is not None
        for neighbour in beside
    }
    fixed = {*names, *config.tree.get("set", ())}
    offline = config.tree.get("mode") == _OFFLINE
    batches = [_OFFLINE_BATCHES] if offline and not {BATCH_SIZE.name, *BATCH_SIZE.aliases} & fixed else []
    loads = [
        f"{prefix}concurrency={_OFFLINE_LOADS if offline else _DEFAULT_LOADS}"
        for prefix, has_load in configured.items()
        if not (has_load or any(f"{prefix}{load}" in names for load in LOADS))
    ]
    return tuple(map(parse_axis, (*batches, *loads)))


_REPLAYED = {"replay": "trace", "replay_speed": "speed", "replay_window": "window"}
"""Keys of a trace to the fields of a Load."""


def _read_load(config: FileConfig, space: Space) -> Load:
    values: dict[str, Any] = {}
    configured = config.tree.get("load", {})
    for name, value in configured.items():
        if name not in {"rate", "arrivals"}:
            with config.at("load", name):
                values[_REPLAYED.get(name, name)] = value_parsers.LOADED[name](value)
    if "trace" in values:
        with config.at("load", "replay"):
            if "rate" in configured:
                raise RequestError("rate and replay both set when requests are due; give one of them.")
            values["arrivals"] = Arrivals.TRACE
    rates = next((axis.values for axis in space.axes if axis.name == "rate"), ())
    with config.at("load", "rate"):
        if "rate" in configured:
            values |= parse_rate(str(configured["rate"]))
        elif rates and "trace" not in values:
            values |= {"rate": float(rates[0]), "arrivals": Arrivals.CONSTANT}
    with config.at("load", "arrivals"):
        if "arrivals" in configured:
            values["arrivals"] = Arrivals(
                value_parsers.parse_choice(
                    "arrivals", configured["arrivals"], [str(kind) for kind in OPEN_LOOP]
                )
            )
        return Load(**values)
