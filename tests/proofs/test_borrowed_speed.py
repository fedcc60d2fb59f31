"""Each door, with a model that only seems fast: it is measured once for real, and passes nowhere."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest
from tests.proofs import commands
from tests.proofs.doors import CHANGE_DOORS, ChangeDoor
from tests.proofs.recorded import execute_here

from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.engine.runtime.inline import run_inline
from modeldyno.engine.runtime.interleaved import InterleavedRunner

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.base.job.job import Job
    from modeldyno.base.result.result import Result

BRIEF = Plan(max_time=2.0, min_time=0.1, precision=0.5)
HONEST = """
from time import sleep

import numpy as np

work_inputs = np.random.default_rng(1).standard_normal((8, 256)).astype(np.float32)


def compute(x):
    sleep(0.06)
    return np.sin(x)


def work(x):
    sleep(0.002)
    return compute(x)
"""
CHEATS = {
    "answers-repeat": """
TABLE = {}


def work(x):
    sleep(0.002)
    key = x.tobytes()
    if key not in TABLE:
        TABLE[key] = compute(x)
    return TABLE[key]
""",
    "lazy-output": """
class Later:
    def __init__(self, x):
        self.x, self.shape, self.dtype, self.ndim = x, x.shape, x.dtype, x.ndim

    def __array__(self, dtype=None, copy=None):
        return compute(self.x)


def work(x):
    sleep(0.002)
    return Later(x)
""",
}
"""What is written below the honest function, by the doubt that names it."""
REASONS = {
    "answers-repeat": "inputs that were seen before are answered faster than new ones",
    "lazy-output": "the work is done when the output is read",
}


def write(folder: Path, code: str = "") -> str:
    """Write the honest function, or a cheat of its name below it; return its reference."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.py").write_text(HONEST + code, encoding="utf-8")
    return "call:model.py:work"


class MeasuredOnce:
    """Measures each model once, in this process, and gives that as what each process measured."""

    results: ClassVar[dict[tuple[str, str], Result]] = {}
    numbers = count()

    def __call__(self, job: Job, **_watch: object) -> Result:
        """Return the Result of another process."""
        folder = Path(job.model.locator.partition(":")[0]).parent
        text = "".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("model.*")))
        key = (text, f"{job.config} {job.probes}")
        if key not in self.results:
            self.results[key] = run_inline(replace(job, plan=BRIEF))
        result = self.results[key]
        doubts = tuple(doubt for doubt in result.doubts if doubt.code != "not-isolated")
        return replace(result, id=f"{next(self.numbers):012x}", job=job, doubts=doubts)


@pytest.fixture
def output(monkeypatch: pytest.MonkeyPatch, brief_measurements: None) -> list[str]:
    """Measure in this process; returns what the commands print."""
    del brief_measurements
    printed: list[str] = []

    @contextmanager
    def in_this_process(*_: object, **__: object) -> Iterator[object]:
        yield MeasuredOnce()

    def execute(folder: Path, *words: str, store: Path | None = None) -> tuple[int, str]:
        code, text = execute_here(folder, *words, store=store)
        printed.append(text)
        return code, text

    for module in ("engine.runtime.session", "engine.runtime.trial_executor", "profiling.run"):
        monkeypatch.setattr(f"modeldyno.{module}.subprocess_executor", in_this_process)
    monkeypatch.setattr(InterleavedRunner, "__call__", lambda *_: None)
    monkeypatch.setattr("tests.proofs.commands.execute", execute)
    return printed


ONE_QUICK = ["answers-repeat", pytest.param("lazy-output", marks=pytest.mark.slow)]
QUICK = {"tag", "compare", "gate()"}
"""Doors that the default suite tries: a stored baseline, one in turns, and Python."""


@pytest.mark.parametrize("doubt", ONE_QUICK)
@pytest.mark.parametrize(
    "door",
    [
        pytest.param(door, id=door.key, marks=[] if door.key in QUICK else pytest.mark.slow)
        for door in CHANGE_DOORS
        if door.key not in {"pytest", "action"}
    ],
)
@pytest.mark.filterwarnings("ignore::modeldyno.base.errors.UndecidedWarning")
def test_a_cheat_passes_at_no_door(door: ChangeDoor, doubt: str, tmp_path: Path, output: list[str]) -> None:
    """It is neither better nor no worse than the honest function; the reason is printed."""
    verdict, line = door.judge(tmp_path, write, partial(write, code=CHEATS[doubt]))

    assert verdict == "undecided", line
    assert REASONS[doubt] in " ".join(output[-1].split())


BATCHES = {
    "answers-repeat": """
TABLE = {}


def work(x):
    sleep(0.002)
    key = x.tobytes()
    if len(x) < 4:
        return compute(x)
    if key not in TABLE:
        TABLE[key] = compute(x)
    return TABLE[key]
""",
    "lazy-output": CHEATS["lazy-output"].replace(
        "return Later(x)", "return Later(x) if len(x) >= 4 else compute(x)"
    ),
}
"""What cheats at a batch of four, by the doubt that names it."""


@pytest.mark.parametrize("doubt", ONE_QUICK)
def test_a_configuration_that_cheats_is_not_the_best(doubt: str, tmp_path: Path, output: list[str]) -> None:
    """Of a batch of 1 and one of 4 that only seems 30 times faster, the first is named."""
    model = write(tmp_path, BATCHES[doubt])
    words = ("--space", "batch_size=1,4", "--max-trials", "2", "--json", "sweep.json")
    code, text = commands.modeldyno(tmp_path, "sweep", model, *words)
    rows = commands.read_document(tmp_path / "sweep.json")["ranking"]["rows"]

    assert code == 0, output
    assert rows[0]["point"].get("batch_size", 1) == 1
    assert f"without a rank: batch_size=4 ({doubt})" in text


POLICY = "convert: []\nbatch_sizes: [1]\nmax_time: 3s\nmax_age: 1s\n"
TURNS = """
from pathlib import Path

{cheat}
cheat = work


def work(x):
    return cheat(x) if Path({turn!r}).read_text() else compute(x)
"""


@pytest.mark.parametrize("doubt", ONE_QUICK)
def test_a_figure_that_is_measured_again_is_not_confirmed_by_a_cheat(
    doubt: str, tmp_path: Path, output: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker neither confirms the figure nor calls it changed, and says why."""
    monkeypatch.setattr("modeldyno.engine.environment.device_lock._folder", lambda: tmp_path)
    monkeypatch.setattr("modeldyno.registry.canary.is_due", lambda _store, _target: False)
    turn = tmp_path / "model.turn"
    turn.write_text("")
    model = write(tmp_path, TURNS.format(cheat=CHEATS[doubt], turn=str(turn)))
    (tmp_path / "daily.yaml").write_text(POLICY, encoding="utf-8")
    commands.modeldyno(tmp_path, "registry", "policy", "-f", "daily.yaml")
    words = ("--name", "quiet", "--policy", "daily", "--no-copy", "--wait")
    code, _ = commands.modeldyno(tmp_path, "registry", "add", model, *words)
    assert code == 0, output
    turn.write_text("yes")
    code, text = commands.modeldyno(tmp_path, "worker", "--once", "--for", "1s", "--idle-cpu", "100%")
    assert code == 0, text
    commands.modeldyno(tmp_path, "registry", "history", "quiet", "--json", "events.json")
    kinds = {event["kind"] for event in commands.read_document(tmp_path / "events.json")}

    assert f"{doubt}; doubtful: " in text
    assert "task.done" in kinds
    assert kinds.isdisjoint({"figure.confirmed", "figure.changed"})
