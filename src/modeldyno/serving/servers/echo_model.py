"""An echo: a model that takes the inputs of another one and returns given outputs at once, for any server.

Requests and answers have the size of the real ones, to the digit where they are text, so that what such a
request takes beside the server's own account of it is what the real one takes on its way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy import ndarray


def write_echo_model(path: Path, inputs: Mapping[str, ndarray], outputs: Mapping[str, ndarray]) -> None:
    """Write it as ONNX, for inputs of these shapes and dtypes.

    Raises:
        ImportError: the package `onnx` is not installed.
        ValueError: an array has a dtype that ONNX lacks.
    """
    from onnx import helper, numpy_helper, save  # optional, and heavy

    def declare(name: str, array: ndarray) -> object:
        return helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), list(array.shape)
        )

    kept = [numpy_helper.from_array(array, f"kept {name}") for name, array in outputs.items()]
    nodes = [helper.make_node("Identity", [f"kept {name}"], [name]) for name in outputs]
    graph = helper.make_graph(
        nodes,
        "echo",
        [declare(name, array) for name, array in inputs.items()],
        [declare(name, array) for name, array in outputs.items()],
        kept,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    save(model, str(path))
