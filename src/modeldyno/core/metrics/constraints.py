"""Answers to queries, and constraints judged by intervals.

The same Constraint serves ``--require``, a sweep, a gate in CI and the registry's question.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import TYPE_CHECKING

from modeldyno.core.metrics.measurement import Distribution, Interval, Measurement
from modeldyno.core.metrics.metric import METRICS, Query, fraction_of
from modeldyno.core.stats.statistics import certified_floor
from modeldyno.core.stats.units import format_estimate, format_quantity, parse_bound
from modeldyno.errors import RequestError, RunFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

_CONSTRAINT = re.compile(
    r"\s*(?P<query>[^<>=\s@]+(?:@[^<>\s]*[^<>=\s])?)\s*(?P<sign><=|>=|[<>](?!=))\s*(?P<bound>\S.*?)\s*"
)
"""A scope may hold equals signs, such as ``prompt=128``."""


class Verdict(StrEnum):
    """Whether a constraint holds, as far as the samples tell."""

    HELD = "held"
    BROKEN = "broken"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A number in base units, its 95 % interval, and why there is none where there is none."""

    query: Query
    value: float | None
    interval: Interval | None = None
    exact: bool = False
    """Whether it is a count, which bounds itself; a number seen once is not."""
    why: str = ""
    size: float | None = None
    """Of a percentile, the effective samples that it is of; None where no number of them makes it a claim."""

    @property
    def observed(self) -> bool:
        """Whether it is a number without an interval: seen once, or an extreme."""
        return self.value is not None and self.interval is None and not self.exact

    @classmethod
    def to(cls, query: Query, measurements: Sequence[Measurement]) -> Answer:
        """Look a query up.

        Raises:
            RunFailed: the metric was not measured there.
            RequestError: a distribution was asked for without a statistic, or a number with one.
        """
        if (told := _told(query, measurements)) is not None:
            return told
        found = _find(query, measurements)
        if isinstance(found.value, Distribution):
            return cls._of_distribution(query, found.value)
        if query.statistic is not None:
            raise RequestError(
                f"{query.metric} is one number and has no {query.statistic}; ask for it plainly."
            )
        return cls(
            query=query,
            value=found.value,
            interval=found.interval,
            exact=not found.runs,
            why="seen once" if len(found.runs) == 1 and found.interval is None else "",
        )

    @classmethod
    def _of_distribution(cls, query: Query, found: Distribution) -> Answer:
        name = query.statistic
        if name is None:
            raise RequestError(
                f"{query.metric} is a distribution; name a statistic, such as "
                f"{query.metric}.p50, {query.metric}.p99 or {query.metric}.mean."
            )
        raw = query.part == "raw"
        missing = 0 if raw else found.missing(name)
        why = ""
        if missing:
            lacking = "sample is" if missing == 1 else "samples are"
            why = f"{name} is no claim yet: {missing:,} effective {lacking} missing; "
            why += f"{query.metric}.{name}.raw gives the plain quantile."
        if found.void and not raw:
            why = f"the load was {found.void}"
        return cls(
            query=query,
            value=None if why else found.statistic(name),
            interval=found.interval(name),
            why=why,
            size=found.effective_size(name) if fraction_of(name) is not None and not found.void else None,
        )

    def bounds(self) -> Interval:
        """Give the interval by which a constraint is judged.

        A count bounds itself. So does a number that was only observed, for want of anything better;
        a verdict on it is doubted.
        """
        if self.interval is not None:
            return self.interval
        if self.value is None:
            return Interval(low=-inf, high=inf)
        return Interval(low=self.value, high=self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """A bound on a metric: ``latency.p99 <= 50ms``."""

    query: Query
    at_most: bool
    bound: float
    """In the metric's base unit."""
    strict: bool = False

    @classmethod
    def parse(cls, text: str) -> Constraint:
        """Read ``query <= quantity`` (or ``<``, ``>=``, ``>``).

        Raises:
            RequestError: the text does not follow the grammar, or the quantity is none of the metric's.
        """
        match = _CONSTRAINT.fullmatch(text)
        if match is None:
            raise RequestError(
                f"'{text}' is not a constraint; write query <= quantity, such as 'latency.p99 <= 50ms'."
            )
        query = Query.parse(match["query"])
        if query.part == "ci":
            raise RequestError(f"'{text}': an interval cannot be bounded; drop the .ci.")
        check_kind(query)
        try:
            bound = parse_bound(match["bound"], query.unit)
        except RequestError as error:
            raise RequestError(f"'{text}': {error}") from None
        sign = match["sign"]
        return cls(query=query, at_most=sign.startswith("<"), bound=bound, strict="=" not in sign)

    def __str__(self) -> str:
        sign = ("<" if self.at_most else ">") + ("" if self.strict else "=")
        return f"{self.query} {sign} {format_quantity(self.bound, self.query.unit, None)}"

    @property
    def percentile(self) -> str | None:
        """The percentile that this constraint asks to be certified, if it asks for one."""
        name = self.query.statistic
        if name is None or self.query.part == "raw" or fraction_of(name) is None:
            return None
        return name

    def judge(self, measurements: Sequence[Measurement]) -> Judgement:
        """Judge by the interval: held or broken when all of it lies on one side of the bound.

        What was not measured is undecided. A percentile that is no claim yet may still hold a bound, where
        enough samples were taken and all of them keep it.
        """
        try:
            answer = Answer.to(self.query, measurements)
        except (RunFailed, RequestError) as error:
            answer = Answer(query=self.query, value=None, why=str(error))
        return self.on(answer)

    def on(self, answer: Answer) -> Judgement:
        """Judge an answer that was found already."""
        interval = answer.bounds()
        near, far = (interval.low, interval.high) if self.at_most else (-interval.high, -interval.low)
        bound = self.bound if self.at_most else -self.bound
        if near > bound or (self.strict and near == bound):
            return Judgement(constraint=self, verdict=Verdict.BROKEN, answer=answer)
        if far < bound or (far == bound and not self.strict):
            return Judgement(constraint=self, verdict=Verdict.HELD, answer=answer)
        return Judgement(constraint=self, verdict=Verdict.UNDECIDED, answer=answer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A constraint, the answer that it was judged by, and the verdict."""

    constraint: Constraint
    verdict: Verdict
    answer: Answer

    def sentence(self) -> str:
        """Say it in one line, with figures."""
        answer, bounds = self.answer, self.answer.bounds()
        value, interval = format_estimate(answer.value, bounds.low, bounds.high, self.constraint.query.unit)
        if answer.interval is None and answer.value is not None:
            interval = answer.why
        elif " to " in interval:
            interval = f"95 % interval {interval}"
        few = answer.interval is not None and answer.size is not None  # what is missing is in the table
        unknown = answer.why.rstrip(".") if answer.value is None and not few else ""
        missing = unknown[:1].lower() + unknown[1:] or "not certified"
        figures = ", ".join(filter(None, (value or missing, interval)))
        return f"{self.constraint}: {self.verdict} ({figures})"


def check_kind(query: Query) -> None:
    """Refuse a distribution without a statistic, or a number with one; scopes may differ in kind."""
    spread = METRICS[query.metric].spread
    if spread and query.statistic is None and not query.scope:
        raise RequestError(
            f"{query.metric} is a distribution; name a statistic, such as "
            f"{query.metric}.p50, {query.metric}.p99 or {query.metric}.mean."
        )
    if not spread and query.statistic is not None:
        raise RequestError(f"{query.metric} is one number and has no {query.statistic}; ask for it plainly.")


def _near(scope: str, known: Sequence[str]) -> str:
    """Name all scopes where they are few, and else those that are called most alike."""
    near = known
    if len(known) > _FEW and scope:
        from difflib import get_close_matches  # noqa: PLC0415 - only a mistake needs it

        near = get_close_matches(scope, known, n=_FEW, cutoff=0)
    others = f" and {len(known) - _FEW:,} others" if len(known) > _FEW else ""
    return f"it was {', '.join(map(_place, near[:_FEW]))}{others}"


def _place(scope: str) -> str:
    """Say where something was measured."""
    return f"at '{scope}'" if scope else "as a whole"


def _told(query: Query, measurements: Sequence[Measurement]) -> Answer | None:
    """Answer by a statistic that another tool told without its samples.

    A percentile is a claim there only where at least as many requests were answered as it takes.
    """
    wanted = (query.metric, query.statistic)
    found = next((m for m in measurements if (m.metric, m.told) == wanted and not query.scope), None)
    if found is None or isinstance(found.value, Distribution):
        return None
    fraction = fraction_of(found.told)
    answered = next((m.value for m in measurements if (m.metric, m.scope) == ("requests", "ok")), 0)
    assert not isinstance(answered, Distribution)
    few = query.part != "raw" and fraction is not None and answered < certified_floor(fraction)
    number = f", of {answered:,.0f} requests" if answered else ""
    hint = f"; {query.metric}.{query.statistic}.raw gives it" if few else ""
    return Answer(
        query=query, value=None if few else found.value, why=f"told without its samples{number}{hint}"
    )


_FEW = 5
"""Scopes that a mistake is answered with."""


def _find(query: Query, measurements: Sequence[Measurement]) -> Measurement:
    values = {m.scope: m for m in measurements if m.metric == query.metric}
    if query.scope in values:
        return values[query.scope]
    if values:
        near = _near(query.scope, sorted(values))
        raise RequestError(f"{query.metric} was not measured {_place(query.scope)}; {near}.")
    raise RunFailed(f"This run has no {query.metric}; the probe or sampler that gives it did not run.")
