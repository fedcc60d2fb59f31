from __future__ import annotations

import importlib
import pkgutil
import random
import time
import warnings
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.support import tiny_onnx as models

from modeldyno.base import plugins
from modeldyno.base.errors import RequestError
from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.base.job.static_options import Mode
from modeldyno.models.flops import Count, count_op, macs_upper_bound
from modeldyno.models.flops.onnx import ONNX
from modeldyno.models.interface import Tracing
from modeldyno.models.loaders import onnx as loader
from modeldyno.models.loaders.onnx_tracing.constant_folding import RULES, evaluate
from modeldyno.models.loaders.onnx_tracing.graph import trace_onnx_model
from modeldyno.models.loaders.onnx_tracing.nodes import read_main_body
from modeldyno.models.loaders.onnx_tracing.walk import GraphWalk
from modeldyno.models.static.graph import Graph, Op, Role, Tensor
from modeldyno.models.static.totals import sum_totals

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from modeldyno.models.interface import Model

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
Shape = "Sequence[int | str]"


def read_model(path: Path) -> Model:
    return loader.look(ModelRef(scheme="onnx", locator=str(path)), seed=0, trust=False)


def at(model: Model, **sizes: int) -> Graph:
    """Analyse a model at some sizes; dimensions without one are 2."""
    bound = {d: sizes.get(d, 2) for spec in model.inputs for d in spec.shape or () if isinstance(d, str)}
    inputs = tuple(
        InputSpec(
            name=spec.name,
            shape=tuple(bound[d] if isinstance(d, str) else d for d in spec.shape or ()),
            dtype=spec.dtype,
        )
        for spec in model.inputs
    )
    assert model.graph is not None
    return model.graph(Tracing(inputs=inputs, sizes=bound))


def proto(
    nodes: Sequence[Any],
    inputs: Mapping[str, tuple[int, Any]],
    outputs: Sequence[str],
    weights: Mapping[str, Any] | None = None,
    **named: Any,
) -> Any:
    """Build a model of nodes."""
    made = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, *kind) for name, kind in inputs.items()],
        [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in (weights or {}).items()],
    )
    opsets = [
        helper.make_opsetid("", 21),
        helper.make_opsetid("com.microsoft", 1),
        helper.make_opsetid("own", 1),
    ]
    return helper.make_model(made, opset_imports=opsets, **named)


def body(nodes: Sequence[Any], inputs: Sequence[str], outputs: Sequence[str]) -> Any:
    """Build a branch or a loop body; its inputs have no types."""
    return helper.make_graph(
        nodes,
        "body",
        [helper.make_empty_tensor_value_info(name) for name in inputs],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
    )


def node(kind: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    return helper.make_node(kind, inputs.split(), outputs.split(), **attributes)


def traced(model: Any, **sizes: int) -> Graph:
    return trace_onnx_model(model, Tracing(inputs=(), sizes=sizes))


def kinds(graph: Graph) -> list[str]:
    return [op.kind.removeprefix("onnx.") for op in graph.ops]


def shapes(op: Op) -> list[tuple[int, ...]]:
    return [tensor.shape for tensor in op.outputs]


def macs(graph: Graph) -> int:
    return sum(count_op(op, ONNX).macs for op in graph.ops)


# -- a plain network --------------------------------------------------------------------------------


def test_network_of_two_layers(tmp_path: Path) -> None:
    """Operators, shapes, arguments and MACs of a small network are those that it was written with."""
    result = at(read_model(models.mlp(tmp_path)), batch=3)
    assert kinds(result) == ["MatMul", "Add", "Relu", "MatMul"]
    assert [shapes(op) for op in result.ops] == [[(3, 8)], [(3, 8)], [(3, 8)], [(3, 2)]]
    assert result.ops[0].tensor("A").shape == (3, 4)
    assert macs(result) == 3 * (4 * 8 + 8 * 2)
    assert result.sizes == {"batch": 3}
    assert result.modules == {"": ""}
    assert result.assumptions == ()


def test_lifetimes(tmp_path: Path) -> None:
    """Weights and inputs live all the time, results from their operator to their last use."""
    result = at(read_model(models.mlp(tmp_path)), batch=3)
    weights = [s for s in result.storages if s.role is Role.WEIGHT]
    assert [s.bytes for s in weights] == [128, 32, 64]
    assert all((w.born, w.died) == (-1, None) for w in weights)
    (input_storage,) = (s for s in result.storages if s.role is Role.INPUT)
    assert (input_storage.bytes, input_storage.born, input_storage.died) == (48, -1, None)
    results = [s for s in result.storages if s.role is Role.ACTIVATION]
    assert [(s.born, s.died, s.output) for s in results] == [
        (0, 2, False), (1, 3, False), (2, 4, False), (3, None, True),
    ]  # fmt: skip
    assert sum_totals(result, [count_op(op, ONNX) for op in result.ops]).activation_peak == 2 * 3 * 8 * 4


def test_sizes_bind_symbols(tmp_path: Path) -> None:
    """The same file is analysed at any sizes of its symbolic dimensions."""
    model = read_model(models.embedding(tmp_path))
    for batch, length in ((1, 7), (4, 3)):
        result = at(model, batch=batch, sequence_length=length)
        assert shapes(result.ops[-1]) == [(batch, 3)]
        rows = next(op for op in result.ops if op.kind == "onnx.Gather")
        assert count_op(rows, ONNX).read == batch * length * (3 * 4 + 4)


def test_views_share_memory() -> None:
    """A view has no storage of its own; its memory is freed after the last view."""
    nodes = [
        node("Relu", "x", "a"),
        node("Flatten", "a", "b"),
        node("Unsqueeze", "b axes", "c"),
        node("Dropout", "c", "d mask"),
        node("Neg", "d", "y"),
    ]
    result = traced(proto(nodes, {"x": (FLOAT, [2, 3, 4])}, ["y"], {"axes": [0]}))
    places = [op.outputs[0].storage for op in result.ops]
    assert places[0] == places[1] == places[2] == places[3] != places[4]
    assert result.storages[places[0]].died == 5
    assert shapes(result.ops[2]) == [(1, 2, 12)]
    assert result.ops[2].arguments["axes"] == (0,)


def test_arithmetic_of_shapes_is_no_operator() -> None:
    """The computation of a Reshape's shape is evaluated, and is not among the operators."""
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s zero", "n"),
        node("Mul", "n two", "m"),
        node("Unsqueeze", "m zero1", "u"),
        node("Concat", "u minus", "t", axis=0),
        node("Reshape", "x t", "y"),
    ]
    weights = {"zero": np.int64(0), "two": np.int64(2), "zero1": [0], "minus": [-1]}
    result = traced(proto(nodes, {"x": (FLOAT, ["n", 6])}, ["y"], weights), n=5)
    assert kinds(result) == ["Reshape"]
    assert shapes(result.ops[0]) == [(10, 3)]
    assert result.ops[0].arguments["shape"] == (10, -1)


def test_positions_made_at_run_time_are_operators() -> None:
    """Tensors that grow with the input, such as positions, are operators, and still known to what follows."""
    nodes = [
        node("Shape", "x", "n", start=0, end=1),
        node("Squeeze", "n", "stop"),
        node("Range", "zero stop one", "positions"),
        node("Gather", "table positions", "y"),
        node("ConstantOfShape", "n", "ones", value=helper.make_tensor("v", FLOAT, [1], [1])),
        node("NonZero", "ones", "found"),
    ]
    weights = {"zero": np.int64(0), "one": np.int64(1), "table": np.zeros((99, 8), np.float32)}
    result = traced(proto(nodes, {"x": (FLOAT, ["n"])}, ["y"], weights), n=20)
    assert kinds(result) == ["Range", "Gather", "ConstantOfShape", "NonZero"]
    assert [shapes(op) for op in result.ops] == [[(20,)], [(20, 8)], [(20,)], [(1, 20)]]
    assert result.assumptions == ()


def test_shapes_that_depend_on_data() -> None:
    """Sizes that depend on data are bounded, and noted; declared sizes need no bound."""
    nodes = [node("NonZero", "x", "y"), node("Compress", "x c", "z", axis=1), node("Reshape", "x s", "w")]
    model = proto(nodes, {"x": (FLOAT, [3, 4]), "c": (BOOL, [2]), "s": (INT64, [2])}, ["y"])
    result = traced(model)
    assert [shapes(op) for op in result.ops] == [[(2, 12)], [(3, 2)], [(1, 1)]]
    assert result.assumptions == (
        "onnx.NonZero is assumed to find as many elements as possible (y)",
        "onnx.Compress is assumed to find as many elements as possible (z)",
        "onnx.Reshape has outputs whose sizes depend on data; taken as 1 (w)",
    )
    model.graph.value_info.append(helper.make_tensor_value_info("w", FLOAT, [6, 2]))
    assert shapes(traced(model).ops[2]) == [(6, 2)]


def test_boxes_left_at_most() -> None:
    """Suppression leaves the requested number of boxes per class, or all that there are."""
    nodes = [node("NonMaxSuppression", "boxes scores most", "a"), node("Unique", "x", "u i", axis=1)]
    inputs = {"boxes": (FLOAT, [1, 9, 4]), "scores": (FLOAT, [1, 2, 9]), "x": (FLOAT, [3, 5])}
    result = traced(proto(nodes, inputs, ["a"], {"most": np.int64(4)}))
    assert [shapes(op) for op in result.ops] == [[(8, 3)], [(3, 5), (5,)]]


def test_unknown_operator_is_listed() -> None:
    """An unknown operator, and everything after it, is listed, uncounted, and noted once."""
    nodes = [
        node("Magic", "x", "a", domain="own", name="spell"),
        node("Relu", "a", "y"),
        node("Relu", "x", "z"),
    ]
    result = traced(proto(nodes, {"x": (FLOAT, [2])}, ["y"]))
    assert [op.kind for op in result.ops] == ["own.Magic", "onnx.Relu", "onnx.Relu"]
    assert [count_op(op, ONNX).known for op in result.ops] == [False, False, True]
    assert result.assumptions == (
        "own.Magic has outputs whose shapes are unknown, and is not counted (spell)",
    )
    assert result.ops[0].arguments == {"input_0": Tensor((2,), "float32", 0)}
    assert [op.sized for op in result.ops] == [False, False, True]
    assert [macs_upper_bound(op) for op in result.ops] == [None, None, 4]


def test_attributes_are_arguments() -> None:
    """Attributes stand by their names as plain values; long tensors are left out."""
    big = numpy_helper.from_array(np.zeros(17, np.float32))
    nodes = [node("Odd", "x", "y", domain="own", a=1, b=2.5, c="text", d=[1, 2], e=["p", "q"], big=big)]
    (op,) = traced(proto(nodes, {"x": (FLOAT, [2])}, ["y"])).ops
    arguments = dict(op.arguments)
    del arguments["input_0"]
    assert arguments == {"a": 1, "b": 2.5, "c": "text", "d": (1, 2), "e": ("p", "q")}


def test_variadic_inputs_are_a_list() -> None:
    """All inputs of a variadic operator are listed under one name."""
    (op,) = traced(proto([node("Concat", "x x x", "y", axis=1)], {"x": (FLOAT, [2, 3])}, ["y"])).ops
    assert [tensor.shape for tensor in op.arguments["inputs"]] == [(2, 3)] * 3
    assert shapes(op) == [(2, 9)]


def test_constants_in_nodes() -> None:
    """Small constants are values, large ones are weights without a name."""
    large = numpy_helper.from_array(np.zeros((40, 50), np.float32))
    nodes = [
        node("Constant", "", "w", value=large),
        node("Constant", "", "axes", value_ints=[0]),
        node("Constant", "", "half", value_float=0.5),
        node("Constant", "", "text", value_string="x"),
        node("MatMul", "x w", "a"),
        node("Mul", "a half", "b"),
        node("Squeeze", "b axes", "y"),
    ]
    result = traced(proto(nodes, {"x": (FLOAT, [1, 40])}, ["y"]))
    assert kinds(result) == ["MatMul", "Mul", "Squeeze"]
    assert [s.bytes for s in result.storages if s.role is Role.WEIGHT] == [8000]


def test_sequences_of_known_tensors() -> None:
    """Tensors that are split into a sequence are recovered by their position in it."""
    nodes = [
        node("SplitToSequence", "x sizes", "s", axis=1),
        node("SequenceAt", "s one", "b"),
        node("SequenceInsert", "s b", "t"),
        node("SequenceErase", "t zero", "u"),
        node("SequenceLength", "u", "n"),
        node("Unsqueeze", "n first", "k"),
        node("TopK", "x k", "best places"),
        node("ConcatFromSequence", "u", "y", axis=1),
        node("SequenceConstruct", "b b", "pair"),
        node("ConcatFromSequence", "pair", "stacked", axis=0, new_axis=1),
        node("SequenceEmpty", "", "none"),
        node("SplitToSequence", "x two", "v", axis=1),
        node("SplitToSequence", "x", "w", axis=0, keepdims=0),
        node("SequenceAt", "w place", "any"),
        node("Identity", "w", "same"),
    ]
    weights = {"sizes": [2, 3], "one": np.int64(1), "zero": np.int64(0), "two": np.int64(2), "first": [0]}
    model = proto(nodes, {"x": (FLOAT, [4, 5]), "place": (INT64, [])}, ["y"], weights)
    result = {op.kind[5:] + str(i): shapes(op) for i, op in enumerate(traced(model).ops)}
    assert list(result.values()) == [
        [(4, 2), (4, 3)], [(4, 3)], [(4, 2), (4, 3), (4, 3)], [(4, 3), (4, 3)], [(4, 2)] * 2,
        [(4, 6)], [(4, 3)] * 2, [(2, 4, 3)], [], [(4, 2), (4, 2), (4, 1)], [(5,)] * 4, [(5,)], [(5,)] * 4,
    ]  # fmt: skip


# -- bodies and functions -----------------------------------------------------------------------------


def _choice(condition: str) -> Any:
    then = body([node("MatMul", "x w", "t")], [], ["t"])
    other = body([node("Relu", "x", "a"), node("Neg", "a", "e")], [], ["e"])
    nodes = [node("If", condition, "y", then_branch=then, else_branch=other, name="choice")]
    weights = {"w": np.zeros((4, 4), np.float32), "no": np.array(False)}
    return proto(nodes, {"x": (FLOAT, [3, 4]), "c": (BOOL, [])}, ["y"], weights)


def test_branch_that_is_known() -> None:
    """Of a branch whose condition is a constant the right one is taken."""
    result = traced(_choice("no"))
    assert kinds(result) == ["Relu", "Neg"]
    assert result.assumptions == ()


def test_branch_that_depends_on_data() -> None:
    """Of a branch that depends on data the more expensive one is taken and noted."""
    result = traced(_choice("c"))
    assert kinds(result) == ["MatMul"]
    assert result.assumptions == ("onnx.If takes its then_branch, the more expensive one (choice)",)
    assert [s.output for s in result.storages if s.role is Role.ACTIVATION] == [True]
    assert sum(s.bytes for s in result.storages if s.role is Role.WEIGHT) == 64


def _either(then: Sequence[Any], other: Sequence[Any]) -> Any:
    """Build a choice between two branches, each of which returns `t`."""
    branches = {"then_branch": body(then, [], ["t"]), "else_branch": body(other, [], ["t"])}
    nodes = [node("If", "c", "y", name="choice", **branches)]
    return proto(nodes, {"x": (FLOAT, [3, 4]), "c": (BOOL, [])}, ["y"], {"w": np.zeros((4, 4), np.float32)})


PRODUCT = (node("MatMul", "x w", "t"),)
MAGIC = (node("Magic", "x w", "t", domain="own"),)


@pytest.mark.parametrize("name", ["then", "else"])
def test_a_branch_that_may_be_more_expensive(name: str) -> None:
    """A branch with uncounted operators, or of unknown shape, is not taken as the cheaper one."""
    result = traced(_either(*((MAGIC, PRODUCT) if name == "then" else (PRODUCT, MAGIC))))
    assert [op.kind for op in result.ops] == ["own.Magic"]
    assert (
        f"onnx.If takes its {name}_branch, which may be the more expensive one (choice)" in result.assumptions
    )


def test_a_branch_is_priced_by_the_formulas_of_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """An uncounted operator counts at its upper bound; one that a plugin bounds low is cheaper."""
    model = _either([node("Cheap", "x w", "t", domain="own")], PRODUCT)
    for attribute in model.graph.node[0].attribute:
        attribute.g.output[0].CopyFrom(helper.make_tensor_value_info("t", FLOAT, [3, 4]))
    assert [op.kind for op in traced(model).ops] == ["own.Cheap"]

    monkeypatch.setattr(plugins, "formulas", lambda: {"own.Cheap": lambda _: Count(macs=1)})
    result = traced(model)
    assert [op.kind for op in result.ops] == ["onnx.MatMul"]
    assert result.assumptions == ("onnx.If takes its else_branch, the more expensive one (choice)",)


def _loop(trips: str, condition: str = "", *, step: Sequence[Any] | None = None) -> Any:
    steps = step or [node("MatMul", "h w", "h2"), node("Identity", "go", "on"), node("Relu", "h2", "r")]
    inner = body(steps, ["i", "go", "h"], ["on", "h2", "r"])
    nodes = [
        helper.make_node("Loop", [trips, condition, "x"], ["y", "all"], body=inner, name="loop"),
        node("Neg", "all", "z"),
    ]
    weights = {
        "w": np.zeros((4, 4), np.float32),
        "five": np.int64(5),
        "many": np.int64(300),
        "no": np.array(False),
    }
    weights["endless"] = np.int64(2**63 - 1)
    return proto(nodes, {"x": (FLOAT, [3, 4]), "m": (INT64, []), "c": (BOOL, [])}, ["y", "z"], weights)


@pytest.mark.parametrize(("trips", "rounds"), [("five", 5), ("many", 300)])
def test_loop_of_known_length(trips: str, rounds: int) -> None:
    """The body of a loop with a known trip count is repeated, and its outputs are as long."""
    result = traced(_loop(trips))
    assert macs(result) == rounds * 3 * 4 * 4
    assert kinds(result).count("Relu") == rounds
    assert kinds(result)[-2:] == ["Loop", "Neg"]
    assert shapes(result.ops[-1]) == [(rounds, 3, 4)]
    assert result.assumptions == ()


def test_loop_that_depends_on_data() -> None:
    """A loop whose trip count or condition depends on data runs once, or to its limit, which is noted."""
    assert traced(_loop("m")).assumptions == (
        "onnx.Loop is assumed to run once, as its trip count depends on data (loop)",
    )
    result = traced(_loop("five", "c"))
    assert macs(result) == 5 * 48
    assert result.assumptions == ("onnx.Loop is assumed to use its whole trip count (loop)",)
    result = traced(_loop("", "c"))
    assert macs(result) == 48
    assert result.assumptions == (
        "onnx.Loop is assumed to end here, as its condition depends on data (loop)",
    )
    assert macs(traced(_loop("five", "no"))) == 0


def test_loop_that_ends_by_its_condition() -> None:
    """A loop with its own counter ends when its condition says so."""
    steps = [
        node("Less", "i five", "on"),
        node("MatMul", "h w", "h2"),
        node("Relu", "h2", "r"),
    ]
    result = traced(_loop("endless", step=steps))
    assert macs(result) == 6 * 48
    assert result.assumptions == ()


def test_loop_that_grows() -> None:
    """A loop whose state grows is counted iteration by iteration."""
    steps = [node("Concat", "h x", "h2", axis=0), node("Identity", "go", "on"), node("Relu", "h2", "r")]
    result = traced(_loop("many", step=steps))
    sizes = [op.outputs[0].shape[0] for op in result.ops if op.kind == "onnx.Concat"]
    assert sizes == [3 * (i + 2) for i in range(300)]


def test_endless_loops_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that would unroll into too many operators is rejected in a sentence, quickly."""
    monkeypatch.setattr("modeldyno.models.loaders.unrolling._MOST", 100_000)
    model = _loop("many")
    many = next(tensor for tensor in model.graph.initializer if tensor.name == "many")
    many.CopyFrom(numpy_helper.from_array(np.asarray(2**30), "many"))
    with pytest.raises(RequestError, match="too many to analyse"):
        traced(model)
    assert len(traced(_loop("endless", step=[node("Identity", "go", "on"), node("Neg", "h", "h2")])).ops) > 0


def test_scan_whose_inputs_differ_in_length() -> None:
    """A scan over inputs of several lengths is invalid, and is listed as uncounted."""
    inner = body([node("Add", "a b", "r")], ["a", "b"], ["r"])
    nodes = [node("Scan", "x z", "y", body=inner, num_scan_inputs=2)]
    result = traced(proto(nodes, {"x": (FLOAT, [3, 4]), "z": (FLOAT, [5, 4])}, ["y"]))
    assert len(result.assumptions) == 1
    assert result.ops[0].outputs == ()


def test_scan() -> None:
    """A scan runs its body for each slice along the axis of its input."""
    inner = body(
        [node("MatMul", "row w", "p"), node("Add", "h p", "h2"), node("Relu", "h2", "r")],
        ["h", "row"],
        ["h2", "r"],
    )
    nodes = [
        node("Scan", "h0 x", "h y", body=inner, num_scan_inputs=1, scan_input_axes=[1], scan_output_axes=[-1])
    ]
    inputs = {"h0": (FLOAT, [1, 5]), "x": (FLOAT, [1, 7, 4])}
    result = traced(proto(nodes, inputs, ["y"], {"w": np.zeros((4, 5), np.float32)}))
    assert macs(result) == 7 * 4 * 5
    assert shapes(result.ops[-1]) == [(1, 5, 7)]
    assert result.assumptions == ()


def test_map_over_a_sequence() -> None:
    """A SequenceMap runs its body as often as the sequence has items."""
    inner = body([node("Relu", "item", "r")], ["item"], ["r"])
    nodes = [
        node("SplitToSequence", "x", "s", axis=0),
        node("SequenceMap", "s", "t", body=inner),
        node("ConcatFromSequence", "t", "y", axis=0),
    ]
    result = traced(proto(nodes, {"x": (FLOAT, [3, 4])}, ["y"]))
    assert kinds(result) == ["SplitToSequence", "Relu", "Relu", "Relu", "ConcatFromSequence"]
    assert shapes(result.ops[-1]) == [(3, 4)]


def _called(nodes: Sequence[Any], *, attributes: Sequence[str] = ()) -> Any:
    model = proto(
        [
            node("Block", "x w", "a", domain="own", rate=0.25, name="/first/Block"),
            node("Block", "a w", "y", domain="own"),
        ],
        {"x": (FLOAT, [3, 4])},
        ["y"],
        {"w": np.zeros((4, 4), np.float32)},
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    model.functions.append(
        helper.make_function("own", "Block", ["p", "q", "left"], ["r"], nodes, opsets, attributes)
    )
    return model


def test_functions_are_inlined() -> None:
    """A function of the file is inlined, with the attributes that it was called with."""
    leaky = node("LeakyRelu", "m", "r")
    attribute = helper.make_attribute("alpha", 1.0)
    attribute.ClearField("f")
    attribute.ref_attr_name = "rate"
    leaky.attribute.append(attribute)
    inner = [node("Clip", "p left", "c"), node("MatMul", "c q", "m"), leaky]
    result = traced(_called(inner, attributes=["rate"]))
    assert kinds(result) == ["Clip", "MatMul", "LeakyRelu"] * 2
    assert macs(result) == 2 * 48
    assert [op.arguments.get("alpha") for op in result.ops] == [None, None, 0.25, None, None, None]
    assert [op.scope for op in result.ops] == ["first"] * 3 + [""] * 3


def test_functions_that_call_themselves_are_refused() -> None:
    """A function that calls itself never ends, and is rejected."""
    with pytest.raises(RequestError, match="deep"):
        traced(_called([node("Block", "p q", "r", domain="own")]))


# -- modules --------------------------------------------------------------------------------------------


def test_modules_by_the_path_of_names() -> None:
    """The path of a node's name is the module that it came from; its parents are modules, too."""
    nodes = [
        node("Relu", "x", "a", name="/encoder/layer.0/act/Relu"),
        node("Neg", "a", "b", name="Neg_1"),
        node("Abs", "b", "y", name="node_abs/AbsFusion/"),
    ]
    result = traced(proto(nodes, {"x": (FLOAT, [2])}, ["y"]))
    assert [op.scope for op in result.ops] == ["encoder.layer.0.act", "", ""]
    assert list(result.modules) == ["", "encoder", "encoder.layer", "encoder.layer.0", "encoder.layer.0.act"]


def test_modules_by_metadata() -> None:
    """Modules and classes recorded by the exporter are used; malformed ones are not."""
    relu = node("Relu", "x", "a", name="node_relu")
    helper.set_metadata_props(
        relu,
        {
            "pkg.torch.onnx.name_scopes": "['', 'body', 'body.0', 'relu']",
            "pkg.torch.onnx.class_hierarchy": "['zoo.Net', 'torch.nn.Sequential', 'nn.ReLU', 'aten.relu']",
        },
    )
    wrong = node("Neg", "a", "y", name="/kept/Neg")
    helper.set_metadata_props(wrong, {"pkg.torch.onnx.name_scopes": "['"})
    result = traced(proto([relu, wrong], {"x": (FLOAT, [2])}, ["y"]))
    assert [op.scope for op in result.ops] == ["body.0", "kept"]
    assert result.modules == {"": "Net", "body": "Sequential", "body.0": "ReLU", "kept": ""}


def test_a_folded_batch_norm_is_named_with_its_convolution() -> None:
    """The exporter gives such a convolution the module of the batch norm, which has no products itself."""
    conv = node("Conv", "x w", "y", name="node_Conv_18")
    helper.set_metadata_props(
        conv,
        {
            "pkg.torch.onnx.name_scopes": "['', 'bn1', '_native_batch_norm']",
            "pkg.torch.onnx.class_hierarchy": "['zoo.Net', 'nn.BatchNorm2d', 'aten._native_batch_norm']",
        },
    )
    result = traced(
        proto([conv], {"x": (FLOAT, [1, 3, 8, 8])}, ["y"], {"w": np.zeros((4, 3, 3, 3), np.float32)})
    )
    assert result.modules == {"": "Net", "bn1": "Conv+BatchNorm2d"}


# -- ONNX Runtime -----------------------------------------------------------------------------------------

CONTRIB: list[tuple[str, list[Any], dict[str, Any], list[tuple[int, ...]]]] = [
    ("FusedMatMul", [[4, 7, 3], [4, 7, 5]], {"transA": 1}, [(4, 3, 5)]),
    ("FusedMatMul", [[7, 4, 3], [4, 5, 7]], {"transA": 1, "transBatchA": 1, "transB": 1}, [(4, 3, 5)]),
    ("MatMulNBits", [[2, 3, 64], [5, 1, 32]], {"K": 64, "N": 5}, [(2, 3, 5)]),
    ("MatMulBnb4", [[2, 3, 64], ("UINT8", [160]), [5]], {"K": 64, "N": 5}, [(2, 3, 5)]),
    ("MatMulBnb4", [[2, 3, 5], ("UINT8", [160]), [5]], {"K": 64, "N": 5, "transB": 0}, [(2, 3, 64)]),
    ("MatMulNBitsMlp", [[2, 3, 64]], {"K": 64, "N": 96}, [(2, 3, 96)]),
    (
        "MatMulNBitsQkv",
        [[2, 3, 64], [2, 3, 64]],
        {"K": 64, "Nq": 64, "Nkv": 16},
        [(2, 3, 64), (2, 3, 16), (2, 3, 16), (2, 3, 64)],
    ),
    ("MatMulNBitsQLoRA", [[2, 3, 64]], {"K": 64, "N": 5}, [(2, 3, 5)]),
    ("MatMulPacked", [[2, 3, 64], ("UINT8", [5, 40])], {"K": 64, "N": 5}, [(2, 3, 5)]),
    ("MatMulBlockQuantizedFp4Weight", [[2, 3, 64], ("UINT8", [5, 32])], {}, [(2, 3, 5)]),
    ("GatherPacked", [("UINT8", [99, 20]), ("INT64", [2, 3])], {"K": 32}, [(2, 3, 32)]),
    (
        "QEmbedLayerNormalization",
        [[2, 3], [2, 3], ("UINT8", [99, 8]), ("UINT8", [16, 8])],
        {},
        [(2, 3, 8), (2,), (2, 3, 8)],
    ),
    ("DynamicQuantizeMatMul", [[2, 3, 7], [7, 5]], {}, [(2, 3, 5)]),
    ("GemmFastGelu", [[2, 3, 7], [7, 5]], {}, [(2, 3, 5)]),
    ("QGemm", [[3, 7], [], [], [7, 5]], {}, [(3, 5)]),
    ("BiasGelu", [[2, 3], [3]], {}, [(2, 3)]),
    ("BiasSplitGelu", [[2, 6], [6]], {}, [(2, 3)]),
    ("SkipLayerNormalization", [[2, 3, 4], [2, 3, 4], [4]], {}, [(2, 3, 4), (2, 3, 1), (2, 3, 1), (2, 3, 4)]),
    ("EmbedLayerNormalization", [[2, 3], [2, 3], [99, 8], [16, 8]], {}, [(2, 3, 8), (2,), (2, 3, 8)]),
    ("Attention", [[2, 5, 12], [12, 36], [36]], {"num_heads": 3}, [(2, 5, 12), (2, 2, 3, 5, 4)]),
    (
        "Attention",
        [[2, 5, 12], [12, 44], [44]],
        {"num_heads": 2, "qkv_hidden_sizes": [12, 12, 20]},
        [(2, 5, 20)],
    ),
    (
        "MultiHeadAttention",
        [[2, 5, 12], [2, 7, 12], [2, 7, 12]],
        {"num_heads": 3},
        [(2, 5, 12), (2, 3, 7, 4)],
    ),
    ("MultiHeadAttention", [[2, 5, 3, 3, 4]], {"num_heads": 3}, [(2, 5, 12)]),
    ("MultiHeadAttention", [[2, 5, 12], [2, 7, 3, 2, 4]], {"num_heads": 3}, [(2, 5, 12)]),
    (
        "GroupQueryAttention",
        [[2, 1, 64], [2, 1, 16], [2, 1, 16], [2, 2, 9, 8], [2, 2, 9, 8]],
        {"num_heads": 8, "kv_num_heads": 2},
        [(2, 1, 64), (2, 2, 10, 8), (2, 2, 10, 8)],
    ),
    ("GroupQueryAttention", [[2, 5, 96]], {"num_heads": 8, "kv_num_heads": 2}, [(2, 5, 64)]),
    (
        "GatherBlockQuantized",
        [("UINT8", [99, 16]), ("INT64", [2, 3]), [99, 1]],
        {"gather_axis": 0},
        [(2, 3, 32)],
    ),
    (
        "FusedConv",
        [[1, 2, 8, 8], [4, 2, 3, 3], [4]],
        {"pads": [1, 1, 1, 1], "activation": "Relu"},
        [(1, 4, 8, 8)],
    ),
    ("NhwcConv", [[1, 8, 8, 2], [4, 2, 3, 3]], {"strides": [2, 2]}, [(1, 3, 3, 4)]),
    ("QLinearAdd", [[2, 3], [], [], [3]], {}, [(2, 3)]),
    ("QLinearConcat", [[], [], [2, 3], [], [], [2, 4], [], []], {"axis": 1}, [(2, 7)]),
    ("QLinearGlobalAveragePool", [[1, 8, 8, 2]], {"channels_last": 1}, [(1, 1, 1, 2)]),
    ("QLinearGlobalAveragePool", [("UINT8", [1, 8, 8, 2])], {"channels_last": 1}, [(1, 1, 1, 2)]),
    ("QLinearGlobalAveragePool", [("UINT8", [1, 2, 8, 8])], {}, [(1, 2, 1, 1)]),
    ("QLinearAveragePool", [("INT8", [1, 2, 8, 8])], {"kernel_shape": [2, 2]}, [(1, 2, 7, 7)]),
    (
        "DynamicQuantizeLSTM",
        [[5, 3, 4], ("INT8", [1, 4, 24]), ("INT8", [1, 6, 24])],
        {"hidden_size": 6},
        [(5, 1, 3, 6), (1, 3, 6), (1, 3, 6)],
    ),
    ("QMoE", [[3, 16], [3, 8]], {"k": 2}, [(3, 16)]),
    ("DequantizeLinear", [("UINT8", [2, 3]), []], {}, [(2, 3)]),
    ("QuantizeLinear", [[2, 3], []], {}, [(2, 3)]),
]


@pytest.mark.parametrize(("kind", "inputs", "attributes", "expected"), CONTRIB, ids=lambda v: str(v)[:24])
def test_operators_of_the_runtime(
    kind: str, inputs: list[Any], attributes: dict[str, Any], expected: list[tuple[int, ...]]
) -> None:
    """Operators of ONNX Runtime have the shapes that its documentation states, and are counted."""
    tensors = {}
    for i, shape in enumerate(inputs):
        dtype, dims = shape if isinstance(shape, tuple) else ("FLOAT", shape)
        tensors[f"i{i}"] = (getattr(TensorProto, dtype), dims)
    outputs = [f"o{i}" for i in range(len(expected))]
    made = helper.make_node(kind, list(tensors), outputs, domain="com.microsoft", **attributes)
    (op,) = traced(proto([made], tensors, outputs)).ops
    assert op.kind == f"com.microsoft.{kind}"
    assert shapes(op) == expected


def test_runtime_operator_of_unknown_form() -> None:
    """An operator of ONNX Runtime with invalid inputs is listed as uncounted."""
    made = node("MultiHeadAttention", "x", "y", domain="com.microsoft", num_heads=2)
    result = traced(proto([made], {"x": (FLOAT, [3])}, ["y"]))
    assert not count_op(result.ops[0], ONNX).known
    assert len(result.assumptions) == 1


# -- files --------------------------------------------------------------------------------------------


def test_looking_needs_no_external_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model is inspected without opening its external data, even where they are missing."""
    path = models.external(tmp_path)
    whole_ = read_model(path)
    opened: list[Path] = []
    genuine = Path.open

    def spy(self: Path, *args: Any, **named: Any) -> Any:
        opened.append(self)
        return genuine(self, *args, **named)

    monkeypatch.setattr(Path, "open", spy)
    assert macs(at(read_model(path), batch=1)) == 48
    (tmp_path / "weights.bin").unlink()
    model = read_model(path)
    result = at(model, batch=3)
    assert macs(result) == 3 * 48
    assert sum(s.bytes for s in result.storages if s.role is Role.WEIGHT) == 4 * (32 + 8 + 16)
    assert {file.name for file in opened} <= {path.name}
    assert model.identity.digest == whole_.identity.digest
    assert model.identity.digest.startswith("structure:")
    assert (model.file_bytes, whole_.file_bytes is None) == (None, False)


def test_external_weights_in_one_place_are_one(tmp_path: Path) -> None:
    """Two weights at the same place of a file share one storage."""
    path = models.external(tmp_path)
    whole_ = read_model(path)
    model = onnx.load_model(path, load_external_data=False)
    twin = onnx.TensorProto()
    twin.CopyFrom(model.graph.initializer[0])
    twin.name = "twin"
    model.graph.initializer.append(twin)
    path.write_bytes(model.SerializeToString())
    result = at(read_model(path), batch=1)
    assert result.storages == at(whole_, batch=1).storages


def test_what_is_loaded_can_be_analysed(tmp_path: Path) -> None:
    """A loaded model has the same graph as an inspected one."""
    path = models.normalised(tmp_path)
    loaded = loader.load(ModelRef(scheme="onnx", locator=str(path)), seed=0, trust=False)
    assert at(loaded, batch=3) == at(read_model(path), batch=3)


def test_training_is_refused() -> None:
    """An ONNX file cannot be trained, which the error says."""
    model = proto([node("Relu", "x", "y")], {"x": (FLOAT, [2])}, ["y"])
    with pytest.raises(RequestError, match="no backward"):
        trace_onnx_model(model, Tracing(inputs=(), mode=Mode.TRAIN))


def test_inputs_without_a_shape() -> None:
    """An input without a shape, or a sequence, is unknown, and is no error."""
    model = proto(
        [node("Relu", "x", "y"), node("SequenceAt", "s i", "z")],
        {"x": (FLOAT, None), "i": (INT64, [])},
        ["y"],
    )
    model.graph.input.append(helper.make_tensor_sequence_value_info("s", FLOAT, None))
    assert [op.outputs for op in traced(model).ops] == [(), ()]


@pytest.mark.parametrize("make", [models.mlp, models.embedding, models.external, models.normalised])
def test_mutated_files_are_analysed_or_refused(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    """Of 150 corrupted files of each model, every one is analysed or rejected, quickly and in one line."""
    path = make(tmp_path)
    intact = path.read_bytes()
    chance = random.Random(1)
    slowest = 0.0
    for _ in range(150):
        data = bytearray(intact)
        for _ in range(chance.choice((1, 1, 4, 32))):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        begin = time.thread_time()
        try:
            result = at(read_model(path))
            assert all(s.bytes >= 0 for s in result.storages)
        except RequestError as error:
            assert "\n" not in str(error)
        slowest = max(slowest, time.thread_time() - begin)
    assert slowest < 1


# -- the models that ONNX tests its backends with --------------------------------------------------------


POOLING = {"averagepool", "lppool", "maxpool"}
"""Modules of ONNX's tests whose reference runs in pure Python over every window: most of the time of all."""


@cache
def backend_cases(*, pooling: bool) -> list[Any]:
    """Build ONNX's own tests of its operators; it takes seconds."""
    node = pytest.importorskip("onnx.backend.test.case.node")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module in pkgutil.iter_modules(node.__path__):
            if pooling or module.name not in POOLING:
                importlib.import_module(f"{node.__name__}.{module.name}")
        return list(node._NodeTestCases)


@cache
def backend_models(*, pooling: bool) -> list[tuple[str, Any, list[Any]]]:
    """Yield name, model and expected outputs."""
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data"
    files: list[tuple[str, Any, list[Any]]] = [
        (str(path.relative_to(folder)), onnx.load_model(path), []) for path in sorted(folder.rglob("*.onnx"))
    ]
    return files + [
        (case.name, case.model, case.data_sets[0][1])
        for case in backend_cases(pooling=pooling)
        if case.model is not None
    ]


def sweep(cases: Sequence[tuple[str, Any, list[Any]]]) -> float:
    """Analyse models, compare with the expected shapes, and return the share that was analysed."""
    done = 0
    for name, model, expected in cases:
        walk = GraphWalk({(f.domain, f.name, getattr(f, "overload", "")): f for f in model.functions}, ONNX)
        body_, env = read_main_body(model, walk.classes), dict[str, Any]()
        try:
            walk.begin(body_, env, {}, {})
            walk.run(body_, env)
            trace_onnx_model(model, Tracing(inputs=()))
            done += 1
        except RequestError as error:
            assert "\n" not in str(error)
            continue
        for output, array in zip(body_.outputs, expected, strict=False):
            value = env.get(output)
            if value is not None and value.shape is not None and not walk.notes and hasattr(array, "shape"):
                assert value.shape == array.shape, name
    return done / len(cases)


def test_models_of_backend_tests() -> None:
    """A sample of the backend test models is analysed, with the shapes that they really return."""
    cases = backend_models(pooling=False)[::10]
    assert len(cases) > 150
    assert sweep(cases) >= 0.99


def _array(one: Any) -> Any:
    return numpy_helper.to_array(one) if isinstance(one, TensorProto) else np.asarray(one)


def test_arithmetic_agrees_with_backend_tests() -> None:
    """Every operator used in shape arithmetic returns what a backend must return, or declines."""
    compared = set()
    for case in backend_cases(pooling=False):
        nodes = [] if case.model is None else read_main_body(case.model, {}).nodes
        if len(nodes) != 1 or nodes[0].kind not in RULES or case.model.graph.initializer:
            continue
        example_inputs, expected = ([_array(one) for one in data] for data in case.data_sets[0])
        arrays = iter(example_inputs)
        inputs = [next(arrays) if name else None for name in nodes[0].inputs]
        if not all(array.dtype.kind in "biuf" for array in (*example_inputs, *expected)):
            continue
        result = evaluate(nodes[0], inputs)
        if result is None:
            continue
        compared.add(nodes[0].kind)
        for one, other in zip(result, expected, strict=True):
            assert one.shape == other.shape, case.name
            assert one.dtype == other.dtype, case.name
            np.testing.assert_allclose(one, other, rtol=1e-5, err_msg=case.name)
    assert compared == set(RULES)


@pytest.mark.slow
def test_all_models_of_backend_tests() -> None:
    """All backend test models but one in a hundred are analysed, with the shapes that they return."""
    begin = time.perf_counter()
    every = backend_models(pooling=True)
    share = sweep(every)
    print(f"{share:.2%} of {len(every)} in {time.perf_counter() - begin:.1f} s")
    assert share >= 0.99


# -- exported from PyTorch ---------------------------------------------------------------------------------


def _convolutions(torch: Any) -> tuple[Any, tuple[Any, ...], int]:
    nn = torch.nn
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, stride=2, groups=2), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(16, 5),
    )  # fmt: skip
    expected = 8 * 16 * 16 * 27 + 16 * 3 * 3 * 36 + 16 * 5
    return net, (torch.zeros(2, 3, 16, 16),), 2 * expected


def _attention(torch: Any) -> tuple[Any, tuple[Any, ...], int]:
    class Attention(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out, self.norm = (
                torch.nn.Linear(32, 96),
                torch.nn.Linear(32, 32),
                torch.nn.LayerNorm(32),
            )

        def forward(self, x: Any) -> Any:
            heads = self.qkv(self.norm(x)).view(2, 7, 3, 4, 8).permute(2, 0, 3, 1, 4)
            mixed = torch.nn.functional.scaled_dot_product_attention(heads[0], heads[1], heads[2])
            return x + self.out(mixed.transpose(1, 2).reshape(2, 7, 32))

    return Attention(), (torch.zeros(2, 7, 32),), 2 * 7 * 4 * 32 * 32 + 2 * 2 * 7 * 7 * 32


def _recurrence(torch: Any) -> tuple[Any, tuple[Any, ...], int]:
    layer = torch.nn.LSTM(6, 10, num_layers=2, bidirectional=True, batch_first=True)
    return layer, (torch.zeros(3, 5, 6),), 15 * 2 * 40 * ((6 + 10) + (20 + 10))


@pytest.mark.parametrize(
    ("make", "dynamo"),
    [
        *((make, False) for make in (_convolutions, _attention, _recurrence)),
        *(
            pytest.param(make, True, marks=pytest.mark.slow)
            for make in (_convolutions, _attention, _recurrence)
        ),
    ],
)
def test_exported_networks(
    tmp_path: Path, make: Callable[[Any], tuple[Any, tuple[Any, ...], int]], *, dynamo: bool
) -> None:
    """Models exported by PyTorch have the MACs of the closed form, and the shapes of ONNX Runtime."""
    torch = pytest.importorskip("torch")
    if dynamo:
        pytest.importorskip("onnxscript")
    path = tmp_path / "m.onnx"
    net, args, expected = make(torch)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(net.eval(), args, path, dynamo=dynamo, input_names=["x"], verbose=False)
    result = at(read_model(path))
    assert macs(result) == expected
    assert all(count_op(op, ONNX).known for op in result.ops)
    assert result.assumptions == ()
    _same_as_runtime(path, {"x": args[0].numpy()})


def _same_as_runtime(path: Path, feed: Mapping[str, Any]) -> None:
    """Run a model with every value as an output, and compare all shapes."""
    runtime = pytest.importorskip("onnxruntime")
    model = onnx.load_model(path)
    walk = GraphWalk({(f.domain, f.name, getattr(f, "overload", "")): f for f in model.functions}, ONNX)
    body_, env = read_main_body(model, walk.classes), dict[str, Any]()
    walk.begin(body_, env, {}, {})
    walk.run(body_, env)
    names = [name for item in model.graph.node for name in item.output if name]
    del model.graph.output[:]
    model.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(model.SerializeToString(), options)
    for name, array in zip(names, session.run(names, dict(feed)), strict=True):
        assert env[name].shape == array.shape, name
