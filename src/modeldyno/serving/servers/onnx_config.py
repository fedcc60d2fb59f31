"""Completes the configuration of a Triton model from its ONNX file, and has our runner run such a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from modeldyno.serving.servers.triton_config import Config

BACKEND = "onnxruntime"
FILE = "model.onnx"
_PLATFORM = "onnxruntime_onnx"
_DEFAULT_MAX_BATCH = 4
"""What Triton sets if the first axis is free, see its option default-max-batch-size."""
_DTYPES = {
    1: "TYPE_FP32", 2: "TYPE_UINT8", 3: "TYPE_INT8", 4: "TYPE_UINT16", 5: "TYPE_INT16", 6: "TYPE_INT32",
    7: "TYPE_INT64", 8: "TYPE_STRING", 9: "TYPE_BOOL", 10: "TYPE_FP16", 11: "TYPE_FP64", 12: "TYPE_UINT32",
    13: "TYPE_UINT64", 16: "TYPE_BF16",
}  # fmt: skip
"""ONNX's number of a dtype to Triton's name."""


def onnx_file(entry: Path, config: Config) -> Path | None:
    """Return the ONNX file of a model's newest version; None if it has none."""
    name = str(config.get("default_model_filename") or FILE)
    files = [path for path in entry.glob(f"*/{name}") if path.parent.name.isdecimal()]
    return max(files, key=lambda path: int(path.parent.name), default=None)


def completed(config: Config, file: Path) -> Config:
    """Return a configuration with what it lacks of backend, tensors and batch size, as the file says.

    Raises:
        RequestError: the file cannot be read.
    """
    if config.get("input") and config.get("output"):
        return config
    graph = _read_graph(file)
    constants = {item.name for item in graph.initializer}
    inputs = [item for item in graph.input if item.name not in constants]
    complete = (
        {**config} if config.get("platform") or config.get("backend") else {**config, "backend": BACKEND}
    )
    batched = all(_is_free(item) for item in (*inputs, *graph.output))
    if "max_batch_size" not in config and batched:
        complete["max_batch_size"] = _DEFAULT_MAX_BATCH
    batch_axes = 1 if complete.get("max_batch_size") else 0
    for name, items in (("input", inputs), ("output", graph.output)):
        if not config.get(name):
            complete[name] = [_tensor(item, batch_axes, file) for item in items]
    return complete


def by_our_runner(config: Config) -> Config:
    """Return the configuration with which our runner runs a model of Triton's ONNX Runtime backend."""
    left_out = {"platform", "default_model_filename", "optimization", "cc_model_filenames"}
    threads = config.get("parameters", {}).get("intra_op_thread_count", {}).get("string_value", "0")
    return {
        **{name: value for name, value in config.items() if name not in left_out},
        "backend": "python",
        "parameters": {
            "file": {"string_value": str(config.get("default_model_filename") or FILE)},
            "threads": {"string_value": str(threads)},
        },
    }


def _read_graph(file: Path) -> Any:
    try:
        import onnx  # optional, and heavy
    except ImportError:
        raise RequestError(
            f"{file.parent.parent / 'config.pbtxt'} does not declare the inputs and outputs; write them into "
            "it, or install onnx to read them from the file: pip install onnx."
        ) from None
    try:
        return onnx.load(file, load_external_data=False).graph
    except Exception as error:  # onnx and protobuf raise many kinds for a damaged file
        raise RequestError(f"{file} is no ONNX file that can be read: {error}.") from error


def _sizes(item: Any) -> Iterable[int]:
    return (
        int(dim.dim_value) if dim.HasField("dim_value") and dim.dim_value > 0 else -1
        for dim in item.type.tensor_type.shape.dim
    )


def _is_free(item: Any) -> bool:
    """Return whether the first of several axes is free, so that Triton can batch."""
    sizes = [*_sizes(item)]
    return len(sizes) > 1 and sizes[0] == -1


def _tensor(item: Any, batch_axes: int, file: Path) -> Config:
    dtype = _DTYPES.get(item.type.tensor_type.elem_type)
    if dtype is None:
        raise RequestError(f"'{item.name}' of {file} has a dtype that Triton does not support.")
    dims = [*_sizes(item)][batch_axes:]
    tensor: Config = {"name": item.name, "data_type": dtype, "dims": dims}
    return tensor if dims else {**tensor, "dims": [1], "reshape": {"shape": []}}
