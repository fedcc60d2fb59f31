"""For how many operators of real ONNX files are the output shapes known, by us and by two libraries?

Ours is the coverage that ``modeldyno inspect`` states. Beside it stand `onnx.shape_inference` with the
propagation of values, and ONNX Runtime's `symbolic_shape_infer`, both given the input sizes that ours has
found. For the two, only operators that multiply are counted: convolutions, matrix products, recurrent layers
and their quantised kinds.

    python bench/onnx_shapes.py FILE.onnx ...
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx
from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference

import modeldyno

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from modeldyno import Result

MULTIPLIES = {
    "Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "MatMul", "MatMulInteger", "QLinearMatMul", "Gemm",
    "LSTM", "GRU", "RNN", "Einsum", "Attention", "FusedConv", "FusedMatMul", "FusedGemm",
    "DynamicQuantizeMatMul", "DynamicQuantizeLSTM", "MultiHeadAttention", "QAttention",
}  # fmt: skip


def with_sizes(path: str, result: Result) -> Any:
    """Load a file and write the input sizes of a Result into it."""
    model = onnx.load(path)
    sizes = {spec.name: spec.shape for spec in result.inputs}
    for value in model.graph.input:
        for dimension, size in zip(value.type.tensor_type.shape.dim, sizes.get(value.name, ()), strict=False):
            dimension.dim_value = size if isinstance(size, int) else 1  # a batch that is left free
    del model.graph.value_info[:]
    return model


def graphs(graph: Any) -> Iterator[Any]:
    """Yield a graph and the graphs within its operators."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                if inner.node:
                    yield from graphs(inner)


def known_share(model: Any) -> float:
    """Compute the share of multiplying operators all of whose outputs have whole-number sizes."""
    known_count, total = 0, 0
    for graph in graphs(model.graph):
        shapes = {
            value.name: all(d.HasField("dim_value") for d in value.type.tensor_type.shape.dim)
            for value in (*graph.value_info, *graph.output)
            if value.type.tensor_type.HasField("shape")
        }
        for node in graph.node:
            if node.op_type in MULTIPLIES:
                total += 1
                known_count += all(shapes.get(name, False) for name in node.output if name)
    return known_count / total if total else 1.0


def attempt(infer: Callable[[], Any]) -> str:
    """Run an inference; format its share, or what it raised."""
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return f"{known_share(infer()):.0%}"
    except Exception as error:  # noqa: BLE001 - whatever a library raises is its result
        return type(error).__name__


def main() -> None:
    """Print a line for each file."""
    logging.disable(logging.CRITICAL)
    parser = argparse.ArgumentParser(description="ONNX shapes: ours, onnx, ONNX Runtime")
    parser.add_argument("files", nargs="+")
    files = [str(Path(file).resolve()) for file in parser.parse_args().files]
    os.chdir(tempfile.mkdtemp())  # where ONNX Runtime's inference leaves its files
    for path in files:
        try:
            result = modeldyno.inspect(path)
        except modeldyno.ModelDynoError as error:
            print(f"{path}: {error}", file=sys.stderr)
            continue
        ours = result["coverage"]
        by_onnx = attempt(
            lambda path=path, result=result: onnx.shape_inference.infer_shapes(  # type: ignore[misc]
                with_sizes(path, result), data_prop=True
            )
        )
        by_runtime = attempt(
            lambda path=path, result=result: SymbolicShapeInference.infer_shapes(  # type: ignore[misc]
                with_sizes(path, result), auto_merge=True
            )
        )
        name = path.rpartition("/")[2]
        print(
            f"{name[:44]:44}  ours {ours or 0:4.0%}  onnx {by_onnx:>16}  ONNX Runtime {by_runtime:>16}",
            flush=True,
        )


if __name__ == "__main__":
    main()
