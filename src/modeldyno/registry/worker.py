"""The worker: leases tasks, waits for an idle device, does them, and hands in what came of it.

That a device is in use is a state of the device and of no task: the worker looks at it again every few
seconds and converts meanwhile, and no task loses its place. Workers at one device take turns, as what one of
them loads or converts would disturb what another measures. An outage of the store, or of the place of the
models' files, is no failure of a task either: it is waited for.
"""

from __future__ import annotations

import math
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from modeldyno.base import plugins
from modeldyno.base.clock import monotonic
from modeldyno.base.errors import DeviceInUse, ModelDynoError, RequestError, StoreUnavailable, UnknownName
from modeldyno.base.identity import new_identity
from modeldyno.engine.environment import idle
from modeldyno.engine.environment.device_lock import device_lock
from modeldyno.engine.environment.idle import IdleRule, idle_device
from modeldyno.engine.runtime.interrupts import counted_interrupts
from modeldyno.registry import canary, execute, webhooks
from modeldyno.registry.figures import repeat_tasks
from modeldyno.registry.interface import Outcome
from modeldyno.registry.outages import OutagePatience, patient_store, pause_after
from modeldyno.registry.policies import policy_of, tasks_missing_on
from modeldyno.registry.records.policy import Window, opens_at
from modeldyno.registry.records.records import FigureState, HardwareTarget, Task, TaskKind, TaskState, Worker
from modeldyno.registry.targets import CPU, devices_here, known_target, software_here, target_here

if TYPE_CHECKING:
    from collections.abc import Iterator, Sized

    from modeldyno.registry.interface import Registry
    from modeldyno.stores.interface import Store

DEFERRALS = (10.0, 60.0, 300.0, 1800.0)
"""Seconds by which a task is put off whose figure others have disturbed: at first, then, and from then on."""
_RENEWAL = 20.0
"""Seconds between two renewals of a lease: a third of it."""
_LOOK_AGAIN = 1.0
"""Seconds between two looks at a device that is waited for."""
_LOCK_PATIENCE = 20.0
"""Seconds for which a worker waits for the lock of its device at once."""
_LOADED_PATIENCE = 120.0
"""The same once the model is loaded, which would be in vain: on a busy machine a command takes a minute."""
_POLL = 0.1
"""Seconds between two tries to get a lock: commands by hand try half as often."""
_GIVE_WAY = 0.5
"""Seconds after a task in which the device is left to whoever waits for it, who looks five times a second."""
_PATIENCE = 60.0
"""Seconds that a worker that waits gives a device to become idle, to take doubtful figures once more."""
_WAITING = "waiting"
_MESSAGES = 5
"""Messages of webhooks that are sent between two tasks: a receiver may take ten seconds for each."""
_NUMBER = re.compile(r"[\d.,]*\d")
_SOON = 600.0
"""Seconds within which a worker that ends when all is done waits for a task that was put off."""
_STALE_CHECK = 60.0
"""Seconds between two checks, by a worker without work, of what has become stale."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """How a worker works."""

    device: str = CPU
    target_name: str | None = None
    idle: IdleRule = field(default_factory=IdleRule)
    poll: float = 2.0
    """Seconds between two looks for a task."""
    once: bool = False
    """Whether to end when nothing is queued."""
    until_done: bool = False
    """Whether to end when nothing is left that could be done within ten minutes."""
    waits: bool = False
    """Whether to wait for a device that is in use, instead of putting its task off, and to take doubtful
    figures once more: at once if it is idle then, else at the end."""
    patience: float = 60.0
    """Seconds that a worker which ends when nothing is queued gives a device that is in use."""
    most: float = math.inf
    """Tasks after which it ends."""
    windows: tuple[Window, ...] = ()
    """Times of day at which it takes tasks, in local time; empty for any time."""
    never_on: tuple[str, ...] = ()
    """Devices of this machine that are never used."""
    hooks: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The words of commands that may be told of events, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDone:
    """What a worker did with a task."""

    task: Task
    outcome: Outcome
    lost: bool = False
    """Whether another worker had the task by then, so that the outcome was refused."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _WorkerContext:
    """A worker at its device."""

    worker: Worker
    target: HardwareTarget
    options: WorkerOptions
    begin: Callable[[Task], None]
    tell: Callable[[str], None]

    shift: _WorkTimer

    def announce(self, registry: Registry, state: str) -> None:
        now = replace(self.worker, state=state, alive=self.shift.alive(), worked=self.shift.worked())
        registry.announce(now, self.target)


@dataclass(slots=True)
class _WorkTimer:
    """How long a worker is there, how much of it it has worked, and what it knows of its device."""

    began: float
    done: float = 0.0
    """Seconds of the tasks that have ended."""
    task_began: float | None = None
    busy: str = ""
    """Who used the device at the last look; empty if it was idle, or shall be looked at."""
    waits_since: float | None = None
    """When the device was found in use, if nothing was measured since."""
    reported: str = ""
    """Who was last said to use the device since it was idle, without numbers."""
    seen_idle: float = -math.inf
    """When the device was last known to be used by nobody else."""
    tries: int = 0
    """Tasks in a row whose files could not be fetched or kept."""
    out_of_reach: list[int] = field(default_factory=list)
    """These tasks: they come after all others."""
    outage: str = ""
    """Why."""
    outage_since: float = 0.0

    def alive(self) -> float:
        return monotonic() - self.began

    def worked(self) -> float:
        return self.done + (0.0 if self.task_began is None else monotonic() - self.task_began)

    def found_busy(self, why: str) -> None:
        self.busy = why
        self.waits_since = monotonic() if self.waits_since is None else self.waits_since

    def found_idle(self) -> None:
        self.busy, self.reported, self.waits_since, self.seen_idle = "", "", None, monotonic()

    def found_outage(self, task: Task, why: str) -> None:
        if not self.tries:
            self.outage, self.outage_since = why, monotonic()
        self.tries += 1
        self.out_of_reach.append(task.id)

    def found_no_outage(self) -> float:
        """Note that files can be reached again; return for how many seconds they could not."""
        self.tries, self.out_of_reach = 0, []
        return monotonic() - self.outage_since

    def waits_for(self) -> float:
        return 0.0 if self.waits_since is None else monotonic() - self.waits_since

    @contextmanager
    def task(self) -> Iterator[None]:
        """Count the time of the block as work."""
        self.task_began = monotonic()
        try:
            yield
        finally:
            self.done, self.task_began = self.worked(), None


def run_worker(
    options: WorkerOptions,
    *,
    begin: Callable[[Task], None] = lambda _task: None,
    done: Callable[[TaskDone], None] = lambda _done: None,
    tell: Callable[[str], None] = lambda _sentence: None,
) -> str:
    """Work until interrupted, or with `once` until nothing is left that could be done now.

    The first Ctrl-C lets the current measurement finish; its task is queued again.

    Args:
        options: where and how.
        begin: called with each task when it begins.
        done: called with each task that ended, was deferred, or was lost.
        tell: called with what has changed of this machine.

    Returns:
        Why what is left could not be done, such as who has used the device for a minute; else nothing.

    Raises:
        UnknownName: this machine has no such device.
        RequestError: the device is one of those that are never used.
        StoreError: the store cannot be read or written. An outage that comes later is waited for: without
            end, or with `once` for a minute.
    """
    if options.device not in devices_here():
        raise UnknownName.among("device", options.device, (*devices_here(), "all"))
    if options.device in options.never_on:
        raise RequestError(f"{options.device} is a device that is never to be used here; give another one.")
    here = target_here(options.device, options.target_name)
    with plugins.store() as store, counted_interrupts() as interrupts:
        target = known_target(here, store.registry)
        worker, shift = new_worker(target), _WorkTimer(began=monotonic())
        post = _WorkerContext(
            worker=worker, target=target, options=options, begin=begin, tell=tell, shift=shift
        )
        most = options.patience if options.once else math.inf
        patience = OutagePatience(pause=pause, tell=tell, interrupts=interrupts, most=most)
        patient = patient_store(store, patience)
        post.announce(store.registry, _WAITING)
        try:
            patient.registry.enqueue(tuple(tasks_missing_on(patient.registry, target.id)))
            return _work(patient, post, interrupts, done)
        finally:
            with suppress(ModelDynoError):
                store.registry.leave(worker.id)


def new_worker(target: HardwareTarget) -> Worker:
    """Return this process as a worker that waits at a device of this machine."""
    return Worker(
        id=new_identity()["id"],
        target=target.id,
        host=socket.gethostname(),
        pid=os.getpid(),
        software=software_here(),
        state=_WAITING,
    )


@dataclass(slots=True)
class _Tried:
    """The tasks of one run of a worker."""

    ids: list[int] = field(default_factory=list)
    """With `once`, one that is put off must not come again in the same run."""
    doubtful: list[Task] = field(default_factory=list)
    """But for these, by a worker that waits."""
    again: set[int] = field(default_factory=set)

    def to_leave(self) -> list[int]:
        return [each for each in self.ids if each not in self.again]

    def add(self, ended: TaskDone, post: _WorkerContext) -> None:
        """Note a task that was done; a doubtful figure is taken once more by a worker that waits."""
        task = ended.task
        first = task.id not in self.ids
        self.ids.append(task.id)
        self.again.discard(task.id)
        if first and post.options.waits and _is_doubtful(ended.outcome):
            if _why_busy(post):
                self.doubtful.append(task)
            else:
                self.again.add(task.id)


def _work(store: Store, post: _WorkerContext, interrupts: Sized, done: Callable[[TaskDone], None]) -> str:
    """Work until interrupted, or with `once` until nothing is left; return what keeps it from the rest."""
    registry, options, shift = store.registry, post.options, post.shift
    checked, tried = -math.inf, _Tried()
    while not interrupts and len(tried.ids) < options.most:
        opening = opens_at(options.windows, local_now())
        with _turn(post, interrupts):
            if monotonic() - checked >= _STALE_CHECK:
                _look_after_figures(store, post, interrupts, opens=opening is None)
                checked = monotonic()
            ended = None if opening else _do_next(registry, post, interrupts, tried)
        if ended is None:
            reason = _rest(registry, post, interrupts, tried, opening)
            if reason is not None:
                return reason
        elif ended.outcome.state is not TaskState.QUEUED:
            done(ended)
            tried.add(ended, post)
            webhooks.send_due(registry, most=_MESSAGES, hooks=options.hooks)
            pause(_GIVE_WAY, interrupts)
        elif shift.tries:  # its files cannot be reached
            post.announce(registry, f"{_WAITING} for the models' files")
            pause(pause_after(shift.tries), interrupts)
    return ""


def _rest(
    registry: Registry, post: _WorkerContext, interrupts: Sized, tried: _Tried, opening: datetime | None
) -> str | None:
    """Wait a moment, as nothing can be done now; return why the worker ends, if it does, or nothing."""
    options, shift = post.options, post.shift
    if shift.busy:
        if options.once and shift.waits_for() > options.patience:
            return f"{options.device} was in use for a minute: {shift.busy}"
        post.announce(registry, f"{_WAITING} for {options.device}")
        pause(_LOOK_AGAIN, interrupts)
        shift.busy = ""
    elif shift.out_of_reach:  # nothing else is left
        if options.once and monotonic() - shift.outage_since > options.patience:
            return f"files could not be reached for a minute: {shift.outage}"
        shift.out_of_reach = []
    elif tried.doubtful and not opening:
        if _becomes_idle(post, tried.doubtful, interrupts):
            tried.again = {each.id for each in tried.doubtful}
        tried.doubtful = []
    elif options.once or (options.until_done and not _is_left(registry, post)):
        _say_when(post, opening)
        return ""
    else:
        post.announce(registry, f"{_WAITING} until {opening:%H:%M}" if opening else _WAITING)
        pause(options.poll, interrupts)
    return None


def _is_left(registry: Registry, post: _WorkerContext) -> bool:
    """Return whether there is a task for this worker that may be done soon."""
    return not registry.targets_waited_for(_SOON).isdisjoint({"", post.target.id})


def _say_when(post: _WorkerContext, opening: datetime | None) -> None:
    if opening:
        post.tell(f"Outside its windows a worker does nothing; the next one begins at {opening:%H:%M}.")


def _do_next(registry: Registry, post: _WorkerContext, interrupts: Sized, tried: _Tried) -> TaskDone | None:
    """Do the first task that can be done, a conversion where others use the device; None if there is none."""
    task = registry.claim(
        post.worker,
        leave=[*post.shift.out_of_reach, *(tried.to_leave() if post.options.once else ())],
        kinds=(TaskKind.CONVERT,) if post.shift.busy else (),
    )
    if task is None:
        return None
    once_more = post.options.waits and task.id not in tried.ids
    return _do(task, registry, post, interrupts, once_more=once_more)


def _look_after_figures(store: Store, post: _WorkerContext, interrupts: Sized, *, opens: bool) -> None:
    """Send what is due to webhooks, check the machine if the worker may work now, and queue what is stale."""
    registry = store.registry
    webhooks.send_due(registry, most=_MESSAGES, hooks=post.options.hooks)
    if opens:
        _check_machine(store, post, interrupts)
    registry.enqueue(tuple(repeat_tasks(registry, post.target.id)))


@contextmanager
def _turn(post: _WorkerContext, interrupts: Sized) -> Iterator[None]:
    """Be the only worker of this device during the block; interrupted, do not wait for that."""
    with ExitStack() as held:
        while not interrupts:
            turn = device_lock(f"worker-{post.options.device}", f"worker {post.worker.id}")
            if held.enter_context(turn) is None:
                break
            held.close()
            pause(_POLL, interrupts)
        yield


def _check_machine(store: Store, post: _WorkerContext, interrupts: Sized) -> None:
    """Take the daily reading of the reference model, if the processor is idle now."""
    if post.options.device != CPU or not canary.is_due(store, post.target.id):
        return
    what = "reference model"
    post = replace(post, options=replace(post.options, waits=False))  # its tasks come first
    with suppress(DeviceInUse):
        _glance(post, what, interrupts)
        post.announce(store.registry, what)
        guard = partial(_device_held, post, what, interrupts)
        if change := canary.check_machine(store, post.target.id, interrupts, guard):
            post.tell(change)


def _do(
    task: Task, registry: Registry, post: _WorkerContext, interrupts: Sized, *, once_more: bool
) -> TaskDone:
    """Do a task that is leased, and hand in what came of it; a doubtful figure may be due `once_more` now."""
    post.announce(registry, task.label)
    begin = monotonic()
    with post.shift.task(), _renewing(task, post):
        outcome = _outcome(task, registry, post, interrupts)
    unfinished = outcome.result is None or outcome.result.interrupted
    if interrupts and outcome.variant is None and unfinished:  # a conversion that is done is kept
        outcome = Outcome(state=TaskState.DEFERRED, why="its worker was stopped")
    elif outcome.figure is not None and not _is_doubtful(outcome):
        post.shift.found_idle()
    elif _is_doubtful(outcome) and not _disregards_others(post):
        outcome = replace(outcome, state=TaskState.DEFERRED, again_in=0.0 if once_more else _deferral(task))
    if outcome.state is not TaskState.QUEUED and post.shift.tries:
        seconds = post.shift.found_no_outage()
        post.tell(f"The models' files can be reached again, after {seconds:.0f} s.")
    held = registry.finish(task, outcome, post.worker.id)
    return TaskDone(task=task, outcome=outcome, lost=not held, seconds=monotonic() - begin)


def _outcome(task: Task, registry: Registry, post: _WorkerContext, interrupts: Sized) -> Outcome:
    """Convert at once; measure only on an idle device. What cannot be done now is queued as it was."""
    try:
        return _attempt(task, registry, post, interrupts)
    except DeviceInUse as error:
        if (reason := _without_numbers(str(error))) != post.shift.reported:
            post.tell(f"Waiting for {post.options.device}: {error}")
            post.shift.reported = reason
        post.shift.found_busy(str(error))
        return Outcome(state=TaskState.QUEUED, why=str(error))
    except StoreUnavailable as error:
        if not post.shift.tries:
            post.tell(f"{error} It is waited for.")
        post.shift.found_outage(task, str(error))
        return Outcome(state=TaskState.QUEUED, why=str(error))


def _attempt(task: Task, registry: Registry, post: _WorkerContext, interrupts: Sized) -> Outcome:
    """Do a task, with the lock of the device while it is measured.

    Raises:
        DeviceInUse: somebody else uses the device.
        StoreUnavailable: the model's files cannot be fetched or kept now.
    """
    if task.kind is TaskKind.CONVERT:
        post.begin(task)
        return execute.convert(task, registry)
    now = local_now()
    policy = policy_of(registry, task)
    if opening := opens_at(policy.windows, now):
        return Outcome(
            state=TaskState.DEFERRED,
            why=f"the policy {policy.name} measures from {opening:%H:%M}",
            again_in=opening.timestamp() - now.timestamp(),
        )
    guard = partial(_device_held, post, task.label, interrupts)
    _glance(post, task.label, interrupts)
    post.begin(task)
    do = execute.compare if task.kind is TaskKind.COMPARE else execute.measure
    return do(task, registry, post.options.device, guard=guard, interrupts=interrupts)


def local_now() -> datetime:
    """Return the time of day here."""
    return datetime.now()  # noqa: DTZ005 - windows are in local time


def _glance(post: _WorkerContext, what: str, interrupts: Sized) -> None:
    """Look once: loading for a device that is in use would be in vain, and would disturb who uses it.

    Raises:
        DeviceInUse: somebody else uses it.
    """
    with _device_held(post, what, interrupts, samples=0 if _was_idle(post) else 1):
        pass


def _was_idle(post: _WorkerContext) -> bool:
    """Return whether the worker's own measurement, which others did not disturb, ended just now."""
    rule = post.options.idle
    return monotonic() - post.shift.seen_idle < rule.samples * rule.period


@contextmanager
def _device_held(
    post: _WorkerContext, what: str, interrupts: Sized, samples: int | None = None
) -> Iterator[None]:
    """Hold the device during the block; a worker that waits tells who else uses it, and looks again.

    Others who want to measure wait while it is looked at, so that it is idle in their turn, too. It is looked
    at once if it was just idle, else as often as the rule says; or `samples` times.

    Raises:
        DeviceInUse: somebody else uses it.
    """
    options, reported, patience = post.options, "", _LOCK_PATIENCE
    if samples is None:
        samples, patience = 1 if _was_idle(post) else options.idle.samples, _LOADED_PATIENCE
    rule = replace(options.idle, samples=min(samples, options.idle.samples))
    with ExitStack() as held:
        while why := _hold(held, post, what, rule, interrupts, patience):
            if not options.waits or interrupts:
                raise DeviceInUse(why)
            if (reason := _without_numbers(why)) != reported:
                post.tell(f"{what} waits for {options.device}: {why}")
                reported = reason
            pause(_LOOK_AGAIN, interrupts)
        yield


def _without_numbers(why: str) -> str:
    """Return who uses a device without how much and as which process, which differ at each look."""
    return _NUMBER.sub("", why)


def _hold(
    held: ExitStack, post: _WorkerContext, what: str, rule: IdleRule, interrupts: Sized, patience: float
) -> str:
    """Enter the lock of the device if it is idle; else return who uses it.

    A lock is free for half a second between two commands in a row, and is waited for.
    """
    device, end = post.options.device, monotonic() + patience
    while (holder := held.enter_context(device_lock(device, f"modeldyno worker: {what}"))) is not None:
        held.close()
        if interrupts or monotonic() >= end:
            return f"{holder} measures on {device}"
        pause(_POLL, interrupts)
    if busy := idle.busy_reason(device, rule):
        held.close()
        return busy
    return ""


def _is_doubtful(outcome: Outcome) -> bool:
    return outcome.figure is not None and outcome.figure.state is FigureState.DOUBTFUL


def _disregards_others(post: _WorkerContext) -> bool:
    """Return whether figures are taken beside whatever others use: doubtful ones are not taken again."""
    return post.options.device == CPU and post.options.idle.cpu >= 1


def _why_busy(post: _WorkerContext) -> str:
    """Look once whether the device is idle now; return who uses it, or nothing."""
    try:
        with idle_device(post.options.device, "modeldyno worker", IdleRule(samples=1)):
            return ""
    except DeviceInUse as error:
        return str(error)


def _becomes_idle(post: _WorkerContext, doubtful: Sequence[Task], interrupts: Sized) -> bool:
    """Wait a while for an idle device, and tell for what and how long; return whether it is idle."""
    device, end, reported = post.options.device, monotonic() + _PATIENCE, False
    while not interrupts and (busy := _why_busy(post)):
        if not reported:
            labels = ", ".join(task.label for task in doubtful)
            post.tell(
                f"{labels}: doubtful; waits up to {_PATIENCE:.0f} s for an idle {device} to measure again, "
                f"else a later worker does: {busy}"
            )
            reported = True
        if monotonic() >= end:
            return False
        pause(_LOOK_AGAIN, interrupts)
    return not interrupts


def _deferral(task: Task) -> float:
    return DEFERRALS[min(task.deferrals, len(DEFERRALS) - 1)]


@contextmanager
def _renewing(task: Task, post: _WorkerContext) -> Iterator[None]:
    """Renew the lease of a task, and say that the worker is there, while the block runs."""
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(_RENEWAL):
            with suppress(ModelDynoError), plugins.store() as store:
                store.registry.renew(task)
                post.announce(store.registry, task.label)

    thread = threading.Thread(target=renew, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def pause(seconds: float, interrupts: Sized) -> None:
    """Sleep for some seconds, or until interrupted."""
    end = monotonic() + seconds
    while not interrupts and (left := end - monotonic()) > 0:
        time.sleep(min(0.1, left))
