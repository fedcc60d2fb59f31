"""What to try on a model, from Python: the findings of measurements, each with its saving and its command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from modeldyno.base import plugins
from modeldyno.profiling.findings.finding import Finding
from modeldyno.profiling.findings.rules import findings
from modeldyno.profiling.views.findings import describe_saving, finding_notice

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

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
    """Return what the Results suggest, each rule once: by the newest Result that it speaks of.

    What they lack together comes last: representative inputs, and a second configuration.
    """
    by_code: dict[str, Recommendation] = {}
    measured = [result for result in results if not result.failures]
    for result in measured:
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
    by_code |= {item.code: item for item in _of_guidelines(measured)}
    return Recommendations(sorted(by_code.values(), key=lambda item: -_largest_saving(item.finding)))


def _of_guidelines(results: Sequence[Result]) -> Iterator[Recommendation]:
    """Yield what the measurements together lack: data that was given, and a second configuration."""
    if not results:
        return
    if all(not each.job.model.live and not any(spec.source for spec in each.job.inputs) for each in results):
        yield _guideline(
            "representative-data",
            "the inputs were random, or the model's own example",
            "values may decide which branches run, how sparse a tensor is, and how long a text becomes",
            "give inputs of your application as input_data=, an array or a file",
        )
    if len({(str(each.job.config), str(each.job.sizes), str(each.inputs)) for each in results}) == 1:
        yield _guideline(
            "several-configurations",
            "one configuration was measured",
            "another batch size or precision may be better, and shows whether these figures are typical",
            "profiler.benchmark([{'batch_size': 1}, {'batch_size': 32}])",
        )


def _guideline(code: str, seen: str, why: str, do: str) -> Recommendation:
    finding = Finding(code=code, seen=seen, why=why, do=do)
    return Recommendation(code=code, text=f"{seen}: {why}", saving="", command=do, finding=finding)


def _largest_saving(finding: Finding) -> float:
    return 0.0 if finding.saving is None else finding.saving.high
