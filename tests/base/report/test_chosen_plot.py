"""A chart that a user chose, as text and as parts."""

from __future__ import annotations

import pytest

from modeldyno.base.errors import RequestError
from modeldyno.base.report.chosen_plot import ChosenPlot, parse_plot


def test_a_plot_is_read_from_text() -> None:
    """It needs x and y; a title and monotonic may follow."""
    plot = parse_plot("x=latency.p99, y=throughput, title=Mine, monotonic")

    assert plot == ChosenPlot(x="latency.p99", y="throughput", title="Mine", monotonic=True)
    assert str(plot) == "Mine"
    assert str(parse_plot("x=concurrency,y=power.mean,monotonic=false")) == "power.mean against concurrency"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x=latency.p99", "it needs x and y"),
        ("x=a,y=b,z=c", "there is no 'z' in a plot"),
        ("x=a,y=b,monotonic=perhaps", "monotonic is true or false, not perhaps"),
    ],
)
def test_a_wrong_plot_is_refused(text: str, says: str) -> None:
    """With what is wrong about it."""
    with pytest.raises(RequestError, match=says):
        parse_plot(text)
