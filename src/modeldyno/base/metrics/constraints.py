"""Answers to queries, and constraints judged by intervals.

The same Constraint serves ``require``, sweeps and gates.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from math import ceil, inf
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError, RunFailed
from modeldyno.base.metrics.measurement import RATES_OF_LOADS, Distribution, Interval, Measurement, why_void
from modeldyno.base.metrics.metric import COSTS, METRICS, Query, fraction_of
from modeldyno.base.stats.statistics import certified_floor
from modeldyno.base.stats.units import NOT_BOUNDED, format_estimate, format_quantity, parse_bound

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_CONSTRAINT = re.compile(
    r"\s*(?P<query>[^<>=\s@]+(?:@[^<>\s]*[^<>=\s])?)\s*(?P<sign><=|>=|[<>](?!=))\s*(?P<bound>\S.*?)\s*"
)
"""A scope may contain equals signs, such as ``prompt=128``."""


NOT_CERTIFIED = "not certified"


class Verdict(StrEnum):
    """Whether a constraint holds, as far as the samples show."""

    HELD = "held"
    BROKEN = "broken"
    UNDECIDED = "undecided"

    def __bool__(self) -> bool:
        """Whether it is held, so that ``assert verdict`` fails where it is broken or undecided."""
        return self is Verdict.HELD


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A number in base units with its 95 % interval, or the reason why there is none."""

    query: Query
    value: float | None
    interval: Interval | None = None
    exact: bool = False
    """Whether it is a count, which bounds itself; a number seen once does not."""
    why: str = ""
    size: float | None = None
    """Effective samples behind a percentile; None if no number of them would certify it."""

    @property
    def observed(self) -> bool:
        """Whether it is a number without an interval: a single observation or an extreme."""
        return self.value is not None and self.interval is None and not self.exact

    @classmethod
    def to(cls, query: Query, measurements: Sequence[Measurement]) -> Answer:
        """Look up a query.

        Raises:
            RunFailed: the metric was not measured at this scope.
            RequestError: a distribution was queried without a statistic, or a number with one.
        """
        if (reported_answer := _reported_statistic(query, measurements)) is not None:
            return reported_answer
        measurement = _find_measurement(query, measurements)
        if isinstance(measurement.value, Distribution):
            return cls._of_distribution(query, measurement.value)
        if query.statistic is not None:
            raise RequestError(
                f"{query.metric} is one number and has no {query.statistic}; drop the statistic."
            )
        if measurement.void:
            return cls(query=query, value=None, why=why_void(measurement.void))
        return cls(
            query=query,
            value=measurement.value,
            interval=measurement.interval,
            exact=not measurement.runs,
            why="seen once" if len(measurement.runs) == 1 and measurement.interval is None else "",
        )

    @classmethod
    def _of_distribution(cls, query: Query, distribution: Distribution) -> Answer:
        name = query.statistic
        if name is None:
            raise RequestError(
                f"{query.metric} is a distribution; name a statistic, such as "
                f"{query.metric}.p50, {query.metric}.p99 or {query.metric}.mean."
            )
        raw = query.part == "raw"
        missing = 0 if raw else distribution.missing(name)
        why = ""
        if missing:
            lacking = "sample is" if missing == 1 else "samples are"
            why = f"{name} is not certified: {missing:,} effective {lacking} missing; "
            why += f"{query.metric}.{name}.raw gives the raw quantile."
        if missing and fraction_of(name) is None:
            why = f"a single sample has no {name}"
        if distribution.void and not raw:
            why = why_void(distribution.void)
        return cls(
            query=query,
            value=None if why else distribution.statistic(name),
            interval=None if name == "max" else distribution.interval(name),  # what was seen was reached
            why=why,
            size=distribution.effective_size(name)
            if fraction_of(name) is not None and not distribution.void
            else None,
        )

    def bounds(self) -> Interval:
        """Return the interval by which a constraint is judged.

        A count bounds itself. So does a single observation, for lack of anything better; a verdict on it
        raises a doubt.
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
            RequestError: the text does not follow the grammar, or the quantity has another unit than the
            metric.
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
        """The percentile that must be certified for this constraint, if any."""
        name = self.query.statistic
        if name is None or self.query.part == "raw" or fraction_of(name) is None:
            return None
        return name

    def scaled(self, factor: float) -> Constraint:
        """Return the bound, a factor higher."""
        return replace(self, bound=factor * self.bound)

    def judge(self, measurements: Sequence[Measurement]) -> Judgement:
        """Judge by the interval: held or broken if all of it lies on one side of the bound.

        A metric that was not measured is undecided. An uncertified percentile may still hold a bound, if
        enough samples were taken and all of them hold it.
        """
        try:
            answer = Answer.to(self.query, measurements)
        except (RunFailed, RequestError) as error:
            answer = Answer(query=self.query, value=None, why=str(error))
        return self.on(answer)

    def on(self, answer: Answer) -> Judgement:
        """Judge an answer."""
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

    def __bool__(self) -> bool:
        """Whether the bound is held."""
        return bool(self.verdict)

    def sentence(self) -> str:
        """Describe the judgement in one line with figures."""
        answer, bounds = self.answer, self.answer.bounds()
        value, interval = format_estimate(answer.value, bounds.low, bounds.high, self.constraint.query.unit)
        if answer.interval is None and answer.value is not None:
            interval = answer.why
        elif interval in {"", NOT_BOUNDED} and self.verdict is Verdict.UNDECIDED and answer.value is not None:
            interval = "from too few samples to bound it"
        elif " to " in interval:
            interval = f"95 % interval {interval}"
        figures = ", ".join(filter(None, (value or self._missing_text(), interval)))
        return f"{self.constraint}: {self.verdict} ({figures})"

    def _missing_text(self) -> str:
        """Say why there is no value; of a percentile, how many samples an undecided bound lacks."""
        answer, fraction = self.answer, fraction_of(self.constraint.query.statistic or "")
        if answer.interval is None or answer.size is None or fraction is None:
            unknown = answer.why.rstrip(".")
            return unknown[:1].lower() + unknown[1:] or NOT_CERTIFIED
        if self.verdict is not Verdict.UNDECIDED:
            return NOT_CERTIFIED
        missing = ceil(certified_floor(fraction) - answer.size)
        return f"{NOT_CERTIFIED}: {missing:,} effective sample{'s are' if missing > 1 else ' is'} missing"


def worst_verdict(judgements: Iterable[Judgement]) -> Verdict:
    """Return broken if any bound is, else undecided if any is, else held."""
    verdicts = {judgement.verdict for judgement in judgements}
    if Verdict.BROKEN in verdicts:
        return Verdict.BROKEN
    return Verdict.UNDECIDED if Verdict.UNDECIDED in verdicts else Verdict.HELD


TIMES_OF_AN_ANSWER = (
    "latency", "service_time", "time_to_first_token", "first_token_service_time",
    "time_to_first_output_token", "time_per_output_token", "normalized_latency",
)  # fmt: skip
"""Metrics of which each answer to a request has one value, in seconds."""


def bounds_of_answers(bounds: Iterable[Constraint]) -> dict[str, float]:
    """Return up to which times an answer counts as good, by metric: those that some bound limits."""
    limits: dict[str, float] = {}
    for bound in bounds:
        metric = bound.query.metric
        if metric in TIMES_OF_AN_ANSWER and not bound.query.scope and bound.at_most:
            limits[metric] = min(bound.bound, limits.get(metric, bound.bound))
    return limits


def check_kind(query: Query) -> None:
    """Refuse a distribution without a statistic, or a number with one; scopes may differ in kind."""
    spread = METRICS[query.metric].spread
    if spread and query.statistic is None and not query.scope:
        raise RequestError(
            f"{query.metric} is a distribution; name a statistic, such as "
            f"{query.metric}.p50, {query.metric}.p99 or {query.metric}.mean."
        )
    if not spread and query.statistic is not None:
        raise RequestError(f"{query.metric} is one number and has no {query.statistic}; drop the statistic.")


def _suggest_scopes(scope: str, scopes: Sequence[str]) -> str:
    """List all scopes if they are few, else the most similar ones."""
    similar = scopes
    if len(scopes) > _MOST_SCOPES and scope:
        from difflib import get_close_matches  # only a mistake needs it

        similar = get_close_matches(scope, scopes, n=_MOST_SCOPES, cutoff=0)
    others = f" and {len(scopes) - _MOST_SCOPES:,} others" if len(scopes) > _MOST_SCOPES else ""
    return f"it was {', '.join(map(_describe_scope, similar[:_MOST_SCOPES]))}{others}"


def _describe_scope(scope: str) -> str:
    """Describe where something was measured."""
    return f"at '{scope}'" if scope else "as a whole"


def _reported_statistic(query: Query, measurements: Sequence[Measurement]) -> Answer | None:
    """Answer with a statistic that another tool reported without samples.

    A percentile counts as certified only if enough requests were answered.
    """
    key = (query.metric, query.statistic)
    measurement = next(
        (m for m in measurements if (m.metric, m.reported_statistic) == key and not query.scope), None
    )
    if measurement is None or isinstance(measurement.value, Distribution):
        return None
    fraction = fraction_of(measurement.reported_statistic)
    answered = next((m.value for m in measurements if (m.metric, m.scope) == ("requests", "ok")), 0)
    assert not isinstance(answered, Distribution)
    uncertified = query.part != "raw" and fraction is not None and answered < certified_floor(fraction)
    number = f", of {answered:,.0f} requests" if answered else ""
    hint = f"; {query.metric}.{query.statistic}.raw gives it" if uncertified else ""
    return Answer(
        query=query,
        value=None if uncertified else measurement.value,
        why=f"reported without samples{number}{hint}",
    )


_MOST_SCOPES = 5
"""Scopes listed in an error message."""


def _find_measurement(query: Query, measurements: Sequence[Measurement]) -> Measurement:
    values = {m.scope: m for m in measurements if m.metric == query.metric}
    if query.scope in values:
        return values[query.scope]
    if values:
        similar = _suggest_scopes(query.scope, sorted(values))
        raise RequestError(f"{query.metric} was not measured {_describe_scope(query.scope)}; {similar}.")
    if METRICS[query.metric].on_accelerator:
        raise RunFailed(
            f"This run has no {query.metric}: no accelerator was watched; where there is one, `device=cuda` "
            "runs the model on it."
        )
    if query.metric in COSTS:
        raise RunFailed(
            f"This run has no {query.metric}: it follows from the price of the machine, `price=1.20/h`, and "
            f"the {COSTS[query.metric]}."
        )
    if query.metric in RATES_OF_LOADS and any(m.metric == "in_flight" for m in measurements):
        raise RunFailed(f"This run has no {query.metric}: it was withheld, or not counted; see its doubts.")
    raise RunFailed(f"This run has no {query.metric}; the probe or sampler that measures it did not run.")
