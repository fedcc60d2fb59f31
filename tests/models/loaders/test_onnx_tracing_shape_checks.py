from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.support import tiny_onnx as models

from modeldyno.base.errors import SizesRefused
from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.models.interface import Tracing
from modeldyno.models.loaders import onnx as loader

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

Case = tuple[Any, dict[str, Any], tuple[int, ...], tuple[int, ...], str]
F = np.float32
CASES: list[Case] = [
    (("Conv", ["x", "w"], ["y"]), {"w": np.ones((2, 1, 5), F)}, (1, 1, 5), (1, 1, 4), "window of 5 for 4"),
    (("Conv", ["x", "w"], ["y"], {"dilations": [2], "pads": [1, 1]}), {"w": np.ones((2, 1, 3), F)},
     (1, 1, 3), (1, 1, 2), "window of 5 for 4"),
    (("Conv", ["x", "w"], ["y"]), {"w": np.ones((2, 3, 1), F)}, (1, 3, 4), (1, 4, 4), "takes 3 channels"),
    (("Conv", ["x", "w"], ["y"]), {"w": np.ones((2, 3, 1), F)}, (1, 3, 4), (1, 3, 4, 4), "4 dimensions"),
    (("MaxPool", ["x"], ["y"], {"kernel_shape": [3], "strides": [2]}), {}, (1, 1, 2), (1, 1, 1), "window"),
    (("MatMul", ["x", "w"], ["y"]), {"w": np.ones((4, 2), F)}, (3, 4), (3, 5), "5 is not 4"),
    (("MatMul", ["x", "w"], ["y"]), {"w": np.ones((2, 4, 2), F)}, (2, 3, 4), (3, 3, 4), "cannot combine 3"),
    (("MatMul", ["x", "w"], ["y"]), {"w": np.ones(4, F)}, (3, 4), (3, 5), "5 is not 4"),
    (("Gemm", ["x", "w"], ["y"], {"transB": 1}), {"w": np.ones((2, 4), F)}, (3, 4), (3, 2), "2 is not 4"),
    (("Add", ["x", "w"], ["y"]), {"w": np.ones((3, 1), F)}, (3, 4), (2, 4), "cannot combine 2x4 with 3x1"),
    (("Concat", ["x", "w"], ["y"], {"axis": 1}), {"w": np.ones((2, 2), F)}, (2, 5), (3, 5), "cannot join"),
    (("Reshape", ["x", "s"], ["y"]), {"s": np.array([0, 2, -1])}, (2, 4), (2, 5), "reshape 2x5 to"),
    (("Reshape", ["x", "s"], ["y"]), {"s": np.array([4, 2])}, (2, 4), (2, 5), "cannot reshape"),
    (("Squeeze", ["x", "a"], ["y"]), {"a": np.array([1])}, (2, 1), (2, 2), "removes axis 1 of 2x2"),
    (("LSTM", ["x", "w", "r"], ["y"], {"hidden_size": 2}),
     {"w": np.ones((1, 8, 5), F), "r": np.ones((1, 8, 2), F)}, (4, 1, 5), (4, 1, 6), "takes 5 values"),
    (("ConvTranspose", ["x", "w"], ["y"]), {"w": np.ones((3, 2, 1), F)}, (1, 3, 4), (1, 4, 4), "takes 3 ch"),
    (("Einsum", ["x", "w"], ["y"], {"equation": "ij,jk->ik"}), {"w": np.ones((4, 2), F)}, (3, 4), (3, 5),
     "has 5 and 4 for 'j'"),
    (("PRelu", ["x", "w"], ["y"]), {"w": np.ones((4,), F)}, (3, 4), (3, 5), "cannot combine 3x5 with 4"),
    (("LayerNormalization", ["x", "w"], ["y"]), {"w": np.ones(4, F)}, (3, 4), (3, 5), "cannot combine"),
    (("DepthToSpace", ["x"], ["y"], {"blocksize": 2}), {}, (1, 4, 2, 2), (1, 5, 2, 2), "divides 5 of"),
    (("SpaceToDepth", ["x"], ["y"], {"blocksize": 2}), {}, (1, 1, 2, 4), (1, 1, 2, 5), "divides 5 of"),
    (("Split", ["x", "s"], ["y", "z"], {"axis": 1}), {"s": np.array([3, 3])}, (2, 6), (2, 8), r"into 3 \+ 3"),
    (("Expand", ["x", "s"], ["y"]), {"s": np.array([2, 4])}, (1, 4), (3, 4), "cannot combine 3x4 with 2x4"),
    (("TopK", ["x", "k"], ["y", "i"]), {"k": np.array([4])}, (2, 4), (2, 3), "top 4 of axis -1 of 2x3"),
    (("Tile", ["x", "s"], ["y"]), {"s": np.array([2])}, (4,), (4, 4), "repeats 4x4 1-fold by axis"),
    (("Gather", ["x", "i"], ["y"], {"axis": 1}), {"i": np.array([4, -5])}, (2, 5), (2, 4), "takes place 4"),
    (("GatherElements", ["x", "i"], ["y"]), {"i": np.array([[2]])}, (3, 1), (2, 1), "takes place 2 of"),
    (("ScatterElements", ["x", "i", "u"], ["y"]), {"i": np.array([[2]]), "u": np.ones((1, 1), F)},
     (3, 1), (2, 1), "takes place 2 of axis 0"),
    (("GatherND", ["x", "i"], ["y"]), {"i": np.array([[0, 2]])}, (2, 3), (3, 2), "takes place 2 of axis 1"),
    (("GatherND", ["x", "i"], ["y"]), {"i": np.array([[-3]])}, (3, 2), (2, 2), "takes place -3 of axis 0"),
    (("GatherND", ["x", "i"], ["y"], {"batch_dims": 1}), {"i": np.array([[0], [3]])}, (2, 4), (2, 3),
     "takes place 3 of axis 1 of 2x3"),
    (("GatherND", ["x", "i"], ["y"]), {"i": np.array([[0, 0]])}, (2, 3), (6,), "takes places of 2 axes from"),
    (("ArgMax", ["x"], ["y"], {"axis": -1}), {}, (2, 3), (2, 0), "looks along axis 1 of 2x0, which is empty"),
    (("ArgMin", ["x"], ["y"]), {}, (0, 0), (0, 2), "looks along axis 0 of 0x2"),
    (("Pad", ["x", "s"], ["y"]), {"s": np.array([0, -3, 0, 0])}, (2, 4), (2, 2), "pads axis 1 of 2x2 by -3"),
    (("Pad", ["x", "s"], ["y"], {"mode": "reflect"}), {"s": np.array([0, 3, 0, 0])}, (2, 4), (2, 3),
     "pads axis 1 of 2x3 by 3 and 0"),
    (("InstanceNormalization", ["x", "a", "a"], ["y"]), {"a": np.ones(3, F)}, (1, 3, 4), (1, 2, 4), "takes"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("node", "weights", "good", "bad", "says"),
    CASES,
    ids=[f"{case[0][0]}-{i}" for i, case in enumerate(CASES)],
)
def test_what_the_runtime_refuses_is_refused_by_the_analysis(
    tmp_path: Path,
    node: Any,
    weights: dict[str, Any],
    good: tuple[int, ...],
    bad: tuple[int, ...],
    says: str,
) -> None:
    """Sizes that ONNX Runtime accepts are counted; sizes that it rejects are rejected, with the reason."""
    free = [f"d{axis}" for axis in range(len(good))]
    declared = ("FLOAT", free if len(good) == len(bad) else None)
    dtype = "INT64" if node[0] in {"ArgMax", "ArgMin"} else "FLOAT"
    path = models.save(tmp_path / "m.onnx", [node], {"x": declared}, {"y": (dtype, None)}, weights)
    session = runtime.InferenceSession(path)
    session.run(None, {"x": np.ones(good, F)})
    _analyse(path, good)
    with pytest.raises(SizesRefused, match=f"onnx.{node[0]}.*{says}"):
        _analyse(path, bad)
    if node[0] != "MaxPool":  # which gives nothing there, and no error
        with pytest.raises(Exception, match="ONNXRuntimeError"):
            session.run(None, {"x": np.ones(bad, F)})


def _analyse(path: Path, shape: tuple[int, ...]) -> None:
    model = loader.look(ModelRef(scheme="onnx", locator=str(path)), seed=0, trust=False)
    assert model.graph is not None
    sizes = {f"d{axis}": size for axis, size in enumerate(shape)}
    model.graph(Tracing(inputs=(InputSpec(name="x", shape=shape, dtype="float32"),), sizes=sizes))


def test_nothing_is_refused_behind_an_assumption(tmp_path: Path) -> None:
    """After a size was taken as 1 because it depends on data, nothing is rejected any more."""
    nodes = [
        ("NonMaxSuppression", ["boxes", "scores"], ["chosen"]),
        ("Unique", ["x"], ["u"]),
        ("Add", ["u", "w"], ["y"]),
    ]
    inputs = {"x": ("FLOAT", [6]), "boxes": ("FLOAT", [1, 2, 4]), "scores": ("FLOAT", [1, 1, 2])}
    outputs = {"y": ("FLOAT", None), "chosen": ("INT64", None)}
    path = models.save(tmp_path / "m.onnx", nodes, inputs, outputs, {"w": np.ones(3, F)})
    model = loader.look(ModelRef(scheme="onnx", locator=str(path)), seed=0, trust=False)
    assert model.graph is not None
    assert model.graph(Tracing(inputs=model.inputs)).assumptions
