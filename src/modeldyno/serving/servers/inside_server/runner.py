"""Runs a model file in a server: ONNX with ONNX Runtime, TorchScript or a torch.export archive with torch.

Imports only numpy and the runtime.
"""

from __future__ import annotations

import mmap
import os
import time
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Arrays = dict[str, Any]
"""Name to numpy array."""


def load_model_file(
    path: str, inputs: Sequence[str], outputs: Sequence[str], threads: int, device: str
) -> Callable[[Arrays], Arrays]:
    """Load a model file and return a function from its inputs to its outputs.

    Args:
        path: an .onnx, .pt or .pt2 file.
        inputs: names in the order of the torch model's arguments.
        outputs: names in the order of the model's results.
        threads: within one operator; 0 is the runtime's default.
        device: cpu, cuda or cuda:1.
    """
    if path.endswith(".onnx"):
        return _onnx(path, outputs, threads, device)
    return _torch(path, inputs, outputs, threads, device)


def _onnx(path: str, outputs: Sequence[str], threads: int, device: str) -> Callable[[Arrays], Arrays]:
    import onnxruntime  # one of two runtimes

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    kind, _, index = device.partition(":")
    provider: Any = "CPUExecutionProvider"
    if kind == "cuda":
        if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
            raise RuntimeError("this onnxruntime has no CUDAExecutionProvider; install onnxruntime-gpu")
        provider = ("CUDAExecutionProvider", {"device_id": index or "0"})
    session = onnxruntime.InferenceSession(path, options, providers=[provider])
    text = {item.name for item in session.get_inputs() if item.type == "tensor(string)"}

    def run(arrays: Arrays) -> Arrays:
        feed = {name: _strings(array) if name in text else array for name, array in arrays.items()}
        return dict(zip(outputs, session.run(list(outputs), feed)))

    return run


def _torch(
    path: str, inputs: Sequence[str], outputs: Sequence[str], threads: int, device: str
) -> Callable[[Arrays], Arrays]:
    import torch  # one of two runtimes

    if threads:
        torch.set_num_threads(threads)
    if path.endswith(".pt2"):
        module = torch.export.load(path).module()
    else:
        module = torch.jit.load(path, map_location=device)  # type: ignore[no-untyped-call]
    module.to(device)

    def run(arrays: Arrays) -> Arrays:
        tensors = [torch.from_numpy(_writable(arrays[name])).to(device) for name in inputs]
        with torch.inference_mode():
            results = module(*tensors)
        leaves = [leaf for leaf in _leaves(results) if isinstance(leaf, torch.Tensor)]
        return {name: leaf.cpu().numpy() for name, leaf in zip(outputs, leaves)}

    return run


def _leaves(value: Any) -> Any:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def _writable(array: Any) -> Any:
    return array if array.flags.writeable and array.flags.c_contiguous else np.array(array)


def _strings(array: Any) -> Any:
    flat = [item.decode() if isinstance(item, bytes) else str(item) for item in array.ravel()]
    return np.array(flat, dtype=object).reshape(array.shape)


def run_batched(run: Callable[[Arrays], Arrays], requests: list[Arrays]) -> list[Arrays]:
    """Run several requests as one batch; return each request's own part.

    If the requests' shapes differ, or an output has no batch axis, each request runs by itself.
    """
    if len(requests) == 1 or not _can_batch(requests):
        return [run(request) for request in requests]
    names = list(requests[0])
    sizes = [len(request[names[0]]) for request in requests]
    joined = run({name: np.concatenate([request[name] for request in requests]) for name in names})
    total = sum(sizes)
    if any(array.ndim == 0 or len(array) != total for array in joined.values()):
        return [run(request) for request in requests]
    ends = np.cumsum(sizes)
    return [
        {name: array[end - size : end] for name, array in joined.items()} for size, end in zip(sizes, ends)
    ]


def _can_batch(requests: list[Arrays]) -> bool:
    first = requests[0]
    return all(
        request.keys() == first.keys()
        and all(
            array.ndim > 0
            and array.shape[1:] == first[name].shape[1:]
            and array.dtype == first[name].dtype
            and len(array) == len(next(iter(request.values())))
            for name, array in request.items()
        )
        for request in requests
    )


class Tally:
    """A worker's counters in a file that other processes can read: float64 numbers that only grow.

    In this order: executions, requests, samples, and the seconds of input, compute and output, summed over
    requests; then the number of batches with 0, 1, 2 ... samples.
    """

    FIELDS = 6
    SIZES = 1025

    def __init__(self, folder: str) -> None:
        """Create a file for this process; other processes may have files in the folder."""
        name = os.path.join(folder, f"{os.getpid()}-{time.monotonic_ns()}.tally")
        size = (self.FIELDS + self.SIZES) * 8
        with open(name, "w+b") as file:
            file.truncate(size)
            self._numbers = memoryview(mmap.mmap(file.fileno(), size)).cast("d")

    def add(self, requests: float, samples: int, *stages: float) -> None:
        """Count an execution; `stages` are the seconds that input, compute and output took."""
        numbers = self._numbers
        numbers[0] += 1
        numbers[1] += requests
        numbers[2] += samples
        for index, seconds in enumerate(stages, 3):
            numbers[index] += seconds * requests
        numbers[self.FIELDS + min(samples, self.SIZES - 1)] += 1


def sibling_path(path: str, name: str) -> str:
    """Return the path of a file in the same directory as another file."""
    return os.path.join(os.path.dirname(os.path.abspath(path)), name)
