"""The queue, in a file and on a server: leased once, lost never, finished once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support.sample_registry import (
    TARGET,
    a_conversion,
    a_figure,
    a_target,
    a_task,
    a_variant,
    a_version,
    a_worker,
)

from modeldyno.registry.interface import Outcome
from modeldyno.registry.records.records import Measure, TaskState, VariantState
from modeldyno.registry.records.staleness import PROTOCOL
from modeldyno.registry.store.tasks import LEASE, LOST
from modeldyno.stores import clock
from modeldyno.testing.sample_results import a_small_result

if TYPE_CHECKING:
    from collections.abc import Callable

    from modeldyno.registry.records.records import Task, Version
    from modeldyno.registry.store.sql_registry import SqlRegistry
    from modeldyno.stores.sql import SqlStore

DONE = Outcome(state=TaskState.DONE)
ADA, EVE = a_worker("ada"), a_worker("eve")


@pytest.fixture
def version(registry: SqlRegistry) -> Version:
    """Give a registered version."""
    return registry.add_version(a_version())[0]


def claimed(registry: SqlRegistry, worker: object = ADA) -> Task:
    """Lease a task that must be there."""
    task = registry.claim(worker)  # type: ignore[arg-type]
    assert task is not None
    return task


def states(registry: SqlRegistry) -> list[TaskState]:
    return [task.state for task in registry.tasks()]


class TestQueue:
    def test_the_same_work_is_queued_once(self, registry: SqlRegistry, version: Version) -> None:
        """While it is queued, leased or deferred; once it has ended, it may be queued again."""
        task = a_task(version)
        assert registry.enqueue([task, task]) == 1
        assert registry.enqueue([task]) == 0
        leased = claimed(registry)
        assert registry.enqueue([task]) == 0
        registry.finish(leased, Outcome(state=TaskState.DEFERRED, again_in=5.0), "ada")
        assert registry.enqueue([task]) == 0
        registry.change_tasks([leased.id], TaskState.CANCELLED, "ada")
        assert registry.enqueue([task]) == 1
        assert states(registry) == [TaskState.QUEUED, TaskState.CANCELLED]

    def test_a_task_comes_back_as_it_was_queued(self, registry: SqlRegistry, version: Version) -> None:
        """With what is measured."""
        task = a_task(version, 8, measure=Measure(probes=("load",), backend="triton", concurrency=4))
        registry.enqueue([task])
        (stored,) = registry.tasks()

        assert replace(stored, id=0) == task
        assert replace(claimed(registry), id=0) == replace(
            task,
            state=TaskState.LEASED,
            worker="ada",
            token=1,
            attempts=1,
            left=pytest.approx(LEASE),  # type: ignore[arg-type]
        )

    def test_lower_priorities_come_first_then_older_ones(
        self, registry: SqlRegistry, version: Version
    ) -> None:
        """Whatever the order in which they were queued."""
        tasks = [a_task(version, n, priority=p) for n, p in enumerate((100, 10, 1000, 10, 20))]
        registry.enqueue(tasks)

        assert [task.measure for task in registry.tasks()] == [tasks[n].measure for n in (1, 3, 4, 0, 2)]
        assert [claimed(registry).measure for _ in tasks] == [tasks[n].measure for n in (1, 3, 4, 0, 2)]

    def test_a_worker_gets_what_its_target_may_do(self, registry: SqlRegistry, version: Version) -> None:
        """Tasks of its own target and of none; never those of another."""
        registry.enqueue(
            [
                a_task(version, 1, target="other", priority=1),
                a_task(version, 2, target=TARGET, priority=2),
                a_conversion(version, priority=3),
            ]
        )
        assert [claimed(registry).target for _ in range(2)] == [TARGET, ""]
        assert registry.claim(ADA) is None
        assert claimed(registry, a_worker("eve", target="other")).target == "other"

    def test_a_task_is_leased_to_one_worker(self, registry: SqlRegistry, version: Version) -> None:
        """Another one gets the next, or none."""
        registry.enqueue([a_task(version)])
        assert claimed(registry, ADA).worker == "ada"
        assert registry.claim(EVE) is None
        assert registry.claim(ADA) is None

    def test_lists_show_what_is_done_then_what_will_be_then_what_was(
        self, registry: SqlRegistry, version: Version
    ) -> None:
        """Of ended ones, the newest first; by state, version and number if so asked."""
        other = registry.add_version(a_version("other"))[0]
        registry.enqueue([a_task(version, n) for n in range(5)])
        registry.enqueue([a_task(other, priority=1000)])
        for _ in range(3):
            registry.finish(claimed(registry), DONE, "ada")
        claimed(registry)
        ids = [task.id for task in registry.tasks()]
        first = min(ids)

        assert ids == [first + 3, first + 4, first + 5, first + 2, first + 1, first]
        assert [task.id for task in registry.tasks(limit=4)] == ids[:4]
        assert [task.id for task in registry.tasks(limit=2)] == ids[:2]
        assert [task.id for task in registry.tasks(states=[TaskState.DONE])] == ids[3:]
        assert [task.id for task in registry.tasks(states=[TaskState.QUEUED])] == ids[1:3]
        assert [task.id for task in registry.tasks(model="other")] == [ids[2]]
        assert registry.tasks(model="digits", number=2) == []

        paged, last = [], None
        while page := registry.tasks(limit=2, after=last):
            paged += [task.id for task in page]
            last = page[-1].place
        assert paged == ids


class TestLease:
    def test_it_runs_out(
        self, registry: SqlRegistry, version: Version, let_pass: Callable[[float], None]
    ) -> None:
        """Not before its time; then the next worker gets the task, with a larger token."""
        registry.enqueue([a_task(version)])
        first = claimed(registry)
        let_pass(LEASE - 5)
        assert registry.claim(EVE) is None
        let_pass(6)
        second = claimed(registry, EVE)

        assert second.id == first.id
        assert second.token > first.token
        assert (second.worker, second.attempts) == ("eve", 2)

    def test_it_is_renewed(
        self, registry: SqlRegistry, version: Version, let_pass: Callable[[float], None]
    ) -> None:
        """A worker that renews each third of it keeps its task for ever."""
        registry.enqueue([a_task(version)])
        task = claimed(registry)
        for _ in range(12):
            let_pass(LEASE / 3)
            assert registry.renew(task)
            assert registry.claim(EVE) is None
        assert registry.finish(task, DONE, "ada")

    def test_one_that_ran_out_can_be_renewed_until_another_has_the_task(
        self, registry: SqlRegistry, version: Version, let_pass: Callable[[float], None]
    ) -> None:
        """As nobody else works at it."""
        registry.enqueue([a_task(version)])
        task = claimed(registry)
        let_pass(2 * LEASE)
        assert registry.renew(task)
        assert registry.claim(EVE) is None
        let_pass(2 * LEASE)
        claimed(registry, EVE)
        assert not registry.renew(task)

    @pytest.mark.parametrize("step", [3600.0, -3600.0])
    def test_a_clock_of_a_server_that_is_set_keeps_no_task_from_others(
        self, registry: SqlRegistry, version: Version, let_pass: Callable[[float], None], step: float
    ) -> None:
        """Ahead or back by an hour: whoever renews first keeps the task, and a lost worker's is taken."""
        registry.enqueue([a_task(version), a_task(version, 2, priority=1000)])
        mine, lost = claimed(registry), claimed(registry)
        let_pass(step)
        assert registry.renew(mine)
        taken = claimed(registry, EVE)

        assert (taken.id, taken.attempts) == (lost.id, 2)
        assert registry.claim(EVE) is None
        assert not registry.finish(lost, DONE, "ada")
        assert registry.finish(mine, DONE, "ada")

    def test_a_late_finish_is_refused_and_stores_nothing(
        self,
        registry: SqlRegistry,
        shared: SqlStore,
        version: Version,
        let_pass: Callable[[float], None],
    ) -> None:
        """Neither its Result, figure and variant, nor what it wants done next, nor an event."""
        registry.enqueue([a_task(version)])
        late = claimed(registry)
        let_pass(2 * LEASE)
        task = claimed(registry, EVE)
        events = registry.events()
        outcome = Outcome(
            state=TaskState.DONE,
            result=a_small_result(),
            figure=a_figure(late),
            variant=a_variant(version, "onnx"),
            next=(a_conversion(version),),
        )

        assert not registry.finish(late, outcome, "ada")
        assert not registry.finish(late, Outcome(state=TaskState.DEFERRED, again_in=1.0), "ada")
        assert (shared.find(), registry.figures("digits"), registry.variants(version)) == ([], [], [])
        assert registry.events() == events
        assert states(registry) == [TaskState.LEASED]
        assert registry.finish(task, outcome, "eve")
        events = registry.events()
        assert registry.finish(task, outcome, "eve")  # as the answer to the first was lost
        assert not registry.finish(task, Outcome(state=TaskState.FAILED), "eve")
        assert registry.events() == events
        assert [len(shared.find()), len(registry.figures("digits")), len(registry.variants(version))] == [
            1
        ] * 3
        assert states(registry) == [TaskState.QUEUED, TaskState.DONE]
        assert registry.tasks()[-1].result == a_small_result().id

    def test_three_lost_workers_fail_it(
        self, registry: SqlRegistry, version: Version, let_pass: Callable[[float], None]
    ) -> None:
        """It is not leased a fourth time, the reason is told once in the history, and a retry is new."""
        registry.enqueue([a_task(version), a_task(version, 2)])
        lost = claimed(registry)
        for _ in range(2):
            let_pass(2 * LEASE)
            lost = claimed(registry)
        let_pass(2 * LEASE)
        other = claimed(registry, EVE)

        assert other.id != lost.id
        failed = registry.tasks(states=[TaskState.FAILED])[0]
        assert (failed.id, failed.why, failed.attempts) == (lost.id, LOST, 3)
        assert not registry.finish(lost, DONE, "ada")
        events = [event for event in registry.events() if event.kind == "task.failed"]
        assert [(event.actor, event.detail["why"]) for event in events] == [("ada", LOST)]
        assert registry.change_tasks([lost.id], TaskState.QUEUED, "ada") == 1
        assert registry.tasks(states=[TaskState.QUEUED])[0].attempts == 0

    def test_a_conversion_whose_workers_were_lost_has_failed(
        self, registry: SqlRegistry, version: Version, let_pass: Callable[[float], None]
    ) -> None:
        """Its variant does not stay converting for ever."""
        registry.enqueue([a_conversion(version)])
        converting = a_variant(version, "onnx", state=VariantState.CONVERTING)
        for _ in range(3):
            assert registry.put_variant(converting, "ada", task=claimed(registry))
            let_pass(2 * LEASE)
        assert registry.claim(EVE) is None

        (variant,) = registry.variants(version)
        assert (variant.state, variant.why) == (VariantState.FAILED, LOST)

    def test_a_late_worker_does_not_set_a_variant_back(
        self, registry: SqlRegistry, version: Version, let_pass: Callable[[float], None]
    ) -> None:
        """What it was about to convert has been converted by another."""
        registry.enqueue([a_conversion(version)])
        late = claimed(registry)
        let_pass(2 * LEASE)
        task = claimed(registry, EVE)
        done = a_variant(version, "onnx")
        assert registry.finish(task, Outcome(state=TaskState.DONE, variant=done), "eve")

        assert not registry.put_variant(replace(done, state=VariantState.CONVERTING), "ada", task=late)
        assert registry.variants(version) == [done]

    def test_a_boot_makes_leases_void_at_once(
        self, registry: SqlRegistry, version: Version, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Their workers are gone; the clock of the new boot begins at nothing."""
        registry.enqueue([a_task(version), a_task(version, 2, priority=1000)])
        registry.announce(ADA, a_target())
        claimed(registry)
        registry.finish(claimed(registry), Outcome(state=TaskState.DEFERRED, again_in=1e6), "ada")
        monkeypatch.setattr(clock, "now", lambda _connection: (7.0, "another boot"))

        assert [task.left for task in registry.tasks()] == [0.0, 0.0]
        assert registry.workers() == []
        assert claimed(registry, EVE).attempts == 2
        assert claimed(registry, EVE).deferrals == 1


class TestDeferral:
    def test_a_deferred_task_waits_its_time(
        self, registry: SqlRegistry, version: Version, let_pass: Callable[[float], None]
    ) -> None:
        """With its reason; it counts as a deferral and as no lost worker."""
        registry.enqueue([a_task(version)])
        outcome = Outcome(state=TaskState.DEFERRED, again_in=300.0, why="others use 1.5 of 2 cores")
        assert registry.finish(claimed(registry), outcome, "ada")
        (deferred,) = registry.tasks()

        assert (deferred.state, deferred.why) == (TaskState.DEFERRED, outcome.why)
        assert (deferred.deferrals, deferred.attempts) == (1, 0)
        assert deferred.left == pytest.approx(300.0, abs=30.0)
        let_pass(200.0)
        assert registry.claim(EVE) is None
        let_pass(101.0)
        again = claimed(registry, EVE)
        assert (again.attempts, again.deferrals, again.why) == (1, 1, "")

    def test_however_often_it_is_put_off_it_is_not_lost(
        self, registry: SqlRegistry, version: Version, let_pass: Callable[[float], None]
    ) -> None:
        """Ten times are no three lost workers."""
        registry.enqueue([a_task(version)])
        for _ in range(10):
            registry.finish(claimed(registry), Outcome(state=TaskState.DEFERRED, again_in=10.0), "ada")
            let_pass(11.0)
        assert claimed(registry).deferrals == 10

    def test_what_was_measured_with_a_doubt_is_kept(
        self, registry: SqlRegistry, shared: SqlStore, version: Version
    ) -> None:
        """The Result and the figure are stored, and the task is done again."""
        registry.enqueue([a_task(version)])
        task = claimed(registry)
        outcome = Outcome(
            state=TaskState.DEFERRED, again_in=60.0, result=a_small_result(), figure=a_figure(task)
        )
        assert registry.finish(task, outcome, "ada")
        assert len(shared.find()) == len(registry.figures("digits")) == 1
        assert registry.tasks()[0].result == a_small_result().id


class TestFinish:
    def test_all_of_an_outcome_is_stored_together(
        self, registry: SqlRegistry, shared: SqlStore, version: Version
    ) -> None:
        """The Result with its headline, the figure, the variant, what comes next, and the event."""
        registry.enqueue([a_conversion(version)])
        task = claimed(registry)
        variant = a_variant(version, "onnx")
        outcome = Outcome(
            state=TaskState.DONE,
            why="agrees within 3e-07",
            result=a_small_result(),
            headline="It went well.",
            figure=a_figure(a_task(version)),
            variant=variant,
            next=(a_task(version), a_task(version)),
        )
        assert registry.finish(task, outcome, "ada")

        assert [entry.headline for entry in shared.find()] == ["It went well."]
        assert registry.figures("digits")[0].protocol == PROTOCOL
        assert registry.variants(version) == [variant]
        assert states(registry) == [TaskState.QUEUED, TaskState.DONE]
        event = registry.events(subject="digits/1")[-1]
        assert (event.kind, event.actor) == ("task.done", "ada")
        assert event.detail == {
            "task": str(task.id),
            "what": "digits/1 onnx: convert",
            "result": a_small_result().id,
            "why": "agrees within 3e-07",
        }

    def test_a_failed_task_is_not_done_again(
        self, registry: SqlRegistry, version: Version, let_pass: Callable[[float], None]
    ) -> None:
        """Its failure is the answer."""
        registry.enqueue([a_task(version)])
        registry.finish(claimed(registry), Outcome(state=TaskState.FAILED, why="out of memory\0"), "ada")
        let_pass(10 * LEASE)

        assert registry.claim(ADA) is None
        assert [(task.state, task.why) for task in registry.tasks()] == [
            (TaskState.FAILED, "out of memory\ufffd")
        ]

    def test_a_task_of_a_removed_version_finishes_in_vain(
        self, registry: SqlRegistry, shared: SqlStore, version: Version
    ) -> None:
        """Nothing of it is stored."""
        registry.enqueue([a_task(version)])
        task = claimed(registry)
        registry.remove_version(version, "eve")

        assert not registry.renew(task)
        assert not registry.finish(
            task, Outcome(state=TaskState.DONE, result=a_small_result(), figure=a_figure(task)), "ada"
        )
        assert shared.find() == []


class TestCount:
    def test_tasks_are_counted_by_their_states(self, registry: SqlRegistry, version: Version) -> None:
        """Up to the most that is told."""
        registry.enqueue([a_task(version, n) for n in range(5)])
        claimed(registry)

        assert registry.count_tasks((TaskState.QUEUED,), 10) == 4
        assert registry.count_tasks((TaskState.QUEUED, TaskState.LEASED), 10) == 5
        assert registry.count_tasks((TaskState.QUEUED,), 3) == 3
        assert registry.count_tasks((TaskState.DONE,), 3) == 0


class TestCancelAndRetry:
    def test_open_tasks_are_cancelled_and_ended_ones_are_not(
        self, registry: SqlRegistry, version: Version
    ) -> None:
        """A worker that has a cancelled one finishes in vain."""
        registry.enqueue([a_task(version, n) for n in range(3)])
        done, leased = claimed(registry), claimed(registry)
        registry.finish(done, DONE, "ada")
        ids = [task.id for task in registry.tasks()]

        assert registry.change_tasks(ids, TaskState.CANCELLED, "eve") == 2
        assert not registry.renew(leased)
        assert not registry.finish(leased, DONE, "ada")
        assert sorted(states(registry)) == [TaskState.CANCELLED, TaskState.CANCELLED, TaskState.DONE]
        events = [event for event in registry.events(subject="digits/1") if event.kind == "task.cancelled"]
        assert {event.actor for event in events} == {"eve"}
        assert len(events) == 2
        assert registry.change_tasks(ids, TaskState.CANCELLED, "eve") == 0
        assert registry.claim(ADA) is None

    def test_a_cancelled_conversion_has_failed(self, registry: SqlRegistry, version: Version) -> None:
        """Unless it had been made before; its variant does not stay converting for ever."""
        registry.put_variant(a_variant(version, "openvino"), "ada")
        registry.put_variant(a_variant(version, "onnx", state=VariantState.CONVERTING), "ada")
        registry.enqueue([a_conversion(version, recipe) for recipe in ("onnx", "openvino", "torchscript")])
        registry.change_tasks([task.id for task in registry.tasks()], TaskState.CANCELLED, "eve")

        onnx, openvino = registry.variants(version)
        assert (onnx.state, onnx.why) == (VariantState.FAILED, "its conversion was cancelled")
        assert openvino.state is VariantState.AGREES

    def test_ended_tasks_are_queued_again(self, registry: SqlRegistry, version: Version) -> None:
        """With no lost workers or deferrals on their account; open ones stay as they are."""
        registry.enqueue([a_task(version)])
        registry.finish(claimed(registry), Outcome(state=TaskState.FAILED, why="its fault"), "ada")
        (failed,) = registry.tasks()

        assert registry.change_tasks([failed.id], TaskState.QUEUED, "eve") == 1
        assert registry.change_tasks([failed.id], TaskState.QUEUED, "eve") == 0
        again = claimed(registry)
        assert (again.id, again.why, again.attempts, again.deferrals) == (failed.id, "", 1, 0)

    def test_a_task_that_was_put_off_can_be_done_now(self, registry: SqlRegistry, version: Version) -> None:
        """Whoever knows that the device is free need not wait, and its next delay is the first again."""
        registry.enqueue([a_task(version)])
        put_off = Outcome(state=TaskState.DEFERRED, why="somebody trains", again_in=1800.0)
        registry.finish(claimed(registry), put_off, "ada")
        (deferred,) = registry.tasks()
        assert registry.claim(ADA) is None

        assert registry.change_tasks([deferred.id], TaskState.QUEUED, "eve") == 1
        again = claimed(registry)
        assert (again.id, again.why, again.deferrals) == (deferred.id, "", 0)

    def test_the_same_work_is_queued_again_once(self, registry: SqlRegistry, version: Version) -> None:
        """Of two ended tasks of a key the newer one, and none while it is open."""
        for _ in range(2):
            registry.enqueue([a_task(version)])
            registry.finish(claimed(registry), Outcome(state=TaskState.FAILED), "ada")
        ids = sorted(task.id for task in registry.tasks())

        assert registry.change_tasks(ids, TaskState.QUEUED, "eve") == 1
        assert [(task.id, task.state) for task in registry.tasks()] == [
            (ids[1], TaskState.QUEUED),
            (ids[0], TaskState.FAILED),
        ]
        assert registry.change_tasks(ids, TaskState.QUEUED, "eve") == 0
        assert registry.change_tasks([], TaskState.QUEUED, "eve") == 0


class TestWorkers:
    def test_those_that_were_heard_of_are_there(
        self, registry: SqlRegistry, let_pass: Callable[[float], None]
    ) -> None:
        """With what they do and for how long they have been silent."""
        registry.announce(ADA, a_target())
        let_pass(50.0)
        registry.announce(replace(EVE, state="digits/1 source: batch 8"), a_target(name="another name"))

        ada, eve = registry.workers()
        assert (ada.state, eve.state) == ("waiting", "digits/1 source: batch 8")
        assert ada.silent == pytest.approx(50.0, abs=5.0)
        assert eve.silent == pytest.approx(0.0, abs=5.0)
        assert ada.software == ADA.software
        let_pass(20.0)
        assert [worker.id for worker in registry.workers()] == ["eve"]

    def test_a_target_has_the_name_that_the_first_worker_gave(self, registry: SqlRegistry) -> None:
        """It is stored once."""
        registry.announce(ADA, a_target())
        registry.put_target(a_target(name="another"))
        registry.put_target(a_target(id="b", name="a"))
        assert [target.name for target in registry.targets()] == ["a", "here"]
        assert registry.targets()[1] == a_target()

    def test_who_leaves_is_gone_and_what_it_held_is_free(
        self, registry: SqlRegistry, version: Version
    ) -> None:
        """At once; its finish is refused once another has the task."""
        registry.announce(ADA, a_target())
        registry.announce(EVE, a_target())
        registry.enqueue([a_task(version)])
        left = claimed(registry)
        registry.leave("ada")

        assert [worker.id for worker in registry.workers()] == ["eve"]
        assert claimed(registry, EVE).id == left.id
        assert not registry.finish(left, DONE, "ada")

    def test_long_silent_ones_are_forgotten(
        self, registry: SqlRegistry, let_pass: Callable[[float], None]
    ) -> None:
        """Their rows do not pile up."""
        registry.announce(ADA, a_target())
        let_pass(90000.0)
        registry.announce(EVE, a_target())
        with registry._database.reading() as connection:
            assert connection.exec_driver_sql("SELECT count(*) FROM workers").scalar() == 1
