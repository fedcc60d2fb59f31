from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from modeldyno.base.report.blocks import Block, Column, Heading, Notice, Severity, Table, make_columns
from modeldyno.base.report.charts import AxisScale, Plot, Series
from modeldyno.base.views.python_wording import translate_doubts
from modeldyno.profiling import views
from modeldyno.reports import html
from modeldyno.reports.interface import TableLinks
from modeldyno.serving.views import page as load_page
from modeldyno.testing.reporters import DOCUMENTS, HOSTILE, full_result, hostile_result, sample_judgements
from modeldyno.testing.sample_series import a_ladder

OWN = {
    "html", "head", "meta", "title", "style", "body", "main", "div", "p", "ul", "li", "span", "strong",
    "br", "pre", "table", "caption", "thead", "tbody", "tr", "th", "td", "wbr", "figure", "figcaption", "svg",
    "rect", "line", "text", "h2", "h3", "h4", "section", "nav", "a", "footer", "details", "summary", "script",
    "code", "dl", "dt", "dd", "ol",
}  # fmt: skip
VOID = {"meta", "br", "wbr"}


class Outline(HTMLParser):
    """What a browser would build: elements, attributes, and whether they are nested well."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.scripts = 0
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.crossed: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.tags.add(tag)
        self._note(attrs)
        self.scripts += tag == "script"
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element without content."""
        self.tags.add(tag)
        self._note(attrs)

    def _note(self, attrs: list[tuple[str, str | None]]) -> None:
        """Note attributes; a link within the page is none that acts."""
        self.attributes |= {
            name for name, value in attrs if name != "href" or not (value or "").startswith("#part-")
        }

    def handle_endtag(self, tag: str) -> None:
        """Check the nesting."""
        if not self.open or self.open.pop() != tag:
            self.crossed.append(tag)

    def handle_data(self, data: str) -> None:
        """Note text."""
        self.text += data


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_names_are_no_elements(text: str) -> None:
    """A name adds no element, no attribute that acts, and closes nothing."""
    for written in (html.fragment_of(views.blocks(hostile_result(text))), html.render(hostile_result(text))):
        outline = Outline(written)

        assert outline.tags <= OWN
        assert not any(
            name.startswith("on") or name in {"href", "src", "style"} for name in outline.attributes
        )
        assert not outline.crossed
        assert not outline.open
        assert outline.scripts in {0, len(own(written))}


def own(page: str) -> list[str]:
    """Return the scripts of a page, its data among them."""
    return re.findall(r"<script[^>]*>(.*?)</script>", page, re.DOTALL)


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_elements_are_nested_well(kind: str) -> None:
    """Each kind of Result gives a page whose elements all close in order."""
    outline = Outline(html.render(DOCUMENTS[kind]()))

    assert (outline.crossed, outline.open) == ([], [])


@pytest.mark.parametrize(
    ("text", "first", "rest"),
    [
        ("first. second; ", "first.", "second; "),
        ("first; second. ", "first; second.", ""),
        ("first; second ", "first.", "Second "),
    ],
)
def test_a_long_verdict_is_set_off_behind_its_first_sentence(text: str, first: str, rest: str) -> None:
    """A verdict of one sentence is parted at its semicolon, and what follows begins with a capital."""
    more = "more " * 40
    page = html.lay_out([Notice(severity=Severity.VERDICT, text=f"{text}{more}")], title="t")

    assert f'<p class="verdict">{first} <span class="more">{rest}more' in page


def test_options_of_a_command_stay_in_one_piece() -> None:
    """A browser would break a line behind the hyphens that an option begins with."""
    page = html.lay_out(
        [Notice(severity=Severity.NOTE, text="run", log="modeldyno profile a-b --max-time 5s -o f")],
        title="t",
    )

    assert 'profile a-b <span class="option">--max-time</span> 5s <span class="option">-o</span> f' in page


def test_doubts_are_folded_under_the_worst_of_them() -> None:
    """Several doubts are one line that opens, in whatever order; one alone is read at once."""
    doubts = [Notice(severity=Severity.DOUBT, code=code, text=f"of {code}.") for code in ("drift", "steal")]
    summary = "<summary><strong>trust limited</strong>: of steal; 1 more: drift</summary>"

    assert summary in html.lay_out(doubts, title="t")
    assert "<summary>" not in html.lay_out(doubts[:1], title="t")


def test_a_doubt_without_a_name_leaves_no_gap_among_the_names() -> None:
    """One that lists further doubts of a side has none."""
    doubts = [Notice(severity=Severity.DOUBT, code=code, text="t") for code in ("drift", "", "steal")]

    assert "<summary><strong>trust limited</strong>: t; 2 more: drift</summary>" in html.lay_out(
        doubts, title="t"
    )


def test_the_policy_allows_what_is_in_the_page_and_nothing_else() -> None:
    """The policy of a page names the digests of its own style and scripts, and no other source."""
    page = html.render(full_result())
    style = page.partition("<style>")[2].partition("</style>")[0]
    data, *scripts = own(page)
    allowed = " ".join(map(digest, scripts))

    assert f"default-src 'none'; script-src {allowed}; style-src {digest(style)}; base-uri 'none'" in page
    assert json.loads(data)["pictures"]
    assert len(scripts) == 7


def digest(text: str) -> str:
    """Name text as a policy does."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_a_fragment_has_no_script() -> None:
    """What a notebook shows runs nothing."""
    assert "<script" not in html.fragment_of(views.blocks(full_result()))


def test_a_page_without_pictures_draws_nothing() -> None:
    """Where there is nothing to draw, the page does not carry what draws."""
    page = html.lay_out([Notice(severity=Severity.VERDICT, text="all is well")], title="t")

    assert len(page) < 20_000
    assert "echarts" not in page


def test_what_draws_is_what_was_built() -> None:
    """The bundle has the digest that was written when it was built, and brings its licences."""
    folder = Path(html.__file__).parent / "page"
    recorded = (folder / "echarts.sha256").read_text().split()[0]
    bundle = (folder / "echarts.js").read_bytes()

    assert hashlib.sha256(bundle).hexdigest() == recorded
    assert len(bundle) < 600_000
    assert {"Apache License", "zrender", "tslib"} <= set(
        re.findall("Apache License|zrender|tslib", (folder / "echarts.LICENSE").read_text())
    )
    assert not re.search(rb"\beval\(|new Function\(|https?://(?!www\.w3\.org/)", bundle)


def test_the_library_is_not_read_before_a_chart_comes_into_view() -> None:
    """It is text in the page, which its policy allows to be run once another script asks for it."""
    page = html.render(full_result())

    assert page.count('<script type="text/plain" id="library">') == 1
    assert "<script>" in page.partition('id="library">')[2]


def test_scripts_are_ascii() -> None:
    """Entities mean nothing inside of a script, so that none may be needed there."""
    for path in (Path(html.__file__).parent / "page").glob("*.js"):
        assert path.read_bytes().isascii(), path.name


def test_sections_are_listed() -> None:
    """A page of several parts begins with links to them."""
    blocks = (Heading(title="One"), Notice(severity=Severity.NOTE, text="a"), Heading(title="<Two>"))
    page = html.lay_out(blocks, title="t")

    assert '<a href="#part-1">One</a>' in page
    assert '<a href="#part-2">&lt;Two&gt;</a>' in page
    assert '<section id="part-2">\n<h2>&lt;Two&gt;</h2>' in page


def test_plots_stand_side_by_side() -> None:
    """Three plots that follow each other share a row; two have one each."""
    series = Series(name="s", x=(0.0, 1.0), y=(1.0, 2.0))
    plot = Plot(title="p", x=AxisScale(label="x"), y=AxisScale(label="y"), series=(series,))

    assert 'class="several"' in html.lay_out([plot] * 3, title="t")
    assert 'class="several"' not in html.lay_out([plot] * 2, title="t")


def test_it_reads_the_same_wherever_it_is_pasted() -> None:
    """A fragment is ASCII, loads nothing, and styles nothing outside itself."""
    fragment = html.fragment_of(views.blocks(hostile_result("模型")))
    style = fragment.partition("<style>")[2].partition("</style>")[0]

    assert fragment.isascii()
    assert "url(" not in style
    assert "@import" not in style
    assert all(
        rule.startswith((".modeldyno", "@media", "}"))
        for rule in re.findall(r"^[.@}\w].*\{", style, re.MULTILINE)
    )


def test_the_histogram_is_told_to_who_cannot_see_it() -> None:
    """A drawing has a label that says where its weight lies, and each bar says what it counts."""
    page = html.render(full_result())

    assert (
        'role="img" aria-label="Histogram of latency from 320 us to 620 us; the fullest bin, '
        '400 us to 420 us, has 565 of 2,399 calls; 11 lie above."'
    ) in page
    assert "<title>400 us to 420 us: 565</title>" in page
    assert "<title>above 620 us: 11</title>" in page


def test_a_sign_has_a_name() -> None:
    """A verdict is told by its word, not by its colour alone."""
    document = full_result()
    page = html.render(document, judgements=sample_judgements(document))

    assert 'role="img" aria-label="broken"' in page


def test_a_notebook_shows_a_result() -> None:
    """A Result shows itself in a notebook as its fragment, with the words of Python."""
    result = full_result()

    reworded = replace(result, doubts=translate_doubts(result.doubts))
    assert result._repr_html_() == html.fragment_of(views.blocks(reworded))


def test_cells_of_a_site_lead_somewhere() -> None:
    """By the title of their column and their text; states are chips, and rows can be ticked."""
    table = Table(
        title="", columns=(Column(title="id"), Column(title="state")), rows=(("a<b", "fresh"), ("c", "x"))
    )
    links = TableLinks(
        links={"id": {"a<b": "/results/a%3Cb?x=1&y=2"}, "state": {"c": "/never"}},
        chips={"fresh": Severity.HELD},
        boxes={"c": 'c"'},
        form="f",
        box="with",
    )

    text = html.write_body([table], links).elements

    assert '<a href="/results/a%3Cb?x=1&amp;y=2">a&lt;b</a>' in text
    assert '<span class="chip held">fresh</span>' in text
    assert '<input type="checkbox" form="f" name="with" value="c&quot;" aria-label="c"> c' in text
    assert "/never" not in text
    assert text.count("<input") == 1


def test_a_cell_leads_to_what_another_cell_of_its_row_names() -> None:
    """Rows that read alike lead to different documents; times say when, and what few need is faint."""
    table = Table(
        title="",
        columns=make_columns("model", "when", "id"),
        rows=(("net · batch 1", "2026-01-02 03:04", "aa"), ("net", "", "bb")),
    )
    links = TableLinks(
        links={"model": {"aa": "/results/aa", "bb": "/results/bb"}},
        found_by={"model": "id"},
        times=("when",),
        faint=("id",),
        boxes={"aa": "a"},
        form="f",
        box="with",
    )

    text = html.write_body([table], links).elements

    assert '<a href="/results/aa">net<span class="settings"> &#183; batch 1</span></a>' in text
    assert '<a href="/results/bb">net</a>' in text
    assert text.count("<time ") == 1
    assert '<time datetime="2026-01-02T03:04Z">2026-01-02 03:04</time>' in text
    assert '<td class="faint">aa</td>' in text
    assert 'value="a" aria-label="net &#183; batch 1, aa"' in text


def test_titles_that_begin_alike_stand_below_a_common_one() -> None:
    """A title of its own kind, or one that nothing else begins with, keeps its column."""
    columns = make_columns("model", "here: p50>", "here: p99>", "state")
    grouped = html.lay_out([Table(title="", columns=columns, rows=(("a", "1", "2", "x"),))], title="t")
    single = html.lay_out([Table(title="", columns=columns[:2], rows=(("a", "1"),))], title="t")

    assert '<th scope="colgroup" colspan="2" class="group">here</th><td colspan="1"></td>' in grouped
    assert '<th scope="col" class="right place2"><span class="of">here: </span>p50</th>' in grouped
    assert '<th scope="col" class="right">here: p50</th>' in single


def test_a_phone_has_three_columns_of_a_table_as_columns() -> None:
    """Two with figures, else two with little text; the others stand below them with their titles."""
    words = "a sentence that is long"
    figures = Table(
        title="", columns=make_columns("m", "a", "b>", "c>", "d>"), rows=(("m", "x", "1", "2", "3"),)
    )
    short = Table(title="", columns=make_columns("m", "a", "b", "c"), rows=(("m", words, "1", "2"),))

    assert 'class="left below">a</th><th scope="col" class="right place2">b</th>' in html.lay_out(
        [figures], title="t"
    )
    assert '<td class="place2" data-label="b">1</td><td class="place3" data-label="c">2</td>' in html.lay_out(
        [short], title="t"
    )


def test_a_folded_table_shows_its_title_and_its_number_of_rows() -> None:
    """Until somebody opens it."""
    table = Table(title="Unchanged", columns=make_columns("a", "b"), rows=(("1", "2"),) * 3, folded=True)

    text = html.lay_out([table], title="t")

    assert '<details class="folded"><summary>Unchanged <span>(3)</span></summary>' in text
    assert "<caption>" not in text


def test_what_to_try_is_a_card() -> None:
    """With its gain, its command or advice, and its risk."""
    card = Notice(severity=Severity.NOTE, code="batch", text="Why.", gain="saves 9%", risk="none")
    text = html.lay_out(
        [replace(card, advice="modeldyno profile m --set x=1"), replace(card, advice="do it", risk=""), card],
        title="t",
    )

    assert text.count('<p class="gain">saves 9%</p>') == 3
    assert (
        '<pre class="command" tabindex="0"><code>modeldyno profile m <span class="option">--set</span>'
        in text
    )
    assert "<p>do it</p>" in text
    assert text.count('<p class="risk">none</p>') == 2


def test_a_page_of_a_site_names_what_it_loads() -> None:
    """Its files are those of a report; charts need those that draw them."""
    files = html.page_files()
    plain, charted = html.write_body([]), html.write_body(load_page.page(a_ladder()))

    assert plain.scripts == ("tables.js", "copy.js")
    assert plain.charts == plain.contents == ""
    assert {*charted.scripts, charted.library} < set(files)
    assert (plain.library, charted.library) == ("", "echarts.js")
    assert json.loads(charted.charts)["pictures"]
    assert ".modeldyno" in files["report.css"]
    assert charted.contents.startswith('<nav aria-label="Contents">')


@pytest.mark.parametrize(("text", "is_cards"), [("128 MiB", False), ("multiply-accumulates of a call", True)])
def test_a_sentence_in_the_third_column_does_not_lie_beside_a_phone(text: str, is_cards: bool) -> None:
    """A table with one is shown as cards there; with figures alone it fits."""
    table = Table(title="t", columns=make_columns("metric", "value>", "meaning"), rows=(("macs", "3", text),))

    assert ('class="figures cards"' in html.lay_out([table], title="t")) is is_cards


def test_each_sheet_of_paper_has_a_foot() -> None:
    """It says of what and of when the page is, in a string that nothing in a name can end, and its number."""
    page = html.lay_out([], title="t", foot='digits "}</style>\\ 模型, 2026')
    document = full_result()

    assert r'@bottom-left{content:"digits \22 \7d \3c \2f style\3e \5c  \6a21 \578b , 2026"' in page
    assert "@bottom-right{content:counter(page)" in page
    assert f'content:"{document.name}, {document.created[:10]} ' in html.render(document)


def test_paper_shows_what_is_folded_and_repeats_headings() -> None:
    """Folded doubts are read on paper; Chromium repeats no heading that has a button in it."""
    paper = html.lay_out([], title="t").partition("@media print")[2]

    for folded in (".doubts", ".folded"):
        assert re.search(rf"{folded}::details-content[^{{]*{{content-visibility:visible", paper)
    assert "thead th button{display:contents}" in paper


def test_a_folded_part_opens_when_a_link_leads_to_it() -> None:
    """The place that the contents link to is within it, its title stands in the line that opens it."""
    note_ = Notice(severity=Severity.NOTE, text="within")
    parts: list[Block] = [Heading(title="Open"), note_, Heading(title="Shut", folded=True), note_]

    page = html.lay_out(parts, title="t")

    assert '<section id="part-1">\n<h2>Open</h2>' in page
    assert '<details class="folded part"><summary><h2>Shut</h2></summary>\n<div id="part-2">' in page
    assert 'href="#part-2">Shut</a>' in page


def test_a_page_begins_with_whose_it_is() -> None:
    """Its foot, which stands on each sheet of paper, too, without markup of its own."""
    page = html.lay_out([], title="t", foot="digits <b>, 2026")

    assert '<p class="subject">digits &lt;b&gt;, 2026</p>' in page
    assert '<p class="subject">' not in html.lay_out([], title="t")
