from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING

import pytest

from modeldyno.base.errors import RequestError
from modeldyno.base.job.devices import DEVICES, DevicePeaks
from modeldyno.base.job.static_options import Mode, StaticOptions
from modeldyno.base.metrics.doubt import CODES, Doubt
from modeldyno.base.metrics.measurement import Interval, Measurement
from modeldyno.base.result.static_data import StaticReport
from modeldyno.models.flops import Count, Formula
from modeldyno.models.static import analysis
from modeldyno.models.static.analysis import analyse_model
from modeldyno.models.static.graph import Graph, Op, Phase, Role, Routing, Storage, Tensor
from modeldyno.models.static.other_sizes import SizeExtrapolator, TraceCache
from modeldyno.models.static.totals import AnalysedGraph

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from modeldyno.models.static.other_sizes import Trace

FLOAT = 4


def _product(op: Op) -> Count:
    (rows, inner), (_, columns) = (tensor.shape for tensor in op.tensors())
    masked = rows if op.arguments.get("causal") else 0
    return Count(macs=rows * inner * columns, elementwise=rows, skippable=masked)


FORMULAS: dict[str, Formula] = {"t.mm": _product, "t.relu": lambda op: Count(elementwise=op.outputs[0].size)}


def network(sizes: Mapping[str, int], **changes: object) -> Graph:
    """Two products with a function between, of 3 x 5 and 5 x 2 weights, for some samples."""
    batch = sizes.get("batch", 4)
    x, h, y = (Tensor((batch, width), "float32", at) for width, at in ((3, 2), (5, 3), (2, 5)))
    g = Tensor((batch, 5), "float32", 4)
    ops = (
        Op("t.mm", {"a": x, "b": Tensor((3, 5), "float32", 0), "causal": True}, (h,), "a"),
        Op("t.relu", {"x": h}, (g,), ""),
        Op("t.mm", {"a": g, "b": Tensor((5, 2), "float32", 1)}, (y,), "b.c"),
    )
    graph = Graph(
        ops=ops,
        storages=(
            Storage(15 * FLOAT, Role.WEIGHT, -1, None, "a"),
            Storage(10 * FLOAT, Role.WEIGHT, -1, None, "b.c"),
            Storage(batch * 3 * FLOAT, Role.INPUT, -1, None, "x"),
            Storage(batch * 5 * FLOAT, Role.ACTIVATION, 0, 2, "a"),
            Storage(batch * 5 * FLOAT, Role.ACTIVATION, 1, 3, ""),
            Storage(batch * 2 * FLOAT, Role.ACTIVATION, 2, None, "b.c", True),
        ),
        sizes={"batch": batch},
        modules={"": "Net", "a": "Linear", "b": "Block", "b.c": "Linear"},
    )
    return replace(graph, **changes)  # type: ignore[arg-type]


def measurements_of(*parts: object) -> dict[str, Measurement]:
    """Give what was measured by metric and scope."""
    return {f"{m.metric}@{m.scope}".rstrip("@"): m for m in parts if isinstance(m, Measurement)}


def outline(*parts: object) -> StaticReport:
    """Give the one outline."""
    (only,) = (part for part in parts if isinstance(part, StaticReport))
    return only


def test_totals_are_those_of_the_operators() -> None:
    """MACs, operations and bytes add up over the operators."""
    numbers = measurements_of(*analyse_model(network, StaticOptions(), FORMULAS))

    assert numbers["macs"].value == 4 * 3 * 5 + 4 * 5 * 2
    assert numbers["causal_macs"].value == 100 - 4
    assert numbers["elementwise"].value == 4 + 20 + 4
    assert numbers["flops"].value == 2 * 100 + 28
    assert numbers["coverage"].value == 1
    assert numbers["input_bytes"].value == 48
    assert numbers["output_bytes"].value == 32
    assert numbers["activation_peak"].value == 2 * 80
    assert numbers["memory_peak"].value == 100 + 48 + 160
    assert "dense_macs" not in numbers
    assert "gradient_bytes" not in numbers
    assert numbers["macs"].interval is None


def test_modules_have_their_share_with_their_children() -> None:
    """A module's numbers include those of its children, and what it holds when the whole is at its peak.

    That is not its own peak: b holds 32 bytes later, and nothing then.
    """
    numbers = measurements_of(*analyse_model(network, StaticOptions(modules=True), FORMULAS))

    assert numbers["macs@a"].value == 60
    assert numbers["macs@b"].value == numbers["macs@b.c"].value == 40
    assert numbers["held_at_peak@a"].value == 80
    assert numbers["held_at_peak@b"].value == 0
    assert "activation_peak@a" not in numbers


def test_an_operator_without_a_formula_is_bounded_listed_and_doubted() -> None:
    """It is no zero: the MACs get an interval, the outline its shapes, and a doubt says so."""
    parts = list(analyse_model(network, StaticOptions(), {"t.relu": FORMULAS["t.relu"]}))
    numbers, rows = measurements_of(*parts), outline(*parts).operators
    (doubt,) = (part for part in parts if isinstance(part, Doubt))

    assert numbers["macs"].value == 0
    assert numbers["macs"].interval is not None
    assert numbers["macs"].interval.high == 12 * 15 + 10 * 8
    assert numbers["flops"].interval is not None
    assert numbers["flops"].interval.high == 20 + 2 * 260
    assert [(row.kind, row.counted, row.shapes) for row in rows] == [
        ("t.relu", True, ""),
        ("t.mm", False, "(4, 3) x (3, 5) -> (4, 5)"),
        ("t.mm", False, "(4, 5) x (5, 2) -> (4, 2)"),
    ]
    assert [row.most for row in rows] == [0, 180, 80]
    assert doubt.code == "uncounted"
    assert doubt.seen == (
        "2 of 3 calls are of operators without a formula (t.mm), which take up to 260 MACs together "
        "if each is one matrix product, convolution or attention"
    )


def test_an_operator_of_unknown_shape_is_bounded_by_nothing() -> None:
    """Past unknown shapes the MACs are at least those that were counted; no formula takes a part for all."""
    graph = network({})
    lost = replace(graph.ops[1], kind="t.mm", arguments={}, outputs=(), sized=False)
    parts = list(
        analyse_model(
            lambda _: replace(graph, ops=(graph.ops[0], lost, graph.ops[2])), StaticOptions(), FORMULAS
        )
    )
    numbers, rows = measurements_of(*parts), outline(*parts).operators
    (doubt,) = (part for part in parts if isinstance(part, Doubt))

    assert numbers["macs"].interval == Interval(low=100, high=inf)
    assert numbers["flops"].interval == Interval(low=208, high=inf)
    assert numbers["coverage"].value == 2 / 3
    assert [(row.kind, row.counted, row.most, row.shapes) for row in rows] == [
        ("t.mm", True, 0, ""),
        ("t.mm", False, None, "? -> ?"),
    ]
    assert "their MACs have no upper bound" in doubt.seen


def test_many_kinds_without_a_formula_are_cut_short() -> None:
    """Three are named."""
    ops = tuple(replace(network({}).ops[0], kind=f"t.{i}") for i in range(4))
    (doubt,) = (
        part
        for part in analyse_model(lambda _: network({}, ops=ops), StaticOptions(), FORMULAS)
        if isinstance(part, Doubt)
    )
    assert "(t.0, t.1, t.2, ...)" in doubt.seen


def test_assumptions_are_told() -> None:
    """What was taken for granted is in the outline, and a doubt."""
    parts = list(
        analyse_model(lambda _: network({}, assumptions=("a choice is even",)), StaticOptions(), FORMULAS)
    )

    assert outline(*parts).assumptions == ("a choice is even",)
    assert [part.code for part in parts if isinstance(part, Doubt)] == ["assumed-branch"]


def test_the_outline_tells_what_is_at_the_peak() -> None:
    """The peak has an operator, a module, and what lies in memory by module and role."""
    top = outline(*analyse_model(network, StaticOptions(), FORMULAS))

    assert (top.peak_operator, top.peak_scope) == ("t.relu", "")
    assert {(part.scope, part.role): part.bytes for part in top.peak}["a", "activation"] == 80
    assert [module.path for module in top.modules] == ["", "a", "b", "b.c"]
    assert top.sizes == {"batch": 4}


def test_a_graph_without_operators_has_no_peak_operator() -> None:
    """A network that does nothing holds its weights."""
    empty = Graph(ops=(), storages=(Storage(8, Role.WEIGHT, -1),), modules={"": "Net"})
    parts = list(analyse_model(lambda _: empty, StaticOptions(), FORMULAS))
    numbers, top = measurements_of(*parts), outline(*parts)

    assert numbers["memory_peak"].value == 8
    assert "arithmetic_intensity" not in numbers
    assert (top.peak_operator, top.peak_scope) == ("", "")


def test_training_has_phases_and_gradients() -> None:
    """A graph with a backward course tells the MACs of each phase and the bytes of gradients and state."""

    def step(_: Mapping[str, int]) -> Graph:
        graph = network({})
        back = replace(graph.ops[2], phase=Phase.BACKWARD)
        held = (Storage(60, Role.GRADIENT, 2, None, "a"), Storage(120, Role.STATE, -1, None, "a"))
        return replace(graph, ops=(*graph.ops[:2], back), storages=(*graph.storages, *held))

    numbers = measurements_of(*analyse_model(step, StaticOptions(mode=Mode.TRAIN), FORMULAS))

    assert numbers["gradient_bytes"].value == 60
    assert numbers["optimizer_bytes"].value == 120
    assert numbers["macs@phase forward"].value == 60
    assert numbers["macs@phase backward"].value == 40
    assert numbers["macs@phase update"].value == 0


def test_a_training_step_decodes_no_token() -> None:
    """Keys and values bound the time of a token in inference alone."""
    graph = network({}, caches=(3,))
    back = replace(graph, ops=(*graph.ops, replace(graph.ops[2], phase=Phase.BACKWARD)))

    for step, bounded in ((graph, True), (back, False)):
        numbers = measurements_of(
            *analyse_model(
                lambda _, g=step: g,  # type: ignore[misc]
                StaticOptions(),
                FORMULAS,
                lambda _: (DEVICES["a100"],),
            )
        )
        assert ("decode_latency@a100" in numbers) is bounded
        assert "roofline_latency@a100" in numbers


@pytest.mark.parametrize("router", ["", "gate"])
def test_experts_have_a_dense_total(router: str) -> None:
    """What 2 of 8 experts do would be done four times by all; the rest is done once."""
    prefix = "" if router == "" else "gate"
    graph = network({})
    ops = (graph.ops[0], replace(graph.ops[2], scope="experts.3"))
    modules = {"": "Net", "a": "Linear", "gate": "Router", "experts": "Experts"}
    routed = replace(graph, ops=ops, modules=modules, routings=(Routing(scope=prefix, experts=8, chosen=2),))

    assert analysis.dense_macs(AnalysedGraph.of(routed, FORMULAS)) == 60 + 4 * 40
    assert (
        measurements_of(*analyse_model(lambda _: routed, StaticOptions(), FORMULAS))["dense_macs"].value
        == 220
    )


def test_a_choice_without_experts_has_no_dense_total() -> None:
    """A top-k that routes nothing, such as one of a decoder, changes nothing."""
    graph = network({}, routings=(Routing(scope="a", experts=8, chosen=2),))

    assert analysis.dense_macs(AnalysedGraph.of(graph, FORMULAS)) is None


def test_sizes_that_vary_are_answered_by_formulas() -> None:
    """A grid is answered by polynomials, which agree with a trace at each of its points."""
    traced_sizes: list[dict[str, int]] = []

    def trace(sizes: Mapping[str, int]) -> Graph:
        traced_sizes.append(dict(sizes))
        return network(sizes)

    inspection = StaticOptions(vary={"batch": (2, 4, 8, 16, 32, 64, 128)}, devices=("h100",))
    parts = list(analyse_model(trace, inspection, FORMULAS, lambda _dtype: (DEVICES["h100"],)))
    top = outline(*parts)

    assert top.formulas["macs"] == "25*batch"
    assert top.domain == "batch >= 1 (traced to 128)"
    assert not top.traced
    assert len(traced_sizes) < 7
    assert [point.sizes["batch"] for point in top.points] == [2, 4, 8, 16, 32, 64, 128]
    for point in top.points:
        totals = AnalysedGraph.of(network(point.sizes), FORMULAS).totals()
        assert point.values["macs"] == totals.macs
        assert point.values["memory_peak"] == totals.memory_peak
        assert point.values["roofline_latency@h100"] > 0


def _jumping(sizes: Mapping[str, int]) -> Graph:
    """A network that goes another way from 8 samples on."""
    graph = network(sizes)
    return graph if sizes.get("batch", 4) < 8 else replace(graph, ops=graph.ops[:2])


def test_sizes_at_which_the_course_changes_are_traced() -> None:
    """Where no polynomial holds, every point is a trace, and the outline says so."""
    top = outline(*analyse_model(_jumping, StaticOptions(vary={"batch": (1, 2, 4, 8, 16)}), FORMULAS))

    assert top.traced
    assert (top.formulas, top.domain) == ({}, "")
    assert [point.values["macs"] for point in top.points] == [25, 50, 100, 8 * 15, 16 * 15]


def _alone(sizes: Mapping[str, int]) -> Graph:
    """A network that goes another way for a single sample."""
    graph = network(sizes)
    return graph if sizes.get("batch", 4) > 1 else replace(graph, ops=graph.ops[:2])


def test_one_sample_alone_may_be_an_exception() -> None:
    """Polynomials that hold from 2 samples on are kept, and 1 is traced."""
    elsewhere = SizeExtrapolator(TraceCache(_alone, FORMULAS, {"batch": 1}), {"batch": (1, 2, 4, 8, 16, 32)})

    assert elsewhere.family is not None
    assert elsewhere.family.domain() == "batch >= 2 (traced to 32)"
    assert elsewhere.at({"batch": 1})[0].macs == 15
    assert elsewhere.at({"batch": 7})[0].macs == 7 * 25


def test_only_one_sample_cannot_be_left_out() -> None:
    """Where 1 is all that is asked for, it is traced."""

    def odd(sizes: Mapping[str, int]) -> Graph:
        batch = sizes["batch"]
        return network(sizes) if batch % 2 else replace(network(sizes), ops=())

    elsewhere = SizeExtrapolator(TraceCache(odd, FORMULAS, {"batch": 1}), {"batch": (1,)})

    assert elsewhere.at({"batch": 1})[0].macs == 25


def test_the_largest_batch_fits_the_memory() -> None:
    """The largest batch is the last whose peak is within the memory, whatever else varies."""
    per_sample, fixed = 3 * FLOAT + 2 * 5 * FLOAT, 25 * FLOAT
    grids: tuple[dict[str, tuple[int, ...]], ...] = ({}, {"batch": (1, 2, 4, 64)})
    for vary in grids:
        inspection = StaticOptions(memory=fixed + 10 * per_sample + 1, vary=vary)
        assert measurements_of(*analyse_model(network, inspection, FORMULAS))["largest_batch"].value == 10


PER_SAMPLE, FIXED = (3 + 2 * 5) * FLOAT, 25 * FLOAT


def _answered(trace: Trace, memory: int, **options: object) -> tuple[float | None, list[str]]:
    """Give the largest batch, and what was doubted of it."""
    parts = list(analyse_model(trace, StaticOptions(memory=memory, **options), FORMULAS))  # type: ignore[arg-type]
    doubts = [part for part in parts if isinstance(part, Doubt)]
    assert all(doubt.code == "largest-batch" for doubt in doubts)
    answer = measurements_of(*parts).get("largest_batch")
    return None if answer is None else answer.value, [doubt.seen for doubt in doubts]  # type: ignore[return-value]


def _doubling(sizes: Mapping[str, int]) -> Graph:
    """A network that works in twice the width from 100 samples on."""
    graph = network(sizes)
    if sizes.get("batch", 4) <= 100:
        return graph
    wide = (replace(s, bytes=2 * s.bytes) if s.role is Role.ACTIVATION else s for s in graph.storages)
    return replace(graph, storages=tuple(wide))


def _halving(sizes: Mapping[str, int]) -> Graph:
    """A network that frees what it made first from 100 samples on."""
    graph = network(sizes)
    early = (replace(s, died=1) if s.born == 0 else s for s in graph.storages)
    return graph if sizes.get("batch", 4) < 100 else replace(graph, storages=tuple(early))


@pytest.mark.parametrize("vary", [{}, {"batch": (1, 4, 16)}])
@pytest.mark.parametrize(
    ("trace", "expected"), [(network, 180), (_doubling, (180 * 52) // 92), (_halving, (180 * 52) // 40)]
)
def test_the_largest_batch_is_traced(trace: Trace, expected: int, vary: dict[str, tuple[int, ...]]) -> None:
    """What small batches foretell is only where to look: by traces the answer fits, and the next does not."""
    memory = FIXED + 180 * PER_SAMPLE
    answer, doubts = _answered(trace, memory, vary=vary)

    assert (answer, doubts) == (expected, [])
    for size, fits in ((expected, True), (expected + 1, False)):
        assert (AnalysedGraph.of(trace({"batch": size}), FORMULAS).totals().memory_peak <= memory) is fits


def test_a_batch_that_the_network_refuses_is_told() -> None:
    """Where a batch cannot be analysed, the one before it is the largest, with the reason as a doubt."""

    def strict(sizes: Mapping[str, int]) -> Graph:
        if sizes.get("batch", 4) > 50:
            raise RequestError("It takes 50 at most.")
        return network(sizes)

    answer, (sentence,) = _answered(strict, FIXED + 180 * PER_SAMPLE)
    assert answer == 50
    assert sentence == "a batch of 51 cannot be analysed, whatever the memory: It takes 50 at most."
    assert _answered(strict, FIXED + 20 * PER_SAMPLE) == (20, [])


def test_sizes_that_the_network_refuses_are_left_out_and_told() -> None:
    """The others are answered; the first that is refused is named, with the reason."""

    def limited(sizes: Mapping[str, int]) -> Graph:
        if sizes["batch"] > 8:
            raise RequestError("Net cannot be analysed with x=9x3.")
        return network(sizes)

    parts = list(analyse_model(limited, StaticOptions(vary={"batch": (1, 8, 9, 64)}), FORMULAS))
    (doubt,) = (part for part in parts if isinstance(part, Doubt))

    assert [point.sizes["batch"] for point in outline(*parts).points] == [1, 8]
    assert doubt.code == "sizes-left-out"
    assert doubt.seen == (
        "2 of 4 sizes cannot be analysed and are left out; the first is batch 9: "
        "Net cannot be analysed with x=9x3"
    )


def test_memory_for_not_even_one_sample_is_an_answer() -> None:
    """The largest batch is then 0."""
    assert _answered(network, FIXED) == (0, [])


def test_without_a_limit_in_reach_that_is_told() -> None:
    """A memory that holds more than 2^20 samples gives no answer, and a doubt says why."""
    answer, (sentence,) = _answered(network, 2**60)
    assert answer is None
    assert sentence.endswith(": a batch of 1,048,576 fits 1,048,576 TiB, and none larger is tried")


def test_a_network_without_a_batch_has_no_largest_one() -> None:
    """Where no dimension is the batch, a doubt says so."""
    answer, (sentence,) = _answered(lambda _: replace(network({}), sizes={}), 100)
    assert answer is None
    assert "no dimension of the inputs is a batch" in sentence
    assert "largest-batch" in CODES


def test_no_size_is_traced_twice() -> None:
    """The first look, the grid and the largest batch share what was traced."""
    traced_sizes: list[tuple[tuple[str, int], ...]] = []

    def trace(sizes: Mapping[str, int]) -> Graph:
        all_sizes = {"batch": 1, "seq": 7} | dict(sizes)
        traced_sizes.append(tuple(sorted(all_sizes.items())))
        graph = network(all_sizes)
        return replace(graph, sizes=all_sizes)

    for vary in ({}, {"batch": (1, 2, 8, 64)}, {"seq": (7, 14)}, {"batch": (1, 2, 8), "seq": (7, 14, 28)}):
        traced_sizes.clear()
        assert _answered(trace, FIXED + 180 * PER_SAMPLE, vary=vary) == (180, [])
        assert len(traced_sizes) == len(set(traced_sizes)) <= 6 + 3 + 4 + 2


def test_graphs_are_let_go_of_once_polynomials_are_found() -> None:
    """What is kept of a size is what it adds up to; at a new one nothing else is kept from the beginning."""
    traces = TraceCache(network, FORMULAS, {"batch": 4})
    totals = traces.graph({"batch": 2}).totals()
    traces.forget()

    assert traces.at({"batch": 2})[0] == totals
    traces.at({"batch": 3})
    assert traces.graphs == {}


def test_devices_give_lower_bounds() -> None:
    """A device gives the bounds of one call and its own peaks; operator by operator takes no less."""
    numbers = measurements_of(
        *analyse_model(network, StaticOptions(), FORMULAS, lambda _dtype: (DEVICES["a100"],))
    )

    assert 0 < numbers["roofline_latency@a100"].value <= numbers["eager_latency@a100"].value  # type: ignore[operator]
    assert numbers["peak_flops@a100"].value == DEVICES["a100"].peak("float32")
    assert "decode_latency@a100" not in numbers


def test_a_device_of_unknown_speed_is_bounded_by_its_memory() -> None:
    """Where no peak is known in the dtype of the products, only what must move takes time."""
    slow = DevicePeaks(name="slow", flops={}, bandwidth=10.0, memory=1, source="")
    numbers = measurements_of(*analyse_model(network, StaticOptions(), FORMULAS, lambda _dtype: (slow,)))

    assert numbers["roofline_latency@slow"].value == (100 + 48 + 32) / 10
    assert "peak_flops@slow" not in numbers
    assert numbers["peak_bandwidth@slow"].value == 10.0


def test_keys_and_values_are_told_per_token() -> None:
    """What a call returns for later tokens is divided by its tokens, and bounds a step of generation."""
    graph = replace(network({}), sizes={"batch": 4, "seq": 2}, caches=(5,))
    parts = analyse_model(lambda _: graph, StaticOptions(), FORMULAS, lambda _dtype: (DEVICES["a100"],))
    numbers = measurements_of(*parts)

    assert numbers["kv_cache_per_token"].value == 32 / 8
    assert numbers["decode_latency@a100"].value > 0  # type: ignore[operator]


def test_products_have_a_dtype() -> None:
    """It is that of most MACs, else that of most bytes of operands, and float32 where nothing is computed."""

    def parts(dtype: str) -> Iterator[Op]:
        for op in network({}).ops:
            arguments = {
                name: replace(t, dtype=dtype) for name, t in op.arguments.items() if name != "causal"
            }
            yield Op(op.kind, arguments, op.outputs, op.scope)

    half = replace(network({}), ops=tuple(parts("bfloat16")))
    graph = replace(network({}), ops=tuple(parts("int64")))

    assert analysis.dominant_product_dtype(AnalysedGraph.of(half, FORMULAS)) == "bfloat16"
    assert analysis.dominant_product_dtype(AnalysedGraph.of(graph, FORMULAS)) == "float32"

    large, small = Tensor((1000,), "float32", 0), Tensor((9,), "float16", 1)
    calls = [Op("t.relu", {"x": tensor}, (tensor,)) for tensor in (small, small, large)]
    light = replace(network({}), ops=tuple(calls))
    assert analysis.dominant_product_dtype(AnalysedGraph.of(light, FORMULAS)) == "float32"


def _shown(**changes: object) -> dict[str, tuple[str, str]]:
    """Give what each module returns, and its kernel."""
    described = outline(*analyse_model(lambda sizes: network(sizes, **changes), StaticOptions(), FORMULAS))
    return {module.path: (module.output, module.kernel) for module in described.modules}


def test_modules_tell_what_they_return() -> None:
    """The last operator within a module tells, unless the loader saw what the module gave."""
    shapes = {"": ("4x2 float32", ""), "a": ("4x5 float32", ""), "b": ("4x2 float32", "")}

    assert _shown() == shapes | {"b.c": ("4x2 float32", "")}
    assert _shown(outputs={"b": "2x4 int8 and 1 more"})["b"] == ("2x4 int8 and 1 more", "")
    assert _shown(modules={"": "Net", "z": "Unused"})["z"] == ("", "")
    several = Op("t.split", {}, (Tensor((), "int64"), Tensor((2,), "int64")), "a")
    assert _shown(ops=(several, Op("t.none", {}, (), "a")))["a"] == ("scalar int64 and 1 more", "")


@pytest.mark.parametrize(
    ("kind", "arguments", "kernel"),
    [
        ("aten.convolution", {"weight": Tensor((8, 3, 5, 7), "float32")}, "5x7"),
        ("onnx.Conv", {"W": Tensor((8, 3, 3), "float32")}, "3"),
        ("onnx.Conv", {"W": "unknown"}, ""),
        ("onnx.Conv", {}, ""),
        ("aten.max_pool2d_with_indices", {"kernel_size": (2, 2)}, "2x2"),
        ("onnx.AveragePool", {"kernel_shape": [3, 1]}, "3x1"),
        ("aten.mm", {"weight": Tensor((8, 3, 5, 7), "float32")}, ""),
    ],
)
def test_a_layer_with_a_window_tells_its_size(kind: str, arguments: dict[str, object], kernel: str) -> None:
    """A convolution or a pooling has the size of its window; what holds other modules has none."""
    windowed = tuple(
        Op(kind, arguments, (Tensor((4, 2), "float32"),), scope) for scope in ("a", "b", "b.c", "")
    )
    windows = {path: window for path, (_, window) in _shown(ops=windowed).items()}

    assert windows == {"": "", "a": kernel, "b": "", "b.c": kernel}


def test_a_module_without_a_class_has_that_of_its_one_kind_of_operator() -> None:
    """Modules of ONNX are scopes without a class; one of two kinds, or one that holds others, keeps none."""
    both = Op("t.relu", {}, (Tensor((4, 2), "float32"),), "b.c")
    for ops, expected in ((network({}).ops, "mm"), ((*network({}).ops, both), "")):
        trace = partial(network, ops=ops, modules={"": "", "a": "Linear", "b": "", "b.c": ""})
        described = outline(*analyse_model(trace, StaticOptions(), FORMULAS))
        kinds = {module.path: module.kind for module in described.modules}
        assert kinds == {"": "", "a": "Linear", "b": "", "b.c": expected}
