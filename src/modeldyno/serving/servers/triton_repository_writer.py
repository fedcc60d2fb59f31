"""Writes a model repository for Triton: a directory with ``config.pbtxt`` and the version ``1``."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError
from modeldyno.base.job.input_spec import BATCH
from modeldyno.serving.servers import pbtxt
from modeldyno.serving.servers.paths import INSIDE
from modeldyno.serving.servers.triton_config import DTYPES, Config

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from modeldyno.base.job.input_spec import InputSpec

PYTHON = "python"


def minimal_config(
    name: str,
    backend: str,
    inputs: Sequence[InputSpec],
    outputs: Sequence[InputSpec],
    *,
    max_batch: int,
) -> Config:
    """Return the minimal configuration of a model: its tensors, and the maximum batch size.

    If `max_batch` is not 0, the first axis of every tensor is the batch, which Triton's shapes omit.

    Raises:
        RequestError: Triton does not support such a tensor.
    """
    return {
        "name": name,
        "backend": backend,
        "max_batch_size": max_batch,
        "input": [_tensor(spec, batched=max_batch > 0) for spec in inputs],
        "output": [_tensor(spec, batched=max_batch > 0) for spec in outputs],
    }


def write_model_entry(folder: Path, config: Config) -> Path:
    """Write the configuration and, for the Python backend, its programs; return the version's directory.

    The caller adds the model's own file.
    """
    version = folder / str(config["name"]) / "1"
    version.mkdir(parents=True, exist_ok=True)
    (version.parent / "config.pbtxt").write_text(pbtxt.to_pbtxt(config), encoding="utf-8")
    if config["backend"] == PYTHON:
        add_our_runner(version.parent)
    return version


def add_our_runner(entry: Path) -> None:
    """Copy the programs that the Python backend runs into each version of a model."""
    for version in entry.glob("[0-9]*"):
        shutil.copyfile(INSIDE / "triton_model.py", version / "model.py")
        shutil.copyfile(INSIDE / "runner.py", version / "runner.py")


def _tensor(spec: InputSpec, *, batched: bool) -> Config:
    if spec.dtype not in DTYPES:
        raise RequestError(f"'{spec.name}' is {spec.dtype}, a dtype that Triton does not support.")
    if spec.shape is None:
        raise RequestError(f"Triton needs the number of axes of '{spec.name}'; give the model's shapes.")
    shape = spec.shape[1:] if batched and spec.shape[:1] == (BATCH,) else spec.shape
    dims = [size if isinstance(size, int) else -1 for size in shape]
    tensor: Config = {"name": spec.name, "data_type": DTYPES[spec.dtype], "dims": dims}
    if not dims:  # Triton has no scalars; shape [1] is reshaped to a scalar
        tensor |= {"dims": [1], "reshape": {"shape": []}}
    return tensor
