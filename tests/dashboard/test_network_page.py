"""The page of a network."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.dashboard.conftest import HOSTILE, INSPECTED, put, visitor_of

from modeldyno.base import plugins
from modeldyno.base.result.static_data import Module
from modeldyno.dashboard.diagram import Arrow, Box, Diagram, write_svg
from modeldyno.testing.sample_results import an_inspection, an_outline

if TYPE_CHECKING:
    from pathlib import Path

    from tests.dashboard.conftest import Visitor


def test_a_network_is_drawn_and_told(visitor: Visitor) -> None:
    """Boxes with shapes and MACs, the same in a table, and modules that open without scripts."""
    text = visitor.read(f"/results/{INSPECTED}/network")

    drawing = text.partition('class="diagram')[2].partition("</svg>")[0]
    assert "1x128x384 float32 · " in drawing
    assert " MACs" in drawing
    assert "Module by module" in text
    assert f'<a href="/results/{INSPECTED}/network' in drawing
    assert f'<a href="/results/{INSPECTED}/network">Network</a>' in visitor.read(f"/results/{INSPECTED}")


def test_every_module_that_can_be_opened_opens(visitor: Visitor) -> None:
    """Each link of a drawing leads to a page, and so do those there."""
    waiting, opened = [f"/results/{INSPECTED}/network"], set[str]()
    while waiting:
        path = waiting.pop()
        opened.add(path)
        links = re.findall(r'<a href="(/results/[^"]*/network[^"]*)"', visitor.read(path))
        waiting += [link for link in dict.fromkeys(links) if link not in opened and link not in waiting]

    assert len(opened) > 2


def test_what_is_not_there_is_told(visitor: Visitor) -> None:
    """A module that is none, and a result without modules."""
    wrong = visitor.get(f"/results/{INSPECTED}/network?in=nowhere")
    without = visitor.get("/results/010101010101/network")

    assert (wrong.status_code, without.status_code) == (404, 404)
    assert "nowhere" in wrong.text
    assert "the probe static analyses them" in without.text


def test_a_hostile_name_stays_text(tmp_path: Path) -> None:
    """In the drawing, in its hints and in its links."""
    with plugins.store(f"sqlite:///{tmp_path}/store.db") as store:
        named = tuple(
            Module(path=module.path.replace("layer", HOSTILE), kind=HOSTILE, output=HOSTILE)
            for module in an_outline().modules
        )
        outline = an_outline()
        put(store, an_inspection(outline=type(outline)(modules=named)))
        text = visitor_of(store).read("/results/0123456789ab/network")

    assert "<script>alert" not in text
    assert "<img" not in text


def test_a_text_that_is_too_long_for_its_box_is_cut() -> None:
    """The whole of it is in the hint."""
    box = Box(x=0, y=0, width=100, height=40, title="t" * 50, notes=("n" * 50,))
    drawn = write_svg(
        Diagram(
            title="x",
            width=100,
            height=40,
            boxes=(box,),
            arrows=(Arrow(points=((0, 0), (9, 0)), label="as <onnx>"),),
        )
    )

    assert "t" * 51 not in drawn
    assert "t" * 10 + "…" in drawn
    assert f"<title>{'t' * 50}, {'n' * 50}</title>" in drawn
    assert "as &lt;onnx&gt;" in drawn


def test_the_page_of_a_model_draws_where_its_versions_come_from(visitor: Visitor) -> None:
    """The second version below the first, with the variant that differs."""
    text = visitor.read("/models/digits")

    drawing = text.partition('class="diagram')[2].partition("</svg>")[0]
    assert "onnx-int8" in drawing
    assert drawing.index("digits/1") < drawing.index("digits/2")
    assert drawing.count('class="arrow"') == 3
    assert [row["recipe"] for row in visitor.json("/models/digits")["lineage"]] == ["", "onnx-int8"] * 2
