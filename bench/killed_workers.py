"""Workers are killed with -9 and stopped for longer than their lease: is a task lost, or done twice?

Real processes lease tasks, work some milliseconds, renew, and hand in a Result, as workers do. Killed ones
are replaced, and meanwhile the clock steps by an hour either way: the wall clock of every process, and what
PostgreSQL says of its own. At the end each task must have exactly one Result and one event that says so; one
may have failed instead, if three of its workers were lost, as the queue promises. Exits with 1 if a promise
is broken, or if a task of a lost worker was still its own ten seconds after the lease.

    python bench/killed_workers.py [--store sqlite:///DIR/queue.db] [--tasks 2000] [--kills 200] [--stops 100]
        [--clock-steps 40]
    python bench/killed_workers.py --store postgresql                        # a server of its own
    python bench/killed_workers.py --store postgresql://user@host/database   # an empty one
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.sharedctypes import RawValue
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.support.postgres import empty_store
from tests.support.sample_registry import a_figure, a_task, a_version, a_worker

from modeldyno.base.errors import StoreError
from modeldyno.registry.interface import Outcome
from modeldyno.registry.records.records import TaskState
from modeldyno.registry.store.sql_registry import SqlRegistry
from modeldyno.registry.store.tasks import LOST
from modeldyno.stores import clock, database
from modeldyno.testing.sample_results import a_small_result

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

    from modeldyno.registry.records.records import Task

GRACE = 10.0
"""Seconds after the end of its lease at which a task counts as stuck."""
STEP = 3600.0
"""Seconds by which the clock steps."""
CLOCK_SHARE = 0.2
"""Of all hits, those that set the clock."""
OFFSET = RawValue("d", 0.0)
"""Seconds by which the clock is wrong now, in all processes."""


@dataclass
class Counts:
    """What was seen."""

    kills: int = 0
    stops: int = 0
    clock_steps: int = 0
    gone: dict[str, float] = field(default_factory=dict)
    """When each worker was killed, or stopped until now."""
    longest: float = 0.0
    """Seconds from the loss of a worker to when its task was last seen to be its own."""


def open_registry(url: str, lease: float) -> SqlRegistry:
    """Open the registry of a store, with a lease as short as the test wants it."""
    return SqlRegistry(database.connect(url)[0], Path(tempfile.gettempdir()), lease=lease)


def let_clock_step() -> None:
    """Let the wall clock of this process and of those that it starts, and a server's, be wrong by OFFSET."""
    wall, of_database = time.time, clock.now

    def now(connection: Connection) -> tuple[float, str]:
        seconds, boot = of_database(connection)
        return (seconds, boot) if boot else (seconds + OFFSET.value, "")

    time.time = lambda: wall() + OFFSET.value
    clock.now = now


def work(url: str, lease: float, log: Path, seed: int) -> NoReturn:
    """Be a worker until killed; each finish is written down, with whether it was taken."""
    chance = random.Random(seed)
    registry = open_registry(url, lease)
    me = a_worker(str(os.getpid()))
    with log.open("a", buffering=1) as lines:
        while True:
            with suppress(StoreError):  # the database was locked for too long
                task = registry.claim(me)
                if task is None:
                    time.sleep(0.02)
                    continue
                # One in thirty takes longer than its lease, and lives by its renewals.
                long = chance.random() < 1 / 30
                end = time.monotonic() + (1.5 * lease if long else chance.uniform(0.005, 0.06))
                while (left := end - time.monotonic()) > 0:
                    time.sleep(min(left, lease / 3))
                    if not registry.renew(task):
                        break
                held = registry.finish(task, outcome(task, chance), me.id)
                lines.write(f"{task.id} {int(held)}\n")


def outcome(task: Task, chance: random.Random) -> Outcome:
    """Make what a measurement hands in: a Result of its own, and its figure."""
    result = a_small_result(id=f"{chance.getrandbits(48):012x}")
    return Outcome(state=TaskState.DONE, result=result, figure=a_figure(task, result=result.id))


def start_worker(work_: Callable[[int], NoReturn], seed: int) -> int:
    """Start a worker: a process of its own that shares nothing but the database."""
    pid = os.fork()
    if pid == 0:
        try:
            work_(seed)
        finally:
            os._exit(1)
    return pid


def queue(url: str, count: int) -> None:
    """Register a version, and queue tasks for it; the connection is not left to the workers."""
    connected, _ = database.connect(url)
    registry = SqlRegistry(connected, Path(tempfile.gettempdir()))
    version, _ = registry.add_version(a_version())
    registry.enqueue([a_task(version, n + 1) for n in range(count)])
    connected.close()


def run(options: argparse.Namespace, url: str, folder: Path) -> dict[str, object]:
    """Kill and stop workers until all is done; return the figures."""
    chance = random.Random(options.seed)
    queue(url, options.tasks)
    logs: list[Path] = []

    def one(seed: int) -> NoReturn:
        work(url, options.lease, folder / f"{seed}.log", seed)

    def new() -> int:
        seed = options.seed * 1_000_000 + len(logs)
        logs.append(folder / f"{seed}.log")
        return start_worker(one, seed)

    let_clock_step()
    counts = Counts()
    workers = [new() for _ in range(options.workers)]
    stopped: dict[int, float] = {}
    begin = time.monotonic()
    watcher = open_registry(url, options.lease)
    try:
        while (left := still_open(watcher, counts)) or more(counts, options):
            if time.monotonic() - begin > options.limit:
                break
            if left == 0:  # so that each kill has something to hit
                version = watcher.versions("digits")[0]
                first = options.tasks + 1
                watcher.enqueue([a_task(version, n) for n in range(first, first + 100)])
                options.tasks += 100
            hit_worker(workers, stopped, counts, options, chance, new)
            time.sleep(chance.uniform(0, options.pause))
        seconds = time.monotonic() - begin
        time.sleep(3 * options.lease if stopped else 0)
    finally:
        for pid in (*workers, *stopped):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        time.sleep(1.0)  # late ones try to finish
        for pid in workers:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return figures(watcher, counts, logs, options) | {"seconds": round(seconds, 1)}


def more(counts: Counts, options: argparse.Namespace) -> bool:
    """Whether somebody is still to be killed or stopped."""
    return bool(
        counts.kills < options.kills
        or counts.stops < options.stops
        or counts.clock_steps < options.clock_steps
    )


def hit_worker(
    workers: list[int],
    stopped: dict[int, float],
    counts: Counts,
    options: argparse.Namespace,
    chance: random.Random,
    new: Callable[[], int],
) -> None:
    """Kill or stop one of the workers or set the clock, and let those go on that were stopped long enough."""
    for pid, until in list(stopped.items()):
        if time.monotonic() >= until:
            counts.gone.pop(str(pid), None)
            os.kill(pid, signal.SIGCONT)
            del stopped[pid]
    if counts.clock_steps < options.clock_steps and chance.random() < CLOCK_SHARE:
        OFFSET.value += chance.choice((STEP, -STEP))
        counts.clock_steps += 1
        return
    running = [pid for pid in workers if pid not in stopped]
    victim = chance.choice(running)
    if counts.stops < options.stops and len(stopped) < len(workers) // 3:
        os.kill(victim, signal.SIGSTOP)
        counts.gone[str(victim)] = time.monotonic()
        stopped[victim] = time.monotonic() + chance.uniform(1.2, 2.2) * options.lease
        counts.stops += 1
    elif counts.kills < options.kills:
        os.kill(victim, signal.SIGKILL)
        os.waitpid(victim, 0)
        counts.gone[str(victim)] = time.monotonic()
        workers[workers.index(victim)] = new()
        counts.kills += 1


def still_open(registry: SqlRegistry, counts: Counts) -> int:
    """Count the tasks that are still to be done, and watch for those that stay with a lost worker."""
    now = time.monotonic()
    tasks = registry.tasks(states=[TaskState.QUEUED, TaskState.LEASED], limit=100_000)
    holders = (task.worker for task in tasks if task.state is TaskState.LEASED)
    waits = (now - counts.gone[holder] for holder in holders if holder in counts.gone)
    counts.longest = max([counts.longest, *waits])
    return len(tasks)


def figures(
    registry: SqlRegistry, counts: Counts, logs: list[Path], options: argparse.Namespace
) -> dict[str, object]:
    """Count by the database, and by what the workers wrote down."""
    tasks = registry.tasks(limit=1_000_000)
    done = [task for task in tasks if task.state is TaskState.DONE]
    failed = [task for task in tasks if task.state is TaskState.FAILED and task.why == LOST]
    events = registry.events(newest=1_000_000)
    said_done = Counter(event.detail["task"] for event in events if event.kind == "task.done")
    taken: Counter[str] = Counter()
    refused = 0
    for log in logs:
        for line in log.read_text().splitlines() if log.exists() else ():
            task, held = line.split()
            taken[task] += held == "1"
            refused += held == "0"
    results = len(registry.results_of([a_small_result().model.digest]))  # type: ignore[union-attr]
    return {
        "tasks": options.tasks,
        "killed": counts.kills,
        "stopped": counts.stops,
        "clock steps of an hour": counts.clock_steps,
        "done": len(done),
        "failed after three lost workers": len(failed),
        "lost": options.tasks - len(done) - len(failed),
        "finished twice": sum(n > 1 for n in said_done.values())
        + sum(n > 1 for n in taken.values())
        + abs(results - len(done))
        + abs(len(said_done) - len(done)),
        "late finishes refused": refused,
        "leases taken over": sum(task.attempts - 1 for task in tasks if task.attempts),
        "longest with a lost worker, s": round(counts.longest, 2),
        "stuck past lease + 10 s": int(counts.longest > options.lease + GRACE),
        "first broken event": registry.first_broken_event(),
    }


def main() -> None:
    """Run, and print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--store", help="URL of an empty store, or postgresql; by default a file")
    parser.add_argument("--tasks", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--stops", type=int, default=100)
    parser.add_argument("--clock-steps", type=int, default=40, help="by an hour, either way")
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--lease", type=float, default=1.0, help="seconds")
    parser.add_argument("--pause", type=float, default=0.25, help="most seconds between two hits")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds after which it gives up")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="queue-kills-") as folder, empty_store(options.store) as url:
        counts = run(options, url, Path(folder))
    print(json.dumps(counts, indent=2))
    broken = ("lost", "finished twice", "stuck past lease + 10 s", "first broken event")
    sys.exit(any(counts[name] for name in broken))


if __name__ == "__main__":
    main()
