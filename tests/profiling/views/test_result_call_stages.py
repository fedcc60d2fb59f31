"""The table of the stages of a call."""

from __future__ import annotations

from modeldyno.base.metrics.measurement import Distribution, Measurement
from modeldyno.base.metrics.metric import CALL_SCOPES
from modeldyno.profiling.views.result.call_stages import call_stage_table
from modeldyno.testing.sample_results import a_result


def test_a_median_of_too_few_calls_is_marked_and_the_title_says_why() -> None:
    """One of enough calls is not."""
    few, many = ([0.001 * (1 + i % 7 / 100) for i in range(n)] for n in (5, 400))

    def table(samples: list[float]) -> tuple[str, set[str]]:
        measured = (
            Measurement(metric="latency", value=Distribution.of(samples), scope=s) for s in CALL_SCOPES
        )
        (block,) = call_stage_table(a_result(measurements=tuple(measured)))
        return block.title, {row[1][0] for row in block.rows}

    assert table(few)[1] == {"~"}
    assert table(few)[0].endswith("; ~: of too few samples")
    assert table(many) == ("A call end to end: latency@STAGE, and the share of the mean", {"1"})
