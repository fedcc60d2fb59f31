"""Somebody else uses the processor while a worker measures: is such a figure ever shown as fresh?

A foreign process burns one core: from the beginning of what is measured, or from a moment within its first
half until its end. The worker does not look whether the machine is idle before, so that only what it proves
afterwards counts. Some more figures, that nobody disturbs, show that such may be fresh on this machine. Exits
with 1 if a figure that was taken beside the process is fresh.

    python bench/injected_users.py [--figures 100] [--undisturbed 10] [--max-time 2]
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from modeldyno.base import plugins
from modeldyno.engine.environment.idle import IdleRule
from modeldyno.registry import worker
from modeldyno.registry.figures import current_figures
from modeldyno.registry.records.policy import Policy
from modeldyno.registry.records.records import FigureState
from modeldyno.registry.register import Registration, register

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
BURN = "import time; end = time.monotonic() + 120\nwhile time.monotonic() < end: pass"
SHELL = f"\"{sys.executable}\" -c '{BURN}' >/dev/null 2>&1 & echo $!"


@dataclass(slots=True, kw_only=True)
class ForeignUser:
    """A process that is no child of ours, and burns a core."""

    left: int
    """Measurements during which it is still to come."""
    pid: int = 0
    came: int = 0
    """Measurements during which it came."""

    def start(self) -> None:
        """Start it; the shell that starts it ends at once, so that it is nobody's child."""
        shell = subprocess.run(["sh", "-c", SHELL], stdout=subprocess.PIPE, check=True)
        self.pid, self.came = int(shell.stdout), self.came + 1

    def stop(self) -> None:
        """End it."""
        if self.pid:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        self.pid = 0


def main() -> None:
    """Let a worker measure, and count the states of the figures."""
    parser = argparse.ArgumentParser(description="figures taken while somebody else uses the processor")
    parser.add_argument("--figures", type=int, default=100)
    parser.add_argument("--undisturbed", type=int, default=10, help="further figures, without the process")
    parser.add_argument("--max-time", type=float, default=2.0, help="seconds of each probe")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    policy = Policy(
        name="bench",
        convert=(),
        batch_sizes=tuple(range(1, options.figures + options.undisturbed + 1)),
        probes=("latency",),
        max_time=options.max_time,
    )
    user, chance = ForeignUser(left=options.figures), random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MODELDYNO_STORE"] = f"sqlite:///{folder}/store.db"
        with plugins.store() as store:
            registry = store.registry
            registry.put_policy(policy, "bench")
            path = str(ROOT / "examples/digits/digits.onnx")
            register(Registration(model=path, name="digits", policy=policy.name, copy=False), registry)
            with (
                mock.patch.object(worker, "idle_device", _with_user(user, chance, options.max_time)),
                mock.patch.object(worker.canary, "is_due", return_value=False),
            ):
                worker.run_worker(worker.WorkerOptions(once=True, idle=IdleRule(samples=0)))
            figures = current_figures(registry, "digits")
    disturbed, alone = Counter[FigureState](), Counter[FigureState]()
    for figure in figures:
        first = int(figure.measure.settings["batch_size"]) <= options.figures
        (disturbed if first else alone)[figure.state] += 1
    print(
        f"{disturbed.total()} figures, {user.came} of them beside a foreign process: "
        f"{_name_states(disturbed)}"
    )
    print(f"{alone.total()} figures without it: {_name_states(alone)}")
    before_it_came = options.figures - user.came
    raise SystemExit(disturbed[FigureState.FRESH] > before_it_came or disturbed.total() < options.figures)


def _name_states(states: Counter[FigureState]) -> str:
    return ", ".join(f"{count} {state}" for state, count in states.items())


def _with_user(user: ForeignUser, chance: random.Random, max_time: float) -> Any:
    """Return what stands for `idle_device`: the first look of a task is alone, and then somebody comes."""
    measuring = itertools.cycle([False, True])

    @contextmanager
    def used_device(_device: str, _who: str, _rule: IdleRule) -> Iterator[None]:
        if not next(measuring) or not user.left:
            yield
            return
        user.left -= 1
        pause = chance.choice((0.0, chance.uniform(0.0, max_time / 2)))
        timer = threading.Timer(pause, user.start)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()
            user.stop()

    return used_device


if __name__ == "__main__":
    main()
