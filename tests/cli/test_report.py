"""``modeldyno report``, as a user types it."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.sample_reports import a_large_study, a_measured_comparison

from modeldyno.base import codec, plugins
from modeldyno.comparison import codec as codec_comparison
from modeldyno.sweeps import codec as codec_study
from modeldyno.sweeps.study.ranking import ranking
from modeldyno.testing.reporters import full_result

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    class CommandResult(Protocol):
        code: int
        out: str
        err: str


@pytest.fixture
def documents(modeldyno: Callable[..., CommandResult], tmp_path: Path) -> dict[str, str]:
    """A document of each kind, as files."""
    del modeldyno
    study = a_large_study(20)
    data = {
        "result": codec.encode(full_result()),
        "study": codec_study.encode(study, ranking=ranking(study)),
        "comparison": codec_comparison.encode(a_measured_comparison()),
    }
    for name, document in data.items():
        (tmp_path / f"{name}.json").write_bytes(document)
    return {name: str(tmp_path / f"{name}.json") for name in data}


BEGINS = {".html": "<!doctype html>", ".md": "**", ".csv": "", ".json": "{"}


@pytest.mark.parametrize("kind", ["result", "study", "comparison"])
@pytest.mark.parametrize("suffix", BEGINS)
def test_every_document_has_every_format(
    modeldyno: Callable[..., CommandResult], documents: dict[str, str], kind: str, suffix: str
) -> None:
    """The suffix says what is written, whatever the document is."""
    result = modeldyno("report", documents[kind], "-o", f"out{suffix}")
    text = Path(f"out{suffix}").read_text(encoding="utf-8")

    assert (result.code, result.out) == (0, f"Wrote out{suffix}.\n")
    assert text.startswith(BEGINS[suffix])
    if suffix == ".csv":
        rows = list(csv.reader(text.splitlines()))
        assert len(rows) > 4
        assert len(set(map(len, rows))) == 1


def test_several_are_one_page(modeldyno: Callable[..., CommandResult], documents: dict[str, str]) -> None:
    """Documents of any kind go into one page, or one array."""
    both = modeldyno("report", *documents.values(), "-o", "out.html", "-o", "out.json")
    assert (both.code, both.out) == (0, "Wrote out.html and out.json.\n")
    page = Path("out.html").read_text(encoding="ascii")

    assert page.count("<section") == 3
    assert len(json.loads(Path("out.json").read_text())) == 3


def test_several_results_are_one_table(
    modeldyno: Callable[..., CommandResult], documents: dict[str, str]
) -> None:
    """Numbers of several results form one table; other documents have other columns."""
    assert modeldyno("report", documents["result"], documents["result"], "-o", "out.csv").code == 0
    result = modeldyno("report", *documents.values(), "-o", "out.csv")

    assert result.code == 2
    assert "A .csv file holds only results" in result.err


def test_bounds_are_judged_on_the_way(
    modeldyno: Callable[..., CommandResult], documents: dict[str, str]
) -> None:
    """A bound is shown with its verdict in the report of a result, and refused elsewhere."""
    bound = "latency.p50 <= 400us"
    assert modeldyno("report", documents["result"], "-o", "out.html", "--require", bound).code == 0
    result = [
        modeldyno("report", *of, "-o", "out.html", "--require", bound)
        for of in ([documents["study"]], [documents["result"]] * 2)
    ]

    assert 'aria-label="broken"' in Path("out.html").read_text()
    assert [each.code for each in result] == [2, 2]


def test_results_of_trials_come_from_the_store(modeldyno: Callable[..., CommandResult]) -> None:
    """The page of a study has the winner's histogram if the store has its result."""
    study = a_large_study(10)
    best = ranking(study).best
    assert best is not None
    trial = next(trial for trial in study.trials if trial.point == best.point)
    with plugins.store() as store:
        store.put_study(study, headline="a study")
    before = modeldyno("report", study.id, "-o", "before.html")
    with plugins.store() as store:
        store.put(replace(full_result(), id=trial.result), headline="a trial")
    after = modeldyno("report", study.id, "-o", "after.html")

    assert (before.code, after.code) == (0, 0)
    assert "Histogram of latency" not in Path("before.html").read_text()
    assert "Histogram of latency" in Path("after.html").read_text()


@pytest.mark.parametrize(
    ("kind", "chart", "title"),
    [
        ("result", (), "Latency"),
        ("result", ("--chart", "CALLS"), "Calls in order"),
        ("study", ("--chart", "throughput against threads"), "throughput against threads"),
        ("comparison", ("--chart", "latency #2"), "Latency"),
        ("comparison", (), "Differences from the baseline, with their intervals"),
    ],
)
def test_a_chart_is_a_picture(
    modeldyno: Callable[..., CommandResult],
    documents: dict[str, str],
    kind: str,
    chart: tuple[str, ...],
    title: str,
) -> None:
    """The first chart, or that of a title or a part of it."""
    pytest.importorskip("matplotlib")
    assert modeldyno("report", documents[kind], "-o", "out.svg", *chart).code == 0

    assert f"<title>{title}</title>" in Path("out.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ("-o", "out.svg", "--chart", "energy"),
            "no chart 'energy' here; charts: Latency; Calls in order.",
        ),
        (("-o", "out.svg", "--chart", " "), "There is no chart"),
        (("-o", "out.html", "--chart", "Latency"), "--chart is for .svg and .png"),
        (("{study}", "-o", "out.svg"), "A .svg file holds one chart; name one document."),
        (("{study}", "-o", "out.html", "--chart", "Latency"), "--chart names a chart of one document"),
    ],
)
def test_a_chart_that_is_not_there_is_refused(
    modeldyno: Callable[..., CommandResult], documents: dict[str, str], arguments: tuple[str, ...], says: str
) -> None:
    """The message names the charts that are."""
    result = modeldyno("report", documents["result"], *(word.format(**documents) for word in arguments))

    assert (result.code, says in result.err) == (2, True)


def test_a_file_of_no_format_is_refused(
    modeldyno: Callable[..., CommandResult], documents: dict[str, str]
) -> None:
    """The message for an unknown suffix lists the known ones; that for a missing directory names it."""
    lost = modeldyno("report", documents["study"], "-o", "no/such/out.html")
    assert lost.code == 2
    assert "Cannot write no/such/out.html: the directory no/such does not exist." in lost.err

    result = modeldyno("report", documents["study"], "-o", "out.docx")

    assert result.code == 2
    assert ".html" in result.err
