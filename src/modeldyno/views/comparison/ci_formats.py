"""Gate reports in formats of continuous integration: JUnit, SARIF, GitHub annotations."""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from modeldyno.core.comparison.gate_report import BOUND, CHANGE, FAILURE
from modeldyno.core.metrics.constraints import Verdict
from modeldyno.core.report.blocks import clean

if TYPE_CHECKING:
    from modeldyno.core.comparison.gate_report import Check, GateReport

_RULES = {
    BOUND: "A bound on what was measured.",
    CHANGE: "A metric must not get worse than it was in the baseline.",
    FAILURE: "The model must run.",
}
_LEVELS = {Verdict.BROKEN: "error", Verdict.UNDECIDED: "warning"}
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def junit(report: GateReport) -> str:
    """Write JUnit XML: a test case for each check; undecided checks count as skipped."""
    checks = report.checks
    suite = ET.Element(
        "testsuite",
        name=f"modeldyno {clean(report.result.name)}",
        tests=str(len(checks)),
        failures=str(sum(c.verdict is Verdict.BROKEN and c.kind != FAILURE for c in checks)),
        errors=str(sum(c.kind == FAILURE for c in checks)),
        skipped=str(sum(c.verdict is Verdict.UNDECIDED for c in checks)),
        timestamp=report.result.created,
    )
    for check in checks:
        case = ET.SubElement(
            suite, "testcase", classname=f"modeldyno.{clean(report.result.name)}", name=clean(check.name)
        )
        tag = _tag(check)
        if tag:
            ET.SubElement(case, tag, message=clean(check.text), type=check.kind)
        else:
            ET.SubElement(case, "system-out").text = clean(check.text)
    suites = ET.Element("testsuites")
    suites.append(suite)
    ET.indent(suites)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(suites, encoding="unicode") + "\n"


def _tag(check: Check) -> str:
    if check.kind == FAILURE:
        return "error"
    return {Verdict.BROKEN: "failure", Verdict.UNDECIDED: "skipped"}.get(check.verdict, "")


def sarif(report: GateReport) -> str:
    """Write SARIF 2.1.0 at the model's file: broken checks as errors, undecided ones as warnings."""
    unmet = [check for check in report.checks if check.verdict is not Verdict.HELD]
    results = [
        {
            "ruleId": check.kind,
            "level": _LEVELS[check.verdict],
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
    from urllib.parse import quote  # noqa: PLC0415 - only a report needs it

    return quote(clean(text)).strip(".") or "model"


def github(report: GateReport) -> str:
    """Write GitHub workflow commands: an annotation for each check that did not hold, or one notice."""
    lines = [
        _command(_LEVELS[check.verdict], f"{report.result.name}: {check.name}", check.text)
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
