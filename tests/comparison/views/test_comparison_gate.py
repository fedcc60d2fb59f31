"""Verdicts of a gate as blocks, a comment, JUnit, SARIF and annotations."""

from __future__ import annotations

import json
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from modeldyno.base.job.model_ref import ModelRef
from modeldyno.base.metrics.constraints import Constraint, Verdict
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Interval
from modeldyno.base.metrics.metric import Query
from modeldyno.base.report.blocks import Notice, Severity, Table
from modeldyno.comparison.change.comparison import Change, ChangeVerdict
from modeldyno.comparison.change.gate_report import GateReport, Undecided
from modeldyno.comparison.change.gate_rule import GateDecision
from modeldyno.comparison.views import gate
from modeldyno.testing.sample_results import a_failed_result, a_job, a_result

WORSE = Change(
    query=Query.parse("latency.p50"), baseline=0.01, candidate=0.012, difference=0.2,
    interval=Interval(low=0.15, high=0.25), outcome=ChangeVerdict.WORSE,
)  # fmt: skip
BETTER = replace(
    WORSE, query=Query.parse("process_memory.max"), candidate=0.008, difference=-0.2,
    interval=Interval(low=-0.25, high=-0.15), outcome=ChangeVerdict.BETTER,
)  # fmt: skip
SAME = replace(WORSE, difference=0.0, interval=Interval(low=-0.01, high=0.01), outcome=ChangeVerdict.SAME)
OPEN = replace(WORSE, difference=0.05, interval=Interval(low=-0.1, high=0.2), outcome=ChangeVerdict.UNDECIDED)


def gate_report(verdict: Verdict, *changes: Change, name: str = "digits") -> GateReport:
    """Make what a gate found."""
    why = "more rounds are needed than could be run" if verdict is Verdict.UNDECIDED else ""
    ruling = GateDecision(verdict=verdict, changes=changes, rounds=5, confirmation=changes, why=why)
    return GateReport(result=a_result(name=name), ruling=ruling, notes=("in turns",))


BROKEN = gate_report(Verdict.BROKEN, WORSE, BETTER)
HELD = gate_report(Verdict.HELD, SAME)
UNDECIDED = gate_report(Verdict.UNDECIDED, OPEN)


@pytest.mark.parametrize(
    ("checked", "start"),
    [
        (BROKEN, "digits fails: latency.p50 10.00 ms -> 12.00 ms, +20.0%"),
        (HELD, "digits passes: no regression in latency.p50."),
        (UNDECIDED, "It is undecided whether digits passes: latency.p50"),
        (
            GateReport(result=a_failed_result()),
            "onnx:models/digits.onnx fails: load failed: The child took 2 GiB.",
        ),
        (
            GateReport(
                result=a_result(), judgements=(a_result().judge(Constraint.parse("latency.p50.raw <= 2ms")),)
            ),
            "It is undecided whether digits passes: latency.p50.raw <= 2 ms",
        ),
    ],
)
def test_the_verdict_is_one_sentence(checked: GateReport, start: str) -> None:
    """It says what broke, with figures, or what held."""
    assert gate.sentence(checked).startswith(start)


def test_blocks_begin_with_the_verdict_and_go_from_worst_to_best() -> None:
    """Then come notes and doubts."""
    laid = gate.blocks(BROKEN)
    assert [block.severity for block in laid if isinstance(block, Notice)] == [
        Severity.VERDICT,
        Severity.BROKEN,
        Severity.HELD,
        Severity.NOTE,
        Severity.DOUBT,
    ]


def test_doubts_come_with_the_command_that_explains_them() -> None:
    """It names the result, so that it can be pasted; a single one is told in the singular."""
    (doubts,) = [b for b in gate.blocks(BROKEN) if isinstance(b, Notice) and b.severity is Severity.DOUBT]
    assert (doubts.code, doubts.text) == (
        "trust limited",
        f"{BROKEN.result.doubts[0].seen}; modeldyno show {BROKEN.result.id[:6]} explains it",
    )


def test_a_comment_tells_only_what_changed_and_ends_with_the_environment() -> None:
    """What is the same is only counted; the mark finds the comment again."""
    laid = gate.comment(gate_report(Verdict.BROKEN, WORSE, replace(SAME, query=Query.parse("latency.mean"))))
    header, table, rest, *_, environment = laid
    assert isinstance(header, Notice)
    assert header.text.startswith("❌ digits fails")
    assert isinstance(table, Table)
    assert [row[1] for row in table.rows] == ["latency.p50"]
    assert isinstance(rest, Notice)
    assert rest.text == "All other checks hold: 1."
    assert isinstance(environment, Table)
    assert environment.title == "Environment"
    assert not any(
        isinstance(b, Table) and b.rows and b.rows[0][1] == "latency.p50" for b in gate.comment(HELD)
    )
    assert [row[1] for b in gate.comment(BROKEN) if isinstance(b, Table) for row in b.rows][:2] == [
        "latency.p50",
        "process_memory.max",
    ]
    assert (
        gate.comment_marker(gate_report(Verdict.HELD, SAME, name="a --> b")) == "<!-- modeldyno: a - -> b -->"
    )


def test_junit_has_a_case_for_each_check() -> None:
    """Broken is a failure, a failed run is an error; names are escaped."""
    suite = ET.fromstring(gate.junit(gate_report(Verdict.BROKEN, WORSE, BETTER, name="a<b>&'\"")))[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("2", "1", "0")
    assert [case.get("name") for case in suite] == ["latency.p50", "process_memory.max"]
    failure = suite[0].find("failure")
    assert failure is not None
    assert "+20.0%" in str(failure.get("message"))
    error = ET.fromstring(gate.junit(GateReport(result=a_failed_result())))[0]
    assert (error.get("errors"), error.get("failures")) == ("1", "0")


@pytest.mark.parametrize(
    ("undecided", "tag", "level"),
    [
        (None, "error", "warning"),
        (Undecided.PASS, "skipped", "warning"),
        (Undecided.FAIL, "failure", "error"),
    ],
)
def test_an_undecided_check_is_said_in_each_format(undecided: Undecided | None, tag: str, level: str) -> None:
    """No format is silent about it, whatever it counts as."""
    nothing = replace(UNDECIDED, ruling=GateDecision(verdict=Verdict.UNDECIDED, changes=(), rounds=0))
    for report in (replace(each, undecided=undecided) for each in (UNDECIDED, nothing)):
        suite = ET.fromstring(gate.junit(report))[0]
        counts = {name: suite.get(name) for name in ("failures", "errors", "skipped")}
        plural = {"error": "errors", "failure": "failures", "skipped": "skipped"}[tag]
        assert counts == {**dict.fromkeys(counts, "0"), plural: "1"}
        case = suite[0].find(tag)
        assert case is not None
        assert (case.get("message"), case.get("type")) == (report.checks[0].text, "undecided change")
        assert json.loads(gate.sarif(report))["runs"][0]["results"][0]["level"] == level
        assert gate.github(report).startswith(f"::{level} ")
        counted = [f"undecided counts as {'passed' if undecided == 'pass' else 'failed'} here"]
        texts = [block.text for block in gate.comment(report) if isinstance(block, Notice)]
        assert [text for text in texts if "counts as" in text] == (counted if undecided else [])


def test_a_comment_names_what_was_not_compared() -> None:
    """A metric that was measured differently is in no check."""
    doubt = Doubt(code="measured-differently", seen="not compared: process_memory.max", advice="")
    texts = [
        block.text for block in gate.comment(replace(HELD, doubts=(doubt,))) if isinstance(block, Notice)
    ]
    assert "not compared: process_memory.max" in texts


def test_sarif_has_what_did_not_hold_at_the_models_file() -> None:
    """Errors and warnings; what holds is no result; a path stays within the repository."""
    run = json.loads(gate.sarif(BROKEN))["runs"][0]
    assert [result["level"] for result in run["results"]] == ["error"]
    rules = {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    assert {result["ruleId"] for result in run["results"]} <= rules
    place = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert place == "models/digits.onnx"
    assert json.loads(gate.sarif(HELD))["runs"][0]["results"] == []
    assert json.loads(gate.sarif(UNDECIDED))["runs"][0]["results"][0]["level"] == "warning"


@pytest.mark.parametrize(
    ("locator", "place"),
    [
        ("/home/me/a b.onnx", "a%20b.onnx"),
        ("nets.py:make", "nets.py"),
        ("../up/x.onnx", "x.onnx"),
        ("/", "model"),
    ],
)
def test_a_place_of_sarif_is_a_relative_uri(locator: str, place: str) -> None:
    """What lies elsewhere is named without its directory."""
    job = replace(a_job(), model=ModelRef(scheme="onnx", locator=locator))
    document = json.loads(gate.sarif(replace(BROKEN, result=a_result(job=job))))
    location = document["runs"][0]["results"][0]["locations"][0]
    assert location["physicalLocation"]["artifactLocation"]["uri"] == place


def test_annotations_cannot_be_forged_by_a_name() -> None:
    """A model's name neither ends a command nor begins another."""
    text = gate.github(gate_report(Verdict.BROKEN, WORSE, name="x::warning\n::error title=y,z%::"))
    assert text.count("\n") == 1
    assert text.startswith("::error title=x%3A%3Awarning")
    assert "+20.0%25" in text
    assert gate.github(HELD) == "::notice title=digits::held: latency.p50\n"
    assert gate.github(UNDECIDED).startswith("::warning title=digits%3A latency.p50::")


def test_what_is_not_confirmed_only_looks_worse() -> None:
    """Under a question mark nothing is called worse, in whatever format."""
    open_ = gate_report(Verdict.UNDECIDED, WORSE)

    texts = [gate.sentence(open_), gate.junit(open_), gate.sarif(open_), gate.github(open_)]

    assert all("looks worse, not confirmed" in text for text in texts)
    assert "looks worse" not in gate.sentence(BROKEN)
