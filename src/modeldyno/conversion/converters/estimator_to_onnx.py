"""Estimators of scikit-learn, XGBoost and LightGBM to ONNX, with the one output that the source returns.

Their converters return labels and probabilities together, a table where the source returns a column, or a
column where it returns a row of numbers; the graph is cut and reshaped to what the source returns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError
from modeldyno.conversion.interface import ConvertedFile

if TYPE_CHECKING:
    from pathlib import Path

    from modeldyno.base.job.input_spec import InputSpec
    from modeldyno.conversion.interface import ConversionSource

_ML_OPSET = 3
"""Opset of the operators of trees: the first that takes float64."""
_SHAPES_OPSET = 15
"""Opset of the operators that reshape an output, where the converter uses none of its own."""
_LABEL, _SCORES = 0, 1
"""Position of the outputs of a classifier."""


def write_onnx(source: ConversionSource, path: Path, opset: int | None) -> ConvertedFile:
    """Convert the estimator and write the file.

    Raises:
        RequestError: its method has no counterpart in ONNX.
    """
    function = source.model.value
    owner, method = function.__self__, function.__name__
    spec = source.inputs[0]
    convert, usual = _CONVERTERS[source.kind]
    proto, converter, narrows = convert(owner, method, spec, opset or usual)
    _keep_output(proto, method, source.outputs[0])
    path.write_bytes(proto.SerializeToString())
    return ConvertedFile(converter=converter, narrows=narrows)


def _of_sklearn(owner: Any, method: str, spec: InputSpec, opset: int) -> tuple[Any, str, bool]:
    import skl2onnx  # optional, and heavy
    from skl2onnx.common import data_types  # optional

    kinds = {
        "float64": data_types.DoubleTensorType,
        "float32": data_types.FloatTensorType,
        "int64": data_types.Int64TensorType,
        "string": data_types.StringTensorType,
    }
    shape = [None, *(spec.shape or (None, None))[1:]]
    options: dict[str, Any] = {}
    if hasattr(owner, "predict_proba") or hasattr(owner, "decision_function"):
        options = {"zipmap": False} if hasattr(owner, "classes_") else {}
        if method == "decision_function":
            options["raw_scores"] = True
    proto = skl2onnx.to_onnx(
        owner,
        initial_types=[(spec.name, kinds[spec.dtype or "float32"](shape))],
        options={id(owner): options} if options else None,
        target_opset={"": opset, "ai.onnx.ml": _ML_OPSET},
    )
    return proto, f"skl2onnx {skl2onnx.__version__}", spec.dtype == "float64"


def _of_xgboost(owner: Any, method: str, spec: InputSpec, opset: int) -> tuple[Any, str, bool]:
    del method
    import onnxmltools  # optional, and heavy
    from onnxmltools.convert.common.data_types import FloatTensorType  # optional

    kind = [(spec.name, FloatTensorType([None, *(spec.shape or (None, None))[1:]]))]
    proto = onnxmltools.convert_xgboost(owner, initial_types=kind, target_opset=opset)
    return proto, f"onnxmltools {onnxmltools.__version__}", False


def _of_lightgbm(owner: Any, method: str, spec: InputSpec, opset: int) -> tuple[Any, str, bool]:
    del method
    import onnxmltools  # optional, and heavy
    from onnxmltools.convert.common.data_types import FloatTensorType  # optional

    kind = [(spec.name, FloatTensorType([None, *(spec.shape or (None, None))[1:]]))]
    proto = onnxmltools.convert_lightgbm(owner, initial_types=kind, zipmap=False, target_opset=opset)
    return proto, f"onnxmltools {onnxmltools.__version__}", True


_CONVERTERS = {"sklearn": (_of_sklearn, 17), "xgboost": (_of_xgboost, 15), "lightgbm": (_of_lightgbm, 15)}
"""Framework to its converter and the opset unless asked otherwise: one that the converter knows."""


def _keep_output(proto: Any, method: str, spec: InputSpec) -> None:
    """Leave the one output that the source returns, in its shape and under its name.

    Raises:
        RequestError: the converter's output cannot be brought into the source's shape.
    """
    import onnx  # optional, and heavy

    outputs = list(proto.graph.output)
    scores = method in {"predict_proba", "decision_function"} or (spec.dtype or "").startswith("float")
    chosen = outputs[_SCORES if scores and len(outputs) > 1 else _LABEL]
    rank, columns = len(spec.shape or ()), _columns(chosen)
    last = chosen.name
    nodes = []
    if rank == 1 and columns == 2:
        proto.graph.initializer.append(onnx.numpy_helper.from_array(_array([1]), "modeldyno_second"))
        nodes.append(
            onnx.helper.make_node("Gather", [last, "modeldyno_second"], ["modeldyno_column"], axis=1)
        )
        last = "modeldyno_column"
    elif rank == 1 and columns not in {None, 1}:
        raise RequestError(f"The method {method} of this estimator has no counterpart in ONNX; name another.")
    shape = [-1] if rank == 1 else [-1, *map(int, (spec.shape or ())[1:])]
    proto.graph.initializer.append(onnx.numpy_helper.from_array(_array(shape), "modeldyno_shape"))
    nodes.append(onnx.helper.make_node("Reshape", [last, "modeldyno_shape"], [spec.name]))
    proto.graph.node.extend(nodes)
    for value in proto.graph.input:
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    if not any(entry.domain in {"", "ai.onnx"} for entry in proto.opset_import):
        proto.opset_import.append(onnx.helper.make_opsetid("", _SHAPES_OPSET))
    for kind in (chosen.type.tensor_type.elem_type, onnx.TensorProto.FLOAT):
        del proto.graph.output[:]
        sizes = ["batch", *(spec.shape or ())[1:]]
        proto.graph.output.append(onnx.helper.make_tensor_value_info(spec.name, kind, sizes))
        if _loads(proto):  # converters declare float64 where trees return float32
            break


def _loads(proto: Any) -> bool:
    """Whether ONNX Runtime takes the graph as it is declared."""
    import onnxruntime  # optional, and heavy

    try:
        onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    except Exception:  # noqa: BLE001 - its exceptions have no common class; the check tells the reason
        return False
    return True


def _columns(value: Any) -> int | None:
    dims = value.type.tensor_type.shape.dim
    return dims[1].dim_value or None if len(dims) > 1 else None


def _array(values: list[int]) -> Any:
    import numpy as np  # slow to import

    return np.array(values, np.int64)
