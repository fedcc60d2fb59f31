"""Baseline and candidate -> a contrast: what has changed in the figures, and in what they were taken with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import zip_longest
from typing import TYPE_CHECKING

from modeldyno.core.comparison.causes import causes
from modeldyno.core.comparison.change_test import LEVEL, changes
from modeldyno.core.comparison.comparison import Contrast, Difference
from modeldyno.core.comparison.default_metrics import ALL, SMALLEST, exact, headlines, shared
from modeldyno.core.load.foreign_load import BACKEND
from modeldyno.core.metrics.doubt import Doubt
from modeldyno.core.metrics.metric import METRICS, Query
from modeldyno.core.spec.static_options import Mode
from modeldyno.core.stats.units import FRACTION, parse_quantity
from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from modeldyno.core.result.result import Fact, Result
    from modeldyno.core.spec.input_spec import InputSpec

Facts = dict[str, "Fact"]
_PARTIAL = frozenset({"self_time"})
"""What explains a change, and is none."""
_DIGITS = 12
"""Of a digest: enough to tell two contents apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked of a comparison."""

    metrics: tuple[str, ...] = ()
    """What the verdict rests on, and all that is judged, as queries or metrics; by default it rests on the
    headlines, and every metric of the whole is judged."""
    smallest: Mapping[str, float] = field(default_factory=lambda: SMALLEST)
    """The relative effect that matters, by query or metric, as `change_test.changes` takes it."""
    force: bool = False
    """Whether unlike hardware is doubted instead of refused."""
    why: bool = True
    """Whether models that are run are run once more, for what explains a change."""

    def __post_init__(self) -> None:
        """Refuse what is no metric before anything is measured."""
        for text in self.metrics:
            Query.parse(text)


def contrast(
    baseline: Result,
    candidate: Result,
    question: Question,
    *,
    level: float = LEVEL,
    in_turns: bool = False,
    paired: bool = False,
) -> Contrast:
    """Compare two Results in all that both have measured, judged together.

    Args:
        baseline: what is compared with.
        candidate: what is judged.
        question: what is judged, and what matters.
        level: confidence of all intervals together.
        in_turns: whether the two were run in the same session, in turns or block by block.
        paired: whether process i of both ran in the same round.

    Raises:
        RequestError: the hardware is not the same, or a query does not fit what was measured.
    """
    hardware = unlike(baseline.environment.hardware, candidate.environment.hardware)
    if hardware and not question.force:
        if _pinned_apart(baseline, candidate, hardware):
            raise RequestError(
                f"{_two(baseline, candidate)} were not given the same cores: {_pin(baseline)} and "
                f"{_pin(candidate)}; measure both with the same --pin, or add --force to see it all the same."
            )
        raise RequestError(
            f"{_two(baseline, candidate)} were measured on unlike hardware ({_said(hardware)}), which "
            "cannot be compared; measure both on one machine, or add --force to see it all the same."
        )
    queries = selected(question.metrics, baseline, candidate)
    judged = queries or headlines(baseline, candidate)
    both = (query for query in shared(baseline, candidate) if query.metric not in _PARTIAL)
    asked = queries or tuple(dict.fromkeys((*judged, *both)))
    found = changes(
        baseline, candidate, smallest=question.smallest, queries=asked, level=level, paired=paired
    )
    return Contrast(
        candidate=candidate,
        changes=found,
        judged=judged,
        settings=unlike(settings(baseline), settings(candidate)),
        software=unlike(baseline.environment.software, candidate.environment.software),
        hardware=hardware,
        causes=causes(baseline, candidate, found),
        doubts=tuple(
            _doubts(baseline, candidate, hardware, apart=not in_turns and _varies(asked, baseline, candidate))
        ),
    )


def _varies(queries: Iterable[Query], *results: Result) -> bool:
    """Whether anything that is compared may be another number the next time; counts are not."""
    found = (result.find(query.metric, query.scope) for result in results for query in queries)
    return any(each is not None and not exact(each) for each in found)


def selected(metrics: Iterable[str], baseline: Result, candidate: Result) -> tuple[Query, ...]:
    """Read what is to be judged: a query, or a metric that stands for its usual statistic.

    Raises:
        RequestError: there is no such metric, or neither Result has it.
    """
    usual = {query.metric: query for query in (*shared(baseline, candidate), *headlines(baseline, candidate))}
    found = []
    for text in metrics:
        query = Query.parse(text)
        if query.statistic is None and not query.scope and query.metric in usual:
            query = usual[query.metric]
        if not any(result.find(query.metric, query.scope) for result in (baseline, candidate)):
            raise RequestError(
                f"Neither of the two has {text}; what both have is {', '.join(sorted(usual)) or 'nothing'}."
            )
        found.append(query)
    return tuple(dict.fromkeys(found))


def smallest_effects(texts: Iterable[str]) -> dict[str, float]:
    """Read the effects that matter: ``5%`` for all metrics, ``latency=5%`` for one.

    Raises:
        RequestError: it is no fraction from 0 to 1, or of no metric.
    """
    given: dict[str, float] = {}
    for text in texts:
        name, separator, size = text.rpartition("=")
        if separator:
            name = str(Query.parse(name))
        elif size.partition(".")[0] in METRICS:
            raise RequestError(f"--smallest '{text}' gives no size; write {text}=5%.")
        value = parse_quantity(size, FRACTION)
        if not 0 <= value < 1:
            raise RequestError(f"--smallest '{text}' is no part of a whole; write 5%, or latency=5%.")
        given[name if separator else ALL] = value
    return given if ALL in given else {**SMALLEST, **given}


def enriched(result: Result, look: Result) -> Result:
    """Add to a Result what a second look at the same job has seen: layers, operators, what is held."""
    known = {(found.metric, found.scope) for found in result.measurements}
    codes = {doubt.code for doubt in result.doubts}
    return replace(
        result,
        measurements=(
            *result.measurements,
            *(found for found in look.measurements if (found.metric, found.scope) not in known),
        ),
        outline=look.outline or result.outline,
        activity=look.activity or result.activity,
        doubts=(*result.doubts, *(doubt for doubt in look.doubts if doubt.code not in codes)),
    )


# --- what differs ------------------------------------------------------------------------------------


def unlike(before: Mapping[str, Fact], now: Mapping[str, Fact]) -> tuple[Difference, ...]:
    """Give the facts that are not the same in both; what nobody told at all is not known to differ."""
    if not before or not now:
        return ()
    return tuple(
        Difference(name=name, baseline=before.get(name), candidate=now.get(name))
        for name in {**before, **now}
        if before.get(name) != now.get(name)
    )


def settings(result: Result) -> Facts:
    """Give what was measured, on what, with what and how carefully, as facts by name."""
    job, model = result.job, result.model
    trained = job.inspection.mode is Mode.TRAIN
    facts: Facts = {
        "model": result.name,
        "content": model.digest.removeprefix("sha256:")[:_DIGITS] if model else "not known",
        "backend": job.backend,
        **job.config,
        **{f"input {spec.name}".rstrip(): _input(spec) for spec in result.inputs},
        **({"load": str(job.load)} if job.load is not None else {}),
        **({"mode": str(job.inspection.mode), "optimizer": job.inspection.optimizer} if trained else {}),
    }
    plan = {name: value for name, value in asdict(job.plan).items() if name not in _COUNTED}
    return facts | {f"plan.{name}": _plain(value) for name, value in plan.items()}


_COUNTED = {"processes", "timeout", "memory_limit"}
"""Of a Plan: what the Result tells better, and what only bounds a process."""


def _plain(value: object) -> Fact:
    if isinstance(value, str | int | float):
        return value
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _input(spec: InputSpec) -> str:
    """Say what was fed: shape, dtype, range or file, and the values by their digest."""
    shape = "x".join(map(str, spec.shape)) if spec.shape else "scalar" if spec.shape == () else ""
    span = f"{spec.low:g}..{spec.high:g}" if spec.low is not None and spec.high is not None else ""
    values = f"values {spec.digest.removeprefix('sha256:')[:_DIGITS]}" if spec.digest else ""
    return " ".join(filter(None, (shape, spec.dtype, spec.source or span, values)))


# --- what to doubt -----------------------------------------------------------------------------------


def _doubts(
    baseline: Result, candidate: Result, hardware: Sequence[Difference], *, apart: bool
) -> Iterator[Doubt]:
    if hardware:
        yield Doubt(
            code="unlike-hardware",
            seen=f"the two were measured on unlike hardware: {_said(hardware)}",
            advice="measure both on one machine; the differences may be those of the machines",
        )
    elif _pinned_apart(baseline, candidate, hardware):
        yield Doubt(
            code="unlike-cores",
            seen=f"{_pin(baseline)}, {_pin(candidate)}: the cores of a processor need not be alike",
            advice="measure both with the same --pin",
        )
    foreign = [each for each in (baseline, candidate) if each.job.backend == BACKEND]
    if foreign and not hardware:
        yield Doubt(
            code="imported",
            seen=f"where {' and '.join(each.id[:6] for each in foreign)} was measured is not known",
            advice="make sure that it was the same machine, or read the differences as those of the machines",
        )
    if apart:
        yield Doubt(
            code="not-in-turns",
            seen="the two were measured at different times, and what the machine did in between counts, too",
            advice="compare the models, or add --run, to measure both in turns",
        )
    if baseline.inputs and candidate.inputs and _work(baseline) != _work(candidate):
        yield Doubt(
            code="unlike-inputs",
            seen="the two were not fed the same: their inputs differ in shape or in dtype",
            advice="give both the same --input and batch_size",
        )


def _work(result: Result) -> list[tuple[object, str | None]]:
    """Say how much was fed, whatever the inputs are called."""
    return sorted(((spec.shape, spec.dtype) for spec in result.inputs), key=str)


def other_shapes(baseline: Result, candidate: Result) -> str:
    """Say in which shapes the inputs of the two differ, whatever they are called; empty where in none."""
    if not (baseline.inputs and candidate.inputs):
        return ""
    before, after = (sorted(map(_shape, result.inputs)) for result in (baseline, candidate))
    pairs = zip_longest(before, after, fillvalue="nothing")
    return next((f"{one} and {other}" for one, other in pairs if one != other), "")


def _shape(spec: InputSpec) -> str:
    return "any shape" if spec.shape is None else "x".join(map(str, spec.shape)) or "a scalar"


def _pinned_apart(baseline: Result, candidate: Result, hardware: Iterable[Difference]) -> bool:
    """Whether it is one machine, of which the two were given other cores."""
    apart = baseline.job.plan.pin != candidate.job.plan.pin
    return apart and {each.name for each in hardware} <= {"cores_allowed", "cpu_quota"}


def _pin(result: Result) -> str:
    pin = result.job.plan.pin
    if not pin:
        return f"{result.name} was not pinned"
    cores = f"core{'s' if len(pin) > 1 else ''} {', '.join(map(str, pin))}"
    return f"{result.name} was pinned to {cores} (--pin)"


def _two(baseline: Result, candidate: Result) -> str:
    return f"{baseline.name} ({baseline.id[:6]}) and {candidate.name} ({candidate.id[:6]})"


def _said(found: Iterable[Difference]) -> str:
    return ", ".join(f"{each.name} {_told(each.baseline)} and {_told(each.candidate)}" for each in found)


def _told(value: Fact | None) -> str:
    return "not told" if value is None else str(value)
