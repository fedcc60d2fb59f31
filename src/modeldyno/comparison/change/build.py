"""Build the comparison of a baseline and a candidate: changed metrics and differing settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError, UnlikeHardware
from modeldyno.base.job.job import IMPORTED
from modeldyno.base.job.static_options import Mode
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.metric import METRICS, Query
from modeldyno.base.stats.units import FRACTION, parse_quantity
from modeldyno.comparison.change.causes import find_causes
from modeldyno.comparison.change.change_test import LEVEL, judge_changes
from modeldyno.comparison.change.comparison import CandidateComparison, SettingDiff, differing_facts
from modeldyno.comparison.change.default_metrics import (
    ALL,
    SMALLEST,
    headline_queries,
    is_count,
    shared_queries,
)
from modeldyno.comparison.change.other_times import OtherTimes
from modeldyno.conversion.agreement.rule import OutputCheck

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from modeldyno.base.job.input_spec import InputSpec
    from modeldyno.base.result.result import Fact, Result

Facts = dict[str, "Fact"]
_EXPLANATORY = frozenset({"self_time"})
"""Metrics that explain a change, but are not compared themselves."""
_DIGITS = 12
"""Digits of a digest that are enough to tell contents apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareOptions:
    """Options of a comparison."""

    metrics: tuple[str, ...] = ()
    """What the verdict depends on and all that is judged, as queries or metrics; by default the verdict
    depends on the headline metrics, and every metric of the whole model is judged."""
    smallest: Mapping[str, float] = field(default_factory=lambda: SMALLEST)
    """The smallest relative effect that matters, by query or metric, as for `change_test.judge_changes`."""
    force: bool = False
    """Whether different hardware is a doubt instead of an error."""
    why: bool = True
    """Whether models are run once more to explain a change."""
    outputs: OutputCheck | None = None
    """What the outputs of a candidate must hold beside those of the baseline."""

    def __post_init__(self) -> None:
        """Refuse unknown metrics before anything is measured."""
        for text in self.metrics:
            Query.parse(text)


def compare_results(
    baseline: Result,
    candidate: Result,
    criteria: CompareOptions,
    *,
    level: float = LEVEL,
    in_turns: bool = False,
    paired: bool = False,
) -> CandidateComparison:
    """Compare two Results in everything that both have measured, judged together.

    Args:
        baseline: the reference.
        candidate: the Result to judge.
        criteria: what is judged, and what matters.
        level: joint confidence of all intervals.
        in_turns: whether the two were run in the same session, interleaved or in blocks.
        paired: whether process i of both ran in the same round.

    Raises:
        RequestError: the hardware differs, or a query does not fit what was measured.
    """
    compared = unjudged(baseline, candidate)
    hardware = compared.hardware
    if hardware and not criteria.force:
        if _differ_in_cores(baseline, candidate, hardware):
            raise RequestError(
                f"{_name_both(baseline, candidate)} were not given the same cores: "
                f"{_describe_pin(baseline)} and {_describe_pin(candidate)}; measure both with the same "
                "`pin`, or add `force` to compare them anyway."
            )
        raise UnlikeHardware(
            f"{_name_both(baseline, candidate)} were measured on unlike hardware "
            f"({_describe_differences(hardware)}), which cannot be compared; measure both on one machine, "
            "or add `force` to compare them anyway."
        )
    queries = selected_queries(criteria.metrics, baseline, candidate)
    judged = queries or headline_queries(baseline, candidate)
    common = (query for query in shared_queries(baseline, candidate) if query.metric not in _EXPLANATORY)
    queried = queries or tuple(dict.fromkeys((*judged, *common)))
    judge = partial(
        judge_changes, baseline, candidate, smallest=criteria.smallest, queries=queried, level=level
    )
    judged_changes = judge(paired=paired)
    if not in_turns:
        times = OtherTimes(baseline=baseline, candidate=candidate)
        judged_changes = times.judge(judged_changes, judge(apart=True))
    return replace(
        compared,
        changes=judged_changes,
        judged=judged,
        causes=find_causes(baseline, candidate, judged_changes),
        doubts=tuple(
            _doubts(
                baseline,
                candidate,
                hardware,
                apart=not in_turns and _any_varies(queried, baseline, candidate),
            )
        ),
    )


def unjudged(baseline: Result, candidate: Result) -> CandidateComparison:
    """Compare what two Results were measured with: settings, software and hardware."""
    before, after = baseline.environment, candidate.environment
    return CandidateComparison(
        candidate=candidate,
        changes=(),
        settings=differing_facts(job_facts(baseline), job_facts(candidate)),
        software=differing_facts(before.software, after.software),
        hardware=differing_facts(before.hardware, after.hardware),
    )


def _any_varies(queries: Iterable[Query], *results: Result) -> bool:
    """Return whether anything compared varies from run to run; counts do not."""
    measurements = (result.find(query.metric, query.scope) for result in results for query in queries)
    return any(measurement is not None and not is_count(measurement) for measurement in measurements)


def selected_queries(metrics: Iterable[str], baseline: Result, candidate: Result) -> tuple[Query, ...]:
    """Read what is to be judged: queries, or metrics, which stand for their usual statistic.

    Raises:
        RequestError: there is no such metric, or neither Result has it.
    """
    usual = {
        query.metric: query
        for query in (*shared_queries(baseline, candidate), *headline_queries(baseline, candidate))
    }
    queries = []
    for text in metrics:
        query = Query.parse(text)
        if query.statistic is None and not query.scope and query.metric in usual:
            query = usual[query.metric]
        place = query.metric, query.scope
        if not any(result.find(*place) for result in (baseline, candidate)):
            codes = sorted({result.withheld(*place) for result in (baseline, candidate)} - {""})
            why = f", as it was withheld ({' and '.join(codes)})" if codes else ""
            both = ", ".join(sorted(usual)) or "nothing"
            raise RequestError(f"Neither of the two has {text}{why}; what both have is {both}.")
        queries.append(query)
    return tuple(dict.fromkeys(queries))


def parse_smallest_effects(texts: Iterable[str]) -> dict[str, float]:
    """Read the effects that matter: ``5%`` for all metrics, ``latency=5%`` for one.

    Raises:
        RequestError: it is not a fraction from 0 to 1, or names no metric.
    """
    return _parse_sizes("smallest", texts, lambda size: "" if 0 <= size < 1 else "is not a share below 1")


def parse_max_regressions(texts: Iterable[str]) -> dict[str, float]:
    """Read the largest allowed regressions, as `parse_smallest_effects`, but above 0.

    Raises:
        RequestError: it is not a fraction between 0 and 1, or names no metric.
    """

    def mistake(size: float) -> str:
        why = "is not between 0% and 100%" if size else "cannot be told apart from noise"
        return "" if 0 < size < 1 else why

    return _parse_sizes("max_regression", texts, mistake)


def _parse_sizes(name: str, texts: Iterable[str], mistake: Callable[[float], str]) -> dict[str, float]:
    effects: dict[str, float] = {}
    for text in texts:
        metric, separator, size = text.rpartition("=")
        if not separator and size.partition(".")[0] in METRICS:
            raise RequestError(f"`{name}` '{text}' gives no size; write {text}=5%.")
        value = parse_quantity(size, FRACTION)
        if why := mistake(value):
            raise RequestError(f"`{name}` '{text}' {why}; write 5%, or latency=5%.")
        effects[str(Query.parse(metric)) if separator else ALL] = value
    return effects if ALL in effects else {**SMALLEST, **effects}


def with_second_pass(result: Result, second_pass: Result) -> Result:
    """Add to a Result what a second pass over the same job measured: layers, operators, memory."""
    measured = {(measurement.metric, measurement.scope) for measurement in result.measurements}
    codes = {doubt.code for doubt in result.doubts}
    return replace(
        result,
        measurements=(
            *result.measurements,
            *(
                measurement
                for measurement in second_pass.measurements
                if (measurement.metric, measurement.scope) not in measured
            ),
        ),
        outline=second_pass.outline or result.outline,
        activity=second_pass.activity or result.activity,
        doubts=(*result.doubts, *(doubt for doubt in second_pass.doubts if doubt.code not in codes)),
    )


# --- what differs ------------------------------------------------------------------------------------


def job_facts(result: Result) -> Facts:
    """Return what was measured and how, as facts by name."""
    job, model = result.job, result.model
    trained = job.inspection.mode is Mode.TRAIN
    facts: Facts = {
        "model": result.name,
        "content": model.digest.removeprefix("sha256:")[:_DIGITS] if model else "not known",
        "backend": job.backend,
        **job.config,
        **{f"input {spec.name}".rstrip(): _describe_input(spec) for spec in result.inputs},
        **({"load": str(job.load)} if job.load is not None else {}),
        **({"mode": str(job.inspection.mode), "optimizer": job.inspection.optimizer} if trained else {}),
    }
    plan = {name: value for name, value in asdict(job.plan).items() if name not in _NOT_SETTINGS}
    return facts | {f"plan.{name}": _to_fact(value) for name, value in plan.items()}


_NOT_SETTINGS = {"processes", "timeout", "memory_limit"}
"""Of a Plan: what the Result reports better, and what only limits a process."""


def _to_fact(value: object) -> Fact:
    if isinstance(value, str | int | float):
        return value
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _describe_input(spec: InputSpec) -> str:
    """Describe an input: shape, dtype, range or file, and the digest of its values."""
    shape = "x".join(map(str, spec.shape)) if spec.shape else "scalar" if spec.shape == () else ""
    span = f"{spec.low:g}..{spec.high:g}" if spec.low is not None and spec.high is not None else ""
    values = f"values {spec.digest.removeprefix('sha256:')[:_DIGITS]}" if spec.digest else ""
    return " ".join(filter(None, (shape, spec.dtype, spec.source or span, values)))


# --- what to doubt -----------------------------------------------------------------------------------


def _doubts(
    baseline: Result, candidate: Result, hardware: Sequence[SettingDiff], *, apart: bool
) -> Iterator[Doubt]:
    if hardware:
        yield Doubt(
            code="unlike-hardware",
            seen=f"the two were measured on unlike hardware: {_describe_differences(hardware)}",
            advice="measure both on one machine; the differences may be those of the machines",
        )
    elif _differ_in_cores(baseline, candidate, hardware):
        yield Doubt(
            code="unlike-cores",
            seen=f"{_describe_pin(baseline)}, {_describe_pin(candidate)}: the cores of a processor "
            "need not be alike",
            advice="measure both with the same `pin`",
        )
    imported = [result for result in (baseline, candidate) if result.job.backend == IMPORTED]
    if imported and not hardware:
        yield Doubt(
            code="imported",
            seen=f"where {' and '.join(result.id[:6] for result in imported)} was measured is not known",
            advice="make sure that it was the same machine, or take the differences as those of the machines",
        )
    if apart:
        yield Doubt(
            code="not-in-turns",
            seen="the two were measured at different times, so changes of the machine count, too",
            advice="compare the models, or add `run`, to measure both in turns",
        )
    if baseline.inputs and candidate.inputs and _input_shapes(baseline) != _input_shapes(candidate):
        yield Doubt(
            code="unlike-inputs",
            seen="the two had different inputs: they differ in shape or in dtype",
            advice="give both the same `inputs` and batch_size",
        )


def _input_shapes(result: Result) -> list[tuple[object, str | None]]:
    """Return the shapes and dtypes of the inputs, without their names."""
    return sorted(((spec.shape, spec.dtype) for spec in result.inputs), key=str)


def other_shapes(baseline: Result, candidate: Result) -> str:
    """Describe in which shapes the inputs of the two differ, ignoring names; empty if in none."""
    if not (baseline.inputs and candidate.inputs):
        return ""
    before, after = (sorted(map(_describe_shape, result.inputs)) for result in (baseline, candidate))
    pairs = zip_longest(before, after, fillvalue="nothing")
    return next((f"{one} and {other}" for one, other in pairs if one != other), "")


def _describe_shape(spec: InputSpec) -> str:
    return "any shape" if spec.shape is None else "x".join(map(str, spec.shape)) or "a scalar"


def _differ_in_cores(baseline: Result, candidate: Result, hardware: Iterable[SettingDiff]) -> bool:
    """Return whether both ran on one machine, but on different cores."""
    pins_differ = baseline.job.plan.pin != candidate.job.plan.pin
    return pins_differ and {difference.name for difference in hardware} <= {"cores_allowed", "cpu_quota"}


def _describe_pin(result: Result) -> str:
    pin = result.job.plan.pin
    if not pin:
        return f"{result.name} was not pinned"
    cores = f"core{'s' if len(pin) > 1 else ''} {', '.join(map(str, pin))}"
    return f"{result.name} was pinned to {cores} (`pin`)"


def _name_both(baseline: Result, candidate: Result) -> str:
    return f"{baseline.name} ({baseline.id[:6]}) and {candidate.name} ({candidate.id[:6]})"


def _describe_differences(differences: Iterable[SettingDiff]) -> str:
    return ", ".join(
        f"{difference.name} {_format_fact(difference.baseline)} and {_format_fact(difference.candidate)}"
        for difference in differences
    )


def _format_fact(value: Fact | None) -> str:
    return "not told" if value is None else str(value)
