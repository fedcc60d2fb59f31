"""What is kept of a Result where many are compared."""

from __future__ import annotations

from modeldyno.core.metrics.measurement import Distribution, Measurement
from modeldyno.core.metrics.metric import METRICS, Query
from modeldyno.core.result.summary import ALONE, UNDER_LOAD, goal_answers, summary_answers

LATENCY = Measurement(metric="latency", value=Distribution.of([n / 1000 for n in range(1, 101)]))
RATE = Measurement(metric="throughput", value=100.0)


def test_the_usual_questions_can_be_asked() -> None:
    """Each names a metric of the table, and statistics where it is a distribution."""
    for asked in (UNDER_LOAD, ALONE):
        assert set(asked) <= METRICS.keys()
        for metric, statistics in asked.items():
            for statistic in statistics:
                assert str(Query.parse(f"{metric}.{statistic}")) == f"{metric}.{statistic}"


def test_what_was_measured_is_answered() -> None:
    """A distribution by its statistics, a number as it is; what was not measured is not told."""
    found = [str(answer.query) for answer in summary_answers([LATENCY, RATE], UNDER_LOAD)]

    assert found == ["throughput", "latency.mean", "latency.p50", "latency.p95", "latency.p99"]


def test_a_number_may_stand_where_a_distribution_is_usual() -> None:
    """It is asked plainly, whatever the table says."""
    plain = Measurement(metric="time_to_first_token", value=0.1)

    assert [str(answer.query) for answer in summary_answers([plain], UNDER_LOAD)] == ["time_to_first_token"]


def test_of_several_scopes_the_whole_is_told() -> None:
    """And the first driver; a layer has no place in a comparison of configurations."""
    scoped = [Measurement(metric="throughput", value=1.0, scope=scope) for scope in ("", "driver 0", "layer")]

    assert [answer.query.scope for answer in summary_answers(scoped, UNDER_LOAD)] == ["", "driver 0"]


def test_a_goal_is_answered_as_far_as_it_was_measured() -> None:
    """What was not, and a statistic of a number, are left out."""
    queries = map(Query.parse, ("latency.p90", "energy", "throughput.p50", "throughput"))

    assert [str(answer.query) for answer in goal_answers([LATENCY, RATE], queries)] == [
        "latency.p90",
        "throughput",
    ]
