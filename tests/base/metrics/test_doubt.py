from __future__ import annotations

import pytest

from modeldyno.base.metrics import doubt
from modeldyno.base.metrics.doubt import (
    CODES,
    DISCREDITING,
    DISTURBING,
    INCIDENTAL,
    Trust,
    seriousness,
    trust,
)
from modeldyno.base.metrics.measurement import Distribution

STEADY = [0.01 + 1e-5 * (i * 7919 % 13) for i in range(200)]


def codes(doubts: object) -> list[str]:
    return [d.code for d in doubts]  # type: ignore[attr-defined]


def test_a_converged_distribution_raises_no_doubt() -> None:
    """Nothing is said of what is in order."""
    assert codes(doubt.distribution_doubts("latency", Distribution.of(STEADY), ["p50"])) == []


@pytest.mark.parametrize(
    ("stop", "code"),
    [
        ("time limit", "time-limit"),
        ("noise floor", "noise-floor"),
        ("sample limit", "sample-limit"),
        ("interrupted", "interrupted"),
    ],
)
def test_every_other_reason_to_stop_is_a_doubt(stop: str, code: str) -> None:
    """The doubt names the condition that was not met."""
    distribution = Distribution.of(STEADY, stop=stop, unmet=("p50 is known to 4 %, not 2 %",))
    raised = list(doubt.distribution_doubts("latency", distribution, []))

    assert [code] == codes(raised)
    assert "p50 is known to 4 %" in raised[0].seen


def test_what_was_interrupted_is_not_said_to_have_stopped() -> None:
    """The sentence is one that a person would say."""
    distribution = Distribution.of(STEADY, stop="interrupted")
    (raised,) = doubt.distribution_doubts("latency", distribution, [])

    assert raised.seen.startswith("latency was interrupted after ")


def test_a_requested_percentile_below_its_floor_is_a_doubt() -> None:
    """The doubt says how many samples are missing."""
    raised = list(doubt.distribution_doubts("latency", Distribution.of(STEADY), ["p99"]))

    assert codes(raised) == ["few-samples"]
    assert "462" in raised[0].seen


def test_a_call_as_short_as_the_clock_is_a_doubt() -> None:
    """When reading the clock takes more than 1 % of the median, that is said."""
    distribution = Distribution.of(STEADY, timer_cost=2e-4)

    assert codes(doubt.distribution_doubts("latency", distribution, [])) == ["timer-bound"]
    assert codes(doubt.distribution_doubts("throughput", distribution, [])) == []


@pytest.mark.parametrize(
    ("foreign", "steal", "expected"),
    [(0.0, 0.0, []), (0.5, 0.0, ["interference"]), (0.0, 0.1, ["steal"]), (0.05, 0.02, [])],
)
def test_busy_neighbours_and_stolen_time_are_doubts(
    foreign: float, steal: float, expected: list[str]
) -> None:
    """Each has its limit."""
    assert expected == codes(doubt.noise_doubts(foreign, steal))


def test_what_other_processes_explain_says_so() -> None:
    """Layers that do not add up are told to wait for a quiet machine; several threads, to become fewer."""
    layers = doubt.Doubt(code="parts-differ", seen="110 %", advice="watch fewer")
    (noise,) = doubt.noise_doubts(1.0, 0.0)

    alone, one, several = (
        [d.advice for d in doubt.adjust_advice(doubts, several=more)]
        for doubts, more in (([layers], True), ([layers, noise], False), ([noise], True))
    )
    assert alone == ["watch fewer"]
    assert one == [doubt._DISTURBED_ADVICE, noise.advice]
    assert several == [doubt._FEWER_THREADS_ADVICE]
    assert "`threads=1`" in several[0]


def test_doubts_of_processes_are_told_once() -> None:
    """The same doubt about the same metric is told once, with how many more said it."""
    doubts = [
        doubt.Doubt(code="drift", seen="latency: +3 %", advice="a"),
        doubt.Doubt(code="drift", seen="latency: -2 %", advice="a"),
        doubt.Doubt(code="drift", seen="throughput: -2 %", advice="a"),
        doubt.Doubt(code="few-samples", seen="latency.p99 lacks 3", advice="a"),
    ]

    assert [d.seen for d in doubt.pooled_doubts(doubts)] == [
        "latency: +3 % (and in 1 more process)",
        "throughput: -2 %",
    ]


def test_a_verdict_on_what_was_only_seen_is_a_doubt() -> None:
    """Numbers without an interval are named."""
    assert codes(doubt.observation_doubts([])) == []
    assert "load_time" in next(iter(doubt.observation_doubts(["load_time"]))).seen


@pytest.mark.parametrize(("latency", "rate", "expected"), [(0.01, 100, []), (0.01, 10, ["inconsistent"])])
def test_latency_and_rate_must_agree(latency: float, rate: float, expected: list[str]) -> None:
    """Calls one after the other: the time of one times the number in a second is one."""
    assert codes(doubt.rate_doubts(latency, rate)) == expected


@pytest.mark.parametrize(
    ("layers", "expected"), [(0.01, []), (0.0179, []), (0.02, ["other-pace"]), (0.005, ["other-pace"])]
)
def test_the_layers_of_a_call_must_take_its_time(layers: float, expected: list[str]) -> None:
    """Half as long again as the interval of the median call, either way, is noise."""
    assert codes(doubt.layer_time_doubts(layers, 0.009, 0.012)) == expected


@pytest.mark.parametrize(
    ("used", "cores", "expected"), [(1.9, 1, ["outside-pin"]), (1.05, 1, []), (3, 0, [])]
)
def test_more_cores_than_given_are_a_doubt(used: float, cores: int, expected: list[str]) -> None:
    """A tenth more is measuring; unknown cores say nothing."""
    assert codes(doubt.pinning_doubts(used, cores)) == expected


@pytest.mark.parametrize(
    ("count", "claimed", "expected"),
    [
        (1, False, []),
        (1, True, ["one-process"]),
        (2, True, ["few-processes"]),
        (4, False, ["few-processes"]),
        (5, True, []),
    ],
)
def test_few_processes_are_a_doubt(count: int, claimed: bool, expected: list[str]) -> None:
    """One process is doubted when something is claimed of it, two to four always, five never."""
    assert expected == codes(doubt.process_count_doubts(count, claimed=claimed))


def test_a_converted_model_is_not_the_one_that_was_analysed() -> None:
    """What ran is named beside what was counted."""
    raised = doubt.conversion_doubt("bf16")

    assert raised.code == "as-stored"
    assert raised.seen.endswith("as the model is stored; what ran was bf16")


def test_a_precision_that_nobody_asked_for_is_named() -> None:
    """The doubt says which one the runtime chose, and how to have the model's own."""
    raised = doubt.unasked_precision_doubt("bf16")

    assert raised.code == "unasked-precision"
    assert "computes in bf16" in raised.seen
    assert "f32" in raised.advice


def test_more_threads_than_cores_are_a_doubt() -> None:
    """The most that any knob asks for counts."""
    assert codes(doubt.thread_doubts([1, 8], 2)) == ["oversubscribed"]
    assert codes(doubt.thread_doubts([], 2)) == []


def test_every_doubt_that_is_raised_has_a_sentence() -> None:
    """The table of codes is complete."""
    raised = {"interference", "steal", "few-processes", "one-process", "oversubscribed", "timer-bound"}

    assert raised <= set(doubt.CODES)


@pytest.mark.parametrize(
    ("codes", "level"),
    [
        ((), Trust.UNAFFECTED), (("busy-peaks", "reused"), Trust.UNAFFECTED),
        (("busy-peaks", "steal"), Trust.LIMITED), (("of-a-plugin",), Trust.LIMITED),
        (("steal", "beyond-peak"), Trust.LOW),
    ],
)  # fmt: skip
def test_doubts_say_how_far_the_main_figures_can_be_trusted(codes: tuple[str, ...], level: Trust) -> None:
    """The gravest decides; what is about another figure does not count, a plugin's own does."""
    assert trust(codes) is level


def test_the_gravest_doubt_comes_first() -> None:
    """What discredits, what disturbs with those of plugins at its end, and what is about other figures."""
    codes = ["reused", "mine", "drift", "interference", "lazy-output"]

    assert sorted(codes, key=seriousness) == ["lazy-output", "interference", "drift", "mine", "reused"]


def test_each_doubt_is_of_one_gravity() -> None:
    """The three tables together are the list of all, and none is in two."""
    assert len(DISCREDITING) + len(DISTURBING) + len(INCIDENTAL) == len(CODES)
