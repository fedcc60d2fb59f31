"""How long a worker holds its device's lock, and for how much of that time nothing is measured.

Two models are registered, digits and all-MiniLM-L6-v2 (``make setup`` installs it), and measured by a
worker as the built-in policy says, the source alone. A probe is taken to measure from its first progress
event to its last.

    python bench/lock_time.py [--max-time 20] [--batch-sizes 1,8]
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from minilm import directory

from modeldyno.base import plugins
from modeldyno.base.job.version_name import VersionName
from modeldyno.base.result.result import Event, Progressed
from modeldyno.engine.environment import idle
from modeldyno.engine.environment.idle import IdleRule
from modeldyno.profiling.run import run_request
from modeldyno.registry import execute, worker
from modeldyno.registry.records.policy import Policy
from modeldyno.registry.register import Registration, register

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from modeldyno.profiling.run import JudgedResult

ROOT = Path(__file__).parent.parent
GOAL = 0.05
PROBES = ("latency", "throughput")


@dataclass(slots=True)
class Times:
    """What was seen of a model."""

    held: float = 0.0
    measured: float = 0.0
    task: float = 0.0


def main() -> None:
    """Print a row for each model."""
    parser = argparse.ArgumentParser(description="time for which a worker holds its device's lock")
    parser.add_argument("--max-time", type=float, default=20.0, help="of each probe, as in a policy")
    parser.add_argument("--batch-sizes", default="1,8")
    options = parser.parse_args()
    models = {"digits": str(ROOT / "examples/digits/digits.onnx"), "minilm": f"hf:{directory()}"}
    policy = Policy(
        name="bench",
        convert=(),
        batch_sizes=tuple(map(int, options.batch_sizes.split(","))),
        max_time=options.max_time,
    )
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MODELDYNO_STORE"] = f"sqlite:///{folder}/store.db"
        print("model     of tasks  lock held  measured  held while nothing is measured")
        worst = 0.0
        for name, reference in models.items():
            times = _measure(name, reference, policy, Path(folder))
            idle = 1 - times.measured / times.held
            worst = max(worst, idle)
            seconds = f"{times.task:9.1f} s{times.held:9.1f} s{times.measured:8.1f} s"
            print(f"{name:8}{seconds}{idle:12.1%}", flush=True)
    raise SystemExit(worst > GOAL)


def _measure(name: str, reference: str, policy: Policy, folder: Path) -> Times:
    """Let a worker measure a model, and time it."""
    times = Times()
    with plugins.store() as store:
        store.registry.put_policy(policy, "bench")
        register(Registration(model=reference, name=name, policy=policy.name, copy=False), store.registry)
        version = store.registry.version(VersionName.parse(name))
        assert version.name == f"{name}/1"
    options = worker.WorkerOptions(once=True, idle=IdleRule(samples=0))
    with (
        mock.patch.object(idle, "device_lock", _timing_lock(idle.device_lock, times, folder)),
        mock.patch.object(execute, "run_request", _watching_run(times)),
        mock.patch.object(worker.canary, "is_due", return_value=False),
    ):
        worker.run_worker(options, done=lambda done: _add(times, done))
    return times


def _timing_lock(lock: Callable[..., Any], times: Times, folder: Path) -> Callable[..., Any]:
    @contextmanager
    def time_lock(device: str, who: str) -> Iterator[str | None]:
        with lock(device, who, folder=folder) as holder:
            begin = time.monotonic()
            yield holder
            times.held += time.monotonic() - begin

    return time_lock


def _watching_run(times: Times) -> Callable[..., JudgedResult]:
    def run(request: Any, *, watch: Callable[[Event], None], **options: Any) -> JudgedResult:
        moments: dict[str, list[float]] = {}

        def see(event: Event) -> None:
            watch(event)
            if isinstance(event, Progressed):
                probe = event.stage.partition(":")[0]
                moments.setdefault(probe, []).append(time.monotonic())

        judged = run_request(request, watch=see, **options)
        times.measured += sum(moments[probe][-1] - moments[probe][0] for probe in PROBES if probe in moments)
        return judged

    return run


def _add(times: Times, done: worker.TaskDone) -> None:
    times.task += done.seconds
    if done.outcome.result is None:
        raise SystemExit(f"{done.task.label}: {done.outcome.why}")


if __name__ == "__main__":
    main()
