from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.support import tiny_onnx as models

from modeldyno.base.job.model_ref import ModelRef
from modeldyno.models.loaders import onnx as loader
from modeldyno.models.static.weights import weight_measurements

if TYPE_CHECKING:
    from pathlib import Path

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT


def counted(path: Path) -> dict[str, float]:
    """Give parameters, buffers and bytes of a file."""
    model = loader.look(ModelRef(scheme="onnx", locator=str(path)), seed=0, trust=False)
    assert model.weights is not None
    result = {m.metric: m.value for m in weight_measurements(model.weights()) if not m.scope}
    return {name: float(str(result[name])) for name in ("parameters", "buffers", "weight_bytes")}


def parameters(path: Path) -> set[str]:
    """Give the names of the parameters of a file."""
    model = loader.look(ModelRef(scheme="onnx", locator=str(path)), seed=0, trust=False)
    assert model.weights is not None
    return {weight.name for weight in model.weights() if weight.parameter}


def with_constants(path: Path) -> Path:
    """Turn the initialisers of a file into nodes Constant, as Paddle2ONNX writes them."""
    model = onnx.load(path)
    held = [helper.make_node("Constant", [], [t.name], value=t) for t in model.graph.initializer]
    nodes = [*held, *model.graph.node]
    del model.graph.initializer[:], model.graph.node[:]
    model.graph.node.extend(nodes)
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize("make", [models.mlp, models.normalised])
def test_weights_in_constants_count_as_those_in_initialisers(tmp_path: Path, make: Any) -> None:
    """Where the exporter kept a weight changes neither parameters nor buffers of a layer."""
    kept = counted(make(tmp_path))
    held = counted(with_constants(make(tmp_path)))
    assert held["parameters"] == kept["parameters"] > 0
    assert make is models.normalised or held == kept


def test_weights_in_constants_of_branches_each_count(tmp_path: Path) -> None:
    """Both branches of an If hold weights, though their names are the same."""

    def branch(name: str) -> Any:
        weight = numpy_helper.from_array(np.ones((4, 3), np.float32))
        nodes = [
            helper.make_node("Constant", [], ["w"], value=weight),
            helper.make_node("MatMul", ["x", "w"], ["z"]),
        ]
        return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info("z", FLOAT, [1, 3])])

    branches = {"then_branch": branch("a"), "else_branch": branch("b")}
    path = models.save(
        tmp_path / "if.onnx", [("If", ["flag"], ["y"], branches)],
        {"x": ("FLOAT", [1, 4]), "flag": ("BOOL", [])}, {"y": ("FLOAT", [1, 3])}, {},
    )  # fmt: skip
    assert counted(path) == {"parameters": 24, "buffers": 0, "weight_bytes": 96}


def test_scales_and_zero_points_are_no_parameters(tmp_path: Path) -> None:
    """Of a quantised layer the weight and the bias count, each once, and what brings them to a scale not."""
    weights: dict[str, Any] = {
        "w": np.ones((3, 4), np.int8),
        "w_scale": np.ones(3, np.float32),
        "w_zero": np.zeros(3, np.int8),
        "bias": np.ones(3, np.int32),
        "bias_scale": np.ones(3, np.float32),
        "x_scale": np.array(0.1, np.float32),
        "x_zero": np.array(3, np.uint8),
        "shape": np.array([-1, 3]),
        "axes32": np.array([0], np.int32),
    }
    nodes = [
        ("QuantizeLinear", ["x", "x_scale", "x_zero"], ["q"]),
        ("DequantizeLinear", ["q", "x_scale", "x_zero"], ["d"]),
        ("DequantizeLinear", ["w", "w_scale", "w_zero"], ["dw"], {"axis": 0}),
        ("DequantizeLinear", ["bias", "bias_scale"], ["db"], {"axis": 0}),
        ("Gemm", ["d", "dw", "db"], ["z"], {"transB": 1}),
        ("Reshape", ["z", "shape"], ["y"]),
    ]
    shape = ("FLOAT", ["batch", 4])
    path = models.save(tmp_path / "q.onnx", nodes, {"x": shape}, {"y": ("FLOAT", None)}, weights)
    assert parameters(path) == {"w", "bias"}
    assert counted(path)["parameters"] == 15


def test_the_scale_of_the_result_of_a_quantised_product_is_no_parameter(tmp_path: Path) -> None:
    """ONNX Runtime's QGemm ends with the scale and zero point of its result; only weight and bias count."""
    weights: dict[str, Any] = {
        "w": np.ones((4, 3), np.int8),
        "bias": np.ones(3, np.int32),
        **dict.fromkeys(("x_scale", "w_scale", "y_scale"), np.array(0.1, np.float32)),
        **dict.fromkeys(("x_zero", "w_zero", "y_zero"), np.array(3, np.int8)),
    }
    scaled = ["x", "x_scale", "x_zero", "w", "w_scale", "w_zero", "bias", "y_scale", "y_zero"]
    nodes = [("QGemm", scaled, ["y"], {"domain": "com.microsoft"})]
    shape = ("INT8", ["batch", 4])
    path = models.save(tmp_path / "g.onnx", nodes, {"x": shape}, {"y": ("INT8", None)}, weights)
    assert parameters(path) == {"w", "bias"}


def test_single_numbers_count_only_as_weights(tmp_path: Path) -> None:
    """A bias of one number is a parameter; the constants of a formula are not."""
    weights = {
        "w": np.ones((4, 1), np.float32),
        "bias": np.ones(1, np.float32),
        "slope": np.ones(1, np.float32),
        "epsilon": np.array([1e-5], np.float32),
        "root": np.array(2, np.float32),
        "low": np.array(0, np.float32),
        "resize": np.array([1, 2], np.float32),
        "zero": np.array(0, np.float32),
        "one": np.ones(1, np.float32),
    }
    nodes = [
        ("MatMul", ["x", "w"], ["product"]),
        ("Add", ["product", "bias"], ["sum"]),
        ("PRelu", ["sum", "slope"], ["a"]),
        ("Add", ["a", "epsilon"], ["b"]),
        ("Div", ["b", "root"], ["c"]),
        ("Clip", ["c", "low"], ["d"]),
        ("Equal", ["d", "zero"], ["e"]),
        ("Less", ["one", "d"], ["f"]),
        ("Where", ["e", "zero", "d"], ["g"]),
        ("Where", ["f", "g", "d"], ["h"]),
        ("Resize", ["h", "", "resize"], ["y"]),
    ]
    path = models.save(
        tmp_path / "s.onnx", nodes, {"x": ("FLOAT", ["batch", 4])}, {"y": ("FLOAT", None)}, weights
    )
    assert parameters(path) == {"w", "bias", "slope"}


def test_weights_that_a_function_reads_have_the_roles_that_it_gives_them(tmp_path: Path) -> None:
    """A function of the file that takes a scale takes a scale; its own constants count once."""
    held = helper.make_node("Constant", [], ["m"], value=numpy_helper.from_array(np.ones((4, 2), np.float32)))
    inner = [
        helper.make_node("DequantizeLinear", ["q", "s"], ["w"]),
        held,
        helper.make_node("MatMul", ["a", "w"], ["z"]),
        helper.make_node("MatMul", ["z", "m"], ["b"]),
    ]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    function = helper.make_function("own", "Layer", ["a", "q", "s"], ["b"], inner, opsets[:1])
    tensors = {"q": np.ones((4, 4), np.int8), "s": np.ones(4, np.float32)}
    graph = helper.make_graph(
        [helper.make_node("Layer", ["x", "q", "s"], ["y"], domain="own")], "g",
        [helper.make_tensor_value_info("x", FLOAT, [1, 4])],
        [helper.make_tensor_value_info("y", FLOAT, [1, 2])],
        [numpy_helper.from_array(array, name) for name, array in tensors.items()],
    )  # fmt: skip
    path = tmp_path / "f.onnx"
    made = helper.make_model(graph, opset_imports=opsets, functions=[function], ir_version=8)
    path.write_bytes(made.SerializeToString())
    assert counted(path)["parameters"] == 16 + 8


@pytest.mark.parametrize("dynamo", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_parameters_agree_with_torch(tmp_path: Path, dynamo: bool) -> None:
    """A network exported by either exporter of torch has as many parameters as torch says."""
    torch = pytest.importorskip("torch")
    if dynamo:
        pytest.importorskip("onnxscript")
    nn = torch.nn

    class Net(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.table, self.norm = nn.Embedding(50, 16), nn.LayerNorm(16)
            self.last, self.activation = nn.Linear(16, 1), nn.PReLU()
            self.alpha, self.gamma = nn.Parameter(torch.tensor(0.5)), nn.Parameter(torch.ones(1))
            self.recurrent = nn.LSTM(16, 8, batch_first=True)
            self.block = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
            self.convolution, self.batch_norm = nn.Conv1d(16, 16, 3, padding=1), nn.BatchNorm1d(16)

        def forward(self, x: Any) -> Any:
            h = self.block(self.norm(self.table(x)))
            h = self.batch_norm(torch.sin(self.convolution(h.transpose(1, 2))))
            h = self.activation(h).transpose(1, 2)
            return self.recurrent(h)[0], self.last(h) * self.alpha * self.gamma / 3.7

    net, path = Net().eval(), tmp_path / "net.onnx"
    for tensor in net.parameters():
        nn.init.normal_(tensor)  # exporters keep one tensor of several that are equal
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = torch.zeros(2, 5, dtype=torch.int64)
        torch.onnx.export(net, (x,), path, dynamo=dynamo, verbose=False)
    assert counted(path)["parameters"] == sum(tensor.numel() for tensor in net.parameters())


# -- packed weights, and those that nothing reads --------------------------------------------------------


def bytes_tensor(name: str, *shape: int) -> Any:
    return numpy_helper.from_array(np.zeros(shape, np.uint8), name)


def packed_model(folder: Path, kind: str, operands: list[Any], **attributes: Any) -> Path:
    """Save a model of one operator of ONNX Runtime, with tensors, or names of inputs, as its operands."""
    tensors = [operand for operand in operands if not isinstance(operand, str)]
    names = [operand if isinstance(operand, str) else operand.name for operand in operands]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64 if name == "ids" else FLOAT, [4, 64])
        for name in names
        if name in {"x", "ids"}
    ]
    node = helper.make_node(kind, names, ["y"], domain="com.microsoft", **attributes)
    output = helper.make_tensor_value_info("y", FLOAT, None)
    graph = helper.make_graph([node], "packed", inputs, [output], tensors)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    path = folder / "packed.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=opsets).SerializeToString())
    return path


NBITS = {"K": 64, "N": 32, "block_size": 32}
PACKED: list[tuple[str, list[Any], dict[str, Any], int]] = [
    # 64 x 32 weights in 2, 3, 4, 5, 6, 7 and 8 bits: the bytes differ, the weights do not
    *(
        ("MatMulNBits", ["x", bytes_tensor("b", 32, 2, 4 * bits)], {**NBITS, "bits": bits}, 2048)
        for bits in range(2, 9)
    ),
    # 40 inputs in blocks of 32: 24 places of each second block are padding
    ("MatMulNBits", ["x", bytes_tensor("b", 32, 2, 16)], {**NBITS, "K": 40, "bits": 4}, 1280),
    # a projection that is left out
    ("MatMulNBits", ["x", bytes_tensor("b", 32, 0, 16)], {**NBITS, "bits": 4}, 0),
    # an odd number of weights
    ("MatMulBnb4", ["x", bytes_tensor("b", 33)], {"K": 13, "N": 5, "quant_type": 1}, 65),
    (
        "MatMulFpQ4",  # 64 x 8 weights in blocks of 32: 16 bytes, and 4 of a scale
        ["x", bytes_tensor("b", 8 * 2 * 20), numpy_helper.from_array(np.array([64, 8]), "B_shape")],
        {"blk_quant_type": 0},
        512,
    ),
    (
        "MatMulNBitsMlp",
        ["x", "", numpy_helper.from_array(np.ones(64, np.float32), "norm"), bytes_tensor("g", 32, 2, 16), "",
         "", bytes_tensor("u", 32, 2, 16)],
        {**NBITS, "bits": 4},
        64 + 2 * 2048,
    ),
    (
        "MatMulNBitsQkv",
        ["x", "", "", bytes_tensor("q", 32, 2, 16), "", "", bytes_tensor("k", 8, 2, 16), "", "",
         bytes_tensor("v", 8, 2, 16)],
        {"K": 64, "Nq": 32, "Nkv": 8, "bits": 4, "block_size": 32},
        64 * (32 + 8 + 8),
    ),
    (
        "MatMulNBitsQLoRA",  # rank 4, padded to a block of 16 on the way up
        ["x", bytes_tensor("w", 32, 2, 16), "", bytes_tensor("a", 4, 4, 8), "", bytes_tensor("b", 32, 1, 8)],
        {**NBITS, "bits": 4, "lora_bits": 4, "lora_block_size": 16},
        2048 + 4 * 64 + 4 * 32,
    ),
    ("MatMulPacked", ["x", bytes_tensor("b", 5, 36)], {"K": 64, "N": 5, "packed_type": 2}, 320),
    ("MatMulBlockQuantizedFp4Weight", ["x", bytes_tensor("b", 5, 32)], {}, 320),
    ("GatherBlockQuantized", [bytes_tensor("d", 100, 16), "ids"], {"bits": 2}, 6400),
    ("GatherBlockQuantized", [bytes_tensor("d", 100, 16), "ids"], {}, 3200),
    ("GatherBlockQuantized", [bytes_tensor("d", 100, 16), "ids"], {"bits": 8}, 1600),
    ("GatherPacked", [bytes_tensor("d", 100, 18), "ids"], {"K": 32}, 3200),
    (
        "QMoE",
        ["x", "p", bytes_tensor("f1", 8, 16, 8), "", "", bytes_tensor("f2", 8, 16, 8)],
        {"k": 2},
        2 * 8 * 16 * 16,
    ),
    (
        "QMoE",  # 8 bits in the first product, 2 in the second
        ["x", "p", bytes_tensor("f1", 8, 16, 16), "", "", bytes_tensor("f2", 8, 16, 4)],
        {"k": 2, "fc1_expert_weight_bits": 8, "expert_weight_bits": 2},
        2 * 8 * 16 * 16,
    ),
    (
        "MoEPacked",
        ["x", "p", bytes_tensor("g", 8, 32, 9), bytes_tensor("u", 8, 32, 9), bytes_tensor("d", 8, 16, 18)],
        {"k": 2},
        3 * 8 * 32 * 16,
    ),
    ("QAttention", ["x", bytes_tensor("w", 64, 192)], {"num_heads": 4}, 64 * 192),
    ("DynamicQuantizeMatMul", ["x", bytes_tensor("b", 64, 32)], {}, 2048),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "operands", "attributes", "expected"), PACKED, ids=lambda v: str(v)[:20])
def test_each_weight_counts_however_many_share_a_byte(
    tmp_path: Path, kind: str, operands: list[Any], attributes: dict[str, Any], expected: int
) -> None:
    """The parameters are those of the matrices, without padding; the bytes are those of the file."""
    tensors = [operand for operand in operands if not isinstance(operand, str)]
    path = packed_model(tmp_path, kind, operands, **attributes)
    result = counted(path)
    assert result["parameters"] == expected
    assert result["weight_bytes"] == sum(len(tensor.raw_data) for tensor in tensors)


def test_elements_of_four_bits_are_not_unpacked(tmp_path: Path) -> None:
    """Where the file has elements of 4 bits, each is one weight already."""
    table = helper.make_tensor("d", TensorProto.UINT4, [100, 32], bytes(1600), raw=True)
    assert (
        counted(packed_model(tmp_path, "GatherBlockQuantized", [table, "ids"], bits=4))["parameters"] == 3200
    )


def test_packed_weights_in_constants_and_behind_a_reshape_count(tmp_path: Path) -> None:
    """It does not matter where the exporter keeps them, or that they get another shape first."""
    path = with_constants(
        packed_model(tmp_path, "MatMulNBits", ["x", bytes_tensor("b", 1024)], **NBITS, bits=4)
    )
    assert counted(path)["parameters"] == 2048
    model = onnx.load(path)
    shape = numpy_helper.from_array(np.array([32, 2, 16]), "shape")
    model.graph.initializer.append(shape)
    model.graph.node[-1].input[1] = "reshaped"
    model.graph.node.insert(1, helper.make_node("Reshape", ["b", "shape"], ["reshaped"]))
    path.write_bytes(model.SerializeToString())
    assert counted(path)["parameters"] == 2048


def test_packed_weights_of_a_function_of_the_file_count(tmp_path: Path) -> None:
    """A function hides the operator; where it gives the sizes as attributes, the bytes say how many."""
    path = packed_model(tmp_path, "MatMulNBits", ["x", bytes_tensor("b", 32, 2, 16)], **NBITS, bits=4)
    model = onnx.load(path)
    opsets = list(model.opset_import)
    function = helper.make_function("local", "Product", ["x", "b"], ["y"], list(model.graph.node), opsets)
    model.functions.append(function)
    model.opset_import.append(helper.make_opsetid("local", 1))
    del model.graph.node[:]
    model.graph.node.append(helper.make_node("Product", ["x", "b"], ["y"], domain="local"))
    path.write_bytes(model.SerializeToString())
    assert counted(path)["parameters"] == 2048


def test_what_nothing_reads_is_no_part_of_the_model(tmp_path: Path) -> None:
    """An initialiser that no operator reads counts nowhere, and one sentence says so."""
    path = models.mlp(tmp_path)
    before = counted(path)
    model = onnx.load(path)
    model.graph.initializer.append(numpy_helper.from_array(np.zeros((100, 100), np.float32), "never"))
    path.write_bytes(model.SerializeToString())
    assert counted(path) == before
    (doubt,) = loader.look(ModelRef(scheme="onnx", locator=str(path)), seed=0, trust=False).doubts
    assert doubt.code == "unread-weights"
    assert "39.06 KiB" in doubt.seen
    model.graph.output.append(helper.make_tensor_value_info("never", FLOAT, [100, 100]))
    path.write_bytes(model.SerializeToString())
    assert counted(path)["parameters"] == before["parameters"] + 10_000
