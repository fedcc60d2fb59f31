"""Runs a model file inside TorchServe.

``settings.json`` in the archive says which: ``file``, ``inputs`` (name to dtype), ``outputs``, ``threads``,
``device`` and ``tally``, the folder to count in. A request is an object of nested lists by name, and so is
its answer.
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
    """Answer the requests of a batch by one call; called with None first, to load the model."""
    if not _STATE:
        _load(context.system_properties["model_dir"])
    if data is None:
        return []
    runner, settings = _STATE["runner"], _STATE["settings"]
    begin = time.perf_counter()
    feeds = [_feed(each, settings["inputs"]) for each in data]
    placed = time.perf_counter()
    found = runner.together(_STATE["run"], feeds)
    computed = time.perf_counter()
    answers = [{name: array.tolist() for name, array in arrays.items()} for arrays in found]
    samples = sum(np.shape(next(iter(feed.values())))[0] for feed in feeds)
    stages = (placed - begin, computed - placed, time.perf_counter() - computed)
    _STATE["tally"].add(len(feeds), samples, *stages)
    return answers


def _load(folder: str) -> None:
    sys.path.insert(0, folder)
    import runner  # noqa: PLC0415 - it lies in the archive

    with open(os.path.join(folder, "settings.json"), encoding="utf-8") as file:  # noqa: PTH118, PTH123
        settings = json.load(file)
    path = os.path.join(folder, settings["file"])  # noqa: PTH118
    _STATE["runner"] = runner
    _STATE["settings"] = settings
    _STATE["tally"] = runner.Tally(settings["tally"])
    _STATE["run"] = runner.opened(
        path, list(settings["inputs"]), settings["outputs"], settings["threads"], settings["device"]
    )


def _feed(request: Any, dtypes: dict[str, str]) -> dict[str, Any]:
    given = request.get("body") if request.get("body") is not None else request.get("data")
    if isinstance(given, (bytes, bytearray)):
        given = json.loads(given)
    return {name: np.asarray(given[name], dtype) for name, dtype in dtypes.items()}
