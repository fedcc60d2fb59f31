"""Choose among the forms of a model by preferences in their order: the first that can be met decides."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError
from modeldyno.base.metrics.constraints import Constraint, Verdict
from modeldyno.base.metrics.metric import METRICS, Better, Query
from modeldyno.comparison.change.comparison import Change, ChangeVerdict, Comparison
from modeldyno.conversion.agreement.conversion import Conversion

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from modeldyno.base.result.result import Result

SOURCE = "source"
"""The model that was given, among its forms."""
_CONDITION = re.compile(r"\s+if\s+")
_AND = re.compile(r"\s+and\s+|\s*,\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Preference:
    """A form by its name, or the best in a metric among those that hold bounds."""

    text: str
    form: str = ""
    """Such as ``openvino``, or ``source``; empty where a metric decides."""
    query: Query | None = None
    bounds: tuple[Constraint, ...] = ()

    @classmethod
    def parse(cls, text: str, forms: Sequence[str]) -> Preference:
        """Read ``openvino``, ``latency.p50``, or ``throughput if latency.p99 <= 10ms``.

        Args:
            text: the preference.
            forms: names of forms.

        Raises:
            RequestError: it is none of these, or nobody knows which way its metric is better.
        """
        if text in (SOURCE, *forms):
            return cls(text=text, form=text)
        metric, *conditions = _CONDITION.split(text, maxsplit=1)
        query = Query.parse(metric)
        if query.metric == "latency" and query.statistic is None:
            query = Query.parse("latency.p50")
        if METRICS[query.metric].better is Better.NEITHER:
            raise RequestError(
                f"Neither more nor less of {query.metric} is better; prefer latency or throughput."
            )
        bounds = tuple(Constraint.parse(bound) for each in conditions for bound in _AND.split(each))
        return cls(text=text, query=query, bounds=bounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The form that was chosen."""

    form: str
    """``source`` for the model itself; empty if no preference could be met."""
    preference: Preference | None = None
    """The one that decided."""
    change: Change | None = None
    """How the form compares with the source in its metric; None for the source, and for one by its name."""
    unmet: tuple[str, ...] = ()
    """Preferences before it that could not be met."""


def choose(
    preferences: Sequence[Preference], usable: Sequence[str], comparison: Comparison | None = None
) -> Choice:
    """Choose by the first preference that can be met.

    For a metric, the best form is chosen if it is surely better than the source, or if the source does not
    hold the bounds; otherwise the source.

    Args:
        preferences: in their order.
        usable: the forms that are still the model, in the order of the comparison's candidates.
        comparison: of the source with each of them; None if nothing was measured.
    """
    unmet: list[str] = []
    for preference in preferences:
        choice = None
        if preference.query is None:
            if preference.form in (SOURCE, *usable):
                choice = Choice(form=preference.form, preference=preference)
        elif comparison is not None:
            choice = _best(preference, preference.query, usable, comparison)
        elif not usable:  # there is nothing that could be better
            choice = Choice(form=SOURCE, preference=preference)
        if choice is not None:
            return replace(choice, unmet=tuple(unmet))
        unmet.append(preference.text)
    return Choice(form="", unmet=tuple(unmet))


def _best(
    preference: Preference, query: Query, usable: Sequence[str], comparison: Comparison
) -> Choice | None:
    changes: Mapping[str, Change] = {
        form: change
        for form, contrast in zip(usable, comparison.contrasts, strict=True)
        if _holds(preference, contrast.candidate)
        for change in contrast.changes
        if change.query == query and change.difference is not None
    }
    sign = -1.0 if METRICS[query.metric].better is Better.HIGHER else 1.0
    ranked = sorted(changes, key=lambda form: sign * (changes[form].difference or 0.0))
    source_holds = _holds(preference, comparison.baseline)
    if ranked and (changes[ranked[0]].outcome is ChangeVerdict.BETTER or not source_holds):
        return Choice(form=ranked[0], preference=preference, change=changes[ranked[0]])
    return Choice(form=SOURCE, preference=preference) if source_holds else None


def _holds(preference: Preference, result: Result) -> bool:
    """Return whether a Result holds the bounds, as far as its samples show."""
    return not result.failures and all(
        result.judge(bound).verdict is Verdict.HELD for bound in preference.bounds
    )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Optimized:
    """What a model was converted to, how fast that is, and which form was chosen."""

    conversion: Conversion
    comparison: Comparison | None
    """None if nothing was measured, as forms were preferred by their names."""
    choice: Choice
    path: str = ""
    """The package of the chosen form; empty if there is none: the source was chosen, or nothing."""

    @property
    def form(self) -> str:
        """The form that was chosen: ``source`` for the model itself, empty for none."""
        return self.choice.form

    def __repr__(self) -> str:
        package = f" in {self.path}" if self.path else ""
        return f"<Optimized {self.conversion.name}: {self.form or 'no form'}{package}>"
