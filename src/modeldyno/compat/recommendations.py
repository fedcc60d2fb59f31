"""What to try on a model, from Python: the findings of measurements, each with its saving and its command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from modeldyno.base import plugins
from modeldyno.profiling.findings.finding import Finding
from modeldyno.profiling.findings.rules import findings
from modeldyno.profiling.views.findings import describe_saving, finding_notice

if TYPE_CHECKING:
    from collections.abc import Iterable

    from modeldyno.base.result.result import Result


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """Something to try; its text is for people."""

    code: str
    """Name of the rule, such as ``batch`` or ``threads``."""
    text: str
    """What was seen, with figures, why it costs, and what may be saved."""
    saving: str
    """How much may be saved and of what; empty if no measurement bounds it."""
    command: str
    """What to type or to do."""
    finding: Finding
    """The same as data, with the ends of the saving."""

    def __str__(self) -> str:
        return f"{self.code}: {self.text}\n  -> {self.command}"


class Recommendations(tuple[Recommendation, ...]):
    """Recommendations, those with the largest possible saving first; prints as a list."""

    __slots__ = ()

    def __str__(self) -> str:
        return "\n".join(map(str, self)) or "Nothing to recommend by what was measured."


def recommend(results: Iterable[Result]) -> Recommendations:
    """Return what the Results suggest, each rule once: by the newest Result that it speaks of."""
    by_code: dict[str, Recommendation] = {}
    for result in results:
        knobs = plugins.knobs(result.job.backend)
        for item in findings(result, knobs):
            notice = finding_notice(result, item, knobs)
            by_code[item.code] = Recommendation(
                code=item.code,
                text=notice.text,
                saving=describe_saving(item.saving),
                command=notice.advice,
                finding=item,
            )
    return Recommendations(sorted(by_code.values(), key=lambda item: -_largest_saving(item.finding)))


def _largest_saving(finding: Finding) -> float:
    return 0.0 if finding.saving is None else finding.saving.high
