"""The work of an analysis is linear in what is in the file, however it is nested."""

from __future__ import annotations

import sys
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from modeldyno.base import plugins
from modeldyno.base.errors import RequestError
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.base.job.static_options import Mode
from modeldyno.models.interface import Tracing
from modeldyno.models.loaders.unrolling import Unrolling

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import FrameType

onnx = pytest.importorskip("onnx")
F32 = 1


def value(name: str) -> Any:
    return onnx.helper.make_tensor_value_info(name, F32, [4])


def graph_of(nodes: list[Any], output: str, inputs: tuple[Any, ...] = ()) -> Any:
    return onnx.helper.make_graph(nodes, "g", list(inputs), [value(output)])


def condition() -> Any:
    return onnx.helper.make_tensor_value_info("c", 9, [])


def one_node(kind: str, inputs: list[str], output: str, **attributes: Any) -> Any:
    return onnx.helper.make_node(kind, inputs, [output], **attributes)


def nested_ifs(depth: int) -> Any:
    """An If in the branch of an If, and so on."""
    inner = graph_of([one_node("Relu", ["x"], "r")], "r")
    for level in range(depth):
        other = graph_of([one_node("Neg", ["x"], f"n{level}")], f"n{level}")
        nodes = [one_node("If", ["c"], f"i{level}", then_branch=inner, else_branch=other)]
        inner = graph_of(nodes, f"i{level}")
    return onnx.helper.make_model(graph_of(list(inner.node), inner.output[0].name, (value("x"), condition())))


def many_ifs(count: int) -> Any:
    """One If after another, each with a constant of its own."""
    nodes = []
    for number in range(count):
        shift = onnx.helper.make_node(
            "Constant", [], [f"k{number}"], value=onnx.helper.make_tensor("", F32, [4], [1.0] * 4)
        )
        branches = {
            name: graph_of(
                [shift, one_node(kind, [f"v{number}", f"k{number}"], f"{kind}{number}")], f"{kind}{number}"
            )
            for name, kind in (("then_branch", "Add"), ("else_branch", "Mul"))
        }
        nodes.append(one_node("If", ["c"], f"v{number + 1}", **branches))
    nodes.insert(0, one_node("Relu", ["x"], "v0"))
    return onnx.helper.make_model(graph_of(nodes, f"v{count}", (value("x"), condition())))


def chained_functions(count: int) -> Any:
    """A function that calls another, and so on."""
    opsets = [onnx.helper.make_opsetid("", 20), onnx.helper.make_opsetid("own", 1)]
    functions = [onnx.helper.make_function("own", "f0", ["a"], ["b"], [one_node("Relu", ["a"], "b")], opsets)]
    for number in range(1, count):
        call = one_node(f"f{number - 1}", ["a"], "b", domain="own")
        functions.append(onnx.helper.make_function("own", f"f{number}", ["a"], ["b"], [call], opsets))
    main = graph_of([one_node(f"f{count - 1}", ["x"], "y", domain="own")], "y", (value("x"),))
    return onnx.helper.make_model(main, functions=functions, opset_imports=opsets)


def inspected(model: Any, folder: Path) -> None:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    loaded = plugins.loader("onnx").load(ModelRef(scheme="onnx", locator=str(path)), seed=0, trust=False)
    assert loaded.weights is not None
    assert loaded.graph is not None
    list(loaded.weights())
    loaded.graph(Tracing(mode=Mode.INFERENCE, inputs=loaded.inputs, sizes={}))


def calls(work: Callable[[], object]) -> int:
    """Count the calls of Python functions."""
    count = 0

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [(nested_ifs, (12, 18, 24)), (many_ifs, (100, 200, 300)), (chained_functions, (16, 32, 48))],
)
def test_the_work_grows_as_the_file_does(
    kind: Callable[[int], Any], sizes: tuple[int, ...], tmp_path: Path
) -> None:
    """Equal steps of size cost about equally many calls, in every kind of nesting."""
    inspected(kind(2), tmp_path)  # imports, and what is remembered
    counts = [calls(lambda size=size: inspected(kind(size), tmp_path)) for size in sizes]  # type: ignore[misc]
    steps = [after - before for before, after in pairwise(counts)]
    assert max(steps) < 1.5 * min(steps)


def test_unrolling_ends_at_its_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a sentence: too many operators, and bodies that are nested too deep."""
    monkeypatch.setattr("modeldyno.models.loaders.unrolling._MOST", 10)
    unrolling = Unrolling()
    unrolling.step(10)
    with pytest.raises(RequestError, match="more than 10 operators once its loops"):
        unrolling.step()

    def nest() -> None:
        with unrolling.body():
            nest()

    with pytest.raises(RequestError, match="nested more than 64 deep"):
        nest()
    assert unrolling.depth == 0
