"""Row 9 of the list of faults: a busy neighbour is noticed, and a quiet machine is left in peace."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from modeldyno.base.job.job import Job
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.engine.runtime.child_process import subprocess_executor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.base.result.result import Result

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores cannot be chosen here")
CORE = max(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
NOISE = {"interference", "steal", "drift", "unsettled", "noise-floor"}
JOB = Job(
    model=ModelRef.parse("call:modeldyno.testing.known_latency:busy"),
    backend="python",
    probes=("latency",),
    plan=Plan(max_time=3.0, pin=(CORE,)),
)


@contextmanager
def hog() -> Iterator[None]:
    """Keep the core busy meanwhile."""
    code = f"import os\nos.sched_setaffinity(0, {{{CORE}}})\nwhile True: pass"
    process = subprocess.Popen([sys.executable, "-c", code])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def run() -> Result:
    with subprocess_executor() as execute:
        return execute(JOB, watch=lambda _event: None)


def codes(result: Result) -> set[str]:
    return {doubt.code for doubt in result.doubts} & NOISE


def quiet_by_its_own_witness(result: Result) -> bool:
    return all((result[metric] or 0) < 0.02 for metric in ("steal", "foreign_cpu"))


@pytest.mark.slow
def test_a_hog_on_the_core_is_noticed() -> None:
    """A run beside a busy process says that it was disturbed."""
    with hog():
        assert "interference" in codes(run())


@pytest.mark.slow
def test_a_hog_is_noticed_in_95_of_100_runs() -> None:
    """One hundred runs beside a busy process; at most five go unnoticed, and none is empty."""
    with hog():
        results = [run() for _ in range(100)]
    flagged = sum(bool(codes(result)) for result in results)
    print(f"flagged with a hog: {flagged} of 100")

    assert flagged >= 95
    assert all(result.find("latency") for result in results)


@pytest.mark.slow
def test_of_100_quiet_runs_at_most_5_are_flagged() -> None:
    """Runs whose own witness saw under 2 % of steal and foreign load are left in peace."""
    results = [run() for _ in range(100)]
    quiet = [result for result in results if quiet_by_its_own_witness(result)]
    flagged = [codes(result) for result in quiet if codes(result)]
    print(f"quiet by their own witness: {len(quiet)} of 100; flagged of those: {len(flagged)} {flagged}")

    assert len(flagged) <= 0.05 * len(quiet)
