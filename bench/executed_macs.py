"""The multiply-accumulates that ONNX Runtime executed, from the shapes in its own profile of one call.

python bench/executed_macs.py FILE.onnx NAME=1x3x224x224:float32 ...

Nothing of ModelDyno is used. What an operator multiplies is known by the shapes of its operands when it ran,
with optimisations off, so that no operator is merged into another.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Shape = Sequence[int]

PRODUCTS: dict[str, Callable[[Sequence[Shape], Sequence[Shape]], int]] = {
    "Conv": lambda read, made: math.prod(made[0]) * math.prod(read[1][1:]),
    "ConvInteger": lambda read, made: math.prod(made[0]) * math.prod(read[1][1:]),
    "QLinearConv": lambda read, made: math.prod(made[0]) * math.prod(read[3][1:]),
    "ConvTranspose": lambda read, _: math.prod(read[0]) * math.prod(read[1][1:]),
    "Gemm": lambda read, made: math.prod(read[0]) * made[0][-1],
    "MatMul": lambda read, made: math.prod(made[0]) * read[0][-1],
    "MatMulInteger": lambda read, made: math.prod(made[0]) * read[0][-1],
    "DynamicQuantizeMatMul": lambda read, made: math.prod(made[0]) * read[0][-1],
    "QLinearMatMul": lambda read, made: math.prod(made[0]) * read[0][-1],
    "LinearClassifier": lambda read, made: math.prod(read[0]) * made[1][-1],
    "LinearRegressor": lambda read, made: math.prod(read[0]) * made[0][-1],
    **dict.fromkeys(
        ("LSTM", "GRU", "RNN", "DynamicQuantizeLSTM"),
        lambda read, _: math.prod(read[0][:2]) * (math.prod(read[1]) + math.prod(read[2])),
    ),
}
"""Operator to its multiply-accumulates by the shapes of what it reads and of what it makes."""


def executed_macs(file: Path, feed: Mapping[str, Any]) -> int:
    """Call a model once with these inputs, and sum what its operators multiply."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.enable_profiling = True
    options.add_session_config_entry("session.disable_prepacking", "1")  # else weights are gone when it runs
    options.log_severity_level = 4
    with tempfile.TemporaryDirectory() as folder:
        options.profile_file_prefix = str(Path(folder) / "call")
        session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        session.run(None, dict(feed))
        events = json.loads(Path(session.end_profiling()).read_text())
    return sum(map(_macs, events))


def _macs(event: Mapping[str, Any]) -> int:
    """Return the multiply-accumulates of an event; 0 unless it is the run of an operator that multiplies."""
    details = event.get("args", {})
    product = PRODUCTS.get(details.get("op_name", ""))
    if product is None or not event["name"].endswith("_kernel_time"):
        return 0
    read, made = (
        [tuple(shape) for each in details[name] for shape in each.values()]
        for name in ("input_type_shape", "output_type_shape")
    )
    return product(read, made)


def random_values(inputs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Draw values for inputs that a result describes by name, shape, dtype and range of ids."""
    random = np.random.default_rng(0)
    feed: dict[str, Any] = {}
    for each in inputs:
        low, high = each.get("low") or 0, each.get("high")
        dtype = np.dtype(each["dtype"])
        values = (
            random.integers(int(low), int(1 if high is None else high) + 1, each["shape"])
            if dtype.kind in "iub"
            else random.random(each["shape"])
        )
        feed[each["name"]] = values.astype(dtype)
    return feed


def main() -> int:
    """Print the number of a file with inputs of these shapes."""
    inputs = list[dict[str, Any]]()
    for text in sys.argv[2:]:
        name, _, rest = text.partition("=")
        shape, _, dtype = rest.partition(":")
        inputs.append(
            {"name": name, "shape": [int(n) for n in shape.split("x") if n], "dtype": dtype or "float32"}
        )
    print(executed_macs(Path(sys.argv[1]), random_values(inputs)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
