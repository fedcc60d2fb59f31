"""Findings of a Result as notices: the bottleneck, the evidence, the estimated saving, the command to try."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.base.job.job import default_probes
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.option_spelling import spell_for_command_line
from modeldyno.base.report.blocks import Block, Notice, clean, note
from modeldyno.base.views.text import shorten_message, shorten_text
from modeldyno.profiling.findings.bottleneck import Limit, bottleneck
from modeldyno.profiling.findings.finding import Case
from modeldyno.profiling.findings.rules import findings
from modeldyno.profiling.views.rerun_command import advise_command_line, rerun_command_line
from modeldyno.profiling.views.result.totals import is_inspection

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from modeldyno.base.job.job import Job
    from modeldyno.base.job.knob import Knob, KnobValue
    from modeldyno.base.result.result import Result
    from modeldyno.profiling.findings.bottleneck import Bottleneck
    from modeldyno.profiling.findings.finding import Finding, Saving

LIMITS = {
    Limit.COMPUTE: "compute",
    Limit.MEMORY: "memory bandwidth",
    Limit.OVERHEAD: "overhead, such as launching operators: compute and memory are far from their peaks",
    Limit.WAITING: "waiting, not the processor",
    Limit.HOST: "the host, which does not keep the device busy",
    Limit.DISK: "the disk",
    Limit.NEIGHBOURS: "other processes on this machine",
    Limit.QUEUE: "queueing in the server",
    Limit.INPUT: "input preparation in the server",
    Limit.OUTPUT: "output preparation in the server",
    Limit.NETWORK: "network, protocol and client",
    Limit.CLIENT: "the client",
}
_NAMED = 4
"""Findings that a pointer names."""
_NAME = re.compile(r"[a-z]\d|[a-z_]\.[a-z]|_|::")
"""What only names of code have within a word: bf16, torch.compile, inference_mode, aten::copy_."""


def findings_of(result: Result, knobs: Iterable[Knob] = ()) -> Iterator[Block]:
    """Lay out the bottleneck and the findings of a Result."""
    known_knobs = tuple(knobs)
    items = findings(result, known_knobs)
    yield from bottleneck_notices(_bottleneck(result, known_knobs))
    yield from (finding_notice(result, item, known_knobs) for item in items)
    if not items:
        yield note(_NOTHING)


def finding_cards(result: Result, items: Iterable[Finding], knobs: Iterable[Knob] = ()) -> Iterator[Notice]:
    """Lay out the bottleneck and findings of a Result for a page: the largest bounded saving first."""
    known_knobs = tuple(knobs)
    yield from bottleneck_notices(_bottleneck(result, known_knobs))
    for item in sorted(items, key=lambda item: -item.saving.high if item.saving else 0.0):
        notice = finding_notice(result, item, known_knobs)
        yield replace(notice, gain=_gain(item.saving), risk=_risk(item))


def _bottleneck(result: Result, knobs: Sequence[Knob]) -> Bottleneck | None:
    return bottleneck(Case(result=result, knobs={knob.name: knob for knob in knobs}))


_NOTHING = "no findings in this data; profile with --probe static,latency,throughput,layers,ops to see more"


def bottleneck_notices(limit: Bottleneck | None) -> Iterator[Notice]:
    """Describe the bottleneck."""
    if limit is None:
        return
    share = "" if limit.share is None else f", {limit.share:.0%} of the time"
    yield note(f"{LIMITS[limit.limit]}{share}: {shorten_text(limit.seen)}", code="limited by")


def pointer(
    result: Result, items: Sequence[Finding], knobs: Iterable[Knob] = (), usual_backend: str = ""
) -> Notice | None:
    """Return a one-line pointer to the findings, with a command to paste; None if there are none.

    Args:
        result: what was measured.
        items: its findings.
        knobs: those of its backend; a setting at its default is left out of the command.
        usual_backend: that of the model's loader, which need not be named.
    """
    codes = list(dict.fromkeys(item.code for item in items))
    if not codes:
        return None
    names = ", ".join(codes[:_NAMED]) + (f" and {len(codes) - _NAMED} more" if len(codes) > _NAMED else "")
    tries = result.job.load is None and any(item.job is not None for item in items)
    command = f"modeldyno show {result.id[:6]} --findings"
    if tries:
        job = replace(result.job, config=_unusual_settings(result.job, knobs))
        command = advise_command_line(job, usual_backend)
    text = f"{shorten_text(names)}; to {'try' if tries else 'see'} them:"
    return note(text, code="findings", advice=clean(command))


def describe_saving(estimate: Saving | None) -> str:
    """Describe the estimated saving and its basis; empty if nothing bounds it."""
    if estimate is None:
        return ""
    if estimate.low is None:
        return f"It saves at most {estimate.high:.0%} of the {estimate.of}, or costs some: {estimate.basis}."
    return f"It saves {estimate.low:.0%} to {estimate.high:.0%} of the {estimate.of}: {estimate.basis}."


def command_for_job(result: Result, job: Job, knobs: Iterable[Knob] = ()) -> str:
    """Return the command that runs a Job, without options at their default.

    Of an inspection it is one that measures, as analysing has no settings.
    """
    if is_inspection(result):
        result = replace(result, outline=None)
        job = replace(job, probes=default_probes(job.inspection.mode))
    plan = Plan(pin=job.plan.pin, seed=job.plan.seed)
    job = replace(job, config=_unusual_settings(job, knobs), plan=plan)
    return rerun_command_line(replace(result, job=job))


def _unusual_settings(job: Job, knobs: Iterable[Knob]) -> dict[str, KnobValue]:
    """Return the settings of a job that are not the default of their knob."""
    defaults = {knob.name: knob.default for knob in knobs}
    return {name: value for name, value in job.config.items() if defaults.get(name) != value}


def finding_notice(result: Result, item: Finding, knobs: Iterable[Knob] = ()) -> Notice:
    """Return a notice of one finding, with the command or the change that tries it."""
    parts = (_sentence(item.seen), _sentence(item.why), describe_saving(item.saving))
    how = spell_for_command_line(item.do) if item.job is None else command_for_job(result, item.job, knobs)
    return note(
        shorten_message(" ".join(filter(None, parts))),
        code=item.code,
        advice=shorten_text(how),
    )


def _gain(saving: Saving | None) -> str:
    if saving is None:
        return "gain not bounded by a measurement"
    if saving.low is None or round(saving.low, 2) == 0:
        return f"saves up to {saving.high:.0%} of the {saving.of}"
    if round(saving.low, 2) == round(saving.high, 2):
        return f"saves {saving.high:.0%} of the {saving.of}"
    return f"saves {saving.low:.0%} to {saving.high:.0%} of the {saving.of}"


def _risk(item: Finding) -> str:
    """Say what a remedy may cost."""
    if item.changes_outputs:
        return "outputs may change beyond rounding: compare them"
    if item.saving is None or item.saving.low is None or item.saving.low <= 0:
        return "it may cost time instead, which only a trial shows"
    return "none for the outputs, which change by rounding at most"


def _sentence(text: str) -> str:
    """End a clause with a full stop, and begin it with a capital, unless it begins with a name of code."""
    first = text.partition(" ")[0].rstrip(",:;")
    if not _NAME.search(first):
        text = f"{text[:1].upper()}{text[1:]}"
    return f"{text.rstrip('.')}."
