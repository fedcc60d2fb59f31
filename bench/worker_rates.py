"""How many figures a minute do workers take: one, three on one machine, and one beside commands by hand?

A queue of short measurements of the digit classifier is done once by one worker, once by three that share the
machine, and once by one beside a loop of `modeldyno profile`. Each worker disregards what others use, so that
the rates show what workers lose to each other and to their own waiting, on any machine. Runs alternate, as
the load of a shared machine drifts. Exits with 1 if three workers take less than 0.9 of the rate of one, or a
task is done twice.

    python bench/worker_rates.py [--tasks 12] [--rounds 2] [--idle-cpu 100%]
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import modeldyno
from modeldyno.base import plugins
from modeldyno.registry.records.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
MODEL = ROOT / "examples" / "digits" / "digits.onnx"
COMMAND = [sys.executable, "-m", "modeldyno"]
KINDS = {"one worker": (1, False), "three workers": (3, False), "one beside a loop by hand": (1, True)}
"""How many workers there are, and whether somebody measures by hand meanwhile."""
GOAL = 0.9


@contextmanager
def run_until_the_end(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command until the block ends; what it says goes to standard error."""
    process = subprocess.Popen(command, cwd=ROOT, stdout=sys.stderr)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def queue(count: int) -> None:
    """Register the model, with so many short measurements."""
    policy = Policy(name="brief", convert=(), batch_sizes=tuple(range(1, count + 1)), max_time=0.5)
    with plugins.store() as store:
        store.registry.put_policy(policy, "bench")
    modeldyno.registry.add(MODEL, policy="brief")


def measure_by_hand(end: float) -> int:
    """Run one command by hand, unless the time is over; return whether it measured."""
    left = max(1.0, end - time.monotonic())
    words = ["profile", str(MODEL), "--max-time", "2s", "--no-store"]
    with suppress(subprocess.TimeoutExpired):
        done = subprocess.run([*COMMAND, *words], cwd=ROOT, capture_output=True, timeout=left, check=False)
        return int(done.returncode == 0)
    return 0


def figures_a_minute(workers: int, *, by_hand: bool, options: argparse.Namespace) -> dict[str, float]:
    """Let workers do a queue; return the rate once each worker has done a task, and the commands.

    The first task of a worker loads what the later ones find loaded, and they take turns.
    """
    with tempfile.TemporaryDirectory(prefix="rates-") as folder, ExitStack() as stack:
        os.environ["MODELDYNO_STORE"] = f"sqlite:///{folder}/store.db"
        os.environ["XDG_DATA_HOME"] = folder
        queue(options.tasks)
        for _ in range(workers):
            stack.enter_context(run_until_the_end([*COMMAND, "worker", "--idle-cpu", options.idle_cpu]))
        times: list[float] = []
        commands, end = 0, time.monotonic() + options.patience
        while len(times) < options.tasks and time.monotonic() < end:
            if by_hand:
                commands += measure_by_hand(end)
            else:
                time.sleep(0.1)
            done = Counter(
                t.id for t in modeldyno.registry.tasks("digits", ended=True, limit=1000) if t.result
            )
            times += [time.monotonic()] * (len(done) - len(times))
        events = modeldyno.registry.history("digits", limit=1000)
    ended = Counter(event.detail["task"] for event in events if event.kind == "task.done")
    if max(ended.values(), default=0) > 1:
        raise SystemExit(f"a task was done twice: {ended.most_common(1)}")
    later = [each - times[workers - 1] for each in times[workers:]]
    kinds = Counter(event.kind for event in events)
    return {
        "rate": 60 * len(later) / later[-1] if later else 0.0,
        "not done": options.tasks - len(ended),
        "commands": commands,
        "put off": kinds["task.deferred"],
    }


def main() -> int:
    """Print the rates as JSON; return 1 if three workers are slower than they may be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--kind", choices=KINDS, action="append", help="only this; repeatable")
    parser.add_argument("--idle-cpu", default="100%")
    parser.add_argument("--patience", type=float, default=900.0, help="seconds for each queue")
    options = parser.parse_args()
    rates: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(options.rounds):
        for kind in options.kind or KINDS:
            workers, by_hand = KINDS[kind]
            seen = figures_a_minute(workers, by_hand=by_hand, options=options)
            rates[kind].append(seen["rate"])
            print(
                json.dumps({"kind": kind, **{name: round(value, 2) for name, value in seen.items()}}),
                flush=True,
            )
    if not (rates["one worker"] and rates["three workers"]):
        return 0
    share = median(rates["three workers"]) / median(rates["one worker"])
    print(json.dumps({"three workers, of the rate of one": round(share, 2), "goal": GOAL}))
    return int(share < GOAL)


if __name__ == "__main__":
    sys.exit(main())
