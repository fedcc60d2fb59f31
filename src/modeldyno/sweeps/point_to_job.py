"""Turn a point of a study into a Job: an axis is a knob, a load, the backend or a dimension of the inputs.

Invalid points are found here, before anything is run, from the knobs that the backend declares and its
own check of combinations.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.base import plugins
from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.base.job.input_spec import BATCH
from modeldyno.base.job.knob import configure, find_knob
from modeldyno.base.job.load_spec import Arrivals, Load
from modeldyno.base.result import multi_model
from modeldyno.sweeps.study.search_space import product_of_knobs
from modeldyno.sweeps.study.study import LOADS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from modeldyno.base.job.job import Job
    from modeldyno.base.job.knob import Knob, KnobValue
    from modeldyno.sweeps.study.search_space import Axis
    from modeldyno.sweeps.study.study import Study

BACKEND = "backend"
"""The axis that selects the backend."""
LOAD, CALLS = "load", ("latency", "throughput")
"""Probes that time a server, and those that time calls."""


def job_at_point(study: Study, point: Mapping[str, KnobValue]) -> Job:
    """Return the Job at a point of a study, or at a point with some of its axes.

    Raises:
        RequestError: there is no such Job; the message says why.
    """
    name = str(point.get(BACKEND, study.job.backend))
    knobs, beside = _knobs(study, name), _neighbour_names(study)
    loads = (BACKEND, *study.loads)
    values = {canonical_name(axis, knobs): value for axis, value in point.items() if axis not in loads}
    sizes = {axis: _parse_size(axis, value) for axis, value in values.items() if knob_of(axis, knobs) is None}
    missing = next((axis for axis in sizes if _is_knob(study, axis)), None)
    if missing is not None:
        raise RequestError(f"The backend '{name}' has no knob {missing}; give its axis a condition.")
    settings = {canonical_name(setting, knobs): value for setting, value in study.settings.items()}
    chosen = {axis: value for axis, value in values.items() if axis not in sizes}
    configs = multi_model.split_config(configure(knobs, {**settings, **chosen}), beside)
    own, *neighbour_points = multi_model.split_config(point, beside)
    for config in configs:
        plugins.backend(name).check(config)
    return replace(
        study.job,
        backend=name,
        config=configs[0],
        sizes={**study.job.sizes, **sizes},
        load=_load_at(study.job.load, name, _with_products(own, configs[0])),
        probes=_probes_for(study.job, name),
        beside=tuple(
            replace(spec, config=config, load=_load_at(spec.load, name, _with_products(load, config)))
            for spec, config, load in zip(study.job.beside, configs[1:], neighbour_points, strict=True)
        ),
    )


def _neighbour_names(study: Study) -> tuple[str, ...]:
    """Return the names of the other models of the study's server."""
    return tuple(str(spec.name) for spec in study.job.beside)


def _knobs(study: Study, backend: str) -> tuple[Knob, ...]:
    """Return the knobs of all models of a backend."""
    return multi_model.all_models_knobs(plugins.backend(backend).knobs, _neighbour_names(study))


def knob_of(name: str, knobs: Iterable[Knob]) -> Knob | None:
    """Return the knob that has a name, an alias, or a family member of that name."""
    match = find_knob(name, knobs)
    return None if match is None else match[0]


def backends(study: Study, axis: Axis | None = None) -> tuple[str, ...]:
    """Return the backends of a study, or those to which an axis applies."""
    backend_axis = next((a for a in study.space.axes if a.name == BACKEND), None)
    if backend_axis is None:
        return (study.job.backend,)
    names = tuple(map(str, backend_axis.values))
    if axis is None:
        return tuple(dict.fromkeys((study.job.backend, *names)))
    if axis.where == BACKEND:
        return tuple(name for name in names if name in axis.equals)
    parent = next((a for a in study.space.axes if a.name == axis.where), None)
    return names if parent is None else backends(study, parent)


def check_axes(study: Study) -> tuple[str, ...]:
    """Check every axis that is a knob, a load or the backend; return the names of the others.

    Those are dimensions of the inputs, or mistakes, which only the model can tell. No point is checked, so
    that the cost grows with the number of values, not of their combinations.

    Raises:
        RequestError: a value does not fit its axis, or a backend has no such knob.
        MissingExtra: a backend is not installed.
    """
    for name in backends(study):
        plugin = plugins.backend(name)
        plugins.require(plugin.requires, f"backend '{name}'")
        knobs = _knobs(study, name)
        _check_duplicates(study, knobs)
        for setting in study.settings:
            if knob_of(setting, knobs) is None:
                raise _missing_knob_error(study, setting, name)
    return tuple(
        axis.name for axis in study.space.axes if axis.name != BACKEND and not _check_axis(study, axis)
    )


def check_dimensions(study: Study, names: Collection[str], dimensions: Collection[str] | None) -> None:
    """Check that axes are dimensions of the inputs; `dimensions` is None if these are unknown before a run.

    Raises:
        UnknownName: an axis is neither a dimension nor a knob nor a load.
    """
    for axis in study.space.axes:
        if axis.name in names:
            if dimensions is not None and axis.name not in dimensions:
                free = [dimension for dimension in dimensions if dimension != BATCH]
                raise UnknownName.among("axis", axis.name, (*_axis_names(study), *free))
            for value in axis.values:
                _parse_size(axis.name, value)


def _axis_names(study: Study) -> Iterator[str]:
    """Yield all names that an axis may have, except dimensions."""
    for name in backends(study):
        yield from (alias for knob in _knobs(study, name) for alias in knob.names)
    yield from (BACKEND, *study.loads)


def _check_axis(study: Study, axis: Axis) -> bool:
    """Check an axis if it is a load or a knob; return whether it is one."""
    if any(isinstance(value, float) and not math.isfinite(value) for value in axis.values):
        raise RequestError(f"The axis {axis.name} has a value that is not a finite number.")
    names = backends(study, axis)
    if axis.name in study.loads:
        owner = multi_model.model_of_setting(axis.name, _neighbour_names(study))
        load = next((spec.load for spec in study.job.beside if spec.name == owner), study.job.load)
        prefix = f"{owner}." if owner else ""
        known = {a.name.removeprefix(prefix): 1 for a in study.space.axes if a.name not in study.loads}
        for name in names:
            for value in axis.values:
                point = {axis.name.removeprefix(f"{owner}."): value}
                _load_at(load, name, _with_products(point, {**study.settings, **known}))
        return True
    if not _is_knob(study, axis.name):
        return False
    for name in names:
        knob = knob_of(axis.name, _knobs(study, name))
        if knob is None:
            raise _missing_knob_error(study, axis.name, name)
        for value in axis.values:
            knob.parse(value)
    return True


def _check_duplicates(study: Study, knobs: Iterable[Knob]) -> None:
    """Refuse two axes of the same knob."""
    axis_by_knob: dict[str, str] = {}
    for axis in study.space.axes:
        name = canonical_name(axis.name, knobs)
        if name in axis_by_knob:
            raise RequestError(
                f"The axes {axis_by_knob[name]} and {axis.name} are the same knob; remove one of them."
            )
        axis_by_knob[name] = axis.name


def _missing_knob_error(study: Study, name: str, backend: str) -> RequestError:
    """Return the error for a knob that one of the backends lacks."""
    having = [other for other in backends(study) if knob_of(name, _knobs(study, other)) is not None]
    if not having:
        return UnknownName.among("knob", name, _axis_names(study))
    return RequestError(
        f"The backend '{backend}' has no knob {name}; give it an axis of its own, with a condition: "
        f"{name}=... if {BACKEND}={','.join(having)}."
    )


def _is_knob(study: Study, name: str) -> bool:
    """Return whether any backend of a study has the knob."""
    return any(knob_of(name, _knobs(study, backend)) is not None for backend in backends(study))


def canonical_name(name: str, knobs: Iterable[Knob]) -> str:
    """Return the canonical name of a knob, as in a config."""
    match = find_knob(name, knobs)
    return name if match is None else match[1]


def _parse_size(axis: str, value: KnobValue) -> int:
    return _whole_number(f"dimension {axis} of the inputs", value)


def _whole_number(what: str, value: KnobValue) -> int:
    if isinstance(value, bool | str) or value < 1 or value != int(value):
        raise RequestError(f"The {what} takes whole numbers from 1, not {value}.")
    return int(value)


def _with_products(
    point: Mapping[str, KnobValue], config: Mapping[str, KnobValue]
) -> Mapping[str, KnobValue]:
    """Compute the concurrency of a point if it is a product of its knobs.

    Raises:
        RequestError: a factor has no value at the point.
    """
    text = point.get("concurrency", 1)
    product = product_of_knobs(text, {**config, **point})
    if isinstance(product, str):
        raise RequestError(
            f"The axis concurrency={text} needs a number for {product}; set it, or give it an axis."
        )
    return point if product is None else {**point, "concurrency": product}


def _load_at(load: Load | None, backend: str, point: Mapping[str, KnobValue]) -> Load | None:
    """Return the load at a point; a rate turns a closed loop into an open one.

    Raises:
        RequestError: the backend does not serve, or the load is invalid.
    """
    requested = {name: point[name] for name in LOADS if name in point}
    if not plugins.serves(backend):
        if requested:
            raise RequestError(
                f"The backend '{backend}' calls the model within a process, where there is no "
                f"{next(iter(requested))}; choose a server, such as triton, or give its URL."
            )
        return None
    result = load or Load()
    if "rate" in requested:
        rate = requested["rate"]
        if isinstance(rate, bool | str):
            raise RequestError(f"The axis rate takes requests per second, not {rate}.")
        arrivals = (
            Arrivals.CONSTANT if result.closed or result.arrivals is Arrivals.TRACE else result.arrivals
        )
        result = replace(result, arrivals=arrivals, rate=float(rate), trace=None, speed=1.0, window=None)
    if "concurrency" in requested:
        result = replace(result, concurrency=_whole_number("axis concurrency", requested["concurrency"]))
    return result


def _probes_for(job: Job, backend: str) -> tuple[str, ...]:
    """Return the probes for a backend: requests and calls are timed by different probes."""
    served = plugins.serves(backend)
    if served == plugins.serves(job.backend):
        return job.probes
    timed = {LOAD} if served else set(CALLS)
    kept = (name for name in job.probes if name not in {LOAD, *CALLS})
    return (*kept, *(name for name in (*CALLS, LOAD) if name in timed))
