from __future__ import annotations

import math

import numpy as np
import pytest

from modeldyno.base.job.probe_options import ProbeOptions
from modeldyno.base.metrics.doubt import CODES, Doubt
from modeldyno.base.metrics.measurement import Distribution, Measurement
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.metrics.metric import METRICS, Query
from modeldyno.base.result.result import Result
from modeldyno.engine.trace import token_metrics
from modeldyno.engine.trace.token_metrics import GenerationLength, TokenBand
from modeldyno.testing.sample_results import a_job

HOW = Distribution.of([1.0], stop="time limit", unmet=("precision",), warmup_dropped=2, timer_cost=4e-8)
EXTENT = GenerationLength(prompt=8, generated=12)


def steps(sequences: int = 30, *, adds: float = 0.0, noise: float = 0.01) -> np.ndarray:
    """Generate in theory: 0.1 s for the prompt, 10 ms and `adds` for each token after it."""
    rng = np.random.default_rng(1)
    made = 0.010 + adds * np.arange(12) + noise * 0.010 * rng.standard_normal((sequences, 12))
    made[:, 0] = 0.100
    return made


def by_scope(measurements: list[Measurement]) -> dict[tuple[str, str], Measurement]:
    """Give measurements by what they are of."""
    return {(m.metric, m.scope): m for m in measurements}


# --- extents -------------------------------------------------------------------------------------


@pytest.mark.parametrize("extent", [EXTENT, GenerationLength(prompt=None, generated=1)])
def test_an_extent_is_read_back_from_its_scope(extent: GenerationLength) -> None:
    """The scope of a measurement tells what it is of."""
    assert GenerationLength.of(extent.scope) == extent


@pytest.mark.parametrize("scope", ["", "encoder.layer.3", "prompt=8", "prompt=8,generate=4,stage=decode"])
def test_another_scope_is_of_no_extent(scope: str) -> None:
    """A module, a stage and half of an extent are none."""
    assert GenerationLength.of(scope) is None


def test_every_prompt_is_continued_to_every_length() -> None:
    """Two prompts and two lengths are four extents, by prompt and then by length."""
    observation = ProbeOptions(prompts=(8, 32), generated=(4, 2))

    assert [e.scope for e in token_metrics.generation_lengths(observation, text=True)] == [
        "prompt=8,generate=4",
        "prompt=8,generate=2",
        "prompt=32,generate=4",
        "prompt=32,generate=2",
    ]


def test_without_text_there_are_no_prompts_to_vary() -> None:
    """What reads sound has its own length, so only the output varies."""
    observation = ProbeOptions(prompts=(8, 32), generated=(4, 2))

    assert [e.scope for e in token_metrics.generation_lengths(observation, text=False)] == [
        "generate=4",
        "generate=2",
    ]


# --- prompts -------------------------------------------------------------------------------------


def test_a_prompt_goes_on_in_the_next_payload_and_begins_again() -> None:
    """Tokens of a sample are those of its payloads one after the other, then those from the first."""
    feeds = [{"input_ids": np.array([[1, 2], [5, 6]])}, {"input_ids": np.array([[3, 4], [7, 8]])}]
    made = token_metrics.build_prompt(feeds, GenerationLength(prompt=5, generated=1))

    assert made["input_ids"].tolist() == [[1, 2, 3, 4, 1], [5, 6, 7, 8, 5]]
    assert list(made) == ["input_ids"]


def test_padding_is_no_part_of_a_prompt() -> None:
    """Each sample keeps the tokens that its mask shows; one without any keeps all."""
    feed = {
        "input_ids": np.array([[1, 2, 0], [3, 0, 0], [9, 9, 9]]),
        "attention_mask": np.array([[1, 1, 0], [1, 0, 0], [0, 0, 0]]),
    }

    assert token_metrics.build_prompt([feed], GenerationLength(prompt=3, generated=1))[
        "input_ids"
    ].tolist() == [
        [1, 2, 1],
        [3, 3, 3],
        [9, 9, 9],
    ]


def test_sound_is_read_as_it_is() -> None:
    """Without a prompt of text the first payload is read, but for what the decoder would be given."""
    feeds = [{"input_features": np.zeros((2, 3, 4)), "decoder_input_ids": np.zeros((2, 1))}, {}]

    assert list(token_metrics.build_prompt(feeds, GenerationLength(prompt=None, generated=1))) == [
        "input_features"
    ]


# --- plans ---------------------------------------------------------------------------------------


def test_extents_share_the_time() -> None:
    """Each gets its part of what is left, and half of that at most as its shortest time."""
    plan = token_metrics.share_measurement_plan(Plan(max_time=20.0, min_time=1.0), 6.0, 4)

    assert (plan.max_time, plan.min_time) == (1.5, 0.75)
    assert token_metrics.share_measurement_plan(Plan(min_time=0.2), 6.0, 4).min_time == 0.2


def test_one_sequence_is_generated_when_no_time_is_left() -> None:
    """A plan for an extent after the end of the time is a valid one."""
    assert 0 < token_metrics.share_measurement_plan(Plan(), -3.0, 2).max_time < 0.01


# --- measurements --------------------------------------------------------------------------------


def test_times_and_rates_of_a_steady_decoder() -> None:
    """The first column is the time to the first token; the others are the gaps, and their mean a token's."""
    made = steps(noise=0.0)
    by_metric = by_scope(list(token_metrics.token_measurements(made, EXTENT, 4, HOW)))
    values = {
        key: m.value if isinstance(m.value, int | float) else m.value.statistic("p50")
        for key, m in by_metric.items()
    }

    assert values == {
        ("time_to_first_token", "prompt=8,generate=12"): pytest.approx(0.1),
        ("time_per_output_token", "prompt=8,generate=12"): pytest.approx(0.01),
        ("inter_token_latency", "prompt=8,generate=12"): pytest.approx(0.01),
        ("token_rate", "prompt=8,generate=12,stage=prefill"): pytest.approx(4 * 8 / 0.1),
        ("token_rate", "prompt=8,generate=12,stage=decode"): pytest.approx(4 / 0.01),
        ("token_rate", "prompt=8,generate=12"): pytest.approx(4 * 12 / 0.21),
        ("time_per_context_token", "prompt=8,generate=12"): pytest.approx(0.0, abs=1e-12),
    }
    assert {metric for metric, _ in by_metric} <= set(METRICS)


def test_a_distribution_keeps_its_order_and_how_it_came_about() -> None:
    """Gaps stand sequence after sequence; a sequence that was left out is as many gaps left out."""
    made = steps(3)
    by_metric = by_scope(list(token_metrics.token_measurements(made, EXTENT, 1, HOW)))
    gaps = by_metric["inter_token_latency", EXTENT.scope].value
    first = by_metric["time_to_first_token", EXTENT.scope].value
    assert isinstance(gaps, Distribution)
    assert isinstance(first, Distribution)

    assert gaps.samples().tolist() == made[:, 1:].ravel().tolist()
    assert (gaps.warmup_dropped, first.warmup_dropped) == (22, 2)
    assert (gaps.stop, gaps.unmet, first.timer_cost) == ("time limit", ("precision",), 4e-8)


def test_an_interval_encloses_its_rate() -> None:
    """The rate of a mean lies in what its interval gives; of one sequence it is not bounded from above."""
    for count in (1, 2, 40):
        made = steps(count, noise=0.2)
        rates = [
            m for m in token_metrics.token_measurements(made, EXTENT, 1, HOW) if m.metric == "token_rate"
        ]
        assert len(rates) == 3
        for rate in rates:
            assert rate.interval is not None
            assert rate.interval.low <= rate.runs[0] <= rate.interval.high
            assert math.isinf(rate.interval.high) == (count == 1)


def test_a_single_token_has_no_gaps() -> None:
    """Of one generated token there is its time and its rate, and nothing of those after it."""
    one = GenerationLength(prompt=8, generated=1)
    measurements = list(token_metrics.token_measurements(steps()[:, :1], one, 1, HOW))

    assert {m.metric for m in measurements} == {"time_to_first_token", "token_rate"}


def test_what_reads_no_text_has_no_rate_of_reading_it() -> None:
    """A rate of the prompt is one of tokens."""
    measurements = list(
        token_metrics.token_measurements(steps(), GenerationLength(prompt=None, generated=12), 1, HOW)
    )

    assert {m.scope for m in measurements if m.metric == "token_rate"} == {
        "generate=12",
        "generate=12,stage=decode",
    }


def test_queries_ask_for_an_extent() -> None:
    """A scope with equals signs and a comma is part of the one grammar."""
    measurements = tuple(token_metrics.token_measurements(steps(), EXTENT, 1, HOW))
    result = Result(id="0" * 12, created="2026-01-01T00:00:00.000", job=a_job(), measurements=measurements)

    assert result["time_to_first_token.p50@prompt=8,generate=12"] == pytest.approx(0.1)
    assert result["token_rate@prompt=8,generate=12,stage=decode"] == pytest.approx(100, rel=0.01)
    assert str(Query.parse("inter_token_latency:p99@generate=4")) == "inter_token_latency.p99@generate=4"


# --- the length of the context -------------------------------------------------------------------


def test_the_slope_is_what_a_token_of_context_adds() -> None:
    """A planted slope is found within its interval, though one sequence in ten is disturbed."""
    made = steps(60, adds=1e-4, noise=0.05)
    made[::10, 6] *= 50
    fitted = token_metrics.fit_context_slope(made)
    assert fitted is not None
    value, interval = fitted

    assert interval.low <= 1e-4 <= interval.high
    assert value == pytest.approx(1e-4, rel=0.2)


def test_the_second_token_is_no_part_of_the_slope() -> None:
    """It pays for the change from reading to generating, however long that takes."""
    made = steps(30, noise=0.0)
    made[:, 1] = 5.0
    fitted = token_metrics.fit_context_slope(made)
    assert fitted is not None

    assert fitted[0] == pytest.approx(0.0, abs=1e-12)


def test_few_tokens_or_sequences_have_no_slope() -> None:
    """A line needs eight tokens, and an interval of it some sequences."""
    assert token_metrics.fit_context_slope(steps()[:, :9]) is None
    assert token_metrics.fit_context_slope(steps()[:, :10]) is not None
    assert token_metrics.fit_context_slope(steps(3)) is None


@pytest.mark.parametrize(("adds", "sign"), [(4e-4, "by 400 us"), (-4e-4, "by -400 us")])
def test_a_time_that_changes_with_the_length_is_doubted(adds: float, sign: str) -> None:
    """The doubt tells the change over the output and the seconds by token."""
    (doubt,) = token_metrics.context_drift_doubts(steps(adds=adds, noise=0.001), EXTENT)

    assert doubt.code == "context-drift"
    assert doubt.code in CODES
    assert doubt.seen.startswith("generation@prompt=8,generate=12: ")
    assert sign in doubt.seen


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(steps(), id="steady"),
        pytest.param(steps(adds=5e-6, noise=0.001), id="evident and small"),
        pytest.param(steps(8, adds=2e-4, noise=2.0), id="large and not evident"),
        pytest.param(steps()[:, :4], id="short"),
    ],
)
def test_a_time_that_holds_for_all_lengths_is_not_doubted(made: np.ndarray) -> None:
    """A change counts when it is both evident and relevant."""
    assert not list(
        token_metrics.context_drift_doubts(made, GenerationLength(prompt=8, generated=made.shape[1]))
    )


def test_doubts_of_several_lengths_are_told_once() -> None:
    """Doubts of one code about one thing are one; of another metric they are another."""

    def of(what: str) -> Doubt:
        return Doubt(code="few-samples", seen=f"{what} lacks some", advice="run it longer")

    first, other = "time_to_first_token.p99", "inter_token_latency.p99"
    doubts = list(token_metrics.merge_similar_doubts([of(first), of(other), of(first), of(first), of(other)]))

    assert [d.seen for d in doubts] == [
        f"{first} lacks some (and at 2 other lengths)",
        f"{other} lacks some (and at another length)",
    ]
    assert list(token_metrics.merge_similar_doubts([of(first)])) == [of(first)]


def test_an_extent_is_no_part_of_what_a_doubt_is_about() -> None:
    """Generations of two lengths that ended for the same reason end in one doubt."""
    result = [
        Doubt(code="time-limit", seen=f"generation@prompt={n},generate=4 stopped", advice="more time")
        for n in (8, 16)
    ]

    assert len(list(token_metrics.merge_similar_doubts(result))) == 1


# --- places and caches ---------------------------------------------------------------------------


def test_bands_are_medians_by_place() -> None:
    """The second to the last token in parts, over all sequences and processes."""
    one, two = (np.array([[2.0, 3.0, 4.0, 5.0], [2.0, 3.0, 4.0, 9.0]]) + shift for shift in (0, 2))
    pooled = Distribution.of(one.ravel(), two.ravel())

    assert token_metrics.split_into_bands(pooled, GenerationLength(prompt=1, generated=5), 2) == (
        TokenBand(first=2, last=3, seconds=3.5),
        TokenBand(first=4, last=5, seconds=6.0),
    )
    assert len(token_metrics.split_into_bands(pooled, GenerationLength(prompt=1, generated=5), 9)) == 4


def test_a_cache_grows_by_what_a_token_adds() -> None:
    """From the second token to the last, and by sample; one token alone tells nothing."""
    assert token_metrics.cache_bytes_per_token({1: 900, 2: 400, 12: 1400}, 4) == 25
    assert token_metrics.cache_bytes_per_token({1: 400, 2: 500}, 1) == 100
    assert token_metrics.cache_bytes_per_token({1: 400}, 1) is None
