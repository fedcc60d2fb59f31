"""What is known of a version, as blocks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from modeldyno.base.job.version_name import SOURCE
from modeldyno.base.option_spelling import spell_for_command_line
from modeldyno.base.report.blocks import Heading, Notice, Severity, Table, make_table, note, shorten
from modeldyno.base.stats.units import RATE, SECONDS, format_quantity
from modeldyno.base.views.text import about, count, format_utc, shorten_ids, shorten_message
from modeldyno.conversion.agreement.conversion import ConversionFailureKind
from modeldyno.registry.records.records import FigureState, TaskState, VariantState

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.base.job.input_spec import InputSpec
    from modeldyno.base.report.blocks import Block
    from modeldyno.base.result.result import Result
    from modeldyno.registry.records.overview import MeasuredFigure, VersionOverview
    from modeldyno.registry.records.records import Version, VersionMeasurement

_LATENCIES = ("p50", "p99")
_RATES = ("throughput", "request_rate")
_DIGEST = 19
"""Characters of a digest that are shown: twelve after its kind."""
_BRACKETS = re.compile(r"^\(([^)]*)\)")
"""Around what follows the state, which has a column of its own."""
_INVALID = f"{ConversionFailureKind.SOURCE}: "
"""How the reason of a variant begins whose source gives nothing to compare with."""
_WHY = 120
"""Most characters of a reason in a table."""


def blocks(overview: VersionOverview) -> Iterator[Block]:
    """Yield what is known of a version."""
    yield Notice(severity=Severity.VERDICT, text=headline(overview))
    facts = tuple(_facts(overview))
    yield make_table("", ("", ""), facts)
    yield _variants(overview)
    for target in overview.targets:
        measured = [m for m in overview.figures if m.figure.target == target.id]
        if measured:
            yield Heading(title=f"Figures on {target.name}")
            yield _figures(measured)
            yield from _reasons(measured)
    if overview.measurements:
        yield Heading(title="Also measured")
        yield _measurements(overview.measurements)
    yield from _failed(overview)
    yield from _waiting(overview)


def headline(overview: VersionOverview) -> str:
    """Say what it is and how far it is, in one sentence."""
    version = overview.version
    named = f" ({', '.join('@' + alias for alias in overview.aliases)})" if overview.aliases else ""
    return (
        f"{version.name}{named} is a model of {version.framework} with "
        f"{count(overview.usable, 'usable variant')} and {count(overview.fresh, 'fresh figure')}"
    )


def _facts(overview: VersionOverview) -> Iterator[tuple[str, str]]:
    version = overview.version
    yield "digest", version.digest[:_DIGEST]
    yield "registered", f"{format_utc(version.created)[:16]} by {version.creator}"
    yield "from", version.reference
    if version.files:
        size = sum(file.size for file in version.files)
        yield "kept", f"{count(len(version.files), 'file')}, {size / 1e6:,.3g} MB"
    texts = {"task": version.task, "dataset": version.dataset, "parent": version.parent}
    yield from ((name, text) for name, text in texts.items() if text)
    if version.metrics:
        yield "its maker says", ", ".join(f"{name} {value:g}" for name, value in version.metrics.items())
    if version.evaluation is not None:
        yield "evaluated", f"{', '.join(version.evaluation.metrics)} on {version.evaluation.file.path}"
    if version.labels:
        yield "labels", ", ".join(f"{name}={value}" for name, value in version.labels.items())
    tensors = (
        ("input", version.inputs),
        ("measured with", version.measured_with),
        ("output", version.outputs),
    )
    for label, specs in tensors:
        yield from ((label, _describe_input(spec, version.layouts.get(spec.name, ""))) for spec in specs)
    yield "policy", version.policy
    if len(overview.numbers) > 1:
        yield "versions", ", ".join(map(str, overview.numbers))
    if overview.studies:
        yield "studies", ", ".join(shorten_ids(list(overview.studies[:5])))


def _tensors(version: Version) -> Iterator[tuple[str, str]]:
    for label, specs in (
        ("input", version.inputs),
        ("measured with", version.measured_with),
        ("output", version.outputs),
    ):
        yield from ((label, _describe_input(spec, version.layouts.get(spec.name, ""))) for spec in specs)


def _describe_input(spec: InputSpec, layout: str) -> str:
    if spec.source is not None:
        return f"{spec.name} from {spec.source}".strip()
    return " ".join(filter(None, (spec.name, " x ".join(map(str, spec.shape or ())), spec.dtype, layout)))


_MARKS = {
    VariantState.AGREES: "agrees",
    VariantState.CLOSE: "close",
    VariantState.DIFFERS: "DIFFERS",
}


def _variants(overview: VersionOverview) -> Table:
    refuted = next((v.recipe for v in overview.variants if v.why.startswith(_INVALID)), "")
    rows = tuple(
        (
            variant.recipe,
            "not compared" if is_refuted else _MARKS.get(variant.state, str(variant.state)),
            variant.backend,
            variant.conversion_id[:6],
            f"no form can be compared with it, see {refuted}"
            if is_refuted
            else shorten_message(_BRACKETS.sub(r"\1", variant.why.removeprefix(f"{variant.state} ")), _WHY),
        )
        for variant in overview.variants
        for is_refuted in (bool(refuted) and variant.recipe == SOURCE,)
    )
    titles = ("variant", "state", "backend", "document", "why")
    return make_table("Variants", titles, rows)


def _figures(measured: list[MeasuredFigure]) -> Table:
    latencies = (f"{name}>" for name in _LATENCIES)
    titles = ("variant", "at", *latencies, "rate>", "state", "result")
    rows = tuple(
        (
            m.figure.recipe,
            m.figure.measure.label,
            *(_latency(m.result, name) for name in _LATENCIES),
            _rate(m.result),
            str(m.figure.state),
            m.figure.result[:6],
        )
        for m in measured
    )
    return make_table("", titles, rows)


def _measurements(listed: Sequence[VersionMeasurement]) -> Table:
    """Return what was measured by hand; a mark says what was attached, as its model has another digest."""
    titles = ("document", "what", "on", "device", "engine", "batch>", "when", "outcome")
    rows = tuple(
        (
            one.document[:6],
            f"{_KINDS.get(one.kind, one.kind)}{' (attached)' if one.attached else ''}",
            shorten(one.at.host, _HOST),
            one.at.device,
            one.at.engine,
            str(one.at.batch_size),
            format_utc(one.created)[:16],
            one.headline,
        )
        for one in listed
    )
    return make_table("", titles, rows)


_KINDS = {"ladder": "loads", "capacity": "largest load"}
"""Kinds of documents in lists, where their name says less."""
_HOST = 32
"""Most characters of the name of a processor."""


def _reasons(measured: list[MeasuredFigure]) -> Iterator[Block]:
    """Say once for each state why figures are not fresh; equal reasons differ in their figures alone."""
    reasons: dict[FigureState, list[str]] = {}
    for m in measured:
        if m.figure.state is not FigureState.FRESH:
            reasons.setdefault(m.figure.state, []).append(m.figure.why)
    for state, texts in reasons.items():
        others = f" (and {len(texts) - 1} more)" if len(texts) > 1 else ""
        yield Notice(severity=Severity.DOUBT, code=str(state), text=f"{texts[0]}{others}")


def _latency(result: Result | None, name: str) -> str:
    times = None if result is None else result.distribution("latency")
    if times is None:
        return ""
    if times.void:
        return times.void
    return about(times, name) if times.missing(name) else format_quantity(times.statistic(name), SECONDS, 3)


def _rate(result: Result | None) -> str:
    rates = (None if result is None else result.number(name) for name in _RATES)
    return next((format_quantity(rate, RATE, 3) for rate in rates if rate), "")


def _failed(overview: VersionOverview) -> Iterator[Block]:
    """Say once for each reason which measurements failed."""
    reasons: dict[str, list[str]] = {}
    for task in overview.failed:
        assert task.measure is not None
        reasons.setdefault(task.why, []).append(f"{task.recipe}, {task.measure.label}")
    for why, names in reasons.items():
        yield Notice(
            severity=Severity.DOUBT, code="failed", text=spell_for_command_line(f"{'; '.join(names)}: {why}")
        )


def _waiting(overview: VersionOverview) -> Iterator[Block]:
    if not overview.tasks:
        return
    deferred = [task for task in overview.tasks if task.state is TaskState.DEFERRED]
    running = [task for task in overview.tasks if task.state is TaskState.LEASED]
    queued = len(overview.tasks) - len(deferred) - len(running)
    parts = (
        f"{len(running)} running" if running else "",
        f"{queued} queued" if queued else "",
        f"{len(deferred)} put off ({deferred[0].why})" if deferred else "",
    )
    if overview.workers:
        advice = f"{count(overview.workers, 'worker')} will do them"
    else:
        advice = "no worker is running: start one with modeldyno worker"
    yield note(
        f"{count(len(overview.tasks), 'task')} to do: {', '.join(part for part in parts if part)}",
        code="waiting",
        advice=advice,
    )
