from __future__ import annotations

from modeldyno.engine.trace.dataflow import DataFlow, FlowStep, TensorView, sum_lines


def test_lines_are_summed_by_region_and_line() -> None:
    """Calls, seconds, and the bytes of what they make; the slowest first, and steps of a library left out."""

    def view(storage: int, size: int) -> TensorView:
        return TensorView(storage=storage, shape=(size,), strides=(1,), capacity=size, bytes=4 * size)

    x, y, z = view(1, 8), view(2, 8), view(3, 2)
    flow = DataFlow(
        steps=(
            FlowStep(name="relu", line="a.py:1", scope="step", inputs=(x,), outputs=(y,), time=1.0),
            FlowStep(name="view", line="a.py:1", scope="step", inputs=(y,), outputs=(y,), time=0.5),
            FlowStep(name="sum", line="a.py:2", scope="step", inputs=(y,), outputs=(z,), time=2.0),
            FlowStep(name="add_", line="a.py:3", scope="step", outputs=(z,), time=0.1),
            FlowStep(name="inside", scope="step", outputs=(z,), time=9.0),
        )
    )
    assert [(row.name, row.scope, row.calls, row.total_time, row.allocated) for row in sum_lines(flow)] == [
        ("a.py:2", "step", 1, 2.0, 8),
        ("a.py:1", "step", 2, 1.5, 32),
        ("a.py:3", "step", 1, 0.1, 0),
    ]


def test_recorded_times_fit_into_a_plain_call() -> None:
    """Recording lengthens short steps: if they sum to more than a plain call, they shrink in proportion."""
    flow = DataFlow(steps=(FlowStep(name="cpu", time=3.0), FlowStep(name="relu", time=1.0)))

    assert [step.time for step in flow.within(2.0).steps] == [1.5, 0.5]
    assert flow.within(4.0) is flow


def test_a_step_has_its_shorter_time() -> None:
    """Of two recordings of one call a disturbance in either does not count; other steps are not matched."""
    first = DataFlow(steps=(FlowStep(name="cpu", time=9.0), FlowStep(name="relu", time=1.0)))
    second = DataFlow(steps=(FlowStep(name="cpu", time=2.0), FlowStep(name="relu", time=5.0)))

    assert [step.time for step in second.quicker(first).steps] == [2.0, 1.0]
    assert second.quicker(DataFlow(steps=first.steps[:1])) is second
