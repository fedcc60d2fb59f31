"""Do one task: convert a version, or measure a variant."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.base import plugins
from modeldyno.base.errors import DeviceInUse, ModelDynoError, StoreError, StoreUnavailable
from modeldyno.base.job.load_spec import Load
from modeldyno.base.job.probe_options import ProbeOptions
from modeldyno.base.job.version_name import SOURCE, VersionName
from modeldyno.base.kinds import kind_of
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.stats.schedule import PLAN, RoundSchedule
from modeldyno.comparison.change.build import CompareOptions
from modeldyno.comparison.explain import run_comparison
from modeldyno.conversion.reference import STEADY
from modeldyno.engine.runtime.child_process import subprocess_executor
from modeldyno.engine.runtime.interleaved import InterleavedRunner
from modeldyno.engine.runtime.session import RunSession
from modeldyno.engine.runtime.time_limit import UNLIMITED
from modeldyno.profiling.request import Request
from modeldyno.profiling.run import run_request
from modeldyno.registry import conversions, evaluation_data
from modeldyno.registry.figures import figure_of
from modeldyno.registry.interface import Outcome
from modeldyno.registry.policies import find_policy
from modeldyno.registry.records.policy import profile_tasks
from modeldyno.registry.records.records import FigureState, TaskState, Variant, VariantState
from modeldyno.registry.records.staleness import confirmation
from modeldyno.registry.register import located, targets_of
from modeldyno.registry.registered_version import find_variant, inputs_of
from modeldyno.registry.targets import CPU
from modeldyno.serving.loadtest.live_loads import show_loads

if TYPE_CHECKING:
    from collections.abc import Sized

    from modeldyno.base.job.job import Job
    from modeldyno.base.job.model_ref import ModelRef
    from modeldyno.base.result.result import Result
    from modeldyno.conversion.agreement.conversion import Conversion
    from modeldyno.engine.runtime.measured_region import Region
    from modeldyno.registry.interface import Registry
    from modeldyno.registry.records.records import Measure, Task, Version


def convert(task: Task, registry: Registry) -> Outcome:
    """Convert a version by a recipe, and say whether the result is still the model.

    Raises:
        StoreUnavailable: its files cannot be fetched, or what was made cannot be kept, now.
    """
    version = _version(task, registry)
    pending = Variant(
        model=version.model, number=version.number, recipe=task.recipe, state=VariantState.CONVERTING
    )
    registry.put_variant(pending, version.creator, task=task)
    conversion: Conversion | None = None
    try:
        variant, conversion = conversions.convert_version(
            version, located(version, registry), task.recipe, registry
        )
    except StoreUnavailable:
        raise
    except ModelDynoError as error:
        variant = replace(pending, state=VariantState.FAILED, why=str(error))
    next_tasks: tuple[Task, ...] = ()
    if variant.usable:
        policy = find_policy(registry, version.policy)
        next_tasks = tuple(
            t for target in targets_of(registry) for t in profile_tasks(variant, policy, target, version)
        )
    state = TaskState.FAILED if variant.state is VariantState.FAILED else TaskState.DONE
    return Outcome(state=state, why=variant.why, variant=variant, conversion=conversion, next=next_tasks)


def measure(
    task: Task,
    registry: Registry,
    device: str,
    *,
    guard: Region | None = None,
    interrupts: Sized | None = None,
) -> Outcome:
    """Measure a variant; a failure of the model is an outcome, and is not tried again.

    Raises:
        DeviceInUse: the guard, which is entered around what is measured, says so.
        StoreUnavailable: its files cannot be fetched now.
    """
    assert task.measure is not None
    version = _version(task, registry)
    variant = next((v for v in registry.variants(version) if v.recipe == task.recipe), None)
    if variant is None or not variant.usable:
        return Outcome(state=TaskState.FAILED, why=f"{task.model}/{task.number} has no usable {task.recipe}")
    try:
        ref = located(version if variant.recipe == SOURCE else variant, registry)
        data = evaluation_data.located(version, registry) if task.measure.evaluate else None
        request = _request(version, variant, ref, task.measure, device, data)
        with show_loads() as live:
            watch = live.follow(lambda _event: None)
            judged = run_request(request, watch=watch, interrupts=interrupts, guard=guard)
            live.end(judged.result)
    except (DeviceInUse, StoreUnavailable):
        raise
    except ModelDynoError as error:
        return Outcome(state=TaskState.FAILED, why=str(error))
    result = judged.result
    if result.model is not None and result.model.digest != variant.digest:
        why = f"{ref} has changed since it was registered; register it again"
        return Outcome(state=TaskState.FAILED, why=why)
    figure, before = figure_of(task, result), _result_before(task, registry)
    if figure.state is FigureState.DOUBTFUL:  # it decides nothing
        figure, before = replace(figure, replaces=before), ""
    state = TaskState.FAILED if figure.state is FigureState.FAILED else TaskState.DONE
    old = registry.result(before) if before else None
    return Outcome(
        state=state,
        why=figure.why,
        result=result,
        headline=kind_of(result).brief(result),
        figure=figure,
        confirmation=None if old is None else confirmation(old, result),
    )


def compare(task: Task, registry: Registry, device: str, *, guard: Region, interrupts: Sized) -> Outcome:
    """Measure variants in turns, and compare them with the first; the device is held for all of it.

    Raises:
        DeviceInUse: the guard says so.
        StoreUnavailable: files cannot be fetched now.
    """
    assert task.measure is not None
    names = (f"{task.model}/{task.number} {task.recipe}", *task.measure.beside)
    try:
        jobs = [_job_of(name, task.measure, registry, device) for name in names]
        turns = RoundSchedule(side_count=len(jobs), max_time=task.measure.max_time)
        with guard(), subprocess_executor(interrupts, limit=UNLIMITED) as execute:
            bench = RunSession(
                execute=execute,
                interrupted=lambda: len(interrupts),
                together=InterleavedRunner(interrupts=interrupts),
            )
            comparison = run_comparison(jobs, turns, CompareOptions(), bench)
        for name, result in zip(names, () if comparison is None else comparison.results, strict=False):
            _check_content(name, result, registry)
    except (DeviceInUse, StoreUnavailable):
        raise
    except ModelDynoError as error:
        return Outcome(state=TaskState.FAILED, why=str(error))
    if comparison is None:
        return Outcome(state=TaskState.FAILED, why="it was interrupted before anything could be compared")
    sentence = kind_of(comparison).brief(comparison)
    return Outcome(state=TaskState.DONE, why=sentence, comparison=comparison, headline=sentence)


def _named_variant(name: str, registry: Registry) -> tuple[Version, Variant]:
    version_name, _, recipe = name.rpartition(" ")
    version = registry.version(VersionName.parse(version_name))
    return version, find_variant(registry, version, recipe)


def _check_content(name: str, result: Result, registry: Registry) -> None:
    """Raise StoreError if what was measured is not what was registered."""
    _, variant = _named_variant(name, registry)
    if result.model is not None and result.model.digest != variant.digest:
        raise StoreError(f"{name} has changed since it was registered; register it again.")


def _job_of(name: str, measure: Measure, registry: Registry, device: str) -> Job:
    version, variant = _named_variant(name, registry)
    ref = located(version if variant.recipe == SOURCE else variant, registry)
    request = _request(version, variant, ref, replace(measure, max_time=PLAN.max_time), device)
    return replace(request, name=version.name, plan=PLAN).job()


def _result_before(task: Task, registry: Registry) -> str:
    """Return the id of the last sure Result of the figure that a task measures again; else nothing."""
    figure = next((f for f in registry.figures(task.model, task.number) if f.key == task.key), None)
    if figure is None:
        return ""
    return figure.result if figure.state in {FigureState.FRESH, FigureState.STALE} else figure.replaces


def _request(
    version: Version, variant: Variant, ref: ModelRef, what: Measure, device: str, data: str | None = None
) -> Request:
    backend = what.backend or variant.backend
    # In the precision in which it was judged: what OpenVINO chooses by itself is another variant.
    judged = STEADY.get(backend, {}) if device == CPU else {}
    settings = {**judged, **what.settings}
    if device != CPU or _chooses_device(backend):
        settings["device"] = device
    load = None if what.concurrency is None else Load(concurrency=what.concurrency)
    return Request(
        model=str(ref),
        registered=ref.registered,
        backend=backend or None,
        settings=settings,
        inputs=inputs_of(version if variant.recipe == SOURCE else variant, str(ref)),
        probes=what.probes,
        load=load,
        require=what.require,
        plan=Plan(max_time=what.max_time),
        observation=ProbeOptions(evaluate=what.evaluate, data=data),
        name=version.model,
        trust=version.trust or variant.recipe != SOURCE,  # a variant was written here
    )


def _chooses_device(backend: str) -> bool:
    """Return whether a backend may run on a GPU unless it is told not to."""
    knobs = plugins.backend(backend).knobs if backend else ()
    return any(knob.name == "device" and knob.default != CPU for knob in knobs)


def _version(task: Task, registry: Registry) -> Version:
    return registry.version(VersionName(model=task.model, number=task.number))
