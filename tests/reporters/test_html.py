from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest

from modeldyno.reporters import html
from modeldyno.testing.reporters import DOCUMENTS, HOSTILE, full, hostile, judged

OWN = {
    "html", "head", "meta", "title", "style", "body", "main", "div", "p", "ul", "li", "span", "strong",
    "br", "pre", "table", "caption", "thead", "tbody", "tr", "th", "td", "wbr", "figure", "figcaption", "svg",
    "rect", "line", "text",
}  # fmt: skip
VOID = {"meta", "br", "wbr"}


class Outline(HTMLParser):
    """What a browser would build: elements, attributes, and whether they are nested well."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.crossed: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element without content."""
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

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
    for written in (html.fragment(hostile(text)), html.render(hostile(text))):
        outline = Outline(written)

        assert outline.tags <= OWN
        assert not any(
            name.startswith("on") or name in {"href", "src", "style"} for name in outline.attributes
        )
        assert not outline.crossed
        assert not outline.open


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_elements_are_nested_well(kind: str) -> None:
    """Each kind of Result gives a page whose elements all close in order."""
    outline = Outline(html.render(DOCUMENTS[kind]()))

    assert (outline.crossed, outline.open) == ([], [])


def test_the_policy_allows_this_style_and_nothing_else() -> None:
    """The content-security policy of a page names the hash of its own style, and no other source."""
    page = html.render(full())
    style = page.partition("<style>")[2].partition("</style>")[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()

    assert f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'" in page
    assert "script" not in page


def test_it_reads_the_same_wherever_it_is_pasted() -> None:
    """A fragment is ASCII, loads nothing, and styles nothing outside itself."""
    fragment = html.fragment(hostile("模型"))
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
    page = html.render(full())

    assert (
        'role="img" aria-label="Histogram of latency from 320 us to 620 us; most calls, '
        '565 of 2,388, lie from 400 us to 420 us."'
    ) in page
    assert "<title>400 us to 420 us: 565</title>" in page


def test_a_sign_has_a_name() -> None:
    """A verdict is told by its word, not by its colour alone."""
    document = full()
    page = html.render(document, judgements=judged(document))

    assert 'role="img" aria-label="broken"' in page


def test_a_notebook_shows_a_result() -> None:
    """A Result shows itself in a notebook as its fragment."""
    assert full()._repr_html_() == html.fragment(full())
