from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support import faulty_models

from modeldyno.base.errors import DeviceInUse
from modeldyno.base.job.job import Job
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.base.metrics.measurement import Measurement
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.result.result import Event, Loaded, MeasuringBegan, MeasuringEnded, Progressed
from modeldyno.engine.runtime.child_process import subprocess_executor
from modeldyno.engine.runtime.measured_region import MeasuredRegion, RegionGate

if TYPE_CHECKING:
    from collections.abc import Iterator


ROOT = Path(__file__).parents[3]
BRIEF = f"{faulty_models.__file__}:sleep_briefly"
CRASHING = """
import os
calls = []

def call() -> float:
    calls.append(1)
    if len(calls) > 3:
        os._exit(7)
    return 1.0
"""


class Guard:
    """A guard that counts who is within it."""

    def __init__(self, refusal: str = "") -> None:
        self.refusal, self.inside, self.entered = refusal, False, 0

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Be inside during the block."""
        if self.refusal:
            raise DeviceInUse(self.refusal)
        self.inside, self.entered = True, self.entered + 1
        try:
            yield
        finally:
            self.inside = False


def job(reference: str, *probes: str) -> Job:
    return Job(
        model=ModelRef(scheme="call", locator=reference),
        backend="python",
        probes=probes,
        plan=Plan(min_time=0.05, min_runs=5, max_time=3.0, precision=0.5, timeout=60.0),
    )


def stages(reference: str, guard: Guard, *probes: str) -> list[tuple[str, bool]]:
    """Run a job; return what the child told, and whether the guard was held by then."""
    recorded: list[tuple[str, bool]] = []

    def watch(event: Event) -> None:
        name = event.stage.partition(":")[0] if isinstance(event, Progressed) else type(event).__name__
        recorded.append((name, guard.inside))

    with subprocess_executor(guard=guard) as execute:
        execute(job(reference, *probes), watch=watch)
    return recorded


def test_the_guard_is_entered_before_the_child_may_go_on_and_left_when_it_has_measured() -> None:
    guard, events = Guard(), list[Event]()
    with RegionGate.opened(guard) as gate:

        def tell(event: Event) -> None:
            events.append(event)
            gate.follow(event)

        with MeasuredRegion(tell=tell, granted=gate.theirs)():
            within = guard.inside
        afterwards = guard.inside
    assert (within, afterwards) == (True, False)
    assert events == [MeasuringBegan(), MeasuringEnded()]


def test_events_of_another_kind_change_nothing() -> None:
    guard = Guard()
    with RegionGate.opened(guard) as gate:
        gate.follow(Progressed(stage="load"))
    assert guard.entered == 0


def test_the_guard_is_left_if_the_child_dies_within_the_region() -> None:
    guard = Guard()
    with RegionGate.opened(guard) as gate:
        gate.follow(MeasuringBegan())
        within = guard.inside
    assert (within, guard.inside) == (True, False)


def test_a_guard_that_raises_lets_the_child_wait() -> None:
    with RegionGate.opened(Guard("others use it")) as gate:
        with pytest.raises(DeviceInUse, match="others use it"):
            gate.follow(MeasuringBegan())
        os.set_blocking(gate.theirs, False)
        with pytest.raises(BlockingIOError):
            os.read(gate.theirs, 1)


def test_a_model_is_loaded_and_called_first_without_the_guard_and_timed_within_it() -> None:
    guard = Guard()
    recorded = stages(BRIEF, guard, "latency")

    held = {name for name, inside in recorded if inside}
    free = {name for name, inside in recorded if not inside}
    assert {"import", "load", "open", "first call", Loaded.__name__} <= free
    assert "latency" in held
    assert "latency" not in free
    assert guard.entered == 1


def test_an_analysis_needs_no_device() -> None:
    guard = Guard()
    digits = ModelRef(scheme="onnx", locator=str(ROOT / "examples/digits/digits.onnx"))
    with subprocess_executor(guard=guard) as execute:
        result = execute(
            Job(model=digits, backend="onnxruntime", probes=("static",)), watch=lambda _event: None
        )

    assert result.find("flops") is not None
    assert guard.entered == 0


def test_a_refused_device_ends_the_run_before_anything_is_measured() -> None:
    guard, events = Guard("others use 1.00 of 2 cores"), list[Event]()
    with (
        subprocess_executor(guard=guard) as execute,
        pytest.raises(DeviceInUse, match=r"others use 1\.00 of 2 cores"),
    ):
        execute(job(BRIEF, "latency"), watch=events.append)
    metrics = {event.metric for event in events if isinstance(event, Measurement)}
    assert "latency" not in metrics


def test_a_child_that_crashes_while_it_is_measured_frees_the_device(tmp_path: Path) -> None:
    path = tmp_path / "crashing.py"
    path.write_text(CRASHING)
    guard = Guard()
    stages(f"{path}:call", guard, "latency")

    assert guard.entered == 1
    assert not guard.inside
