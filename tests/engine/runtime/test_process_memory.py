"""Measured memory is the model's, without what the profiler itself uses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.result.result import Result
from modeldyno.engine.environment import peaks
from modeldyno.engine.runtime import sampling
from modeldyno.engine.runtime.child_process import subprocess_executor
from modeldyno.engine.runtime.session import open_run_session
from modeldyno.engine.runtime.time_limit import TimeLimit
from modeldyno.engine.runtime.warm_worker import warm_executor
from modeldyno.models.load_stages import WatchStage
from modeldyno.profiling.request import Request

if TYPE_CHECKING:
    from modeldyno.engine.interfaces.executor import Executor
    from modeldyno.engine.interfaces.sampler import Watch

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
HELD = 256 << 20
MODEL = f"""
held = b"1" * {HELD}

def call():
    return len(held)
"""
ROOT = Path(__file__).parents[3]


def measured(executor: Executor, model: str, *probes: str, seconds: float = 0.3) -> Result:
    plan = Plan(min_time=0.05, max_time=seconds, precision=1e-6)
    job = Request(model=model, settings={}, probes=probes, plan=plan).job()
    return executor(job, watch=lambda _event: None)


def most(result: Result) -> float:
    value = result["process_memory.max"]
    assert value is not None
    return value


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A callable that holds some bytes, and is fast enough for many samples."""
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    return f"call:{path}:call"


def test_what_a_model_holds_is_told(model: str) -> None:
    """A model that holds 256 MiB is measured as 256 MiB, for any number of calls and probes."""
    with subprocess_executor() as executor:
        few = most(measured(executor, model, "latency", seconds=0.1))
        many = most(measured(executor, model, "latency", "throughput", seconds=0.6))

    assert few == pytest.approx(HELD, rel=0.04)
    assert many == pytest.approx(HELD, rel=0.04)


@pytest.mark.parametrize("count", [pytest.param(250_000, marks=pytest.mark.slow), 2_000_000])
def test_new_inputs_and_outputs_that_are_read_are_not_the_models(tmp_path: Path, count: int) -> None:
    """Some calls are checked with eight new inputs, of 1 or 8 MB; the model takes as much as with few."""
    path = tmp_path / "model.py"
    path.write_text("import numpy\ndef call(x):\n    return x.sum()\n")
    plan = Plan(min_time=0.3, max_time=0.6, precision=1e-6)
    with subprocess_executor() as executor:
        small, large = (
            most(
                executor(
                    Request(
                        model=f"call:{path}:call",
                        settings={},
                        inputs=(f"x=1x{n}",),
                        probes=("latency",),
                        plan=plan,
                    ).job(),
                    watch=lambda _event: None,
                )
            )
            for n in (10, count)
        )

    assert large - small < 2 * 4 * count  # it was 10 times an input more


@pytest.mark.slow
def test_a_limit_and_turns_take_no_memory_of_the_model() -> None:
    """A run with a time limit, alone or in turns, has the figure of a plain one."""
    digits = str(ROOT / "examples/digits/digits.onnx")
    plan = Plan(min_time=0.05, max_time=0.3, precision=1e-6)
    job = Request(model=digits, settings={}, probes=("latency",), plan=plan).job()
    with subprocess_executor() as executor:
        plain = most(executor(job, watch=lambda _event: None))
    with open_run_session(limit=TimeLimit.begin(600.0)) as session:
        rounds = [session.run_round([("one", job)]), session.run_round([("one", job), ("other", job)])]

    results = [result for one_round in rounds for result in one_round if isinstance(result, Result)]
    assert [most(result) for result in results] == [pytest.approx(plain, abs=700_000)] * 3


_IMPORTS = """
import sys

from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.profiling.request import Request
from modeldyno.engine.runtime import engine
from modeldyno.engine.runtime.forked_analysis import analyse_isolated
from modeldyno.engine.runtime.time_limit import TimeLimit

counted = {"load", "timed", "waiting"}


def follow(samplers):
    mark_samplers, last, known = engine_marker(samplers), "", set(sys.modules)

    def mark(stage):
        nonlocal last, known
        if last in counted:
            print(*sorted(name for name in {*sys.modules} - known if name.startswith("modeldyno.")))
        last, known = stage, set(sys.modules)
        mark_samplers(stage)

    return mark


engine_marker, engine.stage_marker = engine.stage_marker, follow
plan = Plan(min_time=0.05, max_time=0.2)
job = Request(model=sys.argv[1], settings={}, plan=plan).job()
stream = engine.events(
    job,
    interrupted=lambda: False,
    watch=lambda _event: None,
    analyst=analyse_isolated,
    limit=TimeLimit.begin(float(sys.argv[2])),
)
for _ in stream:
    pass
"""


@pytest.mark.parametrize("seconds", ["inf", "60"])
def test_nothing_of_ours_is_imported_while_memory_counts_as_the_models(seconds: str) -> None:
    """With and without a time limit: what is imported after the baseline would make the model larger."""
    digits = str(ROOT / "examples/digits/digits.onnx")
    done = subprocess.run(
        [sys.executable, "-c", _IMPORTS, digits, seconds], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
    assert done.stdout, "no stage was counted"


@pytest.mark.slow  # it measures the peaks of the machine anew
def test_analysis_and_second_pass_are_not_the_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The figure is the same with and without layers and analysis, and when the peaks are measured.

    Measuring the peaks takes hundreds of megabytes, but in a process of its own.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    digits = str(ROOT / "examples/digits/digits.onnx")
    with subprocess_executor() as executor:
        plain = measured(executor, digits, "latency")
        watched = measured(executor, digits, "static", "latency", "layers", "ops")

    assert most(watched) == pytest.approx(most(plain), rel=0.1)  # it was 35 times as much
    assert (watched["peak_flops@here"] or 0) > 1e6
    assert len([*tmp_path.rglob("peaks-*.json")]) == 1


@pytest.mark.slow
def test_what_a_model_frees_and_takes_again_counts_once(tmp_path: Path) -> None:
    """Memory that each call allocates and frees counts once, whatever the profiler does in between."""
    blocks, size = 1000, 96_000  # below what malloc takes from the kernel apart, so that it keeps them
    path = tmp_path / "model.py"
    path.write_text(
        "import numpy\n"
        "kept = []\n"
        "def call():\n"
        f"    blocks = [numpy.ones({size // 8}) for _ in range({blocks})]\n"
        f"    kept[:] = [numpy.ones({size // 8})]  # lies above them: what is freed below is not given back\n"
        "    return float(blocks[0][0])\n"
    )
    with subprocess_executor() as executor:
        result = measured(executor, f"call:{path}:call", "latency", "throughput", seconds=0.4)

    assert most(result) == pytest.approx(blocks * size, rel=0.3)  # 17 MB are numpy; it was three times


def test_the_memory_of_an_open_model_is_told_alike_by_each_run(model: str) -> None:
    """A second run of a warm child counts from the baseline of the first."""
    with warm_executor() as executor:
        first, second = (most(measured(executor, model, "latency", seconds=s)) for s in (0.1, 0.2))

    assert first == pytest.approx(HELD, rel=0.04)
    assert second == pytest.approx(first, rel=0.04)


def test_free_memory_is_returned_where_it_changes_hands(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the baseline, so that the model does not grow unseen into it, and around the profiler's own work."""
    stages: list[str] = []

    class Witness:
        def mark(self, stage: str) -> None:
            stages.append(stage)

    monkeypatch.setattr(sampling, "release_free_memory", lambda: stages.append("returned"))
    mark = sampling.stage_marker([cast("Watch", Witness())])
    for stage in ("idle", "baseline", "load", "ours", "timed", "second"):
        mark(WatchStage(stage))

    returned = ["returned", "baseline", "load", "returned", "ours", "returned", "timed", "second"]
    assert stages == ["idle", *returned]


@pytest.mark.parametrize("program", ["/bin/true", "/nowhere/python"])
def test_peaks_are_measured_here_where_no_process_answers(
    monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    """Used if a process cannot be started, or reports nothing."""
    monkeypatch.setattr(sys, "executable", program)
    monkeypatch.setattr(peaks, "measure_peaks", lambda _dtype: (1.0, 2.0))

    assert peaks.measure_in_subprocess("float32") == (1.0, 2.0)
