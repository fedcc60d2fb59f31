"""A value that says whether something holds is true if it does, so that ``assert`` fails otherwise."""

from __future__ import annotations

from dataclasses import replace

import pytest

from modeldyno.base.metrics.constraints import Constraint, Verdict
from modeldyno.base.report.figure_checks import CheckState, DigestState, FigureCheck, Recomputation
from modeldyno.comparison.change.gate_report import GateReport, Undecided
from modeldyno.testing.sample_conversions import a_conversion
from modeldyno.testing.sample_results import a_result

HELD, BROKEN = "latency.p50.raw <= 1h", "latency.p50.raw <= 1ns"


@pytest.mark.parametrize("verdict", Verdict)
def test_a_verdict(verdict: Verdict) -> None:
    """Broken and undecided are both false."""
    assert bool(verdict) == (verdict == "held")


@pytest.mark.parametrize(("bound", "holds"), [(HELD, True), (BROKEN, False)])
def test_a_judgement_and_the_report_of_a_gate(bound: str, holds: bool) -> None:
    """As their verdict."""
    judgement = Constraint.parse(bound).judge(a_result().measurements)

    assert bool(judgement) is holds
    assert bool(GateReport(result=a_result(), judgements=(judgement,))) is holds


def test_an_undecided_gate_is_what_it_counts_as() -> None:
    """Nothing was checked: that is not held, unless it shall pass."""
    report = GateReport(result=a_result())

    assert not report
    assert replace(report, undecided=Undecided.PASS)


def test_a_recomputation() -> None:
    """It holds without a wrong figure."""
    wrong = (FigureCheck(place="latency p50", state=CheckState.WRONG),)

    assert [
        bool(
            Recomputation.of(
                checks, document="result", identifier="a", name="b", digest=DigestState.UNCHANGED
            )
        )
        for checks in ((), wrong)
    ] == [True, False]


def test_a_conversion() -> None:
    """It is true if every form can be used."""
    assert bool(a_conversion()) is a_conversion().usable
