"""``modeldyno verify``, as a user types it, and what its page shows."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from modeldyno.base import codec
from modeldyno.base.metrics.doubt import distribution_doubts
from modeldyno.base.metrics.measurement import Distribution, observed_number, ratio_number
from modeldyno.base.report.figure_checks import CheckState, DigestState, FigureCheck, Recomputation
from modeldyno.exchange.views.recomputation import blocks, headline
from modeldyno.testing.sample_results import SAMPLES, a_result

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "verify-a-result.md").read_text(encoding="utf-8")


@pytest.fixture
def document(tmp_path: Path) -> dict[str, Any]:
    """The JSON of a result, which is also in result.json."""
    measurements = (
        *a_result(samples=SAMPLES * 20).measurements,
        ratio_number("request_rate", [8.0] * 8, [0.01] * 8),
        observed_number("load_time", 0.5),
    )
    latency = measurements[0].value
    assert isinstance(latency, Distribution)
    doubts = tuple(distribution_doubts("latency", latency, ()))
    data = codec.encode(a_result(measurements=measurements, doubts=doubts))
    (tmp_path / "digits.json").write_bytes(data)
    read: dict[str, Any] = json.loads(data)
    return read


@pytest.mark.usefixtures("document")
def test_a_document_that_holds_exits_0(modeldyno: Callable[..., Any]) -> None:
    """The verdict says how many figures were recomputed, and names what could not be."""
    run = modeldyno("verify", "digits.json")
    assert run.code == 0
    text = " ".join(run.out.split())
    assert "The result 012345 of digits holds: " in text
    assert "recomputed, all right; it is as it was written." in text
    assert "load_time" in text.partition("not recomputable")[2]


def test_a_document_that_does_not_hold_exits_1(
    document: dict[str, Any], tmp_path: Path, modeldyno: Callable[..., Any]
) -> None:
    """Each wrong figure has both values, in a table and in JSON; a quiet answer is one sentence."""
    next(m for m in document["measurements"] if m["metric"] == "request_rate")["value"] = 900.0
    (tmp_path / "digits.json").write_text(json.dumps(document))
    run = modeldyno("verify", "digits.json")
    assert run.code == 1
    text = " ".join(run.out.split())
    assert "is wrong; it was changed after it was written" in text
    assert "request_rate 900 800 sums of windows" in text
    quiet = modeldyno("verify", "digits.json", "-q")
    assert (quiet.code, quiet.out.count("\n")) == (1, 1)
    report = json.loads(modeldyno("verify", "digits.json", "--json", "-").out)
    assert [(w["written"], w["recomputed"]) for w in report["wrong"]] == [(900.0, pytest.approx(800.0))]


def test_a_document_that_is_not_there_exits_2(modeldyno: Callable[..., Any]) -> None:
    """A wrong name is a wrong request."""
    assert modeldyno("verify", "nowhere.json").code == 2


def test_a_document_that_was_not_changed_was_computed_otherwise() -> None:
    """Its digest is right and a figure is not: the rules have changed since it was written."""
    wrong = (FigureCheck(place="latency.p99", state=CheckState.WRONG, written=1.0, recomputed=2.0),)
    recomputation = Recomputation.of(
        wrong, document="result", identifier="ab" * 6, name="mlp", digest=DigestState.UNCHANGED
    )
    assert headline(recomputation).endswith(
        "it is as it was written, by a ModelDyno that computed otherwise."
    )


def test_many_wrong_figures_are_cut_and_a_document_without_samples_says_so() -> None:
    """A table has at most twenty rows; nothing recomputed is no proof."""
    wrong = tuple(
        FigureCheck(place=f"load {n}", state=CheckState.WRONG, written=None, recomputed="text")
        for n in range(25)
    )
    study = partial(
        Recomputation.of, document="study", identifier="ab" * 6, name="mlp", digest=DigestState.ABSENT
    )
    many = study(wrong)
    assert "25 of 25 recomputed figures are wrong" in headline(many)
    texts = [getattr(block, "text", "") for block in blocks(many)]
    assert "And 5 more wrong figures; the JSON has them all." in texts
    none = study(())
    assert "no figure could be recomputed; it has no digest" in headline(none)


@pytest.mark.usefixtures("document")
def test_the_python_of_the_page_finds_the_forgery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The example changes a percentile; the answer names it with both values."""
    monkeypatch.chdir(tmp_path)
    code = PAGE.partition("```python\n")[2].partition("```")[0]
    exec(compile(code, "verify-a-result.md", "exec"), {})
    printed = capsys.readouterr().out
    assert printed.startswith("False changed [('latency percentiles p50', ")
