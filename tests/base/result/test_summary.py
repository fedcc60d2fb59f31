"""What is kept of a Result where many are compared."""

from __future__ import annotations

from modeldyno.base.metrics.measurement import Distribution, Measurement
from modeldyno.base.metrics.metric import METRICS, Query
from modeldyno.base.metrics.queries import answers_under_load, goal_answers, trial_answers

LATENCY = Measurement(metric="latency", value=Distribution.of([n / 1000 for n in range(1, 101)]))
RATE = Measurement(metric="throughput", value=100.0)


def test_the_usual_questions_can_be_asked() -> None:
    """Each statistic that a row of the table keeps or shows is one."""
    for row in METRICS.values():
        for statistic in (*(row.under_load or ()), *(row.trial or ()), *row.shown):
            assert str(Query.parse(f"{row.name}.{statistic}")) == f"{row.name}.{statistic}"


def test_what_was_measured_is_answered() -> None:
    """A distribution by its statistics, a number as it is; what was not measured is not told."""
    queries = [str(answer.query) for answer in answers_under_load([LATENCY, RATE])]

    assert queries == ["latency.mean", "latency.p50", "latency.p95", "latency.p99", "throughput"]


def test_a_trial_keeps_more_than_a_point_of_a_load_curve() -> None:
    """The 90th percentile, and the rate of whole batches; neither keeps what no table shows of it."""
    batches = Measurement(metric="batch_rate", value=10.0)
    steal = Measurement(metric="steal", value=0.1)
    under_load, trial = (
        {str(answer.query) for answer in answers([LATENCY, RATE, batches, steal])}
        for answers in (answers_under_load, trial_answers)
    )

    assert trial - under_load == {"latency.p90", "batch_rate"}
    assert under_load < trial


def test_a_number_may_stand_where_a_distribution_is_usual() -> None:
    """It is asked plainly, whatever the table says."""
    plain = Measurement(metric="time_to_first_token", value=0.1)

    assert [str(answer.query) for answer in answers_under_load([plain])] == ["time_to_first_token"]


def test_of_several_scopes_the_whole_is_told() -> None:
    """And the first driver; a layer has no place in a comparison of configurations."""
    scoped = [Measurement(metric="throughput", value=1.0, scope=scope) for scope in ("", "driver 0", "layer")]

    assert [answer.query.scope for answer in answers_under_load(scoped)] == ["", "driver 0"]


def test_a_goal_is_answered_as_far_as_it_was_measured() -> None:
    """What was not, and a statistic of a number, are left out."""
    queries = map(Query.parse, ("latency.p90", "energy", "throughput.p50", "throughput"))

    assert [str(answer.query) for answer in goal_answers([LATENCY, RATE], queries)] == [
        "latency.p90",
        "throughput",
    ]
