"""What a load of chats shows by turn, from records whose truth is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.serving.load.test_load_analysis import MILLI, SECOND, records

from modeldyno.base.job.load_spec import Load
from modeldyno.base.job.think_time import ThinkTime
from modeldyno.base.metrics.measurement import SATURATED, Distribution, Measurement
from modeldyno.serving.load import load_analysis, load_rates
from modeldyno.serving.load.request_log import PieceTimes, Records, empty_records
from modeldyno.serving.load.steady_window import SteadyWindow
from modeldyno.serving.load.turns import (
    first_prompts,
    session_doubts,
    turn_measurements,
    turn_scopes,
)

THINKING = Load(concurrency=4, sequence=(5, 5))


def chats(
    *,
    slots: int = 4,
    turns: int = 5,
    think: float = 0.2,
    seconds: float = 30.0,
    prompt: int = 10,
    cached: int = 0,
) -> Records:
    """Slots in lock step: turn k takes 10 ms times k, and its prompt has k times as many tokens."""
    rows: list[tuple[int, ...]] = []
    for slot in range(slots):
        now, session = 0, slot
        while now < seconds * SECOND:
            for turn in range(1, turns + 1):
                pause = int(think * SECOND) if turn > 1 else 0
                end = now + pause + 10 * MILLI * turn
                rows.append((now + pause, end, session + 1, turn, pause, prompt * turn, cached * turn))
                now = end
            session += slots
    table = np.array(sorted(rows, key=lambda row: row[1]), dtype="int64")
    log = records(table[:, 0], table[:, 1] - table[:, 0], message=table[:, 2], tokens=4)
    return replace(log, turns=table[:, 2:])


def cut(log: Records, begin: float = 2.0, seconds: float = 20.0, load: Load = THINKING) -> SteadyWindow:
    return SteadyWindow(
        records=log, begin=int(begin * SECOND), end=int((begin + seconds) * SECOND), load=load
    )


def by_name(window: SteadyWindow, why: str = "") -> dict[str, Measurement]:
    return {f"{m.metric}@{m.scope}": m for m in turn_measurements(window, why)}


def median(measurement: Measurement) -> float:
    assert isinstance(measurement.value, Distribution)
    return measurement.value.statistic("p50")


def test_each_turn_has_its_own_latency_and_prompt() -> None:
    """The first ones are short, and the later ones longer."""
    measured = by_name(cut(chats(cached=5)))

    for turn in range(1, 6):
        assert median(measured[f"latency@turn={turn}"]) == pytest.approx(0.01 * turn)
        assert measured[f"prompt_tokens@turn={turn}"].value == 10 * turn
        assert measured[f"cached_prompt_share@turn={turn}"].value == 0.5
    assert measured["cached_prompt_share@"].value == 0.5
    assert "time_to_first_token@turn=1" not in measured


def test_the_first_token_of_each_turn_counts_from_when_it_was_due() -> None:
    """Of those that have one."""
    log = chats()
    due = log.due.tolist()
    pieces = tuple(() if at % 7 == 0 else (when + MILLI, when + 2 * MILLI) for at, when in enumerate(due))
    measured = by_name(cut(replace(log, pieces=PieceTimes.of(pieces))))

    assert median(measured["time_to_first_token@turn=3"]) == pytest.approx(0.001)


def test_all_answers_of_a_turn_are_counted_however_many_pieces_they_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A sample is of requests."""
    log = chats()
    pieces = PieceTimes.of([(due + 1, *([due + 2] * 500)) for due in log.due.tolist()])
    monkeypatch.setattr("modeldyno.serving.load.answer_groups._SAMPLE", len(log))
    streamed, whole = (by_name(cut(each)) for each in (replace(log, pieces=pieces), log))
    first, plain = streamed["latency@turn=1"].value, whole["latency@turn=1"].value
    assert isinstance(first, Distribution)
    assert isinstance(plain, Distribution)
    assert len(first) == len(plain) > 20


def test_late_turns_share_a_line() -> None:
    """From the ninth on, of twice as many turns each time."""
    assert [*turn_scopes(3)] == [(f"turn={turn}", turn, turn) for turn in (1, 2, 3)]
    assert [*turn_scopes(40)][8:] == [
        ("turn=9..16", 9, 16), ("turn=17..32", 17, 32), ("turn=33..64", 33, 64),
    ]  # fmt: skip
    measured = by_name(cut(chats(turns=12), seconds=28.0))
    assert measured["prompt_tokens@turn=9..16"].value == pytest.approx(105, rel=0.05)


def test_a_turn_that_nobody_reached_has_no_line() -> None:
    """Where a window is short, nobody may have a first turn in it."""
    log = chats()
    window = cut(log.chosen(log.turn("turn") != 2))
    assert not {name for name in by_name(window) if name.endswith("turn=2")}


def test_what_a_server_does_not_say_is_not_told() -> None:
    """Neither tokens nor a share of them."""
    log = chats()
    turns = log.turns.copy()
    turns[:, 3:] = -1
    measured = by_name(cut(replace(log, turns=turns)))
    assert {name.partition("@")[0] for name in measured} == {"latency"}


def test_single_turns_and_requests_of_no_session_have_no_lines() -> None:
    """There is nothing to tell apart."""
    assert [*by_name(cut(chats(turns=1)))] == ["cached_prompt_share@"]
    assert not by_name(cut(replace(chats(), turns=empty_records().turns)))
    assert not by_name(cut(empty_records()))


def test_a_void_latency_is_void_by_turn() -> None:
    """An overload has no steady value in any turn."""
    (latency,) = (m for n, m in by_name(cut(chats()), SATURATED).items() if n == "latency@turn=1")
    assert isinstance(latency.value, Distribution)
    assert latency.value.void == SATURATED


def test_the_first_prompts_tell_what_a_server_had_before() -> None:
    """Those of later turns it had from the same chat."""
    counts = first_prompts(cut(chats(cached=3)))
    assert set(counts) == {(3, 10)}


def test_a_window_shorter_than_a_session_is_doubted() -> None:
    """A session of five turns takes 0.95 s."""
    (doubt,) = session_doubts(cut(chats(), seconds=0.9), 5)
    assert doubt.code == "cut-sessions"
    assert "a session of 5 turns, which takes about 9" in doubt.seen
    assert not [*session_doubts(cut(chats(), seconds=1.1), 5)]
    assert not [*session_doubts(cut(chats(), seconds=0.01), 1)]
    assert not [*session_doubts(cut(empty_records()), 5)]


@pytest.mark.parametrize("seconds", [2.1, 2.5, 3.3, 5.0, 20.0])
@pytest.mark.parametrize("begin", [1.0, 1.13, 1.4, 1.77])
def test_rates_of_users_who_think_together_are_right(begin: float, seconds: float) -> None:
    """All slots think at the same time: what falls into the window by chance does not matter."""
    window = cut(steady(), begin, seconds)
    measured = {m.metric: m for m in load_rates.rates(window, "")}

    assert measured["request_rate"].value == pytest.approx(4 / 0.5, rel=0.02)
    assert not [*load_rates.rate_doubts(window, "")]
    assert load_analysis.void_reason(window) == ""


def steady() -> Records:
    """Four slots in lock step, which think for 0.3 s and wait for 0.2 s."""
    due = np.repeat(np.arange(60) * 500 * MILLI + 300 * MILLI, 4)
    log = records(due, 200 * MILLI, tokens=4)
    turns = np.zeros((len(log), 5), "int64")
    turns[:, 0], turns[:, 1], turns[:, 2] = 1, 2, 300 * MILLI
    return replace(log, turns=turns)


def test_a_window_of_less_than_two_rounds_has_no_rate() -> None:
    """The thinking belongs to a round."""
    load = replace(THINKING, think_time=ThinkTime(low=0.3, high=0.3))
    (doubt,) = load_rates.rate_doubts(cut(steady(), 1.0, 0.9, load), "")
    assert doubt.code == "short-load"
    assert "holds no two turns, with the time to think, of 500 ms" in doubt.seen


def test_slots_whose_users_think_are_not_idle() -> None:
    """A client is late only if requests are sent later than they are due."""
    log = steady()
    late = replace(log, sent=log.due + 150 * MILLI)
    assert not [*load_analysis.doubts(cut(log))]
    (doubt,) = load_analysis.doubts(cut(late))
    assert "30% of the slots were idle between an answer and the next request" in doubt.seen
