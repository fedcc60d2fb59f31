"""A network as rows in frames."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from modeldyno.base.errors import UnknownName
from modeldyno.base.metrics.measurement import Measurement
from modeldyno.base.result.static_data import Module, ModuleJoin, ModuleLink, StaticReport
from modeldyno.profiling.views.result.network import build_network, network_table, weight
from modeldyno.testing.sample_results import a_result, an_inspection

if TYPE_CHECKING:
    from modeldyno.base.result.result import Result

PARTS = ("a", "b", "act")


def a_deep_result(blocks: int = 3, *, timed: bool = False, equal: bool = True) -> Result:
    """A stem, blocks with a residual connection each, and a head."""
    modules, links, joins, macs = {"": "Net", "stem": "Linear"}, [("", "stem")], [], {"stem": 5}
    before = "stem"
    for at in range(blocks):
        path = f"layer.{at}"
        modules[path] = "Block"
        for part in PARTS:
            modules[f"{path}.{part}"] = "Linear"
            macs[f"{path}.{part}"] = 10 if equal else 10 + at
        joins.append(ModuleJoin(name=f"join {at + 1}", scope=path, kind="aten.add"))
        links += [(before, f"{path}.a"), (f"{path}.a", f"{path}.b"), (f"{path}.b", joins[-1].name)]
        links += [(before, joins[-1].name), (joins[-1].name, f"{path}.act")]
        before = f"{path}.act"
        macs[path] = sum(macs[f"{path}.{part}"] for part in PARTS)
    modules["head"], macs["head"] = "Linear", 5
    macs[""] = sum(v for path, v in macs.items() if path.count(".") != 2)
    links += [(before, "head"), ("head", "")]
    measurements = [Measurement(metric="macs", value=value, scope=path) for path, value in macs.items()]
    if timed:
        measurements += [
            Measurement(metric=metric, value=float(value), scope=path)
            for path, value in macs.items()
            if path.count(".") != 1
            for metric in ("latency", "self_time")
        ]
    return an_inspection(
        outline=StaticReport(
            modules=tuple(Module(path=path, kind=kind) for path, kind in modules.items()),
            links=tuple(ModuleLink(source=source, target=target) for source, target in links),
            joins=tuple(joins),
        ),
        measurements=tuple(measurements),
    )


def labels(result: Result, inside: str = "") -> list[str]:
    """The rows of a network by name."""
    network = build_network(result, inside)
    assert network is not None
    return [f"{row.count}x {row.label}" if row.count > 1 else row.label for row in network.rows]


def test_equal_blocks_are_one_frame_with_the_joins_where_they_run() -> None:
    """Of three blocks one is drawn; the residual connection goes round what it skips."""
    network = build_network(a_deep_result())
    assert network is not None

    assert [row.label for row in network.rows] == ["stem", "a", "b", "add", "act", "head"]
    assert [(frame.label, frame.count, frame.first, frame.last) for frame in network.frames] == [
        ("layer.0-2", 3, 1, 4)
    ]
    assert network.links == ((-1, 0), (0, 1), (1, 2), (2, 3), (0, 3), (3, 4), (4, 5), (5, 6))
    assert network.sources(3) == ("b", "stem")


def test_a_deep_network_is_folded_until_it_fits() -> None:
    """Thirty unlike blocks are thirty rows, not a hundred and fifty, and each can be opened."""
    result = a_deep_result(30, equal=False)

    assert len(labels(result)) == 32
    assert labels(result, "layer.7") == ["a", "b", "add", "act"]
    network = build_network(result, "layer.7")
    assert network is not None
    assert network.links == ((-1, 0), (0, 1), (1, 2), (-1, 2), (2, 3), (3, 4))


def test_a_frame_of_a_hundred_shows_forty() -> None:
    """The others are one row with their sum."""
    result = a_deep_result(100, equal=False)

    drawn_labels = labels(result)

    assert len(drawn_labels) == 41
    assert drawn_labels[-1] == "62 more"


def test_the_bar_is_the_share_of_the_time_where_it_was_measured() -> None:
    """Else that of the MACs."""
    plain, timed = build_network(a_deep_result()), build_network(a_deep_result(timed=True))
    assert plain is not None
    assert timed is not None

    assert weight(plain, plain.rows[0]) == pytest.approx(5 / 100)
    assert timed.rows[0].seconds == pytest.approx(5.0)
    assert timed.rows[1].seconds == pytest.approx(30.0)  # of all three blocks
    assert weight(timed, timed.rows[1]) == pytest.approx(30.0 / (timed.seconds or 1))


def test_the_table_tells_what_the_drawing_shows() -> None:
    """Each frame and row, with what it gets."""
    network = build_network(a_deep_result())
    assert network is not None

    table = network_table(network)

    assert table.columns[0].title == "module"
    assert [row[0] for row in table.rows] == [
        "stem", "3 x layer.0-2", "· a", "· b", "· add", "· act", "head",
    ]  # fmt: skip
    assert table.rows[4][2] == "b, stem"


def test_without_links_the_rows_follow_each_other() -> None:
    """As in documents of before they were kept."""
    result = a_deep_result(1)
    assert result.outline is not None
    network = build_network(replace(result, outline=replace(result.outline, links=(), joins=())))
    assert network is not None

    assert network.links == tuple((at - 1, at) for at in range(len(network.rows) + 1))


def test_a_module_that_is_not_there_is_refused() -> None:
    """The message names one that is."""
    with pytest.raises(UnknownName, match=r"layer\.0"):
        build_network(a_deep_result(1), "layer.9")


def test_a_result_without_modules_has_no_network() -> None:
    """Nothing is drawn of what was not analysed."""
    assert build_network(a_result()) is None
