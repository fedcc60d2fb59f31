from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.support import tiny_onnx as models

from modeldyno.base.errors import RequestError, SizesRefused
from modeldyno.base.job.input_spec import parse_input
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.engine.data.assumed_sizes import assume_sizes
from modeldyno.engine.data.batches import build_payloads, resolve_inputs
from modeldyno.models.interface import Tracing
from modeldyno.models.loaders import onnx as loader
from modeldyno.models.loaders.onnx_tracing.free_sizes import compared_constants, expected_sizes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from modeldyno.models.interface import Model
    from modeldyno.models.static.graph import Graph

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper


def read_model(path: Path) -> Model:
    return loader.look(ModelRef(scheme="onnx", locator=str(path)), seed=0, trust=False)


def assumed(path: Path, *requests: str, refused: Any = ()) -> Mapping[str, int]:
    """Return the sizes that are assumed for a file."""
    requested = tuple(map(parse_input, requests))
    return assume_sizes(read_model(path), requested, batch_size=None, sizes={}, refused=refused).assumed


def at(path: Path, *requests: str) -> Graph:
    """Analyse a file at the requested sizes."""
    model = read_model(path)
    requested = tuple(map(parse_input, requests))
    payload = build_payloads(model, requested, batch_size=None, seed=0)
    declared = resolve_inputs(model, requested, batch_size=None, sizes={})
    assert model.graph is not None
    values = zip(declared.inputs, payload.used, strict=True)
    shaped = tuple(spec.__class__(name=spec.name, shape=used.shape, dtype=spec.dtype, low=spec.low,
                                  high=spec.high) for spec, used in values)  # fmt: skip
    return model.graph(Tracing(inputs=shaped, sizes=declared.bound))


def reader_of_lines(folder: Path) -> Path:
    """Write a reader of lines of text: a window over all 48 rows, of which one must be left."""
    weights = {"w": np.ones((4, 3, 48, 1), np.float32), "axes": np.array([2])}
    nodes = [
        ("Conv", ["x", "w"], ["columns"]),
        ("Squeeze", ["columns", "axes"], ["line"]),
        ("Transpose", ["line"], ["y"], {"perm": [0, 2, 1]}),
    ]
    shape = ("FLOAT", ["DynamicDimension.0", 3, "?", "DynamicDimension.1"])
    return models.save(folder / "line.onnx", nodes, {"x": shape}, {"y": ("FLOAT", None)}, weights)


def detector(folder: Path, *, noted: str = "") -> Path:
    """Write a model that halves images twice and concatenates the halves: sides are multiples of 4."""
    weights = {"w": np.ones((3, 3, 2, 2), np.float32), "twice": np.array([1, 1, 2, 2], np.float32)}
    half = {"strides": [2, 2], "kernel_shape": [2, 2]}
    nodes = [
        ("Conv", ["images", "w"], ["half"], half),
        ("Conv", ["half", "w"], ["quarter"], half),
        ("Resize", ["quarter", "", "twice"], ["again"]),
        ("Concat", ["half", "again"], ["y"], {"axis": 1}),
    ]
    shape = ("FLOAT", ["batch", 3, "height", "width"])
    path = models.save(folder / "d.onnx", nodes, {"images": shape}, {"y": ("FLOAT", None)}, weights)
    if noted:
        model = onnx.load(path)
        helper.set_model_props(model, {"imgsz": noted})
        path.write_bytes(model.SerializeToString())
    return path


def listener(folder: Path) -> Path:
    """Write an audio model with windows of 256 samples, for two sampling rates, and a state."""

    def branch(name: str, window: int) -> Any:
        tensor = helper.make_tensor("w", TensorProto.FLOAT, [8, 1, window], [1.0] * 8 * window)
        nodes = [
            helper.make_node("Constant", [], [f"{name}_w"], value=tensor),
            helper.make_node("Conv", ["signal", f"{name}_w"], ["z"], strides=[window]),
        ]
        return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info("z", 1, None)])

    branches = {"then_branch": branch("fast", 256), "else_branch": branch("slow", 64)}
    weights = {"axis": np.array([1]), "fast": np.array(16_000)}
    nodes = [
        ("Unsqueeze", ["input", "axis"], ["signal"]),
        ("Equal", ["sr", "fast"], ["is_fast"]),
        ("If", ["is_fast"], ["y"], branches),
        ("Identity", ["state"], ["next"]),
    ]
    inputs = {"input": ("FLOAT", [None, None]), "state": ("FLOAT", [2, None, 4]), "sr": ("INT64", [])}
    outputs = {"y": ("FLOAT", None), "next": ("FLOAT", None)}
    return models.save(folder / "sound.onnx", nodes, inputs, outputs, weights)


def test_sizes_that_the_network_refuses_are_passed_over(tmp_path: Path) -> None:
    """The default squares do not leave one row; lines of 48 rows do."""
    assert assumed(reader_of_lines(tmp_path)) == {"x_dim2": 48, "DynamicDimension.1": 320}
    assert assumed(detector(tmp_path)) == {"height": 224, "width": 224}


def test_sizes_that_the_exporter_noted_come_first(tmp_path: Path) -> None:
    """A detector made for 640x320 is inspected at that size; a malformed note is ignored."""
    assert assumed(detector(tmp_path, noted="[640, 320]")) == {"height": 640, "width": 320}
    assert assumed(detector(tmp_path, noted="320")) == {"height": 320, "width": 320}
    for nonsense in ("[640", "[1, 2, 3]", "[639, 639]"):
        assert assumed(detector(tmp_path, noted=nonsense)) == {"height": 224, "width": 224}


def test_what_was_given_is_kept(tmp_path: Path) -> None:
    """With all sizes given nothing is assumed; with some, only the others."""
    assert assumed(detector(tmp_path), "images=1x3x64x32") == {}
    model = assume_sizes(read_model(detector(tmp_path)), (), batch_size=2, sizes={"height": 48})
    assert model.assumed == {"width": 320}
    payload = build_payloads(model, (), batch_size=2, seed=0, sizes={"height": 48})
    assert payload.used[0].shape == (2, 3, 48, 320)
    (doubt,) = payload.doubts
    assert doubt.code == "assumed-sizes"
    assert "width 320 was assumed" in doubt.seen


def test_what_the_runtime_refused_is_not_assumed_again(tmp_path: Path) -> None:
    """After a failed guess comes the next one that shape inference accepts."""
    path = detector(tmp_path)
    first = assumed(path)
    second = assumed(path, refused=[(first, "it failed")])
    assert second == {"height": 320, "width": 320}


def test_default_lengths_are_reported_only_where_they_are_rejected(tmp_path: Path) -> None:
    """A sequence has length 128 silently; a window of 256 needs 512, which is reported."""
    assert assumed(models.embedding(tmp_path)) == {}
    weights = {"w": np.ones((2, 1, 256), np.float32), "axis": np.array([1])}
    nodes = [("Unsqueeze", ["x", "axis"], ["signal"]), ("Conv", ["signal", "w"], ["y"])]
    shape = ("FLOAT", ["batch", "sequence"])
    path = models.save(tmp_path / "w.onnx", nodes, {"x": shape}, {"y": ("FLOAT", None)}, weights)
    assert assumed(path) == {"sequence": 512}
    assert assume_sizes(read_model(path), (), batch_size=None, sizes={}, prove=False).assumed == {}


def test_all_missing_sizes_are_named_when_no_guess_works(tmp_path: Path) -> None:
    """One sentence names every dynamic size, an option that gives them, and why a guess was rejected."""
    weights = {"w": np.ones((2, 3, 1000, 1000), np.float16)}
    shape = ("FLOAT16", ["batch", 3, "height", "width"])
    path = models.save(
        tmp_path / "big.onnx", [("Conv", ["x", "w"], ["y"])], {"x": shape}, {"y": ("FLOAT16", None)},
        weights,
    )  # fmt: skip
    with pytest.raises(RequestError) as error:
        assumed(path)
    assert "Sizes are missing: height, width of the input 'x' [batch, 3, height, width]" in str(error.value)
    assert "`inputs=x=batchx3xNxN`" in str(error.value)
    assert "a window of 1000 for 224 values" in str(error.value)


def test_a_value_that_was_given_chooses_the_branch(tmp_path: Path) -> None:
    """The branch that runs is counted, and the default is a sampling rate that the model checks for."""
    path = listener(tmp_path)
    assert {spec.name: (spec.low, spec.high) for spec in read_model(path).inputs}["sr"] == (16_000, 16_000)
    assert assumed(path) == {"input_dim1": 512, "state_dim1": 1}
    shapes = ("input=1x512", "state=2x1x4")
    for rate, outputs in ((16_000, 2), (8_000, 8)):
        result = at(path, *shapes, f"sr=scalar:int64:{rate}")
        assert result.assumptions == ()
        assert next(op for op in result.ops if op.kind == "onnx.Conv").outputs[0].shape == (1, 8, outputs)
    with pytest.raises(SizesRefused, match="a window of 256 for 128 values"):
        at(path, "input=1x128", "state=2x1x4", "sr=scalar:int64:16000")


def test_a_branch_that_refuses_the_sizes_is_not_taken(tmp_path: Path) -> None:
    """Where the value is unknown, a branch that cannot run is skipped; where neither can, it is an error."""
    path = listener(tmp_path)
    result = at(path, "input=1x128", "state=2x1x4", "sr=scalar:int64:0..9")
    assert ["the only one that accepts these sizes" in text for text in result.assumptions] == [True]
    with pytest.raises(SizesRefused, match="a window of 256 for 32"):
        at(path, "input=1x32", "state=2x1x4", "sr=scalar:int64:0..9")


def test_a_value_out_of_a_file_chooses_the_branch(tmp_path: Path) -> None:
    """Data of one integer is as good as a range of one value."""
    path, file = listener(tmp_path), tmp_path / "x.npz"
    np.savez(
        file, input=np.zeros((1, 512), np.float32), state=np.zeros((2, 1, 4), np.float32), sr=np.array(8000)
    )
    declared = resolve_inputs(read_model(path), (parse_input(str(file)),), batch_size=None, sizes={})
    assert {spec.name: (spec.low, spec.high) for spec in declared.inputs}["sr"] == (8000, 8000)


@pytest.mark.parametrize(
    ("node", "weights", "shape", "expected"),
    [
        (("Conv", ["x", "w"], ["y"], {"group": 2}), {"w": (4, 3, 1)}, ["batch", "c", 9], {"c": 6}),
        (("MatMul", ["x", "w"], ["y"]), {"w": (7, 2)}, ["batch", "n"], {"n": 7}),
        (("Gemm", ["x", "w"], ["y"], {"transB": 1}), {"w": (7, 2)}, ["batch", "n"], {"n": 2}),
        (("LSTM", ["x", "w", "r"], ["y"], {"hidden_size": 2}), {"w": (1, 8, 5), "r": (1, 8, 2)},
         ["time", "batch", "n"], {"n": 5}),
        (("MatMul", ["w", "x"], ["y"]), {"w": (7, 2)}, ["batch", "n"], {}),
        (("Relu", ["x"], ["y"]), {}, ["batch", "n"], {}),
    ],
)  # fmt: skip
def test_weights_speak_for_the_sizes_that_they_meet(
    tmp_path: Path, node: Any, weights: Any, shape: list[str], expected: dict[str, int]
) -> None:
    """The first operator with a weight determines the width of its input."""
    arrays = {name: np.ones(dims, np.float32) for name, dims in weights.items()}
    path = models.save(tmp_path / "m.onnx", [node], {"x": ("FLOAT", shape)}, {"y": ("FLOAT", None)}, arrays)
    assert expected_sizes(onnx.load(path), read_model(path).inputs) == expected


def test_inputs_are_followed_to_the_weights(tmp_path: Path) -> None:
    """Casts, scales, transpositions and the target of a Reshape are followed."""
    nodes = [
        ("Cast", ["x"], ["a"], {"to": 1}),
        ("Mul", ["a", "half"], ["b"]),
        ("Transpose", ["b"], ["c"], {"perm": [0, 3, 1, 2]}),
        ("Conv", ["c", "w"], ["y"]),
        ("Reshape", ["z", "target"], ["v"]),
    ]
    weights = {"w": np.ones((4, 5, 1, 1), np.float32), "half": np.array(0.5, np.float32)}
    inputs = {"x": ("UINT8", ["batch", "h", "w", "c"]), "z": ("FLOAT", ["batch", "n"])}
    outputs = {"y": ("FLOAT", None), "v": ("FLOAT", None)}
    path = models.save(
        tmp_path / "m.onnx", nodes, inputs, outputs, weights | {"target": np.array([-1, 2, 8])}
    )
    assert expected_sizes(onnx.load(path), read_model(path).inputs) == {"c": 5, "n": 16}


def test_a_number_that_nothing_is_compared_with_stays_open(tmp_path: Path) -> None:
    """Only a single integer that an input is compared with becomes its value."""
    nodes = [
        ("Identity", ["a"], ["e"]),
        ("Equal", ["e", "two"], ["x"]),
        ("Equal", ["b", "many"], ["y"]),
        ("Equal", ["half", "c"], ["z"]),
    ]
    inputs: dict[str, tuple[str, Any]] = {"a": ("INT64", []), "b": ("INT64", []), "c": ("FLOAT", [])}
    weights = {"two": np.array([2]), "many": np.array([2, 3]), "half": np.array(0.5, np.float32)}
    outputs: Mapping[str, tuple[str, Any]] = dict.fromkeys("xyz", ("BOOL", None))
    path = models.save(tmp_path / "m.onnx", nodes, inputs, outputs, weights)
    assert compared_constants(onnx.load(path).graph) == {"a": 2}
