"""Runs a model file inside TorchServe.

``settings.json`` in the archive configures it: ``file``, ``inputs`` (name to dtype), ``outputs``,
``threads``, ``device`` and ``tally``, the folder for the counters. A request is an object of nested lists
by name, and so is its answer.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import numpy as np

_STATE: dict[str, Any] = {}


def handle(data: Any, context: Any) -> list[Any]:
    """Answer a batch of requests with one call; the first call, with None, loads the model."""
    if not _STATE:
        _load(context.system_properties["model_dir"])
    if data is None:
        return []
    runner, settings = _STATE["runner"], _STATE["settings"]
    begin = time.perf_counter()
    feeds = [_feed(request, settings["inputs"]) for request in data]
    prepared = time.perf_counter()
    results = runner.run_batched(_STATE["run"], feeds)
    computed = time.perf_counter()
    answers = [{name: array.tolist() for name, array in arrays.items()} for arrays in results]
    samples = sum(np.shape(next(iter(feed.values())))[0] for feed in feeds)
    stages = (prepared - begin, computed - prepared, time.perf_counter() - computed)
    _STATE["tally"].add(len(feeds), samples, *stages)
    return answers


def _load(folder: str) -> None:
    sys.path.insert(0, folder)
    import runner  # found in the archive

    with open(os.path.join(folder, "settings.json"), encoding="utf-8") as file:
        settings = json.load(file)
    path = os.path.join(folder, settings["file"])
    _STATE["runner"] = runner
    _STATE["settings"] = settings
    _STATE["tally"] = runner.Tally(settings["tally"])
    _STATE["run"] = runner.load_model_file(
        path, list(settings["inputs"]), settings["outputs"], settings["threads"], settings["device"]
    )


def _feed(request: Any, dtypes: dict[str, str]) -> dict[str, Any]:
    body = request.get("body") if request.get("body") is not None else request.get("data")
    if isinstance(body, (bytes, bytearray)):
        body = json.loads(body)
    return {name: np.asarray(body[name], dtype) for name, dtype in dtypes.items()}
