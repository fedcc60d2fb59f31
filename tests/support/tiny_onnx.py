"""Tiny ONNX models with known behaviour, written into a directory.

Each function writes one model and returns its path. Weights are fixed, and so are the digests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy import ndarray

    Values = Mapping[str, tuple[str, Any]]

VOCABULARY = 17
"""Rows of the table in `embedding`."""
_OPSET = 17
_IR = 8


def mlp(
    folder: Path, *, features: int = 4, hidden: int = 8, batch: str | int = "batch", seed: int = 0
) -> Path:
    """Write relu(x @ w1 + b1) @ w2, with the output ``y`` of 2 columns."""
    random = np.random.default_rng(seed)
    weights = {
        "w1": random.standard_normal((features, hidden), np.float32),
        "b1": random.standard_normal(hidden, np.float32),
        "w2": random.standard_normal((hidden, 2), np.float32),
    }
    nodes = [
        ("MatMul", ["x", "w1"], ["product"]),
        ("Add", ["product", "b1"], ["sum"]),
        ("Relu", ["sum"], ["hidden"]),
        ("MatMul", ["hidden", "w2"], ["y"]),
    ]
    inputs: Values = {"x": ("FLOAT", [batch, features])}
    return save(folder / "mlp.onnx", nodes, inputs, {"y": ("FLOAT", [batch, 2])}, weights)


def embedding(folder: Path) -> Path:
    """Write a text model: rows of a table of VOCABULARY rows, summed where the mask is 1."""
    table = np.arange(VOCABULARY * 3, dtype=np.float32).reshape(VOCABULARY, 3)
    types = np.ones((2, 3), np.float32)
    nodes = [
        ("Cast", ["input_ids"], ["ids"], {"to": 6}),
        ("Gather", ["table", "ids"], ["words"]),
        ("Gather", ["types", "token_type_ids"], ["kinds"]),
        ("Add", ["words", "kinds"], ["both"]),
        ("Unsqueeze", ["attention_mask", "last"], ["column"]),
        ("Cast", ["column"], ["weight"], {"to": 1}),
        ("Mul", ["both", "weight"], ["kept"]),
        ("ReduceSum", ["kept", "middle"], ["pooled"], {"keepdims": 0}),
    ]
    text = ("INT64", ["batch_size", "sequence_length"])
    inputs: Values = {"input_ids": text, "attention_mask": text, "token_type_ids": text}
    outputs: Values = {"pooled": ("FLOAT", ["batch_size", 3])}
    constants = {"last": np.array([2]), "middle": np.array([1])}
    weights = {"table": table, "types": types, **constants}
    return save(folder / "embedding.onnx", nodes, inputs, outputs, weights)


def normalised(folder: Path) -> Path:
    """Write a batch normalisation of 3 channels: scale and bias, running mean and variance."""
    names = ("scale", "bias", "mean", "variance")
    weights = {name: np.ones(3, np.float32) for name in names}
    shape = ("FLOAT", ["N", 3, 2, 2])
    nodes = [("BatchNormalization", ["x", *names], ["y"])]
    return save(folder / "normalised.onnx", nodes, {"x": shape}, {"y": shape}, weights)


def external(folder: Path, *, location: str = "weights.bin") -> Path:
    """Write `mlp` with its weights in another file; the model expects them at `location`."""
    import onnx

    path = mlp(folder)
    model = onnx.load(path)
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    if location != "weights.bin":
        model = onnx.load(path, load_external_data=False)
        for tensor in model.graph.initializer:
            entry = next(entry for entry in tensor.external_data if entry.key == "location")
            entry.value = location
        path.write_bytes(model.SerializeToString())
    return path


def not_a_number(folder: Path) -> Path:
    """Write log(-1 - |x|), which is NaN everywhere."""
    nodes = [
        ("Abs", ["x"], ["size"]),
        ("Sub", ["minus_one", "size"], ["negative"]),
        ("Log", ["negative"], ["y"]),
    ]
    shape = ("FLOAT", ["batch", 4])
    weights = {"minus_one": np.array([-1], np.float32)}
    return save(folder / "nan.onnx", nodes, {"x": shape}, {"y": shape}, weights)


def wrong_shape(folder: Path) -> Path:
    """Write a model that declares an output of batch x 4, but returns 2 x batch x 2."""
    nodes = [("Reshape", ["x", "shape"], ["y"])]
    weights = {"shape": np.array([2, -1, 2])}
    shape = ("FLOAT", ["batch", 4])
    return save(folder / "wrong_shape.onnx", nodes, {"x": shape}, {"y": shape}, weights)


def string_model(folder: Path) -> Path:
    """Write a model with one input of strings, which returns them."""
    shape = ("STRING", ["batch"])
    return save(folder / "text.onnx", [("Identity", ["words"], ["y"])], {"words": shape}, {"y": shape}, {})


def decoder(folder: Path, mask_length: str = "past_sequence_length + sequence_length") -> Path:
    """Write a layer of attention with a cache of two heads of 8 and 16 tokens of vocabulary."""
    nodes = [
        ("Gather", ["table", "input_ids"], ["embedded"]),
        ("MatMul", ["embedded", "w"], ["projected"]),
        ("Reshape", ["projected", "heads"], ["split"]),
        ("Transpose", ["split"], ["query"], {"perm": [0, 2, 1, 3]}),
        ("Concat", ["past_key_values.0.key", "query"], ["key"], {"axis": 2}),
        ("Transpose", ["key"], ["turned"], {"perm": [0, 1, 3, 2]}),
        ("MatMul", ["query", "turned"], ["scores"]),
        ("Cast", ["attention_mask"], ["bias"], {"to": 1}),
        ("Unsqueeze", ["bias", "axes"], ["broad"]),
        ("Add", ["scores", "broad"], ["y"]),
    ]
    weights = {
        "table": np.ones((16, 16), np.float32),
        "w": np.ones((16, 16), np.float32),
        "heads": np.array([0, 0, 2, 8]),
        "axes": np.array([1, 2]),
    }
    inputs: Values = {
        "input_ids": ("INT64", ["batch", "sequence_length"]),
        "attention_mask": ("INT64", ["batch", mask_length]),
        "past_key_values.0.key": ("FLOAT", ["batch", 2, "past_sequence_length", 8]),
    }
    return save(folder / "decoder.onnx", nodes, inputs, {"y": ("FLOAT", None)}, weights)


def save(
    path: Path,
    nodes: Sequence[tuple[Any, ...]],
    inputs: Values,
    outputs: Values,
    weights: Mapping[str, ndarray],
) -> Path:
    """Write a graph.

    Nodes are (operator, inputs, outputs[, attributes]); a value is (dtype, shape), where the shape is a
    list of numbers, names and None, or None.
    """
    from onnx import TensorProto, helper, numpy_helper

    def value(name: str, dtype: str, shape: Any) -> Any:
        return helper.make_tensor_value_info(name, getattr(TensorProto, dtype), shape)

    graph = helper.make_graph(
        [helper.make_node(*node[:3], **(node[3] if node[3:] else {})) for node in nodes],
        path.stem,
        [value(name, *kind) for name, kind in inputs.items()],
        [value(name, *kind) for name, kind in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR)
    path.write_bytes(model.SerializeToString())
    return path
