"""Processes that were measured once, given again: commands are typed for real, without the waiting.

What a process of a model would have measured comes from runs of unchanged models that a busy machine made
(``bench/gate_runs``), one after another as they were made, scaled to the times of the model in question.
So what a user types is carried out whole, with files, store, rules and exit codes, in a second.
"""

from __future__ import annotations

import io
import json
import os
import runpy
import sys
import warnings
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from hashlib import sha256
from itertools import count, cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests import test_action
from tests.proofs import commands
from tests.support.fake_clock import replace_everywhere, replace_monotonic

from modeldyno.base.clock import monotonic
from modeldyno.base.job.model_ref import ModelIdentity
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Distribution, Measurement, observed_number
from modeldyno.base.result.result import Environment, Result
from modeldyno.cli import main
from modeldyno.comparison import gate as _gate  # noqa: F401 - to be there when names are replaced
from modeldyno.engine.runtime import session as _session  # noqa: F401
from modeldyno.engine.runtime.child_process import subprocess_executor
from modeldyno.engine.runtime.interleaved import InterleavedRunner
from modeldyno.profiling import run as _run  # noqa: F401
from modeldyno.registry import execute as _execute  # noqa: F401
from modeldyno.testing.sample_results import a_small_result

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.base.job.job import Job

POOL = commands.ROOT / "bench" / "gate_runs" / "gate.json"
HERE = Environment(
    hardware={"cpu": "a test processor", "cores_allowed": 2},
    software={"python": "3.11", "modeldyno": "0.1.0"},
)
MOST_SAMPLES = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What one process measured, its times as multiples of the usual one of its model."""

    times: np.ndarray
    memory: float
    """Largest memory, in bytes."""
    took: float = 2.0
    """Seconds from its start to its end."""
    doubts: tuple[str, ...] = ()
    others: float = 0.0
    """Cores that other processes kept busy."""
    stolen: float = 0.0
    """Cores that the hypervisor took away."""


@dataclass(slots=True, kw_only=True)
class Neighbours:
    """Whether others keep half of every core busy; a call then takes 1.7 times as long."""

    here: bool = False

    def disturb(self, processes: Iterator[Recorded]) -> Iterator[Recorded]:
        """Yield the processes as they are beside them."""
        for process in processes:
            yield (
                replace(process, times=1.7 * process.times, others=1.0, doubts=("interference",))
                if self.here
                else process
            )


def quiet_processes() -> Iterator[Recorded]:
    """Yield processes of a machine on which nothing else runs: they differ by 0.2 %."""
    for number in count():
        times = np.tile([1.0, 1.01, 1.0, 0.99], 40) * (1 + 1e-3 * (number % 5 - 2))
        yield Recorded(times=times, memory=8e6 + 4096 * (number % 3))


def recorded_processes(seed: int) -> Iterator[Recorded]:
    """Yield recorded processes of one of the models, in the order in which they ran, from somewhere on."""
    names = sorted({run["model"] for run in _pool()})
    runs = [run for run in _pool() if run["model"] == names[seed % len(names)]]
    usual = float(np.median([run["latency.p50"] for run in runs]))
    begin = 2 * (37 * seed // 2 % (len(runs) // 2))  # those of a pair ran beside each other
    for number, run in enumerate(islice(cycle(runs), begin, None)):
        yield Recorded(
            times=_times(run, np.random.default_rng((seed, number))) / usual,
            memory=run["process_memory.max"],
            took=run["took"],
            doubts=tuple(run["doubts"]),
            others=run["foreign_cpu"],
            stolen=run["steal"],
        )


@cache
def _pool() -> list[dict[str, Any]]:
    return list(json.loads(POOL.read_text(encoding="utf-8"))["runs"])


def _times(run: dict[str, Any], source: np.random.Generator) -> np.ndarray:
    """Return samples with the percentiles of a run, as many as its own were worth."""
    shares = [0.0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 1.0]
    known = [run[f"latency.{name}"] for name in ("min", "p5", "p10", "p25", "p50", "p75", "p90", "p95")]
    many = int(np.clip(run["latency.n_eff"], 8, MOST_SAMPLES))
    places = (np.arange(many) + 0.5) / many
    return source.permutation(np.interp(places, shares, [*known, 2 * known[-1] - known[-2]]))


def simulate(job: Job, *, processes: Iterator[Recorded], clock: list[float], watch: object = None) -> Result:
    """Return what the next process would have measured of a function, by the seconds that its calls take."""
    del watch
    path, _, name = job.model.locator.partition(":")
    text = Path(path).read_text(encoding="utf-8")
    process, number = next(processes), next(_NUMBERS)
    clock[0] += process.took
    times = process.times * np.mean(runpy.run_path(path)[name].durations)
    memory = Distribution.of(np.array([0.0, process.memory, process.memory]))
    return a_small_result(
        job=job,
        id=f"{number:012x}",
        created=(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=number)).isoformat(),
        model=ModelIdentity(
            name=job.name or f"{Path(path).stem}.{name}",
            digest=f"sha256:{sha256(text.encode()).hexdigest()}",
            framework="python",
        ),
        environment=HERE,
        measurements=(
            Measurement(metric="latency", value=Distribution.of(times)),
            Measurement(metric="throughput", value=float(1 / times.mean()), runs=(float(1 / times.mean()),)),
            Measurement(metric="process_memory", value=memory),
            observed_number("foreign_cpu", process.others),
            observed_number("steal", process.stolen),
        ),
        doubts=tuple(Doubt(code=code, seen="as recorded", advice="") for code in process.doubts),
    )


_NUMBERS = count(1)


@contextmanager
def replayed(seed: int | None, neighbours: Neighbours | None = None) -> Iterator[None]:
    """Have each process that would be started be the next recorded one, and time pass as it passed for them.

    Args:
        seed: where the records begin; None for a quiet machine.
        neighbours: those of the processes, if any come and go.
    """
    clock = [monotonic()]
    processes = quiet_processes() if seed is None else recorded_processes(seed)
    disturbed = (neighbours or Neighbours()).disturb(processes)
    execute = partial(simulate, processes=disturbed, clock=clock)

    @contextmanager
    def simulated(*_: object, **__: object) -> Iterator[object]:
        yield execute

    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as programs:
        replace_everywhere(patch, "subprocess_executor", subprocess_executor, simulated)
        replace_monotonic(patch, lambda: clock[0])
        patch.setattr(InterleavedRunner, "__call__", lambda *_: None)
        patch.setattr(commands, "execute", execute_here)
        patch.setattr(test_action, "PROGRAMS", Path(programs))
        _write_program(Path(programs) / "modeldyno", seed)
        yield


_PROGRAM = """\
#!{python}
import sys

sys.path.insert(0, {root!r})
import modeldyno.cli.actions.profile  # before names are replaced
from modeldyno.cli import main
from tests.proofs.recorded import replayed

with replayed({seed!r}):
    code = main(sys.argv[1:])
sys.exit(code)
"""


def _write_program(path: Path, seed: int | None) -> None:
    """Write what the steps of an action find as ``modeldyno``: it replays in a process of its own."""
    text = _PROGRAM.format(python=sys.executable, root=str(commands.ROOT), seed=seed)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


def execute_here(folder: Path, *words: str, store: Path | None = None) -> tuple[int, str]:
    """Do what a command, a script or a session of pytest would do, in this process."""
    output = io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        chdir(folder),
        redirect_stdout(output),
        redirect_stderr(output),
    ):
        for name, value in commands.environment(store or folder).items():
            if os.environ.get(name) != value:
                patch.setenv(name, value)
        try:
            code = _execute_words(words, patch)
        except SystemExit as left:
            code = left.code
    assert isinstance(code, int)
    return code, output.getvalue()


def _execute_words(words: tuple[str, ...], patch: pytest.MonkeyPatch) -> Any:
    match words[1:3]:
        case "-m", "modeldyno":
            return main(words[3:])
        case "-m", "pytest":
            patch.setattr(sys, "dont_write_bytecode", True)
            patch.delitem(sys.modules, Path(words[-1]).stem, raising=False)  # that of the session before
            with warnings.catch_warnings():
                warnings.resetwarnings()  # what is ignored here is not ignored there
                return int(pytest.main([*words[3:], "-p", "no:randomly", "-p", "no:cov"]))
        case _:
            return runpy.run_path(words[-1])
