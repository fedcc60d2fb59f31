"""A load, in words and in contradictions."""

from __future__ import annotations

import re
from typing import Any

import pytest

from modeldyno.base.errors import RequestError
from modeldyno.base.job.load_spec import (
    Arrivals,
    Load,
    format_sequence,
    parse_rate,
    parse_rates,
    parse_sequence,
    pause_after,
)
from modeldyno.base.job.think_time import ThinkTime

THINKING = ThinkTime(low=2.0, high=2.0)


@pytest.mark.parametrize(
    ("text", "rate", "kind", "more"),
    [
        ("100", 100, "constant", {}),
        ("2000/s:poisson", 2000, "poisson", {}),
        ("12.5:burst=8", 12.5, "burst", {"burst": 8}),
        ("20:gamma=0.5", 20, "gamma", {"burstiness": 0.5}),
        ("1e3", 1000, "constant", {}),
        ("5/s:sequences", 5, "sequences", {}),
    ],
)
def test_a_rate_is_read(text: str, rate: float, kind: str, more: dict[str, float]) -> None:
    """A rate may say how its requests arrive; it is fields of a Load."""
    assert parse_rate(text) == {"rate": rate, "arrivals": Arrivals(kind), **more}


def test_several_rates_are_read_with_the_arrivals_of_all() -> None:
    """A single one is as it was."""
    assert parse_rates("10,20.5,40:gamma=0.5") == ("10:gamma=0.5", "20.5:gamma=0.5", "40:gamma=0.5")
    assert parse_rates("10") == ("10",)


@pytest.mark.parametrize("text", ["20,10", "10,10", ",".join(map(str, range(1, 66)))])
def test_rates_that_do_not_rise_are_refused(text: str) -> None:
    """As are very many."""
    with pytest.raises(RequestError, match="is not up to 64 rising rates, such as 10,20,40:poisson"):
        parse_rates(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fast", "`rate` 'fast' is not a rate; write 100, 100:poisson, 100:burst=8, 100:gamma=0.5 or 5:"),
        ("5:burst=1.5", "'5:burst=1.5' is not a rate"),
        ("5:poisson=2", "'5:poisson=2' is not a rate"),
        ("5:poison", "did you mean 'poisson'"),
        ("5:closed", "kind of arrivals 'closed'"),
    ],
)
def test_what_is_no_rate_is_refused(text: str, message: str) -> None:
    """A rate that cannot be read is answered with how to write one."""
    with pytest.raises(RequestError, match=re.escape(message)):
        parse_rate(text)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"arrivals": Arrivals.POISSON}, "poisson arrivals need a rate"),
        ({"rate": 5.0}, "closed loop has no rate"),
        ({"arrivals": Arrivals.TRACE}, "need its file"),
        ({"arrivals": Arrivals.CONSTANT, "rate": 0.0}, "rate of a load is 0.0, not positive"),
        ({"timeout": float("inf")}, "timeout of a load is inf"),
        ({"concurrency": 0}, "at least 1 as its concurrency, not 0"),
        (
            {"arrivals": Arrivals.GAMMA, "rate": 5.0, "burstiness": 0.0},
            "burstiness .gamma. of a load is 0.0, not",
        ),
        ({"speed": 2.0}, "`replay_speed` and `replay_window` are of a trace"),
        ({"window": 2.0}, "are of a trace, which is given with `replay`"),
        ({"arrivals": Arrivals.TRACE, "trace": "t", "speed": 0.0}, "speed of a load is 0.0, not positive"),
        ({"drivers": 0}, "at least 1 as its drivers, not 0"),
        ({"retries": -1}, "can be negative"),
        ({"ramp": float("nan")}, "can be negative"),
        (
            {"arrivals": Arrivals.CONSTANT, "rate": 5.0, "sequence": (2, 3)},
            "Sequences at a rate need `concurrency`",
        ),
        (
            {"arrivals": Arrivals.SEQUENCES, "rate": 5.0},
            "Sequences that begin at a rate need `sequence`",
        ),
        ({"think_time": THINKING}, "give `sequence`, too"),
        (
            {
                "arrivals": Arrivals.CONSTANT,
                "rate": 5.0,
                "concurrency": 2,
                "sequence": (2, 3),
                "think_time": THINKING,
            },
            "Requests at a rate wait for no answer",
        ),
    ],
)
def test_a_load_that_cannot_be_is_refused(fields: dict[str, Any], message: str) -> None:
    """What contradicts itself is refused in one sentence."""
    with pytest.raises(RequestError, match=message):
        Load(**fields)


@pytest.mark.parametrize(
    ("load", "text", "slots"),
    [
        (Load(), "concurrency 1", 1),
        (Load(concurrency=8), "concurrency 8", 8),
        (Load(arrivals=Arrivals.POISSON, rate=250), "250/s poisson", None),
        (Load(arrivals=Arrivals.CONSTANT, rate=2.5, concurrency=4), "2.5/s constant, at most 4 at once", 4),
        (Load(arrivals=Arrivals.BURST, rate=80, burst=16), "80/s in bursts of 16", None),
        (
            Load(arrivals=Arrivals.TRACE, trace="t.csv", speed=2.5, window=600),
            "trace t.csv, its first 600 s, 2.5 times as fast",
            None,
        ),
        (Load(arrivals=Arrivals.GAMMA, rate=8, burstiness=0.5), "8/s gamma of burstiness 0.5", None),
        (Load(arrivals=Arrivals.TRACE, trace="t.jsonl"), "trace t.jsonl", None),
        (Load(arrivals=Arrivals.SEQUENCES, rate=5, sequence=(2, 3)), "5 sequences/s of 2..3", None),
    ],
)
def test_a_load_says_what_it_is(load: Load, text: str, slots: int | None) -> None:
    """A load is told in a few words; only a closed loop has slots by itself."""
    assert str(load) == text
    assert load.slots == slots
    assert load.closed is (load.arrivals is Arrivals.CLOSED)


def test_a_slot_pauses_the_longer_the_more_often_it_failed() -> None:
    """Three failures are free, and no pause is longer than a twentieth of a second."""
    pauses = [pause_after(failures, answered=True) for failures in range(13)]
    assert pauses[:4] == [0, 0, 0, 0]
    assert pauses[4:10] == pytest.approx([0.001, 0.002, 0.004, 0.008, 0.016, 0.032])
    assert pauses[10:] == [0.05, 0.05, 0.05]
    assert pause_after(10**9, answered=True) == 0.05


def test_a_slot_pauses_longest_at_once_where_nothing_was_ever_answered() -> None:
    """The first failure of all is no reason to send faster than twenty times a second."""
    assert [pause_after(failures, answered=False) for failures in (0, 1, 2, 10**9)] == [0, 0.05, 0.05, 0.05]


@pytest.mark.parametrize(
    ("length", "sequence", "text"),
    [
        (20, (20, 20), "20"),
        ("10..30", (10, 30), "10..30"),
        ((5, 6), (5, 6), "5..6"),
        ("data", (0, 0), "data"),
    ],
)
def test_the_length_of_sequences_is_read(length: object, sequence: tuple[int, int], text: str) -> None:
    """It is a number, a range, or that of the data, and is written as it is read."""
    assert parse_sequence(length) == sequence
    assert format_sequence(sequence) == text
    assert parse_sequence(text) == sequence


def test_no_length_of_sequences_stays_none() -> None:
    """Without the option there are no sequences."""
    assert parse_sequence(None) is None


@pytest.mark.parametrize("length", ["0", "3..1", "many", "1..2..3", (2,) * 3])
def test_what_is_no_length_of_sequences_is_refused(length: object) -> None:
    """The answer says how to write one."""
    with pytest.raises(RequestError, match=r"write 20, 10\.\.30, or data"):
        parse_sequence(length)


def test_a_load_names_its_sequences() -> None:
    """The words of a load say how long they are."""
    open_loop = Load(arrivals=Arrivals.CONSTANT, rate=5.0, concurrency=2, sequence=(3, 3))

    assert str(Load(concurrency=4, sequence=(10, 30))) == "concurrency 4 in sequences of 10..30"
    assert str(open_loop) == "5/s constant, at most 2 at once in sequences of 3"


def test_a_load_names_the_time_to_think() -> None:
    """Beside the length of its sequences."""
    closed = Load(concurrency=4, sequence=(5, 5), think_time=THINKING)
    arriving = Load(
        arrivals=Arrivals.SEQUENCES, rate=2.0, concurrency=9, sequence=(5, 5), think_time=THINKING
    )

    assert str(closed) == "concurrency 4 in sequences of 5, thinking 2s"
    assert str(arriving) == "2 sequences/s of 5, thinking 2s, at most 9 at once"


def test_the_longest_load_is_that_of_its_duration_or_of_the_plan() -> None:
    """The ramp comes before either; the warm-up of a duration may take half of it and a second."""
    assert Load(ramp=2.0).longest(20.0) == 22.0
    assert Load(ramp=2.0, requests=10).longest(20.0) == 22.0
    assert Load(ramp=2.0, duration=10.0).longest(20.0) == 18.0


@pytest.mark.parametrize(
    ("load", "processes"),
    [
        (Load(drivers=4), 1),
        (Load(drivers=4, concurrency=8), 4),
        (Load(drivers=4, concurrency=8, prefill_concurrency=2), 2),
        (Load(drivers=4, arrivals=Arrivals.POISSON, rate=9.0), 4),
        (Load(drivers=4, arrivals=Arrivals.POISSON, rate=9.0, prefill_concurrency=1), 1),
    ],
    ids=str,
)
def test_no_driver_is_without_a_part_of_a_limit(load: Load, processes: int) -> None:
    """As each would send one request at least, and all together more than asked for."""
    assert load.processes == processes
