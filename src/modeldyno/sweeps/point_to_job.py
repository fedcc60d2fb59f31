"""A point of a study as a Job: which axis is a knob, a load, the backend or a dimension of the inputs.

What cannot be is found here, before anything is run: by the knobs that the backend declares, and by its
own check of those that exclude each other.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno import plugins
from modeldyno.core.load import multi_model
from modeldyno.core.spec.input_spec import BATCH
from modeldyno.core.spec.knob import configure, meant
from modeldyno.core.spec.load_spec import Arrivals, Load
from modeldyno.core.study.study import LOADS
from modeldyno.errors import RequestError, UnknownName
from modeldyno.runtime.engine import serves

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from modeldyno.core.spec.job import Job
    from modeldyno.core.spec.knob import Knob, KnobValue
    from modeldyno.core.study.search_space import Axis
    from modeldyno.core.study.study import Study

BACKEND = "backend"
"""The axis that chooses what runs the model."""
LOAD, CALLS = "load", ("latency", "throughput")
"""Probes that time a server, and those that time calls."""


def placed(study: Study, point: Mapping[str, KnobValue]) -> Job:
    """Give the Job at a point of a study, or at any other point with some of its axes.

    Raises:
        RequestError: there is no such Job; why, in one sentence.
    """
    name = str(point.get(BACKEND, study.job.backend))
    knobs, beside = _knobs(study, name), _beside(study)
    loads = (BACKEND, *study.loads)
    told = {_known(axis, knobs): value for axis, value in point.items() if axis not in loads}
    sizes = {axis: _size(axis, value) for axis, value in told.items() if knob_of(axis, knobs) is None}
    foreign = next((axis for axis in sizes if _is_knob(study, axis)), None)
    if foreign is not None:
        raise RequestError(f"The backend '{name}' has no knob {foreign}; give its axis a condition.")
    settings = {_known(setting, knobs): value for setting, value in study.settings.items()}
    chosen = {axis: value for axis, value in told.items() if axis not in sizes}
    configs = multi_model.parts(configure(knobs, {**settings, **chosen}), beside)
    own, *put = multi_model.parts(point, beside)
    for config in configs:
        plugins.backend(name).check(config)
    return replace(
        study.job,
        backend=name,
        config=configs[0],
        sizes={**study.job.sizes, **sizes},
        load=_load(study.job.load, name, own),
        probes=_probes(study.job, name),
        beside=tuple(
            replace(each, config=config, load=_load(each.load, name, load))
            for each, config, load in zip(study.job.beside, configs[1:], put, strict=True)
        ),
    )


def _beside(study: Study) -> tuple[str, ...]:
    """Name the models beside the study's own."""
    return tuple(str(each.name) for each in study.job.beside)


def _knobs(study: Study, backend: str) -> tuple[Knob, ...]:
    """Give the knobs of all models that a backend has."""
    return multi_model.knobs(plugins.backend(backend).knobs, _beside(study))


def knob_of(name: str, knobs: Iterable[Knob]) -> Knob | None:
    """Give the knob that a name stands for, by its own, by another name, or as one of a family."""
    found = meant(name, knobs)
    return None if found is None else found[0]


def backends(study: Study, axis: Axis | None = None) -> tuple[str, ...]:
    """Name the backends of a study, or those for which an axis matters."""
    mine = next((each for each in study.space.axes if each.name == BACKEND), None)
    if mine is None:
        return (study.job.backend,)
    several = tuple(map(str, mine.values))
    if axis is None:
        return tuple(dict.fromkeys((study.job.backend, *several)))
    if axis.where == BACKEND:
        return tuple(name for name in several if name in axis.equals)
    above = next((each for each in study.space.axes if each.name == axis.where), None)
    return several if above is None else backends(study, above)


def check_axes(study: Study) -> tuple[str, ...]:
    """Check every axis that is a knob, a load or the backend; give the names of the others.

    Those are dimensions of the inputs, or mistakes: only the model can tell. No point is looked at, so
    that this costs the number of values, and not that of their combinations.

    Raises:
        RequestError: a value is not what its axis takes, or a backend has no such knob.
        MissingExtra: a backend is not installed.
    """
    for name in backends(study):
        plugin = plugins.backend(name)
        plugins.require(plugin.requires, f"backend '{name}'")
        knobs = _knobs(study, name)
        _check_once(study, knobs)
        for setting in study.settings:
            if knob_of(setting, knobs) is None:
                raise _not_everywhere(study, setting, name)
    return tuple(axis.name for axis in study.space.axes if axis.name != BACKEND and not _checked(study, axis))


def check_dimensions(study: Study, names: Collection[str], known: Collection[str] | None) -> None:
    """Check that axes are dimensions of the inputs; None: nobody knows these before the model runs.

    Raises:
        UnknownName: one is none, and neither a knob nor a load.
    """
    for axis in study.space.axes:
        if axis.name in names:
            if known is not None and axis.name not in known:
                free = [dimension for dimension in known if dimension != BATCH]
                raise UnknownName.among("axis", axis.name, (*_words(study), *free))
            for value in axis.values:
                _size(axis.name, value)


def _words(study: Study) -> Iterator[str]:
    """Give all names that an axis may have, but for dimensions."""
    for name in backends(study):
        yield from (each for knob in _knobs(study, name) for each in knob.names)
    yield from (BACKEND, *study.loads)


def _checked(study: Study, axis: Axis) -> bool:
    """Check an axis, if it is a load or a knob; say whether it was one."""
    if any(isinstance(value, float) and not math.isfinite(value) for value in axis.values):
        raise RequestError(f"The axis {axis.name} has a value that is no finite number.")
    mine = backends(study, axis)
    if axis.name in study.loads:
        whose = multi_model.whose(axis.name, _beside(study))
        load = next((each.load for each in study.job.beside if each.name == whose), study.job.load)
        for name in mine:
            for value in axis.values:
                _load(load, name, {axis.name.removeprefix(f"{whose}."): value})
        return True
    if not _is_knob(study, axis.name):
        return False
    for name in mine:
        knob = knob_of(axis.name, _knobs(study, name))
        if knob is None:
            raise _not_everywhere(study, axis.name, name)
        for value in axis.values:
            knob.parse(value)
    return True


def _check_once(study: Study, knobs: Iterable[Knob]) -> None:
    """Refuse two axes that are the same knob."""
    seen: dict[str, str] = {}
    for axis in study.space.axes:
        name = _known(axis.name, knobs)
        if name in seen:
            raise RequestError(f"The axes {seen[name]} and {axis.name} are the same knob; leave one away.")
        seen[name] = axis.name


def _not_everywhere(study: Study, name: str, backend: str) -> RequestError:
    """Say what to do where a backend does not know what is varied or set."""
    knowing = [each for each in backends(study) if knob_of(name, _knobs(study, each)) is not None]
    if not knowing:
        return UnknownName.among("knob", name, _words(study))
    return RequestError(
        f"The backend '{backend}' has no knob {name}; give it an axis of its own, with a condition: "
        f"{name}=... if {BACKEND}={','.join(knowing)}."
    )


def _is_knob(study: Study, name: str) -> bool:
    """Say whether any backend of a study has this knob."""
    return any(knob_of(name, _knobs(study, each)) is not None for each in backends(study))


def _known(name: str, knobs: Iterable[Knob]) -> str:
    """Give the one name by which a knob stands in a config."""
    found = meant(name, knobs)
    return name if found is None else found[1]


def _size(axis: str, value: KnobValue) -> int:
    """Read the size of a dimension."""
    if isinstance(value, bool | str) or value < 1 or value != int(value):
        raise RequestError(f"The dimension {axis} of the inputs takes whole numbers from 1, not {value}.")
    return int(value)


def _load(load: Load | None, backend: str, point: Mapping[str, KnobValue]) -> Load | None:
    """Give the load at a point; a rate opens a closed loop.

    Raises:
        RequestError: nothing is served, or the load cannot be.
    """
    asked = {name: point[name] for name in LOADS if name in point}
    if not serves(backend):
        if asked:
            raise RequestError(
                f"The backend '{backend}' calls the model within a process, where there is no "
                f"{next(iter(asked))}; choose a server, such as triton, or give its URL."
            )
        return None
    found = load or Load()
    if "rate" in asked:
        rate = asked["rate"]
        if isinstance(rate, bool | str):
            raise RequestError(f"The axis rate takes requests per second, not {rate}.")
        paced = Arrivals.CONSTANT if found.closed or found.arrivals is Arrivals.TRACE else found.arrivals
        found = replace(found, arrivals=paced, rate=float(rate), trace=None)
    if "concurrency" in asked:
        found = replace(found, concurrency=_requests(asked["concurrency"]))
    return found


def _requests(value: KnobValue) -> int:
    if isinstance(value, bool | str) or value < 1 or value != int(value):
        raise RequestError(f"The axis concurrency takes whole numbers from 1, not {value}.")
    return int(value)


def _probes(job: Job, backend: str) -> tuple[str, ...]:
    """Give what is measured: what times calls cannot time requests."""
    served = serves(backend)
    if served == serves(job.backend):
        return job.probes
    timed = {LOAD} if served else set(CALLS)
    kept = (name for name in job.probes if name not in {LOAD, *CALLS})
    return (*kept, *(name for name in (*CALLS, LOAD) if name in timed))
