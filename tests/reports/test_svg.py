from __future__ import annotations

import pytest

from modeldyno.reports import png, svg
from modeldyno.testing.reporters import ReporterSuite, failed_result, full_result

pytest.importorskip("matplotlib")


class TestSvg(ReporterSuite):
    name = "svg"


@pytest.mark.slow
class TestPng(ReporterSuite):
    name = "png"


def test_the_first_chart_is_drawn() -> None:
    """Of a failed run, which has none, the sentence that says why."""
    assert b"p50" in svg.render(full_result())
    assert b"<title>Latency</title>" in svg.render(full_result())
    assert b"out of memory" in svg.render(failed_result())


def test_a_png_is_sharp_on_dense_screens() -> None:
    """It has 1,520 dots across."""
    assert int.from_bytes(png.render(full_result())[16:20], "big") == 1520
