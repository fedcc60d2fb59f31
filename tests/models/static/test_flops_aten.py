from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from modeldyno.models.flops import Count, aten_names, count_op
from modeldyno.models.flops.aten import ATEN
from modeldyno.models.flops.registry import describe_formula, formulas
from modeldyno.models.static.graph import Op, Tensor

if TYPE_CHECKING:
    from collections.abc import Callable


def t(*shape: int, dtype: str = "float32", storage: int = -1) -> Tensor:
    """Make a tensor of a shape."""
    return Tensor(shape, dtype, storage)


def cost(name: str, *outputs: Tensor, **arguments: Any) -> Count:
    """Count a call by its formula."""
    full = name if name in ATEN else f"aten.{name}"
    return ATEN[full](Op(full, arguments, outputs))


X = t(3, 8)
ELEMENTS = 24


@pytest.mark.parametrize(
    ("name", "arguments", "operations"),
    [
        ("add", {}, 1),
        ("add_", {"alpha": 2}, 2),
        ("mul", {"other": 2.0}, 1),
        ("div", {"other": X}, 1),
        ("div", {"other": X, "rounding_mode": "floor"}, 2),
        ("clamp", {"min": 0}, 1),
        ("clamp", {"min": 0, "max": 1}, 2),
        ("abs", {}, 1),
        ("relu_", {}, 1),
        ("sigmoid", {}, 4),
        ("silu", {}, 5),
        ("gelu", {}, 5),
        ("gelu", {"approximate": "tanh"}, 9),
        ("gelu_backward", {}, 11),
        ("gelu_backward", {"approximate": "tanh"}, 18),
        ("lerp", {}, 3),
        ("addcmul", {}, 3),
        ("addcdiv_", {}, 3),
        ("_softmax", {}, 5),
        ("max", {}, 1),
        ("max", {"other": X}, 1),
        ("dropout", {"train": True}, 2),
        ("native_dropout", {"train": None}, 2),
        ("native_dropout", {"train": False}, 0),
        ("sum", {}, 1),
        ("var", {}, 4),
        ("norm", {}, 2),
        ("linalg_norm", {"ord": "fro"}, 2),
        ("mse_loss", {"target": X}, 3),
        ("mse_loss", {"target": X, "reduction": 0}, 2),
        ("sort", {}, 3),
        ("sort", {"dim": 0}, 2),
        ("median", {}, 5),
        ("topk", {"k": 1}, 1),
        ("topk", {"k": 4}, 2),
        ("topk", {"k": 8}, 3),
        ("searchsorted", {"sorted_sequence": t(7)}, 3),
        ("bucketize", {"boundaries": t(8)}, 4),
    ],
)
def test_operations_for_each_element(name: str, arguments: dict[str, Any], operations: int) -> None:
    """What is not a product takes a stated number of operations for each element."""
    counted = cost(name, X, self=X, **arguments)

    assert (counted.macs, counted.elementwise) == (0, operations * ELEMENTS)


def test_small_cases() -> None:
    """Nothing is sorted in a number, a trace adds up the diagonal, and singular values have no formula."""
    norm = Op("aten.linalg_norm", {"self": X, "ord": "nuc"}, (t(),))

    assert cost("sort", t(), self=t()).elementwise == 0
    assert cost("trace", t(), self=t(3, 5)).elementwise == 3
    assert not count_op(norm, ATEN).known


def test_views_are_free() -> None:
    """A view computes, reads and writes nothing; a reshape does only where it gets memory of its own."""
    assert cost("view", X, self=X) == Count(read=0, written=0)
    assert cost("reshape", t(24, storage=1), self=t(3, 8, storage=1)) == Count(read=0, written=0)
    assert cost("reshape", t(24, storage=2), self=t(3, 8, storage=1)) == Count()
    assert cost("dropout", X, self=X, train=False) == Count(read=0, written=0)
    assert cost("to") == Count(read=0, written=0)


def test_copies_move_bytes() -> None:
    """A copy has traffic but no operations; what is made is not read."""
    filled = count_op(Op("aten.fill_", {"self": X, "value": 0}, (X,)), ATEN)
    taken = count_op(Op("aten.copy_", {"self": X, "src": t(8)}, (X,)), ATEN)
    joined = count_op(Op("aten.cat", {"tensors": [X, t(3, 8, storage=2)]}, (t(6, 8),)), ATEN)

    assert (filled.read, filled.written) == (0, 96)
    assert (taken.read, taken.written) == (32, 96)
    assert (joined.read, joined.written, joined.elementwise) == (192, 192, 0)


TABLE, ROWS = t(1000, 8), t(5, dtype="int64")


def test_lookups_read_what_they_find() -> None:
    """Only rows that are looked up are read, and one that is looked up twice is read twice."""
    counted = cost("embedding", t(5, 8), weight=TABLE, indices=ROWS)
    many = cost("embedding", t(5, 8), weight=t(2, 8), indices=ROWS)
    bag = cost("_embedding_bag", t(2, 8), weight=TABLE, indices=ROWS, offsets=t(2, dtype="int64"))
    weighted = cost("embedding_bag", t(2, 8), weight=TABLE, indices=ROWS, per_sample_weights=t(5))

    assert (counted.elementwise, counted.read) == (0, 5 * 8 * 4 + 40)
    assert many.read == 5 * 8 * 4 + 40
    assert (bag.elementwise, bag.read) == (40, 160 + 40 + 16)
    assert (weighted.elementwise, weighted.read) == (80, 160 + 40 + 20)
    assert cost("_embedding_bag_dense_backward", TABLE, grad=t(2, 8), indices=ROWS).elementwise == 40
    assert cost("index_select", t(5, 8), self=TABLE, dim=0, index=ROWS).read == 200
    assert cost("index", t(5, 8), self=TABLE, indices=[ROWS]).read == 200


def test_changes_in_place_touch_what_they_change() -> None:
    """In place, only the changed elements are written, and read where they are added to."""
    source = t(5, 8)
    arguments = {"self": TABLE, "dim": 0, "index": ROWS, "source": source}
    copied = cost("index_copy_", TABLE, **arguments)
    summed = cost("index_add_", TABLE, **arguments)

    assert copied == Count(read=40 + 160, written=160)
    assert summed == Count(elementwise=40, read=40 + 160 + 160, written=160)
    assert cost("index_add", TABLE, **arguments) == Count(elementwise=40)
    assert cost("index_add", TABLE, alpha=2, **arguments) == Count(elementwise=80)
    assert cost("scatter_add", X, self=X, dim=0, index=t(2, 8), src=X).elementwise == 16
    assert cost("scatter_", X, self=X, dim=0, index=t(2, 8), value=1, reduce="add").elementwise == 16
    assert cost("index_fill_", TABLE, self=TABLE, dim=0, index=ROWS, value=0).written == 160
    assert cost("index_fill_", t(), self=t(), dim=0, index=t(1, dtype="int64"), value=0).written == 4


@pytest.mark.parametrize(
    ("indices", "values", "changed"),
    [
        ([ROWS], t(5, 8), 40),
        ([None, ROWS], t(), 5000),
        ([ROWS, ROWS], t(5), 5),
        ([t(1000, dtype="bool")], t(), 8000),
        ([t(1000, dtype="bool")], t(3, 8), 24),
    ],
)
def test_index_put(indices: list[Tensor | None], values: Tensor, changed: int) -> None:
    """index_put changes what its indices select; a mask that hides how much changes at most all."""
    counted = cost("index_put_", TABLE, self=TABLE, indices=indices, values=values, accumulate=True)

    assert (counted.elementwise, counted.written) == (changed, 4 * changed)


WEIGHTS = {"weight": t(8), "bias": t(8)}


@pytest.mark.parametrize(
    ("name", "arguments", "operations"),
    [
        ("native_layer_norm", WEIGHTS, 7),
        ("layer_norm", {}, 5),
        ("native_group_norm", WEIGHTS, 7),
        ("rms_norm", {"weight": t(8)}, 4),
        ("native_batch_norm", {"training": True, **WEIGHTS}, 6),
        ("native_batch_norm", {"training": False, **WEIGHTS}, 2),
        ("instance_norm", {"use_input_stats": True}, 6),
        ("cudnn_batch_norm", {"running_mean": t(8)}, 2),
        ("_batch_norm_with_update", {}, 6),
        ("_native_batch_norm_legit_no_training", WEIGHTS, 2),
        ("native_layer_norm_backward", {"output_mask": (True, True, True), **WEIGHTS}, 13),
        ("native_layer_norm_backward", {"output_mask": (False, True, False)}, 2),
        ("_fused_rms_norm_backward", {"output_mask": (True, True), "weight": t(8)}, 9),
        ("native_batch_norm_backward", {"train": True, "output_mask": (True, True, True)}, 8),
        ("native_batch_norm_backward", {"train": False, "output_mask": (True, True, True)}, 5),
        ("native_batch_norm_backward", {"train": False, "output_mask": (True, False, False)}, 1),
        ("cudnn_batch_norm_backward", {}, 8),
    ],
)
def test_norms(name: str, arguments: dict[str, Any], operations: int) -> None:
    """A norm takes a stated number of operations for each element, as its gradients do."""
    assert cost(name, X, input=X, **arguments).elementwise == operations * ELEMENTS


def test_losses() -> None:
    """A likelihood takes two operations for each target, and reads no more than those it picks."""
    scores, target = t(4, 100), t(4, dtype="int64")

    assert cost("nll_loss_forward", t(), self=scores, target=target) == Count(elementwise=8, read=32 + 16)
    assert cost("cross_entropy_loss", t(), self=scores, target=target).elementwise == 5 * 400 + 8


def test_losses_of_linear_layers() -> None:
    """A layer fused with its loss takes its product once, and once for each gradient found on the way."""
    arguments = {"input": t(4, 5), "linear_weight": t(9, 5), "target": t(4, dtype="int64")}
    name = "torch_nn._linear_cross_entropy_batch_chunked"
    gradients = {"compute_input_grad": True, "compute_linear_weight_grad": True}
    alone = ATEN[name](Op(name, arguments, (t(),)))
    trained = ATEN[name](Op(name, arguments | gradients, (t(),)))

    assert (alone.macs, alone.elementwise) == (4 * 9 * 5, 4 * 9 * 5 + 8)
    assert (trained.macs, trained.elementwise) == (3 * 4 * 9 * 5, 4 * 9 * 7 + 8)


IMAGE = t(2, 3, 8, 6)


@pytest.mark.parametrize(
    ("name", "out", "arguments", "elementwise"),
    [
        ("avg_pool2d", t(2, 3, 4, 3), {"kernel_size": [2, 2]}, 72 * 4),
        ("max_pool2d", t(2, 3, 4, 2), {"kernel_size": 3}, 48 * 9),
        ("max_pool3d", t(2, 3, 2, 2, 2), {"kernel_size": (2,)}, 48 * 8),
        ("_adaptive_avg_pool2d", t(2, 3, 1, 1), {}, 6 * 48),
        ("_adaptive_avg_pool2d", t(2, 3, 3, 2), {}, 6 * (3 + 4 + 3) * 6),
        ("upsample_nearest2d", t(2, 3, 16, 12), {}, 0),
        ("upsample_bilinear2d", t(2, 3, 16, 12), {}, 7 * 6 * 192),
        ("upsample_bicubic2d", t(2, 3, 16, 12), {}, 31 * 6 * 192),
    ],
)
def test_windows(name: str, out: Tensor, arguments: dict[str, Any], elementwise: int) -> None:
    """Pooling takes its window for each output, and resampling a weighted sum of its taps."""
    assert cost(name, out, self=IMAGE, **arguments).elementwise == elementwise


def test_gradients_of_windows() -> None:
    """The gradient of each output goes to all that it was made of."""
    grad = t(2, 3, 4, 3)

    assert cost("avg_pool2d_backward", IMAGE, grad_output=grad, kernel_size=[2, 2]).elementwise == 72 * 4
    assert cost("max_pool2d_with_indices_backward", IMAGE, grad_output=grad).elementwise == 72
    assert cost("_adaptive_avg_pool2d_backward", grad_output=t(2, 3, 1, 1), self=IMAGE).elementwise == 288
    assert cost("upsample_bilinear2d_backward", IMAGE, grad_output=grad).elementwise == 72 * 8
    assert cost("upsample_nearest2d_backward", IMAGE, grad_output=grad).elementwise == 72


@pytest.mark.parametrize(("mode", "forward", "backward"), [(0, 7, 24), (1, 0, 1), (2, 31, 96)])
def test_grids(mode: int, forward: int, backward: int) -> None:
    """Sampling at a grid takes its taps; a nearest neighbour is only moved."""
    out, grid = t(2, 3, 5, 5), t(2, 5, 5, 2)
    ahead = cost("grid_sampler", out, input=IMAGE, grid=grid, interpolation_mode=mode)
    back = cost("grid_sampler_2d_backward", grad_output=out, input=IMAGE, grid=grid, interpolation_mode=mode)

    assert ahead.elementwise == forward * out.size
    assert back.elementwise == backward * out.size


def complex_(*shape: int) -> Tensor:
    """Make a complex tensor."""
    return t(*shape, dtype="complex64")


@pytest.mark.parametrize(
    ("name", "data", "out", "arguments", "elementwise"),
    [
        ("_fft_c2c", complex_(3, 8), complex_(3, 8), {"dim": [1]}, 5 * 24 * 3),
        ("_fft_r2c", t(3, 8), complex_(3, 5), {"dim": [1], "onesided": True}, 2.5 * 24 * 3),
        ("_fft_c2r", complex_(3, 5), t(3, 8), {"dim": [1], "last_dim_size": 8}, 2.5 * 24 * 3),
        ("fft_fft", t(3, 8), complex_(3, 8), {}, 2.5 * 24 * 3),
        ("fft_fft", complex_(3, 8), complex_(4, 8), {"dim": 0, "n": 4}, 5 * 32 * 2),
        ("fft_rfft", t(3, 8), complex_(3, 9), {"n": 16}, 2.5 * 48 * 4),
        ("fft_fft2", complex_(3, 8, 8), complex_(3, 8, 8), {}, 5 * 192 * 6),
        ("fft_rfft2", t(3, 8, 8), complex_(3, 8, 3), {"s": [8, 4]}, 2.5 * 96 * 5),
        ("fft_fftn", complex_(4, 8), complex_(4, 8), {}, 5 * 32 * 5),
        ("fft_fftn", complex_(3, 8), complex_(3, 4), {"s": [4]}, 5 * 12 * 2),
        ("fft_rfft", t(3, 0), complex_(3, 0), {}, 0),
    ],
)
def test_fourier_transforms(
    name: str, data: Tensor, out: Tensor, arguments: dict[str, Any], elementwise: float
) -> None:
    """A transform of N points takes 5 N log2 N operations, half where one side is real."""
    assert cost(name, out, self=data, **arguments).elementwise == elementwise


def test_short_time_transforms() -> None:
    """A spectrogram takes a window and a transform for each frame; its inverse adds frames up."""
    frame = 2.5 * 16 * 4

    assert cost("stft", complex_(9, 5), self=t(64), n_fft=16).elementwise == 5 * (frame + 16)
    assert cost("stft", t(9, 5, 2), self=t(64), n_fft=16, onesided=True).elementwise == 5 * (frame + 16)
    assert cost("stft", complex_(16, 5), self=complex_(64), n_fft=16).elementwise == 5 * (2 * frame + 32)
    assert cost("istft", t(64), self=complex_(9, 5), n_fft=16).elementwise == 5 * (frame + 32) + 64


def test_lists() -> None:
    """Operators on lists cost the sum over the list, and in place they write it."""
    tensors = [t(3, storage=1), t(4, 5, storage=2)]
    counted = cost("_foreach_addcmul_", self=tensors, tensor1=tensors, tensor2=tensors)

    assert counted == Count(elementwise=3 * 23, written=4 * 23)
    assert cost("_foreach_add", *tensors, self=tensors) == Count(elementwise=23)
    assert cost("_foreach_zero_", self=tensors) == Count(read=0, written=92)
    assert cost("_foreach_clone", *tensors, self=tensors) == Count()


@pytest.mark.parametrize(
    ("name", "arguments", "operations", "states"),
    [
        ("_fused_adam_", {}, 13, 2),
        ("_fused_adam_", {"weight_decay": 0.1, "amsgrad": True}, 16, 2),
        ("_fused_adamw_", {"weight_decay": 0.1, "maximize": True, "grad_scale": t()}, 16, 2),
        ("_fused_sgd_", {}, 2, 1),
        ("_fused_sgd_", {"momentum": 0.9, "is_first_step": True, "weight_decay": 0.1}, 4, 1),
        ("_fused_sgd_", {"momentum": 0.9, "nesterov": True}, 7, 1),
        ("_fused_adagrad_", {"weight_decay": 0.1}, 9, 1),
    ],
)
def test_optimisers(name: str, arguments: dict[str, Any], operations: int, states: int) -> None:
    """A fused optimiser takes a stated number of operations for each weight, and writes weight and state."""
    weights = [t(3), t(4, 5)]
    kept = {"adag": ["state_sums"], "sgd_": ["momentum_buffer_list"]}.get(
        name[7:11], ["exp_avgs", "exp_avg_sqs"]
    )
    counted = cost(name, self=weights, grads=weights, **dict.fromkeys(kept, weights), **arguments)

    assert counted == Count(elementwise=operations * 23, written=4 * 23 * (1 + states))


def test_every_name_stands_in_one_class() -> None:
    """No operator has two costs among the classes that share one."""
    classes = [
        aten_names.VIEWS,
        aten_names.METADATA,
        aten_names.MAYBE_VIEWS,
        aten_names.COPIES,
        aten_names.MAKERS,
        aten_names.DRAWS,
        aten_names.ONES,
        aten_names.SORTS,
        aten_names.WHOLE_SORTS,
        *aten_names.EACH.values(),
        *aten_names.OF_INPUT.values(),
        *aten_names.LOSSES.values(),
        *aten_names.LOSS_GRADIENTS.values(),
    ]

    assert sum(map(len, classes)) == len(frozenset().union(*classes))


def test_every_formula_states_its_convention() -> None:
    """Each formula tells in a sentence what it counts."""
    assert describe_formula(ATEN["aten.sigmoid"]).endswith(" operations = 4.")
    assert all(describe_formula(formula).startswith("Count ") for formula in ATEN.values())


def test_a_user_can_replace_a_formula() -> None:
    """The table has all dialects, and what is given goes first."""

    def own(_: Op) -> Count:
        return Count(macs=1)

    table = formulas({"aten.mm": own})

    assert table["aten.mm"] is own
    assert table["aten.bmm"] is ATEN["aten.bmm"]
    assert "onnx.Gemm" in formulas()


def test_names_are_those_of_torch() -> None:
    """Each operator of the core of PyTorch and each point-wise one has a formula."""
    torch = pytest.importorskip("torch")
    lacking = set()
    for schema in torch._C._jit_get_all_schemas():
        if not schema.name.startswith("aten::"):
            continue
        name = schema.name.removeprefix("aten::")
        packet = getattr(torch.ops.aten, name)
        tags = {tag for overload in packet.overloads() for tag in getattr(packet, overload).tags}
        if tags & {torch.Tag.core, torch.Tag.pointwise} and f"aten.{name}" not in ATEN:
            lacking.add(name)

    assert not lacking


def recorded(call: Callable[[Any, Any], object], *, inference: bool) -> list[Op]:
    """Run a call of PyTorch and give its operators; `inference` keeps those that others are made of."""
    torch = pytest.importorskip("torch")
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    ops: list[Op] = []

    def neutral(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            dtype = str(value.dtype).removeprefix("torch.")
            return Tensor(tuple(value.shape), dtype, value.untyped_storage()._cdata)
        return [neutral(item) for item in value] if isinstance(value, list | tuple) else value

    class Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            schema = func._schema
            positional = dict(zip((argument.name for argument in schema.arguments), args, strict=False))
            arguments = {name: neutral(value) for name, value in (positional | (kwargs or {})).items()}
            outputs = tuple(neutral(v) for v in tree_leaves(result) if isinstance(v, torch.Tensor))
            ops.append(Op(schema.name.replace("::", "."), arguments, outputs))
            return result

    with torch.inference_mode(inference), Mode():  # type: ignore[no-untyped-call]
        call(torch, torch.nn.functional)
    return ops


REAL: dict[str, tuple[Callable[[Any, Any], object], int, int]] = {
    "mm": (lambda t, _: t.rand(4, 5) @ t.rand(5, 6), 120, 0),
    "matmul": (lambda t, _: t.rand(2, 3, 4, 5) @ t.rand(3, 5, 6), 6 * 120, 0),
    "matmul vector": (lambda t, _: t.rand(4, 5) @ t.rand(5), 20, 0),
    "dot": (lambda t, _: t.rand(5) @ t.rand(5), 5, 0),
    "addmm": (lambda t, _: t.addmm(t.rand(6), t.rand(4, 5), t.rand(5, 6)), 120, 24),
    "baddbmm": (lambda t, _: t.baddbmm(t.rand(2, 4, 6), t.rand(2, 4, 5), t.rand(2, 5, 6)), 240, 48),
    "addbmm": (lambda t, _: t.addbmm(t.rand(4, 6), t.rand(2, 4, 5), t.rand(2, 5, 6)), 240, 24),
    "addmv": (lambda t, _: t.addmv(t.rand(4), t.rand(4, 5), t.rand(5)), 20, 4),
    "linear": (lambda t, f: f.linear(t.rand(4, 5), t.rand(6, 5), t.rand(6)), 120, 24),
    "linear without bias": (lambda t, f: f.linear(t.rand(2, 4, 5), t.rand(6, 5)), 240, 0),
    "einsum": (lambda t, _: t.einsum("bij,bjk->bik", t.rand(2, 4, 5), t.rand(2, 5, 6)), 240, 0),
    "tensordot": (lambda t, _: t.tensordot(t.rand(4, 2, 5), t.rand(2, 5, 6), dims=2), 240, 0),
    "outer": (lambda t, _: t.outer(t.rand(4), t.rand(5)), 0, 20),
    "complex mm": (
        lambda t, _: t.zeros(4, 5, dtype=t.complex64) @ t.zeros(5, 6, dtype=t.complex64),
        480,
        0,
    ),
    "int mm": (lambda t, _: t._int_mm(t.zeros(4, 8, dtype=t.int8), t.zeros(8, 8, dtype=t.int8)), 256, 0),
    "conv1d": (lambda t, f: f.conv1d(t.rand(2, 4, 9), t.rand(6, 4, 3), t.rand(6)), 84 * 12, 84),
    "conv2d": (lambda t, f: f.conv2d(t.rand(2, 4, 9, 9), t.rand(6, 4, 3, 3)), 6 * 98 * 36, 0),
    "conv2d same": (
        lambda t, f: f.conv2d(t.rand(1, 4, 9, 9), t.rand(6, 4, 3, 3), padding="same"),
        6 * 81 * 36,
        0,
    ),
    "conv2d grouped": (
        lambda t, f: f.conv2d(t.rand(1, 4, 9, 9), t.rand(6, 2, 3, 3), groups=2),
        6 * 49 * 18,
        0,
    ),
    "conv2d depthwise": (
        lambda t, f: f.conv2d(t.rand(1, 4, 9, 9), t.rand(4, 1, 3, 3), groups=4),
        4 * 49 * 9,
        0,
    ),
    "conv2d strided": (lambda t, f: f.conv2d(t.rand(1, 4, 9, 9), t.rand(6, 4, 3, 3), stride=2), 96 * 36, 0),
    "conv2d dilated": (
        lambda t, f: f.conv2d(t.rand(1, 4, 9, 9), t.rand(6, 4, 3, 3), dilation=2),
        150 * 36,
        0,
    ),
    "conv3d": (lambda t, f: f.conv3d(t.rand(1, 2, 5, 5, 5), t.rand(3, 2, 3, 3, 3)), 81 * 54, 0),
    "conv transpose": (
        lambda t, f: f.conv_transpose2d(t.rand(1, 4, 5, 5), t.rand(4, 6, 3, 3), stride=2),
        100 * 54,
        0,
    ),
    "conv transpose grouped": (
        lambda t, f: f.conv_transpose2d(t.rand(1, 4, 5, 5), t.rand(4, 3, 3, 3), groups=2),
        100 * 27,
        0,
    ),
    "batch norm": (
        lambda t, f: f.batch_norm(t.rand(2, 4, 5), t.rand(4), t.rand(4), t.rand(4), t.rand(4)),
        0,
        80,
    ),
    "layer norm": (lambda t, f: f.layer_norm(t.rand(3, 8), [8], t.rand(8), t.rand(8)), 0, 168),
    "group norm": (lambda t, f: f.group_norm(t.rand(2, 4, 5), 2), 0, 200),
    "softmax": (lambda t, f: f.softmax(t.rand(3, 8), -1), 0, 120),
    "log softmax": (lambda t, f: f.log_softmax(t.rand(3, 8), -1), 0, 120),
    "relu": (lambda t, f: f.relu(t.rand(3, 8)), 0, 24),
    "gelu": (lambda t, f: f.gelu(t.rand(3, 8)), 0, 120),
    "gelu tanh": (lambda t, f: f.gelu(t.rand(3, 8), approximate="tanh"), 0, 216),
    "silu": (lambda t, f: f.silu(t.rand(3, 8)), 0, 120),
    "sigmoid": (lambda t, _: t.sigmoid(t.rand(3, 8)), 0, 96),
    "tanh": (lambda t, _: t.tanh(t.rand(3, 8)), 0, 24),
    "hardswish": (lambda t, f: f.hardswish(t.rand(3, 8)), 0, 120),
    "leaky relu": (lambda t, f: f.leaky_relu(t.rand(3, 8)), 0, 48),
    "glu": (lambda t, f: f.glu(t.rand(3, 8)), 0, 60),
    "add broadcast": (lambda t, _: t.rand(3, 1) + t.rand(8), 0, 24),
    "in place": (lambda t, _: t.rand(3, 8).mul_(2).add_(1), 0, 48),
    "out": (lambda t, _: t.add(t.rand(3, 8), 1, out=t.empty(3, 8)), 0, 24),
    "compare": (lambda t, _: t.rand(3, 8) > 0, 0, 24),
    "where": (lambda t, _: t.where(t.ones(3, 8, dtype=t.bool), t.rand(3, 8), 0.0), 0, 24),
    "sum": (lambda t, _: t.rand(3, 8).sum(-1), 0, 24),
    "mean": (lambda t, _: t.rand(3, 8).mean(), 0, 24),
    "argmax": (lambda t, _: t.rand(3, 8).argmax(-1), 0, 24),
    "cumsum": (lambda t, _: t.rand(3, 8).cumsum(-1), 0, 24),
    "sort": (lambda t, _: t.rand(3, 8).sort(), 0, 72),
    "views": (lambda t, _: t.rand(3, 8).view(4, 6).t().unsqueeze(0).expand(2, 6, 4)[0, 1:], 0, 0),
    "copies": (lambda t, _: t.cat([t.rand(3, 8), t.rand(3, 8)]).flip(0).contiguous().clone(), 0, 0),
    "constants": (lambda t, _: (t.zeros(3), t.arange(4), t.rand(3).normal_()), 0, 0),
    "embedding": (lambda t, f: f.embedding(t.zeros(4, dtype=t.int64), t.rand(9, 8)), 0, 0),
    "index": (lambda t, _: t.rand(9, 8)[t.zeros(4, dtype=t.int64)], 0, 0),
    "max pool": (lambda t, f: f.max_pool2d(t.rand(1, 2, 8, 8), 2), 0, 128),
    "average pool": (lambda t, f: f.avg_pool2d(t.rand(1, 2, 8, 8), 2), 0, 128),
    "adaptive pool": (lambda t, f: f.adaptive_avg_pool2d(t.rand(1, 2, 7, 8), 2), 0, 2 * 8 * 8),
    "bilinear": (
        lambda t, f: f.interpolate(t.rand(1, 2, 4, 4), size=(8, 8), mode="bilinear"),
        0,
        7 * 128,
    ),
    "fft": (lambda t, _: t.fft.fft(t.zeros(3, 8, dtype=t.complex64)), 0, 360),
    "rfft": (lambda t, _: t.fft.rfft(t.rand(3, 8)), 0, 180),
    "dropout at inference": (lambda t, f: f.dropout(t.rand(3, 8), training=False), 0, 0),
    "linear solve": (lambda t, _: t.linalg.solve(t.eye(4), t.rand(4, 3)), 14 + 3 * 12, 6 + 12),
}
"""A call, its MACs and its element-wise operations, worked out by hand."""


@pytest.mark.parametrize("inference", [False, True], ids=("leaves", "whole"))
@pytest.mark.parametrize("name", REAL)
def test_calls_of_torch(name: str, inference: bool) -> None:
    """Real calls cost what their closed forms say, whether operators arrive whole or taken apart."""
    call, macs, elementwise = REAL[name]
    counts = [count_op(op, ATEN) for op in recorded(call, inference=inference)]

    assert all(count.known for count in counts)
    assert sum(count.macs for count in counts) == macs
    assert sum(count.elementwise for count in counts) == elementwise


@pytest.mark.parametrize("causal", [False, True])
def test_attention_of_torch(causal: bool) -> None:
    """Attention over 5 queries and keys takes two products, of which a causal mask hides ten pairs a head."""
    ops = recorded(
        lambda t, f: f.scaled_dot_product_attention(*t.rand(3, 2, 4, 5, 16), is_causal=causal), inference=True
    )
    counts = [count_op(op, ATEN) for op in ops]

    assert all(count.known for count in counts)
    assert sum(count.macs for count in counts) == 2 * 4 * 25 * 32
    assert sum(count.skippable for count in counts) == causal * 2 * 4 * 10 * 32


def test_training_of_torch() -> None:
    """Backward of two linear layers takes their forward twice, but for the gradient of the data."""

    def train(torch: Any, functional: Any) -> None:
        first, second = torch.nn.Linear(5, 6), torch.nn.Linear(6, 7)
        scores = second(first(torch.rand(4, 5)).relu())
        functional.cross_entropy(scores, torch.zeros(4, dtype=torch.int64)).backward()
        torch.optim.AdamW([*first.parameters(), *second.parameters()], fused=True).step()

    counts = [count_op(op, ATEN) for op in recorded(train, inference=False)]

    assert all(count.known for count in counts)
    assert sum(count.macs for count in counts) == 3 * (4 * 5 * 6 + 4 * 6 * 7) - 4 * 5 * 6


@pytest.mark.parametrize("inference", [False, True], ids=("leaves", "whole"))
@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_recurrence_of_torch(kind: str, inference: bool) -> None:
    """Two layers in two directions take each of their matrices once for each token."""

    def run(torch: Any, _: Any) -> None:
        getattr(torch.nn, kind)(6, 5, num_layers=2, bidirectional=True)(torch.rand(7, 3, 6))

    counts = [count_op(op, ATEN) for op in recorded(run, inference=inference)]
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[kind]

    assert all(count.known for count in counts)
    assert sum(count.macs for count in counts) == 21 * 2 * gates * 5 * (6 + 5 + 10 + 5)


@pytest.mark.parametrize(("name", "data"), [("quantized_lstm", "input"), ("quantized_gru", "data")])
def test_layers_with_packed_weights_are_counted_by_their_shapes(name: str, data: str) -> None:
    """Two layers of 4 units in one direction, on 3 steps of 2 samples with 5 values."""
    gates, operations = (4, 22) if name == "quantized_lstm" else (3, 16)
    first = [(gates * 4, 5), (gates * 4, 4), (gates * 4,), (gates * 4,)]
    second = [(gates * 4, 4), (gates * 4, 4), (gates * 4,), (gates * 4,)]
    counted = cost(name, t(3, 2, 4), hx=[t(2, 2, 4)], params=[first, second], **{data: t(3, 2, 5)})

    matrices = gates * 4 * (5 + 4 + 4 + 4)
    assert counted.macs == 6 * matrices
    assert counted.elementwise == 6 * (4 * gates * 4 + 2 * 4 * operations)  # of biases and of units


def test_a_cell_with_packed_weights_is_one_step() -> None:
    """Both products of 2 samples, and its biases."""
    counted = cost(
        "quantized.quantized_lstm_cell_dynamic",
        t(2, 4),
        input=t(2, 5),
        hx=[t(2, 4), t(2, 4)],
        w_ih=(16, 5),
        w_hh=(16, 4),
        bias_ih=t(16),
        bias_hh=t(16),
    )
    assert counted.macs == 2 * 16 * (5 + 4)


def test_a_transposed_convolution_with_packed_filters_is_counted_by_its_input() -> None:
    """Each of the 2 x 3 x 8 x 8 elements meets 4 filters of 3 x 3."""
    counted = cost(
        "quantized.conv_transpose2d", t(2, 4, 10, 10), qx=t(2, 3, 8, 8), packed_weight=(3, 4, 3, 3)
    )
    assert counted.macs == 2 * 3 * 8 * 8 * 4 * 9
