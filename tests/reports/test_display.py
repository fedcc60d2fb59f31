from __future__ import annotations

import inspect
import json
import sys
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.sample_explanations import an_explanation

import modeldyno
from modeldyno.base import codec, plugins
from modeldyno.base.document import Document
from modeldyno.base.errors import MissingExtra, RequestError
from modeldyno.base.kinds import kind_of
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.metric import Query
from modeldyno.base.report.figure_checks import DigestState, Recomputation
from modeldyno.comparison.calibrate import MachineCheckup
from modeldyno.comparison.change.advice import Advice
from modeldyno.comparison.change.gate_calibration import Calibration
from modeldyno.comparison.change.gate_report import GateReport
from modeldyno.serving.loadtest.replicas import CostAnswer
from modeldyno.testing.sample_conversions import a_conversion
from modeldyno.testing.sample_results import a_failed_result, a_result
from modeldyno.testing.sample_series import a_capacity, a_comparison, a_ladder, a_trend
from modeldyno.testing.sample_studies import a_study

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


SLOW = Doubt(code="time-limit", seen="it took long", advice="give it more time with `max_time`")
INLINE = Doubt(code="not-isolated", seen="it ran inside the calling process", advice="save it")


RECOMPUTED = Recomputation.of(
    (), document="result", identifier="a1", name="digits", digest=DigestState.UNCHANGED
)


def test_printing_a_result_prints_its_report() -> None:
    """Figures with their intervals and doubts, not the names of metrics alone."""
    text = str(a_result())

    assert text.startswith("digits answers in about 1.3 ms")
    assert "throughput" in text
    assert not text.endswith("\n")


def test_advice_is_given_in_the_words_of_python() -> None:
    """Advice names Python arguments; the document is unchanged."""
    result = a_result(doubts=(SLOW,))

    for text in (str(result), result._repr_html_(), result.to_html()):
        assert "with max_time=" in text
        assert "--max-time" not in text
    assert result.doubts == (SLOW,)


def test_what_the_caller_knows_is_no_warning() -> None:
    """The report says that a live object ran in this process, where it says how it was measured."""
    text = str(a_result(doubts=(INLINE,)))

    assert "! not-isolated" not in text
    assert "ran         it ran inside the calling process" in text


def test_a_result_is_saved_by_its_suffix(tmp_path: Path) -> None:
    """The document itself as JSON, reports of it as pages and tables; other suffixes are refused."""
    result = a_result(doubts=(SLOW,))
    for name in ("r.json", "r.html", "r.csv", "r.md"):
        result.save(tmp_path / name)

    assert codec.read(tmp_path / "r.json") == result
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")
    assert "latency" in (tmp_path / "r.csv").read_text()
    assert "max_time=" in (tmp_path / "r.md").read_text()
    with pytest.raises(RequestError, match="No reporter writes 'r\\.docx'; use one of \\.csv, \\.html"):
        result.save(tmp_path / "r.docx")


def test_showing_a_result_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    """The same report, on standard output."""
    a_result().show()

    assert "digits answers in about 1.3 ms" in capsys.readouterr().out


class Frame:
    """A pandas.DataFrame for tests."""

    def __init__(self, rows: list[tuple[Any, ...]], columns: list[str]) -> None:
        self.rows, self.columns = rows, columns


@pytest.fixture
def frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pandas with a DataFrame that keeps what it is given."""
    pandas = type(sys)("pandas")
    pandas.DataFrame = Frame  # type: ignore[attr-defined]
    pandas.__spec__ = sys.__spec__
    monkeypatch.setitem(sys.modules, "pandas", pandas)


@pytest.mark.usefixtures("frames")
def test_a_table_has_a_row_for_each_number() -> None:
    """In base units, with the interval and the unit; the class is that of pandas."""
    table = a_result().to_pandas()
    rows = {row[:3]: dict(zip(table.columns, row, strict=True)) for row in table.rows}

    assert rows["throughput", "", ""]["low"] == 6100.0
    assert rows["latency", "", "mean"]["unit"] == "s"


REHEARSED = Calibration(
    comparisons=40, alarms=0, undecided=3, rounds=5.0, through=5.0, margin=1, smallest=0.1
)
ALL = [
    a_result(), a_study(), a_comparison(), a_ladder(), a_capacity(), a_conversion(), an_explanation(),
    a_trend(),
    GateReport(result=a_result()), RECOMPUTED,
    Advice(id="0123456789ab", created="", query=Query.parse("throughput"), tolerance=0.01,
           baseline=a_result()),
    CostAnswer(why="no load holds the bound"),
    MachineCheckup(result=a_result(), rounds=6, calibration=REHEARSED),
]  # fmt: skip


@pytest.mark.usefixtures("frames")
@pytest.mark.parametrize("document", ALL, ids=lambda document: type(document).__name__)
def test_every_document_is_saved_and_tabulated_and_short(document: Document, tmp_path: Path) -> None:
    """By the same three words; a debugger or a list of documents shows a line of each."""
    for suffix in ("json", "html", "md", "csv"):
        document.save(tmp_path / f"d.{suffix}")
    table = document.to_pandas()

    assert json.loads((tmp_path / "d.json").read_text()).get("kind", "result") == document.KIND
    assert (tmp_path / "d.html").read_text().startswith("<!doctype html>")
    assert (tmp_path / "d.csv").read_text().count("\n") >= 1
    assert all(len(row) == len(table.columns) for row in table.rows)
    assert repr(document).startswith(f"<{type(document).__name__}")
    assert len(repr(document)) < 260
    assert "\n" not in repr(document)
    with pytest.raises(RequestError, match="use one of"):
        document.save(tmp_path / "d.docx")


@pytest.mark.usefixtures("frames")
def test_numbers_of_a_table_are_numbers() -> None:
    """An explanation has the seconds of each hop; what is empty is missing."""
    table = an_explanation().to_pandas()
    hops = {row[:2]: row[2] for row in map(tuple, table.rows)}

    assert table.columns == ["level", "hop", "seconds", "low", "high"]
    assert hops["in process", "bound"] == pytest.approx(0.003)


def test_a_table_needs_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pandas, the error says what to install."""
    monkeypatch.setattr(plugins, "find_spec", lambda _name: None)

    with pytest.raises(MissingExtra, match=r"to_pandas\(\), needs pandas; install it with: pip install"):
        a_result().to_pandas()


@pytest.mark.parametrize(
    "document",
    [
        a_study(),
        a_comparison(),
        a_ladder(),
        a_capacity(),
        a_conversion(),
        an_explanation(),
        a_trend(),
    ],
    ids=lambda document: type(document).__name__,
)
def test_printing_a_document_prints_what_the_terminal_shows(document: Document) -> None:
    """Whatever its kind; a notebook shows the same as HTML."""
    text = str(document)

    assert text == plugins.terminal().text(kind_of(document).blocks(document)).rstrip("\n")
    assert not text.startswith(type(document).__name__)
    assert str(document._repr_html_()).startswith("<")


@pytest.mark.parametrize(
    ("document", "phrase"),
    [
        (GateReport(result=a_failed_result()), "failed"),
        (RECOMPUTED, "digits"),
        (CostAnswer(why="the result is of no load"), "the result is of no load"),
    ],
    ids=lambda document: type(document).__name__,
)
def test_printing_an_answer_prints_what_the_terminal_shows(document: object, phrase: str) -> None:
    """Also of what is no kind of document."""
    assert phrase in str(document)
    assert not str(document).startswith(type(document).__name__)


def test_every_report_that_the_api_returns_prints_itself() -> None:
    """No public function returns a document that prints as its raw fields."""
    returned = {
        name: str(inspect.signature(attrgetter(name)(modeldyno)).return_annotation)
        for name in ("advise", "check", "compare", "convert", "doctor", "explain", "find_load", "gate",
                     "load_curve", "registry.answer", "registry.show", "serving.replicas", "sweep", "trend",
                     "verify")
    }  # fmt: skip
    for name in ("exchange.verify", "comparison.api.gate", "serving.loadtest.replicas"):
        import_module(f"modeldyno.{name}")
    documents = {cls.__name__ for cls in _all_subclasses(Document)}

    assert {name: kind for name, kind in returned.items() if kind not in documents} == {}


def _all_subclasses(cls: type) -> Iterator[type]:
    subclasses: list[type] = cls.__subclasses__()
    for subclass in subclasses:
        yield subclass
        yield from _all_subclasses(subclass)
