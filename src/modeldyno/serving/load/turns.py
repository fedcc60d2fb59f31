"""Chats of several turns: how long the first turn takes and how long later ones, whose prompts have grown.

A server with a prefix cache has most of a later prompt already, one without computes all of it again. So the
figures of a whole load mean little without those of its turns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import observed_number
from modeldyno.base.stats.units import SECONDS, format_quantity
from modeldyno.serving.load.answer_groups import answered_requests, group_times
from modeldyno.serving.load.steady_window import NANO

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.base.metrics.measurement import Measurement
    from modeldyno.serving.load.request_log import Records
    from modeldyno.serving.load.steady_window import SteadyWindow

ALONE = 8
"""Turns that have a line of their own; the later ones share lines, of twice as many turns each."""


def turn_scopes(most: int) -> Iterator[tuple[str, int, int]]:
    """Yield the scope of each turn up to `most`, or of several, with the first and the last of them."""
    for turn in range(1, min(most, ALONE) + 1):
        yield f"turn={turn}", turn, turn
    first, width = ALONE + 1, ALONE
    while first <= most:
        yield f"turn={first}..{first + width - 1}", first, first + width - 1
        first, width = first + width, 2 * width


def turn_measurements(window: SteadyWindow, why: str) -> Iterator[Measurement]:
    """Yield how much of the prompts the server had, and by turn latency, first token and prompt.

    Args:
        window: the steady window of a load of chats.
        why: why the latency is void; empty if it is not.
    """
    records = answered_requests(window)
    turns, tokens = records.turn("turn"), records.turn("prompt_tokens")
    if not len(records) or not records.turn("session").any():
        return
    if (share := cached_share(records)) is not None:
        yield observed_number("cached_prompt_share", share)
    for scope, first, last in turn_scopes(int(turns.max())) if turns.max() > 1 else ():
        some = records.chosen((turns >= first) & (turns <= last))
        if not len(some):
            continue
        yield from group_times(window, some, scope, why)
        if (known := tokens[(turns >= first) & (turns <= last)]).max() >= 0:
            yield observed_number("prompt_tokens", float(known[known >= 0].mean()), scope=scope)
        if (share := cached_share(some)) is not None:
            yield observed_number("cached_prompt_share", share, scope=scope)


def first_prompts(window: SteadyWindow) -> list[tuple[int, int]]:
    """Return the cached and all tokens of the prompts of first turns, without that of the first call."""
    records = answered_requests(window)
    first = records.chosen((records.turn("turn") == 1) & (records.message > 0))
    cached, tokens = first.turn("cached_tokens"), first.turn("prompt_tokens")
    return [*zip(cached.tolist(), tokens.tolist(), strict=True)]


def cached_share(records: Records) -> float | None:
    """Return the share of the prompts' tokens that the server had; None if no answer says both."""
    tokens, cached = records.turn("prompt_tokens"), records.turn("cached_tokens")
    known = (tokens > 0) & (cached >= 0)
    return float(cached[known].sum() / tokens[known].sum()) if known.any() else None


def session_doubts(window: SteadyWindow, turns: float) -> Iterator[Doubt]:
    """Doubt a window that is shorter than a session: it holds more of some turns than of others.

    Args:
        window: the steady window.
        turns: those of a session, on average.
    """
    records = answered_requests(window)
    if not len(records) or turns <= 1:
        return
    seconds = turns * float((records.end - records.due + records.turn("think_time")).mean()) * NANO
    if window.seconds < seconds:
        yield Doubt(
            code="cut-sessions",
            seen=f"the steady window of {format_quantity(window.seconds, SECONDS, 2)} is shorter than a "
            f"session of {turns:.3g} turns, which takes about {format_quantity(seconds, SECONDS, 2)}: some "
            "turns outweigh others",
            advice=f"measure for {format_quantity(2 * seconds, SECONDS, 2)} or longer with `duration`, or "
            "read the figures by turn",
        )
