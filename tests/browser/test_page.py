from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.sample_explanations import an_explanation
from tests.support.sample_reports import (
    PAYLOADS,
    a_large_study,
    a_measured_comparison,
    hostile_blocks,
    hostile_comparison,
    hostile_study,
    payloads,
)

from modeldyno.base.report.blocks import (
    Align,
    Column,
    Notice,
    Severity,
    Table,
    make_columns,
    make_table,
)
from modeldyno.base.report.charts import Picture
from modeldyno.comparison.views import page as comparison_page
from modeldyno.comparison.views import trend as history
from modeldyno.profiling.views import page
from modeldyno.reports import html, pdf
from modeldyno.reports.write import Page, combine_pages
from modeldyno.serving.views import explanation
from modeldyno.serving.views import page as load_page
from modeldyno.sweeps.study.ranking import ranking
from modeldyno.sweeps.views import page as study_page
from modeldyno.testing.reporters import full_result, hostile_result
from modeldyno.testing.sample_results import an_inspection
from modeldyno.testing.sample_series import a_capacity, a_ladder, a_trend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager

    from modeldyno.base.report.blocks import Block

    Open = Callable[..., AbstractContextManager[Any]]

pytestmark = [pytest.mark.browser, pytest.mark.timeout(3600)]


def study(trials: int = 1000) -> str:
    large = a_large_study(trials)
    return html.lay_out(study_page.page(large), title="a study")


PAGES: dict[str, Callable[[], str]] = {
    "a study of 1,000 trials": study,
    "a result": lambda: html.render(full_result()),
    "a comparison": lambda: html.lay_out(comparison_page.page(a_measured_comparison()), title="a comparison"),
    "an inspection": lambda: html.render(an_inspection()),
    "a ladder of loads": lambda: html.lay_out(load_page.page(a_ladder()), title="a ladder"),
    "a search": lambda: html.lay_out(load_page.page(a_capacity()), title="a search"),
    "an explanation": lambda: html.lay_out(explanation.page(an_explanation()), title="an explanation"),
    "a history": lambda: html.lay_out(history.page(a_trend()), title="a history"),
}


@pytest.mark.parametrize("kind", PAGES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_a_page_asks_for_nothing_and_breaks_nothing(opened: Open, kind: str, scheme: str, width: int) -> None:
    """A page draws all that it has, without a request, an error or a violation, and fits its window."""
    text = PAGES[kind]()

    assert len(text) <= 1_000_000
    with opened(text, color_scheme=scheme, viewport={"width": width, "height": 800}) as tab:
        tab.scroll()
        figures = tab.count("figure[data-picture]")
        tab.page.wait_for_function(  # those of a folded part are drawn while the browser is idle
            "count => document.querySelectorAll('figure.drawn').length === count", arg=figures
        )

        assert tab.count("figure.drawn") == figures
        assert tab.count("figure.drawn svg") >= figures
        assert (tab.requests, tab.messages, tab.broken) == ([], [], [])
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= width


HEIGHTS = {
    "a study of 1,000 trials": 4600, "a result": 2200, "a comparison": 2100, "an inspection": 3200,
    "a ladder of loads": 2300, "a search": 2000, "an explanation": 2000, "a history": 1900,
}  # fmt: skip
"""Most pixels that a page is high at a width of 1280 before anything is opened."""


@pytest.mark.parametrize("kind", PAGES)
def test_a_page_is_no_longer_than_a_reader_scrolls(opened: Open, kind: str) -> None:
    """Two to four screens: what few look for is folded."""
    with opened(PAGES[kind](), viewport={"width": 1280, "height": 900}) as tab:
        tab.scroll()

        assert tab.page.evaluate("document.documentElement.scrollHeight") <= HEIGHTS[kind]


def test_a_link_to_a_folded_part_opens_it(opened: Open) -> None:
    """As the contents at the top of the page do."""
    with opened(html.render(full_result())) as tab:
        before = tab.page.locator("details.part").first.evaluate("(part) => part.open")
        tab.page.locator("nav a", has_text="How it was measured").click()
        tab.page.wait_for_timeout(200)

        assert not before
        assert tab.page.locator("details.part").first.evaluate("(part) => part.open")
        assert tab.page.get_by_text("to repeat it, run").is_visible()


def test_a_page_reads_without_script(opened: Open) -> None:
    """With scripts switched off there are the tables, the sentences and the histogram."""
    with opened(html.render(full_result()), java_script_enabled=False) as tab:
        tab.page.locator("details.folded > summary").first.click()
        assert tab.page.locator("details.folded table").first.is_visible()
        assert tab.page.locator("figure svg rect").first.is_visible()
        assert tab.page.locator("p.description").first.is_visible()


def test_tables_are_sorted_by_keyboard(opened: Open) -> None:
    """A heading is a button: it sorts downwards, upwards, and back, by size and not by letters."""
    titles = ("layer", "time", "share")
    columns = tuple(Column(title=t, align=Align.RIGHT if t != "layer" else Align.LEFT) for t in titles)
    times = {"a": "2.31 ms", "b": "\u2014", "c": "183 ms", "d": "413 us", "e": "1 us"}
    rows = tuple((name, time, "20%") for name, time in times.items())
    with opened(html.lay_out([Table(title="Layers", columns=columns, rows=rows)], title="t")) as tab:
        head = tab.page.locator("th", has_text="time").first
        cells = (
            "Array.from(document.querySelector('table.figures').tBodies[0].rows,"
            " (row) => row.cells[0].textContent)"
        )
        head.locator("button").focus()
        tab.page.keyboard.press("Enter")
        downwards = tab.page.evaluate(cells)
        sorted_as = head.get_attribute("aria-sort")
        tab.page.keyboard.press("Enter")
        upwards = tab.page.evaluate(cells)
        tab.page.keyboard.press("Enter")

        assert sorted_as == "descending"
        assert downwards == ["c", "a", "d", "e", "b"]
        assert upwards == ["e", "d", "a", "c", "b"]
        assert tab.page.evaluate(cells) == ["a", "b", "c", "d", "e"]


def test_names_and_values_have_no_order(opened: Open) -> None:
    """A table of metrics, each of its own unit, is not sorted."""
    with opened(html.render(full_result())) as tab:
        assert tab.count("section table.figures") > 0
        assert tab.count("section > .scroll table.figures th button") == 0


def test_every_picture_is_drawn_without_scrolling(opened: Open) -> None:
    """Whoever photographs or prints the whole page gets every picture, soon after it has loaded."""
    with opened(html.render(full_result())) as tab:
        tab.page.wait_for_selector("figure[data-picture]:not(.drawn)", state="detached")

        assert tab.count("figure.drawn") > 1


def test_a_phone_shows_every_column(opened: Open) -> None:
    """At 390 pixels the notes and verdicts of a table stand within the window, and its first row, too."""
    page = html.lay_out(comparison_page.page(a_measured_comparison()), title="a comparison")
    with opened(page, viewport={"width": 390, "height": 800}) as tab:
        right = tab.page.evaluate(
            "Math.max(...[...document.querySelectorAll('table.cards td')]"
            ".map((cell) => cell.getBoundingClientRect().right))"
        )

        assert 0 < right <= 390


@pytest.mark.parametrize("width", [640, 1000, 1100, 1280])
def test_the_number_of_a_tile_keeps_clear_of_its_border(opened: Open, width: int) -> None:
    """Six tiles stand beside each other where there is room, and the widest usual number fits in each."""
    rows = tuple((f"figure {place}", "21.6 MMACs", "") for place in range(6))
    tiles = Table(title="", columns=make_columns("", "", ""), rows=rows, tiles=True)
    with opened(html.lay_out([tiles], title="t"), viewport={"width": width, "height": 800}) as tab:
        room = tab.page.evaluate(
            "[...document.querySelectorAll('.tiles dt + dd')].map((number) => {"
            " const text = document.createRange(); text.selectNodeContents(number);"
            " return number.getBoundingClientRect().right - text.getBoundingClientRect().right; })"
        )

        assert len(room) == 6
        assert min(room) >= 0


def test_doubts_are_folded_and_the_figures_stand_above(opened: Open) -> None:
    """At 1280 pixels the key figures begin within the first screen, and the doubts below them."""
    with opened(html.render(full_result()), viewport={"width": 1280, "height": 800}) as tab:
        top = "document.querySelector('{}').getBoundingClientRect().top"

        assert tab.page.evaluate(top.format("dl.tiles")) < tab.page.evaluate(top.format("details.doubts"))
        assert tab.page.evaluate(top.format(".tiles")) < 800
        assert tab.page.evaluate("document.querySelector('details.doubts').open") is False


def test_who_cannot_see_a_picture_is_told(opened: Open) -> None:
    """A drawn picture is hidden from a screen reader, which gets its name and its sentence."""
    with opened(html.render(full_result())) as tab:
        tab.scroll()
        spoken = tab.page.locator("main").aria_snapshot()

        assert "Histogram of latency from 320 us" in spoken
        assert 'figure "Calls in order"' in spoken
        assert "application" not in spoken
        assert "2,500" not in spoken  # what stands along an axis


def test_a_dark_page_prints_in_light_colours(opened: Open) -> None:
    """Everything is drawn for print, light, though nobody scrolled there."""
    with opened(study(200), color_scheme="dark") as tab:
        tab.page.evaluate("dispatchEvent(new Event('beforeprint'))")

        assert tab.count("figure.drawn") == tab.count("figure[data-picture]")
        assert tab.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        tab.page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert tab.page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"


PARTS = """
() => [...document.querySelectorAll("table.unfit")].map((table) => ({
  columns: [...table.tHead.rows[0].cells].map((cell) => cell.textContent.trim()).filter(Boolean),
  parts: [...table.parentElement.querySelectorAll("table.fitted")].map((part) => ({
    columns: [...part.tHead.rows[0].cells].map((cell) => cell.textContent.trim()),
    rows: part.rows.length === table.rows.length,
    wider: Math.max(0, part.offsetWidth - part.parentElement.clientWidth),
  })),
}))
"""


def test_on_paper_a_wide_table_has_every_column(opened: Open) -> None:
    """It is continued below with those that did not fit, and the names of its rows; charts are not cut."""
    names = ("concurrency", *(f"a long name of column {number}" for number in range(20)))
    row = tuple(str(number) for number in range(len(names)))
    titles = make_columns(*(f"{name}>" for name in names))
    table = Table(title="Under each load", columns=titles, rows=(row, row))
    with opened(html.lay_out([table, *study_page.page(a_large_study(50))], title="t")) as tab:
        tab.page.evaluate("dispatchEvent(new Event('beforeprint'))")
        first, *others = tab.page.evaluate(PARTS)

        assert len(first["parts"]) > 1
        for one in (first, *others):
            assert set(one["columns"]) == {name for part in one["parts"] for name in part["columns"] if name}
            assert all(part["rows"] for part in one["parts"])
            assert [part["wider"] for part in one["parts"]] == [0] * len(one["parts"])
        assert all(part["columns"][0] == "concurrency" for part in first["parts"])
        right = "const right = (one) => one.getBoundingClientRect().right"
        charts = "[...document.querySelectorAll('.chart')].map(right)"
        edge = "right(document.querySelector('main')) + 1"
        assert tab.page.evaluate(f"() => {{ {right}; return Math.max(...{charts}) <= {edge} }}")
        tab.page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert tab.count("table.fitted, table.unfit") == 0


def test_series_are_taken_away_and_patterns_added(opened: Open) -> None:
    """A name in a legend is a switch; so is the button that adds patterns to colours."""
    with opened(study(200)) as tab:
        tab.scroll()
        switch = tab.page.locator(".legend button").first
        switch.click()
        pattern = tab.page.locator("button.patterns")
        pattern.click()

        assert switch.get_attribute("aria-pressed") == "false"
        assert pattern.get_attribute("aria-pressed") == "true"
        assert tab.count(".chart pattern") > 0
        assert (tab.requests, tab.messages, tab.broken) == ([], [], [])


def test_a_layer_is_widened_by_a_click(opened: Open) -> None:
    """The tree of layers goes into what is clicked on."""
    (tree,) = (block for block in hostile_blocks("part") if type(block).__name__ == "Tree")
    with opened(html.lay_out([tree], title="t")) as tab:
        tab.page.wait_for_selector("figure.drawn", state="attached")
        tab.page.locator(".chart svg text", has_text="part").last.click()

        assert tab.messages == []


def test_a_pdf_is_printed(tmp_path: Any) -> None:
    """What is printed is a PDF with text in it."""
    del tmp_path
    assert pdf.render(full_result()).startswith(b"%PDF-")


# --- attacks ---------------------------------------------------------------------------------------


def attacked(text: str) -> dict[str, Iterable[Block]]:
    """Documents whose every name attacks; each kind of picture is among the last."""
    made = hostile_study(text)
    compared = comparison_page.page(hostile_comparison(text))
    return {
        "a result": (block for block in page(hostile_result(text)) if not isinstance(block, Picture)),
        "a study": study_page.page(made, ranked=ranking(made, 20)),
        "a comparison": (block for block in compared if not isinstance(block, Picture)),
        "blocks": hostile_blocks(text),
    }


_EACH = 25


@pytest.mark.parametrize("first", range(0, PAYLOADS, _EACH))
def test_no_name_runs(opened: Open, first: int) -> None:
    """Whatever a model, a module, a knob, a value, a tag, a doubt or a log is called: nothing runs."""
    texts = payloads()[first : first + _EACH]
    pages = [Page(title=text, blocks=tuple(blocks)) for text in texts for blocks in attacked(text).values()]
    combined = combine_pages(pages)
    written = html.lay_out(combined.blocks, title=texts[0])
    scripts = html.lay_out(hostile_blocks("name"), title="name").count("<script")
    with opened(written) as tab:
        tab.scroll()

        assert tab.page.evaluate("window.ran") is None
        assert (tab.requests, tab.messages, tab.broken) == ([], [], [])
        assert tab.count("script") == scripts
        assert not tab.count("img, iframe, link, base, form, input, video, object, embed, math, source")
        assert tab.count("meta") == 4
        assert tab.count("style") == 1
        assert not tab.page.evaluate(
            "[...document.querySelectorAll('*')]"
            ".some((e) => [...e.attributes].some((a) => /^on/i.test(a.name)))"
        )


def test_a_sortable_table_keeps_its_heading_on_every_sheet(tmp_path: Any) -> None:
    """Each sheet begins with the titles of the columns, ends with its number, and no doubt is left out."""
    texts = shutil.which("pdftotext")
    if texts is None:
        pytest.skip("pdftotext is not installed")
    doubts = [Notice(severity=Severity.DOUBT, code=code, text=f"Doubt {code}.") for code in "ab"]
    rows = ((f"layer {n}", f"{n}.5 ms", f"{n}%") for n in range(90))
    table = make_table("Layers", ("layer", "time>", "share>"), rows)
    (tmp_path / "a.pdf").write_bytes(pdf.lay_out([*doubts, table], title="t", foot="digits, 2026"))
    printed = subprocess.run([texts, "-layout", tmp_path / "a.pdf", "-"], capture_output=True, check=True)
    sheets = printed.stdout.decode().split("\f")[:-1]

    assert len(sheets) > 2
    assert all("share" in sheet for sheet in sheets)
    assert all(f"{number} of {len(sheets)}" in sheet for number, sheet in enumerate(sheets, 1))
    assert "Doubt a." in sheets[0]
