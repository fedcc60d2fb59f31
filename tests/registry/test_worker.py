from __future__ import annotations

import signal
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

import pytest
from tests.support.registry import DIGEST, ONCE, a_measurement
from tests.support.sample_registry import a_worker

from modeldyno.base import plugins
from modeldyno.base.codec import plain
from modeldyno.base.errors import RequestError, StoreError
from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.job.version_name import SOURCE, VersionName
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.result.result import Failure, FailureKind, SecondPassed
from modeldyno.base.result.trace_data import LiveSecond
from modeldyno.conversion.agreement.conversion import Converted
from modeldyno.engine.environment.device_lock import device_lock
from modeldyno.engine.environment.idle import IdleRule
from modeldyno.profiling.run import JudgedResult
from modeldyno.registry import canary, execute
from modeldyno.registry import worker as worker_module
from modeldyno.registry.changes import queue_comparison
from modeldyno.registry.figures import current_figures
from modeldyno.registry.records.policy import DEFAULT, Window, profile_tasks
from modeldyno.registry.records.records import (
    FigureState,
    Measure,
    TaskKind,
    TaskState,
    Variant,
    VariantState,
)
from modeldyno.registry.records.webhooks import Webhook
from modeldyno.registry.register import Registration, located, register
from modeldyno.registry.targets import software_here, target_here
from modeldyno.registry.worker import DEFERRALS, TaskDone, WorkerOptions, run_worker
from modeldyno.testing.sample_conversions import a_conversion
from modeldyno.testing.sample_series import a_comparison

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from modeldyno.base.job.job import Job
    from modeldyno.base.result.result import Event, Result
    from modeldyno.base.stats.schedule import RoundSchedule
    from modeldyno.comparison.change.comparison import Comparison
    from modeldyno.engine.runtime.measured_region import Region
    from modeldyno.profiling.request import Request
    from modeldyno.registry.interface import Registry
    from modeldyno.registry.records.records import RegistryEvent
    from modeldyno.stores.interface import Store

BUSY = Doubt(code="interference", seen="others used 1.3 cores", advice="wait")


@pytest.fixture
def registered(registry: Registry, model: Path) -> Registry:
    """The model, with nothing to convert."""
    register(Registration(model=str(model), convert=False), registry)
    return registry


def work(options: WorkerOptions = ONCE) -> list[TaskDone]:
    done: list[TaskDone] = []
    run_worker(options, done=done.append)
    return done


@pytest.mark.usefixtures("measured")
def test_every_figure_of_the_policy_is_fresh_afterwards(registered: Registry) -> None:
    done = work()

    assert [each.outcome.state for each in done] == [TaskState.DONE] * 3
    figures = current_figures(registered, "net")
    assert {figure.measure.settings["batch_size"] for figure in figures} == {1, 8, 32}
    assert {figure.state for figure in figures} == {FigureState.FRESH}


def of_model(comparison: Comparison, digest: str) -> Comparison:
    """Return a comparison of models that have this digest."""

    def of(result: Result) -> Result:
        assert result.model is not None
        return replace(result, model=replace(result.model, digest=digest))

    return replace(
        comparison,
        baseline=of(comparison.baseline),
        contrasts=tuple(replace(each, candidate=of(each.candidate)) for each in comparison.contrasts),
    )


def test_a_comparison_with_what_was_not_registered_is_refused(registered: Registry) -> None:
    """A file that was swapped after it was looked at is found by what was loaded."""
    (source,) = registered.variants(registered.version(VersionName(model="net")))
    result = a_comparison().baseline

    execute._check_content(source.name, of_model(a_comparison(), source.digest).baseline, registered)
    with pytest.raises(StoreError, match="net/1 source has changed since it was registered"):
        execute._check_content(source.name, result, registered)


@pytest.mark.usefixtures("measured")
def test_a_comparison_is_stored_with_its_results(
    registered: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variants are measured in turns, while the device is held; its task names it."""
    version = registered.version(VersionName(model="net"))
    (source,) = registered.variants(version)
    other = replace(source, recipe="again")
    registered.put_variant(other, "ada")
    registered.change_tasks([task.id for task in registered.tasks()], TaskState.CANCELLED, "ada")
    received: list[Job] = []
    comparison = of_model(a_comparison(), source.digest)

    def run(jobs: Sequence[Job], turns: RoundSchedule, *_: object) -> Comparison:
        received.extend(jobs)
        assert turns.max_time == 60.0
        return comparison

    monkeypatch.setattr(execute, "run_comparison", run)
    monkeypatch.setattr(execute, "located", lambda _variant, registry: located(version, registry))
    queue_comparison(
        registered,
        [("net/1", SOURCE), ("net/1", "again")],
        target=target_here().id,
        measure=Measure(probes=("latency",), settings={"batch_size": 4}, max_time=60.0),
    )

    done = next(each for each in work() if each.task.kind is TaskKind.COMPARE)

    assert done.outcome.state is TaskState.DONE
    assert [job.config["batch_size"] for job in received] == [4, 4]
    with plugins.store() as store:
        assert store.conclusion(comparison.id) == comparison
        assert {store.get(each.id).id for each in comparison.results} == {
            each.id for each in comparison.results
        }
    kept = {task.result: task.why for task in registered.tasks(states=(TaskState.DONE,))}
    assert kept[comparison.id] == done.outcome.headline


@pytest.mark.parametrize(
    "variants",
    [
        [("net/1", SOURCE)],
        [("net/1", SOURCE)] * 2,
        [("net/1", SOURCE), ("net/1", "none")],
        [("net/1", SOURCE), ("net/9", SOURCE)],
    ],
)
def test_what_cannot_be_compared_is_not_queued(registered: Registry, variants: list[tuple[str, str]]) -> None:
    """One alone, itself, and what is not there."""
    with pytest.raises(RequestError):
        queue_comparison(registered, variants, target=target_here().id, measure=Measure(probes=("latency",)))

    assert all(task.kind is TaskKind.PROFILE for task in registered.tasks())


@pytest.mark.usefixtures("measured")
def test_its_results_are_in_the_store(registered: Registry) -> None:
    work()

    for figure in current_figures(registered, "net"):
        assert registered.result(figure.result) is not None


@pytest.mark.usefixtures("measured")
def test_nothing_is_measured_twice(registered: Registry, measured: list[Request]) -> None:
    work()
    register(Registration(model=str(measured[0].model), name="net", convert=False), registered)
    work()

    assert len(measured) == 3


@pytest.mark.usefixtures("measured")
def test_it_measures_the_copy_that_was_kept(
    registered: Registry, measured: list[Request], model: Path
) -> None:
    del registered
    model.unlink()

    work()

    assert {str(request.model).endswith("net.onnx") for request in measured} == {True}
    assert str(model) not in {str(request.model).partition(":")[2] for request in measured}


@pytest.mark.usefixtures("measured")
def test_a_worker_that_has_ended_is_not_listed(registered: Registry) -> None:
    work()

    assert list(registered.workers()) == []


@pytest.mark.usefixtures("measured")
def test_a_doubt_about_others_on_the_machine_puts_the_task_off_and_keeps_the_result(
    registered: Registry, with_result: Callable[[Callable[[Result], Result]], None]
) -> None:
    with_result(lambda result: replace(result, doubts=(BUSY,)))

    done = work()

    assert {each.outcome.state for each in done} == {TaskState.DEFERRED}
    assert {each.outcome.again_in for each in done} == {DEFERRALS[0]}
    figures = current_figures(registered, "net")
    assert {(f.state, f.why) for f in figures} == {(FigureState.DOUBTFUL, "others used 1.3 cores")}


OTHERS = "others use 1.00 of 2 cores"


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize(
    ("reasons", "disturbed", "again"),
    [
        ([None] * 3, {1, 3, 5}, 3),
        ([OTHERS] * 3 + [None], {1, 2, 3}, 3),
        ([OTHERS] * 4 + [None], {1, 2, 3}, 3),
        ([OTHERS] * 4, {1, 2, 3}, 0),
    ],
)
def test_a_worker_that_waits_takes_doubtful_figures_once_more_when_the_device_is_idle(
    registered: Registry,
    with_result: Callable[[Callable[[Result], Result]], None],
    monkeypatch: pytest.MonkeyPatch,
    reasons: list[str | None],
    disturbed: set[int],
    again: int,
) -> None:
    """At once if it is idle, else at the end; one line says for what it waits and how long."""
    taken: list[str] = []
    sentences: list[str] = []
    answers = iter(reasons)

    def take(result: Result) -> Result:
        taken.append(result.id)
        return replace(result, doubts=(BUSY,)) if len(taken) in disturbed else result

    with_result(take)
    monkeypatch.setattr(
        "modeldyno.engine.environment.idle.busy_reason",
        lambda _device, rule: next(answers) if rule.samples else None,
    )
    monkeypatch.setattr(worker_module, "_PATIENCE", 60.0 if again else 0.0)
    monkeypatch.setattr(worker_module, "pause", lambda _seconds, _interrupts: None)
    run_worker(replace(ONCE, waits=True, idle=IdleRule(samples=0)), tell=sentences.append)

    assert len(taken) == 3 + again
    assert {each.state for each in current_figures(registered, "net")} == {
        FigureState.FRESH if again else FigureState.DOUBTFUL
    }
    assert {task.state for task in registered.tasks(model="net")} == {
        TaskState.DONE if again else TaskState.DEFERRED
    }
    assert [OTHERS in sentence and "doubtful; waits up to" in sentence for sentence in sentences] == (
        [True] * (reasons[3:4] == [OTHERS])
    )


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize(("cpu", "state"), [(1.0, TaskState.DONE), (0.99, TaskState.DEFERRED)])
def test_a_worker_that_measures_whatever_others_use_puts_nothing_off(
    registered: Registry,
    with_result: Callable[[Callable[[Result], Result]], None],
    cpu: float,
    state: TaskState,
) -> None:
    """Its figures are doubtful all the same, so that no answer rests on them."""
    with_result(lambda result: replace(result, doubts=(BUSY,)))

    done = work(replace(ONCE, idle=IdleRule(samples=0, cpu=cpu)))

    assert {each.outcome.state for each in done} == {state}
    assert {figure.state for figure in current_figures(registered, "net")} == {FigureState.DOUBTFUL}


@pytest.mark.usefixtures("measured")
def test_a_model_that_fails_is_not_tried_again(
    registered: Registry, with_result: Callable[[Callable[[Result], Result]], None]
) -> None:
    failure = Failure(where="first call", kind=FailureKind.OOM, message="out of memory")
    with_result(lambda result: replace(result, failures=(failure,)))

    work()

    tasks = registered.tasks(model="net")
    assert {(task.state, task.why) for task in tasks} == {(TaskState.FAILED, "first call: out of memory")}
    assert work() == []


@pytest.mark.usefixtures("measured")
def test_a_reference_that_changed_in_place_is_told(
    registry: Registry, model: Path, with_result: Callable[[Callable[[Result], Result]], None]
) -> None:
    register(Registration(model=str(model), copy=False, convert=False), registry)

    def changed(result: Result) -> Result:
        assert result.model is not None
        return replace(result, model=replace(result.model, digest="sha256:other"))

    with_result(changed)

    (first, *_) = work()
    assert first.outcome.state is TaskState.FAILED
    assert "has changed since it was registered" in first.outcome.why
    assert current_figures(registry, "net") == []


@pytest.mark.usefixtures("measured")
def test_a_figure_that_others_disturb_is_put_off_for_longer_each_time(
    registered: Registry,
    with_result: Callable[[Callable[[Result], Result]], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_result(lambda result: replace(result, doubts=(BUSY,)))
    monkeypatch.setattr(worker_module, "DEFERRALS", (0.0, 7.0, 9.0))

    assert [each.outcome.again_in for each in work()] == [0.0] * 3
    assert [each.outcome.again_in for each in work()] == [7.0] * 3
    assert {task.state for task in registered.tasks(model="net")} == {TaskState.DEFERRED}


@pytest.mark.usefixtures("measured")
def test_a_device_that_another_measurement_holds_is_waited_for(
    registered: Registry, measured: list[Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    del registered
    monkeypatch.setattr(worker_module, "_LOCK_PATIENCE", 0.0)
    with device_lock("cpu", "modeldyno profile") as holder:
        assert holder is None
        busy = run_worker(replace(ONCE, patience=-1.0))

    assert measured == []
    assert busy.startswith("cpu was in use for a minute: modeldyno profile (pid ")
    assert busy.endswith(" measures on cpu")


@pytest.mark.usefixtures("measured")
def test_a_worker_that_waits_tells_who_has_the_device_once_and_measures_when_it_is_free(
    registered: Registry, measured: list[Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    del registered
    sentences: list[str] = []
    done: list[TaskDone] = []
    with ExitStack() as stack:
        assert stack.enter_context(device_lock("cpu", "modeldyno profile")) is None
        pauses = iter([lambda: None, stack.close])
        monkeypatch.setattr(worker_module, "_LOCK_PATIENCE", 0.0)
        monkeypatch.setattr(worker_module, "pause", lambda *_: next(pauses, lambda: None)())
        run_worker(replace(ONCE, waits=True), done=done.append, tell=sentences.append)

    assert [each.outcome.state for each in done] == [TaskState.DONE] * 3
    assert len(measured) == 3
    (sentence,) = sentences
    assert "waits for cpu: modeldyno profile" in sentence


@pytest.mark.usefixtures("measured")
def test_a_wait_for_a_device_ends_with_ctrl_c(registered: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[TaskDone] = []
    monkeypatch.setattr(
        worker_module, "pause", lambda _seconds, _interrupts: signal.raise_signal(signal.SIGINT)
    )
    with device_lock("cpu", "modeldyno profile"):
        run_worker(replace(ONCE, waits=True), done=done.append)

    (one,) = done
    assert (one.outcome.state, one.outcome.why) == (TaskState.DEFERRED, "its worker was stopped")
    assert {task.state for task in registered.tasks(model="net")} == {TaskState.QUEUED, TaskState.DEFERRED}


@pytest.mark.usefixtures("measured")
def test_it_looks_once_before_it_loads_and_by_the_whole_rule_before_it_measures(
    registered: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    del registered
    rules: list[IdleRule] = []
    monkeypatch.setattr(
        "modeldyno.engine.environment.idle.busy_reason", lambda _device, rule: rules.append(rule)
    )
    rule = IdleRule(cpu=0.5)

    work(WorkerOptions(once=True, idle=rule))

    before_loading, before_measuring = replace(rule, samples=1), rule
    just_idle = [replace(rule, samples=0), replace(rule, samples=1)]
    assert rules == [before_loading, before_measuring, *just_idle, *just_idle]


@pytest.mark.usefixtures("measured")
def test_a_device_that_is_taken_while_the_model_loads_leaves_the_task_where_it_was(
    registered: Registry, measured: list[Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([None, OTHERS])
    monkeypatch.setattr("modeldyno.engine.environment.idle.busy_reason", lambda _device, _rule: next(answers))
    before = [task.id for task in registered.tasks(model="net")]

    assert run_worker(replace(ONCE, patience=-1.0)) == f"cpu was in use for a minute: {OTHERS}"

    assert measured == []
    after = registered.tasks(model="net")
    assert [task.id for task in after] == before
    assert {(task.state, task.attempts, task.deferrals) for task in after} == {(TaskState.QUEUED, 0, 0)}
    assert current_figures(registered, "net") == []


def test_the_lock_is_free_while_a_model_loads_and_held_while_it_is_measured(
    registered: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    del registered
    holders: list[str | None] = []

    def check_lock() -> None:
        with device_lock("cpu", "test") as holder:
            holders.append(holder)

    def measure(request: Request, *, guard: Region, **_: object) -> JudgedResult:
        check_lock()
        with guard():
            check_lock()
        check_lock()
        return JudgedResult(result=a_measurement(request))

    monkeypatch.setattr(execute, "run_request", measure)
    work()

    assert [holder is None for holder in holders] == [True, False, True] * 3
    assert "modeldyno worker: net/1 source: batch 1 (pid " in str(holders[1])


def test_a_load_of_a_task_is_shown_while_it_goes_on_and_its_result_takes_its_place(
    registered: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(request: Request, *, watch: Callable[[Event], None], **_: object) -> JudgedResult:
        for n in range(2):
            second = LiveSecond(at=float(n), answered=5, failed=0)
            watch(SecondPassed(load="concurrency 8", second=second))
        return JudgedResult(result=a_measurement(request))

    monkeypatch.setattr(execute, "run_request", measure)
    done = work()

    with plugins.store() as store:
        live = {load.result: (load.load, len(load.seconds), load.ended) for load in store.live_loads()}
    results = [each.outcome.result.id for each in done if each.outcome.result is not None]
    assert live == dict.fromkeys(results, ("concurrency 8", 2, True))
    assert len(current_figures(registered, "net")) == len(results)


def test_a_variant_is_trusted_as_it_was_written_here(registered: Registry, measured: list[Request]) -> None:
    version = registered.version(VersionName.parse("net"))
    variant = Variant(
        model="net",
        number=1,
        recipe="torchscript",
        state=VariantState.AGREES,
        reference="torchscript",
        backend="torch",
        digest=DIGEST,
        files=version.files,
        entry=version.entry,
    )
    registered.put_variant(variant, "me")
    registered.enqueue(tuple(profile_tasks(variant, DEFAULT, target_here().id)))

    work()

    trusted = {str(request.model).partition(":")[0]: request.trust for request in measured}
    assert trusted == {"onnx": False, "torchscript": True}


@pytest.mark.parametrize(
    "recipe",
    [
        pytest.param(recipe, marks=() if recipe in {"onnx", "torchscript"} else pytest.mark.slow)
        for recipe in plugins.names("converter")
    ],
)
def test_a_variant_is_measured_with_the_inputs_of_its_source(
    registered: Registry, measured: list[Request], recipe: str
) -> None:
    """The samples lie beside it; the source has its own."""
    version = registered.version(VersionName.parse("net"))
    sized = InputSpec(name="ids", shape=("batch", 64), dtype="int64", low=0, high=999)
    real = InputSpec(name="mask", dtype="int64", source="inputs.npz")
    made = Converted(recipe=recipe, inputs=(sized, real))
    converter = plugins.converter(recipe)
    variant = Variant(
        model="net", number=1, recipe=recipe, state=VariantState.AGREES, reference=converter.loader,
        backend=converter.backend, digest=DIGEST, files=version.files, entry=version.entry,
        conversion=plain.encode(replace(a_conversion(), converted=(made,))).decode(),
    )  # fmt: skip
    registered.put_variant(variant, "me")
    registered.enqueue(tuple(profile_tasks(variant, DEFAULT, target_here().id)))

    work()

    own = [
        request
        for request in measured
        if str(request.model).startswith(f"{converter.loader}:") and request.inputs
    ]
    folder = str(own[0].model).partition(":")[2].rpartition("/")[0]
    assert [request.inputs for request in own] == [(sized, replace(real, source=f"{folder}/inputs.npz"))] * 3
    assert [request.inputs for request in measured if request not in own] == [()] * 3


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Give a function that sets the time of day."""

    def set_to(text: str) -> None:
        now = datetime.fromisoformat(f"2026-03-02T{text}")
        monkeypatch.setattr(worker_module, "local_now", lambda: now)

    return set_to


NIGHT = Window.parse("22:00-06:00")


def test_outside_its_windows_a_worker_takes_nothing_and_says_until_when(
    registered: Registry, measured: list[Request], clock: Callable[[str], None]
) -> None:
    clock("14:00")
    sentences: list[str] = []
    run_worker(replace(ONCE, windows=(NIGHT,)), tell=sentences.append)

    assert measured == []
    assert sentences == ["Outside its windows a worker does nothing; the next one begins at 22:00."]
    assert {task.state for task in registered.tasks(model="net")} == {TaskState.QUEUED}


def test_within_one_of_its_windows_it_works(
    registered: Registry, measured: list[Request], clock: Callable[[str], None]
) -> None:
    del registered
    clock("05:59")
    work(replace(ONCE, windows=(Window.parse("12:00-13:00"), NIGHT)))

    assert len(measured) == 3


def test_a_policy_puts_measurements_off_until_its_window_begins(
    registered: Registry, measured: list[Request], clock: Callable[[str], None]
) -> None:
    registered.put_policy(replace(DEFAULT, windows=(NIGHT,)), "me")
    clock("20:30")

    done = work()

    assert measured == []
    assert {(each.outcome.state, each.outcome.why, each.outcome.again_in) for each in done} == {
        (TaskState.DEFERRED, "the policy default measures from 22:00", 5400.0)
    }
    assert registered.tasks(model="net")[0].left == pytest.approx(5400.0, abs=5)


def test_within_the_window_of_its_policy_a_version_is_measured(
    registered: Registry, measured: list[Request], clock: Callable[[str], None]
) -> None:
    registered.put_policy(replace(DEFAULT, windows=(NIGHT,)), "me")
    clock("22:00")
    work()

    assert len(measured) == 3


@pytest.mark.usefixtures("registry")
def test_a_device_that_is_never_to_be_used_is_refused() -> None:
    with pytest.raises(RequestError, match="cpu is a device that is never to be used here"):
        work(replace(ONCE, never_on=("cuda:0", "cpu")))


def test_a_backend_that_may_choose_a_gpu_is_told_the_device_of_the_target(
    registered: Registry, measured: list[Request]
) -> None:
    version = registered.version(VersionName.parse("net"))
    scripted = Variant(
        model="net", number=1, recipe="torchscript", state=VariantState.AGREES, reference="torchscript",
        backend="torch", digest=DIGEST, files=version.files, entry=version.entry,
    )  # fmt: skip
    registered.put_variant(scripted, "me")
    registered.enqueue(tuple(profile_tasks(scripted, DEFAULT, target_here().id)))

    work()

    chosen = {(request.backend, request.settings.get("device")) for request in measured}
    assert chosen == {("onnxruntime", None), ("torch", "cpu")}


def test_a_variant_is_measured_in_the_precision_in_which_it_was_judged(
    registered: Registry, measured: list[Request]
) -> None:
    version = registered.version(VersionName.parse("net"))
    variant = Variant(
        model="net", number=1, recipe="openvino", state=VariantState.AGREES, reference="openvino",
        backend="openvino", digest=DIGEST, files=version.files, entry=version.entry,
    )  # fmt: skip
    registered.put_variant(variant, "me")
    registered.enqueue(tuple(profile_tasks(variant, DEFAULT, target_here().id)))

    work()

    precisions = {(request.backend, request.settings.get("precision")) for request in measured}
    assert precisions == {("onnxruntime", None), ("openvino", "f32")}


@pytest.mark.usefixtures("measured")
def test_another_version_of_the_runtime_makes_figures_stale(
    registered: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    work()
    monkeypatch.setattr("modeldyno.registry.figures.software_here", lambda: {"onnxruntime": "99.0"})

    stale = current_figures(registered, "net")
    assert {figure.state for figure in stale} == {FigureState.STALE}
    assert stale[0].why.startswith("measured with other software: onnxruntime")


@pytest.mark.usefixtures("measured")
def test_an_upgrade_of_another_package_leaves_them_fresh(
    registered: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    work()
    real = software_here()
    monkeypatch.setattr(
        "modeldyno.registry.figures.software_here", lambda: {**real, "torch": "99.0", "numpy": "99.0"}
    )

    assert {figure.state for figure in current_figures(registered, "net")} == {FigureState.FRESH}


@pytest.mark.usefixtures("measured")
def test_a_worker_queues_what_is_stale_behind_everything_else(
    registered: Registry, measured: list[Request]
) -> None:
    work()
    registered.put_figures(
        [replace(figure, state=FigureState.STALE, why="old") for figure in current_figures(registered, "net")]
    )

    work()

    assert len(measured) == 6
    assert {figure.state for figure in current_figures(registered, "net")} == {FigureState.FRESH}


@pytest.mark.parametrize(
    ("milliseconds", "kind"),
    [(2.04, "figure.confirmed"), (3.0, "figure.changed"), (2.26, "figure.undecided")],
)
@pytest.mark.usefixtures("measured")
def test_a_stale_figure_that_is_measured_again_is_confirmed_or_has_changed(
    registered: Registry, monkeypatch: pytest.MonkeyPatch, milliseconds: float, kind: str
) -> None:
    work()
    old = current_figures(registered, "net")
    registered.put_figures([replace(figure, state=FigureState.STALE, why="old") for figure in old])
    monkeypatch.setattr(
        execute,
        "run_request",
        lambda request, **_: JudgedResult(result=a_measurement(request, milliseconds)),
    )

    work()

    events = [event for event in registered.events() if event.kind.startswith("figure.")]
    assert {event.kind for event in events} == {kind}
    assert {event.detail["before"] for event in events} == {figure.result for figure in old}
    assert "latency.p50: 2.000 ms -> " in events[0].detail["change"]
    assert registered.first_broken_event() is None


@pytest.mark.usefixtures("measured")
def test_a_fresh_figure_that_somebody_has_measured_again_is_confirmed(registered: Registry) -> None:
    work()
    task = registered.tasks(model="net")[0]
    registered.enqueue((task,))
    work()

    (event,) = [each for each in registered.events() if each.kind.startswith("figure.")]
    assert event.kind == "figure.confirmed"


@pytest.mark.usefixtures("measured")
def test_a_first_figure_confirms_nothing(registered: Registry) -> None:
    work()

    assert [event for event in registered.events() if event.kind.startswith("figure.")] == []


def test_a_doubtful_figure_confirms_nothing_and_the_next_sure_one_does(
    registered: Registry,
    measured: list[Request],
    with_result: Callable[[Callable[[Result], Result]], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def figure_events() -> list[RegistryEvent]:
        return [event for event in registered.events() if event.kind.startswith("figure.")]

    monkeypatch.setattr(worker_module, "DEFERRALS", (0.0,))
    work()
    assert measured
    old = current_figures(registered, "net")
    registered.put_figures([replace(figure, state=FigureState.STALE, why="old") for figure in old])
    with_result(lambda result: replace(result, doubts=(BUSY,)))
    work()
    work()
    assert figure_events() == []

    with_result(lambda result: result)
    work()
    assert {event.kind for event in figure_events()} == {"figure.confirmed"}
    assert {event.detail["before"] for event in figure_events()} == {figure.result for figure in old}


@pytest.mark.usefixtures("measured")
def test_a_worker_tells_its_own_commands_of_events(registered: Registry, tmp_path: Path) -> None:
    registered.add_webhook(Webhook(url="hook:tell", kinds=("task.done",)), "me")
    work(replace(ONCE, hooks={"tell": ("sh", "-c", f"cat >> {tmp_path}/told")}))

    assert (tmp_path / "told").read_text().count('"kind": "task.done"') == 3


def test_the_reference_model_is_measured_while_the_device_is_held(
    registered: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered.change_tasks([task.id for task in registered.tasks()], TaskState.CANCELLED, "me")
    holders: list[str | None] = []

    def check_machine(_store: Store, _target: str, _interrupts: object, guard: Region) -> str:
        with guard(), device_lock("cpu", "test") as holder:
            holders.append(holder)
        return "the machine has changed"

    monkeypatch.setattr(canary, "is_due", lambda _store, _target: True)
    monkeypatch.setattr(canary, "check_machine", check_machine)
    sentences: list[str] = []
    run_worker(ONCE, tell=sentences.append)

    assert str(holders[0]).startswith("modeldyno worker: reference model (pid ")
    assert sentences == ["the machine has changed"]


def test_the_reference_model_is_not_loaded_on_a_busy_machine(
    registered: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    del registered
    checked: list[object] = []
    monkeypatch.setattr(canary, "is_due", lambda _store, _target: True)
    monkeypatch.setattr(canary, "check_machine", lambda *arguments: checked.append(arguments))
    monkeypatch.setattr(
        "modeldyno.engine.environment.idle.busy_reason", lambda _device, _rule: "others use it"
    )
    work(replace(ONCE, patience=-1.0))

    assert checked == []


def test_a_shift_counts_the_time_with_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while the task is still being done."""
    shift, now = worker_module._WorkTimer(began=100.0), 110.0
    monkeypatch.setattr(worker_module, "monotonic", lambda: now)
    with shift.task():
        now = 115.0
        assert shift.worked() == 5.0
    now = 120.0

    assert (shift.alive(), shift.worked()) == (20.0, 5.0)
    assert replace(a_worker(), alive=shift.alive(), worked=shift.worked()).idle == 0.75
    assert a_worker().idle is None
