"""Time stamps of some requests give their mean stages, which fill their service time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from modeldyno.base.job.load_spec import Load
from modeldyno.base.metrics.measurement import Measurement
from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.engine.interfaces.server_stats import RequestStamps
from modeldyno.serving.load.request_log import COLUMNS, Records, empty_records
from modeldyno.serving.load.request_stages import (
    STAGE_TIME,
    UNTRACED,
    RequestStage,
    has_stages,
    measurements,
    tracing_step,
)
from modeldyno.serving.load.steady_window import SteadyWindow
from modeldyno.testing.sample_results import a_small_result

MICRO = 1000
STAGES = tuple(range(10, 90, 10))
"""Microseconds of each stage of a quick request, in their order: 360 in all."""


def records(service: Any, **columns: Any) -> Records:
    """Requests that were sent every millisecond, 5 us late, and served for so many microseconds."""
    due = np.arange(1, len(service) + 1) * 1000 * MICRO
    filled: dict[str, Any] = {name: np.zeros(due.size, dtype) for name, dtype in COLUMNS.items()}
    sent = due + 5 * MICRO
    filled |= {"due": due, "sent": sent, "end": sent + np.asarray(service) * MICRO, **columns}
    return Records(**filled)


def stamps(log: Records, *places: int, slower: int = 1) -> list[RequestStamps]:
    """Trace these requests, each stage but the last so many times as long."""
    ends = np.cumsum(STAGES[:-1]) * slower * MICRO
    return [
        RequestStamps(sent=int(log.sent[place]), ends=tuple((log.sent[place] + ends).tolist()))
        for place in places
    ]


def measured(log: Records, traced: list[RequestStamps]) -> dict[str, Measurement]:
    """Return what is measured by its scope."""
    window = SteadyWindow(records=log, begin=0, end=10**12, load=Load())
    return {each.scope: each for each in measurements(window, traced)}


def test_each_stage_is_what_lies_between_two_stamps() -> None:
    """From the sending to the client's receipt; together they are the service time."""
    log = records([sum(STAGES)] * 40)
    stages = measured(log, stamps(log, *range(0, 40, 2)))
    assert [stages[stage].value for stage in RequestStage] == pytest.approx([time * 1e-6 for time in STAGES])
    assert all(stages[stage].metric == STAGE_TIME for stage in RequestStage)
    assert stages["queue"].interval is not None
    assert stages[UNTRACED].value == pytest.approx(0.0)


def test_what_the_traced_requests_do_not_have_is_told() -> None:
    """Tracing made every second request twice as long: all together are quicker by half of its time."""
    log = records([sum(STAGES), 2 * sum(STAGES)] * 10)
    stages = measured(log, stamps(log, *range(1, 20, 2), slower=2))
    assert [stages[stage].value for stage in RequestStage] == pytest.approx([time * 2e-6 for time in STAGES])
    assert stages[UNTRACED].value == pytest.approx(-0.5e-6 * sum(STAGES), rel=0.1)
    assert stages[UNTRACED].interval is not None


def test_a_few_requests_have_means_without_intervals() -> None:
    """Too few to tell how they vary."""
    log = records([sum(STAGES)] * 3)
    stages = measured(log, stamps(log, 0, 1, 2))
    assert stages["queue"].interval is None
    assert stages[UNTRACED].value == pytest.approx(0.0)


def test_only_requests_of_the_window_that_were_answered_well_count() -> None:
    """Stamps of others are left out; where none is left, nothing is measured."""
    outcome = np.array([RequestOutcome.OK, RequestOutcome.SERVER_ERROR] * 2, "uint8")
    log = records([sum(STAGES)] * 4, outcome=outcome)
    foreign = [RequestStamps(sent=7, ends=(8,) * 7)]
    assert measured(log, stamps(log, 0, 2) + foreign) == measured(log, stamps(log, 0, 1, 2))
    assert measured(log, foreign + stamps(log, 1)) == measured(log, []) == {}
    assert measured(empty_records(), foreign) == {}


@pytest.mark.parametrize(
    ("rate", "messages", "step"), [(3, 8, 1), (400, 1, 1), (4000, 1, 10), (4000, 8, 11), (4000, 10, 11)]
)
def test_few_requests_a_second_are_traced_and_each_message_in_turn(
    rate: float, messages: int, step: int
) -> None:
    """A slow server can trace them all."""
    assert tracing_step(rate, messages) == step


def test_a_result_has_stages_if_its_server_traced_requests() -> None:
    """Others have none."""
    number = Measurement(metric=STAGE_TIME, value=1e-3, scope=UNTRACED)
    assert has_stages(a_small_result(measurements=(number,)))
    assert not has_stages(a_small_result())
