"""Which operators of a network the nodes of a runtime do, and what they cost."""

from __future__ import annotations

from modeldyno.models.flops import CountedOp
from modeldyno.models.static.fused_nodes import (
    NodeNames,
    find_original_operators,
    sum_costs_by_name,
    sum_costs_by_node,
)
from modeldyno.models.static.graph import Graph, Op, Role, Storage, Tensor

FILE: tuple[NodeNames, ...] = (
    ("conv", ("x", "w"), ("a",)),
    ("relu", ("a",), ("b",)),
    ("pool", ("b",), ("c",)),
    ("gemm", ("c", "v"), ("d",)),
    ("act", ("d",), ("y",)),
)


def test_a_node_does_what_gives_the_same_and_what_is_within() -> None:
    """What was fused is told by what comes out, another layout by the name; bringing it back is nothing."""
    rewritten: tuple[NodeNames, ...] = (
        ("b_nchwc", ("x", "w"), ("reorder_0",)),
        ("c_nchwc", ("reorder_0",), ("reorder_1",)),
        ("ReorderOutput", ("reorder_1",), ("c",)),
        ("fused gemm", ("c", "v"), ("y",)),
    )
    assert find_original_operators(FILE, rewritten) == {
        "b_nchwc": ("a", "b"),
        "c_nchwc": ("c",),
        "fused gemm": ("d", "y"),
    }


def test_what_nobody_does_is_nobodys() -> None:
    """An operator whose result nothing takes, and a node that gives nothing, belong to none."""
    assert find_original_operators((*FILE[:1], ("end", ("a",), ())), ()) == {}


def test_costs_go_by_name_and_add_up() -> None:
    """Calls of one name are summed, a weight once in each; a node with an unknown operator has no cost."""
    weight = Tensor((4, 4), "float32", storage=0)
    x = Tensor((1, 4), "float32", storage=1)
    arguments = {"x": x, "w": weight, "again": weight, "constant": Tensor((2,), "int64")}
    op = Op("onnx.MatMul", arguments, (x,), name="a")
    graph = Graph(
        ops=(op, op, Op("onnx.Relu", {"x": x}, (x,), name="b"), Op("onnx.Relu", {"x": x}, (x,))),
        storages=(Storage(64, Role.WEIGHT, -1), Storage(16, Role.INPUT, -1)),
    )
    count = CountedOp(16, 2, 0, 80, 16)
    costs = sum_costs_by_name(graph, (count, count, CountedOp(0, 4, 0, 0, 0), CountedOp(0, 0, 0, 0, 0)))

    assert costs["a"] == {
        "macs": 32, "flops": 68, "bytes_read": 160, "bytes_written": 32, "weight_bytes": 128,
    }  # fmt: skip
    assert set(costs) == {"a", "b"}
    assert sum_costs_by_node({"Fused": ("a", "b"), "Odd": ("a", "z"), "New": ()}, costs) == {
        "Fused": {**costs["a"], "flops": 72},
    }
