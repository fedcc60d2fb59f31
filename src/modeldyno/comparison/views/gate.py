"""Lay out a gate report: the verdict, the broken, undecided and held checks, and notes."""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from modeldyno.base.metrics.constraints import Verdict
from modeldyno.base.option_spelling import spell_for_command_line
from modeldyno.base.report.blocks import Block, Notice, Severity, Table, clean, make_table, shorten
from modeldyno.base.views.text import count, doubts_in_a_line, facts_table, interruption_prefix, shorten_name
from modeldyno.comparison.change.gate_report import BOUND, CHANGE, FAILURE, Undecided
from modeldyno.comparison.change.way_of_measuring import CODE as NOT_COMPARED
from modeldyno.profiling.views.result.provenance import join_facts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from modeldyno.base.metrics.doubt import Doubt
    from modeldyno.base.result.result import Result
    from modeldyno.comparison.change.gate_report import Check, GateReport

_SIGNS = {Verdict.HELD: "✅", Verdict.BROKEN: "❌", Verdict.UNDECIDED: "❔"}
_LINE = 120
"""Most characters of a doubt; the verdict matters more here."""
_MARK = "<!-- modeldyno: {} -->"


def blocks(report: GateReport) -> tuple[Block, ...]:
    """Lay out all checks."""
    return (
        Notice(severity=Severity.VERDICT, text=sentence(report), outcome=Severity(report.verdict)),
        *(
            Notice(severity=Severity(verdict), text=f"{check.name}: {check.text}")
            for verdict in _WORST_FIRST
            for check in report.of(verdict)
        ),
        *_notes(report),
    )


def sentence(report: GateReport) -> str:
    """Return the verdict in one sentence, with a prefix if the run was interrupted."""
    prefix = interruption_prefix(report.result, report.ruling.rounds if report.ruling else 0)
    text = _verdict_sentence(report)
    return (
        prefix + text.replace("It is", "it is", 1) if prefix and text.startswith("It is ") else prefix + text
    )


def _verdict_sentence(report: GateReport) -> str:
    name = gate_model_name(report.result)
    broken, undecided = report.of(Verdict.BROKEN), report.of(Verdict.UNDECIDED)
    match report.verdict:
        case Verdict.BROKEN:
            return f"{name} fails: {_checks_text(broken)}."
        case Verdict.HELD:
            parts = [count(len(report.judgements), "bound")] if report.judgements else []
            changed = [check.name for check in report.checks if check.kind == CHANGE]
            parts += [f"no regression in {' and '.join(changed)}"] if changed else []
            return f"{name} passes: {', '.join(parts)}."
        case Verdict.UNDECIDED:
            ruling = report.ruling
            why = f" ({ruling.why})" if ruling and ruling.changes and ruling.why else ""
            return f"It is undecided whether {name} passes: {_checks_text(undecided)}{why}."


def gate_model_name(result: Result) -> str:
    """Return the shortened name of a model."""
    return shorten_name(result.name)


def _checks_text(checks: Iterable[Check]) -> str:
    return "; ".join(f"{check.name} {check.text}" for check in checks) or "nothing was judged"


_WORST_FIRST = (Verdict.BROKEN, Verdict.UNDECIDED, Verdict.HELD)


def _notes(report: GateReport) -> Iterator[Notice]:
    for note in (*report.notes, *_undecided_note(report)):
        yield Notice(severity=Severity.NOTE, text=note)
    for doubt in dict.fromkeys(report.doubts):
        message = clean(spell_for_command_line(doubt.seen))
        yield Notice(severity=Severity.DOUBT, code=doubt.code, text=shorten(message, _LINE))
    if report.result.doubts:
        yield doubts_in_a_line(report.result.doubts, f"modeldyno show {report.result.id[:6]}")


def _undecided_note(report: GateReport) -> tuple[str, ...]:
    """Say what an undecided verdict counts as, where that was asked for."""
    if report.undecided is None or report.verdict is not Verdict.UNDECIDED:
        return ()
    return (f"undecided counts as {'passed' if report.undecided is Undecided.PASS else 'failed'} here",)


def _not_compared(report: GateReport) -> Iterator[Doubt]:
    """Yield the doubts that name what was not compared."""
    yield from (doubt for doubt in report.doubts if doubt.code == NOT_COMPARED)


# --- pull-request comment ----------------------------------------------------------------------------


def comment_marker(report: GateReport) -> str:
    """Return the marker line by which the comment of an earlier run is found and replaced."""
    return _MARK.format(clean(report.result.name).replace("--", "- -"))


def comment(report: GateReport) -> tuple[Block, ...]:
    """Lay out a pull-request comment: verdict as header, only changed checks, environment at the end."""
    listed = [check for verdict in (Verdict.BROKEN, Verdict.UNDECIDED) for check in report.of(verdict)] + [
        check for check in report.of(Verdict.HELD) if _improved(check)
    ]
    others = len(report.checks) - len(listed)
    rows = tuple((_SIGNS[check.verdict], check.name, check.text) for check in listed)
    return (
        Notice(
            severity=Severity.VERDICT,
            text=f"{_SIGNS[report.verdict]} {sentence(report)}",
            outcome=Severity(report.verdict),
        ),
        *([make_table("Changed or undecided", ("", "what", "how"), rows)] if rows else []),
        *([Notice(severity=Severity.NOTE, text=f"All other checks hold: {others}.")] if others else []),
        *(Notice(severity=Severity.NOTE, text=note) for note in (*report.notes, *_undecided_note(report))),
        *(Notice(severity=Severity.NOTE, text=clean(doubt.seen)) for doubt in _not_compared(report)),
        _environment(report.result),
    )


def _improved(check: Check) -> bool:
    return check.change is not None and check.change.outcome == "better"


def _environment(result: Result) -> Table:
    facts = {
        "hardware": join_facts(result.environment.hardware),
        "software": join_facts(result.environment.software),
        "conditions": join_facts(result.environment.conditions),
        "doubts": ", ".join(sorted({doubt.code for doubt in result.doubts})),
    }
    return facts_table("Environment", facts)


# --- formats of continuous integration ------------------------------------------------------------


_RULES = {
    BOUND: "A bound on what was measured.",
    CHANGE: "A metric must not get worse than it was in the baseline.",
    FAILURE: "The model must run.",
}
_UNDECIDED_LEVELS = {Undecided.PASS: "warning", Undecided.FAIL: "error", None: "warning"}
_UNDECIDED_TAGS = {Undecided.PASS: "skipped", Undecided.FAIL: "failure", None: "error"}
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def junit(report: GateReport) -> str:
    """Write JUnit XML: a test case for each check.

    An undecided one is an error, as a test that could not be carried out is; or skipped, or a failure, where
    undecided counts as passed or as failed.
    """
    tags = [_tag(check, report.undecided) for check in report.checks]
    suite = ET.Element(
        "testsuite",
        name=f"modeldyno {clean(report.result.name)}",
        tests=str(len(tags)),
        failures=str(tags.count("failure")),
        errors=str(tags.count("error")),
        skipped=str(tags.count("skipped")),
        timestamp=report.result.created,
    )
    for check, tag in zip(report.checks, tags, strict=True):
        case = ET.SubElement(
            suite, "testcase", classname=f"modeldyno.{clean(report.result.name)}", name=clean(check.name)
        )
        if tag:
            ET.SubElement(case, tag, message=clean(check.text), type=_type(check))
        else:
            ET.SubElement(case, "system-out").text = clean(check.text)
    suites = ET.Element("testsuites")
    suites.append(suite)
    ET.indent(suites)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(suites, encoding="unicode") + "\n"


def _type(check: Check) -> str:
    return f"undecided {check.kind}" if check.verdict is Verdict.UNDECIDED else check.kind


def _tag(check: Check, undecided: Undecided | None) -> str:
    if check.kind == FAILURE:
        return "error"
    if check.verdict is Verdict.UNDECIDED:
        return _UNDECIDED_TAGS[undecided]
    return "failure" if check.verdict is Verdict.BROKEN else ""


def _level(check: Check, undecided: Undecided | None) -> str:
    return "error" if check.verdict is Verdict.BROKEN else _UNDECIDED_LEVELS[undecided]


def sarif(report: GateReport) -> str:
    """Write SARIF 2.1.0 at the model's file: broken checks as errors, undecided ones as warnings."""
    unmet = [check for check in report.checks if check.verdict is not Verdict.HELD]
    results = [
        {
            "ruleId": check.kind,
            "level": _level(check, report.undecided),
            "message": {"text": f"{clean(report.result.name)}: {clean(check.name)} {clean(check.text)}"},
            "locations": [{"physicalLocation": {"artifactLocation": {"uri": _artifact_uri(report)}}}],
            "partialFingerprints": {"modeldyno/v1": f"{clean(report.result.name)}/{clean(check.name)}"},
        }
        for check in unmet
    ]
    rules = [{"id": kind, "shortDescription": {"text": text}} for kind, text in _RULES.items()]
    driver = {"name": "modeldyno", "rules": rules}
    document: dict[str, Any] = {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
    return json.dumps(document, indent=2) + "\n"


def _artifact_uri(report: GateReport) -> str:
    """Return the model's file as a URI within the repository, or the name of a model that has none."""
    path = PurePath(report.result.job.model.locator.partition(":")[0].partition("#")[0])
    text = path.name if path.is_absolute() or ".." in path.parts else path.as_posix()
    from urllib.parse import quote  # only a report needs it

    return quote(clean(text)).strip(".") or "model"


def github(report: GateReport) -> str:
    """Write GitHub workflow commands: an annotation for each check that did not hold, or one notice."""
    lines = [
        _command(_level(check, report.undecided), f"{report.result.name}: {check.name}", check.text)
        for check in report.checks
        if check.verdict is not Verdict.HELD
    ]
    if not lines:
        names = ", ".join(check.name for check in report.checks)
        lines = [_command("notice", report.result.name, f"held: {names or 'nothing was judged'}")]
    return "\n".join(lines) + "\n"


def _command(level: str, title: str, text: str) -> str:
    """Write one workflow command, escaped so that a model's name can neither end it nor begin another."""
    escaped_title = clean(title).replace("%", "%25").replace(":", "%3A").replace(",", "%2C")
    message = clean(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return f"::{level} title={escaped_title}::{message}"
