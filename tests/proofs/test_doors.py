"""Each door of a change, on simulated processes: what it measures, finds and says, without the time."""

from __future__ import annotations

import io
import os
import re
import runpy
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.proofs.commands import environment, write_function
from tests.proofs.doors import CHANGE_DOORS, ChangeDoor

from modeldyno.cli import main
from modeldyno.core.metrics.measurement import Distribution, Measurement
from modeldyno.core.result.result import Environment, Result
from modeldyno.core.spec.model_ref import ModelIdentity
from modeldyno.runtime.interleaved import InterleavedRunner
from modeldyno.testing.sample_results import a_small_result

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.core.spec.job import Job

HERE = Environment(hardware={"cpu": "a test processor"}, software={"python": "3.11", "modeldyno": "0.1.0"})


def simulate(job: Job, *, numbers: Iterator[int], watch: object = None) -> Result:
    """Return what a process of a known function would have measured, by the figures in its file."""
    del watch
    path, _, name = job.model.locator.partition(":")
    text = Path(path).read_text(encoding="utf-8")
    number = next(numbers)
    times = np.tile([float(word) for word in re.findall(r"\d\.\d+", text)], 40) * (
        1 + 1e-3 * (number % 5 - 2)
    )
    memory = Distribution.of(np.array([0.0, 8e6, 8e6 + 4096 * (number % 3), 8e6]))
    return a_small_result(
        job=job,
        id=f"{number:012x}",
        model=ModelIdentity(
            name=f"{Path(path).stem}.{name}",
            digest=f"sha256:{sha256(text.encode()).hexdigest()}",
            framework="python",
        ),
        environment=HERE,
        measurements=(
            Measurement(metric="latency", value=Distribution.of(times)),
            Measurement(metric="throughput", value=float(1 / times.mean()), runs=(float(1 / times.mean()),)),
            Measurement(metric="process_memory", value=memory),
        ),
    )


def execute_here(folder: Path, *words: str, store: Path | None = None) -> tuple[int, str]:
    """Do what a command or a script would do, in this process."""
    output = io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        chdir(folder),
        redirect_stdout(output),
        redirect_stderr(output),
    ):
        for name, value in environment(store or folder).items():
            if os.environ.get(name) != value:
                patch.setenv(name, value)
        with pytest.raises(SystemExit) as left:
            main(words[3:]) if "-m" in words else runpy.run_path(words[-1])
    assert isinstance(left.value.code, int)
    return left.value.code, output.getvalue()


@pytest.mark.parametrize("slowdown", [0.0, 0.05, 0.5])
@pytest.mark.parametrize(
    "door", [door for door in CHANGE_DOORS if door.key not in {"pytest", "action"}], ids=lambda door: door.key
)
@pytest.mark.filterwarnings("ignore::modeldyno.errors.UndecidedWarning")
def test_a_change_is_judged_at_each_door(
    door: ChangeDoor, slowdown: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unchanged code passes; 5 % is worse in turns, and undecided against what was stored; 50 % is worse."""
    run = partial(simulate, numbers=count())

    @contextmanager
    def simulated(*_: object, **__: object) -> Iterator[object]:
        yield run

    monkeypatch.setattr("modeldyno.runtime.session.subprocess_executor", simulated)
    monkeypatch.setattr("modeldyno.profiling.run.subprocess_executor", simulated)
    monkeypatch.setattr(InterleavedRunner, "__call__", lambda *_: None)
    monkeypatch.setattr("tests.proofs.commands.execute", execute_here)
    verdict, line = door.judge(tmp_path, write_function, partial(write_function, slowdown=slowdown))
    expected = {0.0: "not worse", 0.05: "undecided" if door.stored else "worse", 0.5: "worse"}[slowdown]
    assert verdict == expected, line
