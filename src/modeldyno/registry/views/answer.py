"""The registry's answer, as blocks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from modeldyno.base.report.blocks import Notice, Severity, Table, make_table, shorten
from modeldyno.base.stats.units import RATE, format_quantity
from modeldyno.base.views.text import count, format_rough_duration
from modeldyno.registry.records.answer import AnswerState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.base.report.blocks import Block
    from modeldyno.registry.records.answer import AnswerCandidate, RegistryAnswer

_OUT = 84
_NEARLY = 0.999
_SHOWN = 12
"""Rows of what fell out."""


def blocks(answer: RegistryAnswer, *, ranked: bool = False) -> Iterator[Block]:
    """Yield the answer, the alternatives, and what fell out with its reason.

    If they are to be `ranked`, the answer stands among the alternatives, too.
    """
    severities = {
        AnswerState.FOUND: Severity.HELD,
        AnswerState.NOTHING_HOLDS: Severity.BROKEN,
        AnswerState.UNKNOWN: Severity.UNDECIDED,
    }
    yield Notice(severity=severities[answer.state], code="answer", text=headline(answer))
    if answer.best is not None:
        for judgement in answer.best.judgements:
            yield Notice(severity=Severity.HELD, text=judgement.sentence())
    if answer.best is not None and ranked:
        yield ranking(answer)
    elif answer.others:
        rows = (_ranked(answer, candidate) for candidate in answer.others)
        yield make_table("", ("also holds", *_RANKED), rows)
    if answer.fell_out or answer.unusable:
        yield _fell_out(answer)


def headline(answer: RegistryAnswer) -> str:
    """Say the answer in one sentence."""
    bounds = " and ".join(answer.bounds)
    if answer.state is AnswerState.FOUND:
        assert answer.best is not None
        chosen = f", chosen from {answer.among} figures" if answer.among > 1 else ""
        return (
            f"Run {describe(answer.best)}{_needs(answer, answer.best)}; "
            f"certainty {_certainty(answer.best.certainty)}{chosen}"
        )
    if answer.state is AnswerState.NOTHING_HOLDS:
        memory = " or runs out of memory" if any(c.out_of_memory for c in answer.fell_out) else ""
        holds = f"holds {bounds}" if bounds else "can be run"
        return f"No variant of {answer.model} {holds}: each surely breaks a bound{memory}"
    waiting = ""
    if answer.waiting and answer.seconds is not None:
        waiting = f"; {count(answer.waiting, 'figure')} to come, ready in about "
        waiting += format_rough_duration(answer.seconds)
    elif answer.waiting:
        wait = "waits" if answer.waiting == 1 else "wait"
        waiting = f"; {count(answer.waiting, 'task')} {wait} for a worker: start one with modeldyno worker"
    elif not answer.fell_out:
        waiting = "; nothing was measured yet"
    holds = f" surely holds {bounds}" if answer.bounds else " is there"
    return f"Unknown: no fresh figure of {answer.model}{holds}{waiting}"


def describe(candidate: AnswerCandidate) -> str:
    """Say what a candidate is: version, variant, configuration, target."""
    figure = candidate.figure
    on = f" on {candidate.target.name}" if candidate.target is not None else ""
    return f"{figure.model}/{figure.number} as {figure.recipe}, {figure.measure.label}{on}"


def _needs(answer: RegistryAnswer, candidate: AnswerCandidate) -> str:
    parts = []
    if candidate.replicas is not None and answer.demand is not None:
        demand = format_quantity(answer.demand, RATE, 3)
        parts.append(f"{count(candidate.replicas, 'replica')} for {demand}")
    if candidate.per_hour is not None and answer.price is not None:
        parts.append(f"{_money(answer, candidate)}/h")
    return f": {', '.join(parts)}" if parts else ""


def _certainty(certainty: float) -> str:
    """Format a certainty, rounded down; it is 100 % only of counts."""
    if _NEARLY < certainty < 1:
        return f"over {_NEARLY:.1%}"
    return f"{math.floor(certainty * 1000) / 1000:.1%}"


def _money(answer: RegistryAnswer, candidate: AnswerCandidate) -> str:
    currency = answer.price.currency if answer.price is not None else ""
    sign, word = (currency, "") if len(currency) == 1 else ("", f" {currency}" if currency else "")
    return "" if candidate.per_hour is None else f"{sign}{candidate.per_hour:,.2f}{word}"


def ranking(answer: RegistryAnswer) -> Table:
    """Rank all that holds, the answer first, with what each costs and how sure it is."""
    best = () if answer.best is None else (answer.best,)
    rows = tuple(
        (str(place), *_ranked(answer, candidate), _certainty(candidate.certainty))
        for place, candidate in enumerate((*best, *answer.others), 1)
    )
    titles = ("rank>", "what holds", *_RANKED, "certainty>")
    return make_table("What holds, the best first", titles, rows)


_RANKED = ("rate>", "replicas>", "per hour>")


def _ranked(answer: RegistryAnswer, candidate: AnswerCandidate) -> tuple[str, ...]:
    return (
        describe(candidate),
        format_quantity(candidate.rate, RATE, 3) if candidate.rate else "",
        "" if candidate.replicas is None else str(candidate.replicas),
        _money(answer, candidate),
    )


def _fell_out(answer: RegistryAnswer) -> Table:
    listed = answer.fell_out[:_SHOWN]
    rows = [(describe(candidate), shorten(candidate.out, _OUT)) for candidate in listed]
    rows += [(f"{v.model}/{v.number} as {v.recipe}", shorten(v.sentence, _OUT)) for v in answer.unusable]
    if len(answer.fell_out) > len(listed):
        rows.append((f"and {len(answer.fell_out) - len(listed)} more", ""))
    return make_table("", ("fell out", "because"), rows)
