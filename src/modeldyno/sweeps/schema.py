"""The configuration of a sweep: its keys and what each accepts, as JSON Schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from modeldyno.base import options
from modeldyno.base.job.load_spec import OPEN_LOOP
from modeldyno.sweeps import model_analyzer_keys
from modeldyno.sweeps.study.goal import Rank

if TYPE_CHECKING:
    from collections.abc import Iterable

    from modeldyno.base.options import Option

STRATEGY = "quick"
AIMS = {"objectives": None, "maximize": True, "minimize": False}
"""Key of objectives to whether they are maximized; None where each metric has its own direction."""
GOALS = frozenset(AIMS) | {"require", "mode", "latency_budget", "min_throughput", "rank", "price"}
"""Keys of the goal, as opposed to what is measured."""

_TEXT = {"type": "string"}
_COUNT = {"type": ["integer", "string"]}
_QUANTITY = {"type": ["number", "string"]}
_VALUE = {"type": ["string", "number", "boolean"]}
_TEXTS = {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]}
_VALUES = {"anyOf": [_VALUE, {"type": "array", "items": {"anyOf": [_VALUE, {"type": "array"}]}}]}
_AIMS = {
    "anyOf": [_TEXT, {"type": "array", "items": _TEXT}, {"type": "object", "additionalProperties": _QUANTITY}]
}
_SHAPES: dict[str, dict[str, Any]] = {
    **dict.fromkeys((options.SECONDS, options.BYTES, options.SHARE), _QUANTITY),
    options.COUNT: _COUNT, options.STATISTIC: _TEXT, options.CORES: _VALUE,
    options.SEQUENCE: _VALUE, options.PAUSE: _VALUE, options.SHARE_AND_TIME: _TEXT,
}  # fmt: skip
"""Shape of each kind of option."""


def _described(shape: dict[str, Any], description: str) -> dict[str, Any]:
    return {**shape, "description": description}


def _of_table(rows: Iterable[Option]) -> dict[str, dict[str, Any]]:
    """Return the keys of the options that a sweep file takes."""
    return {row.field: _described(_SHAPES[row.kind], row.in_file) for row in rows if row.in_file}


def _object(description: str, **properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object", "properties": properties, "additionalProperties": False, "description": description,
    }  # fmt: skip


AXIS = {
    "values": _described(_VALUES, "A list, or a range such as 1..8."),
    "from": _described(_QUANTITY, "First of a range."),
    "to": _described(_QUANTITY, "Last of a range, itself included where a step meets it."),
    "times": _described(_QUANTITY, "Factor from one value to the next."),
    "step": _described(_QUANTITY, "Difference of one value to the next; 1 if neither is given."),
    "start": _described(_QUANTITY, "The same as from."),
    "stop": _described(_QUANTITY, "The same as to."),
    "if": _described(
        {"anyOf": [_TEXT, {"type": "object", "additionalProperties": _VALUES, "maxProperties": 1}]},
        "An earlier axis, and its values for which this one applies: {dynamic_batching: true}.",
    ),
}
"""Parts of an axis that is neither a list nor text."""

BUDGET = {
    "max_time": _described(_QUANTITY, "Time limit of the whole sweep, such as 10m."),
    "max_trials": _described(_COUNT, "Largest number of measurements, verification included."),
    "curves": _described(_COUNT, "Best configurations to measure at all loads after the search."),
    "bisect": _described(
        _COUNT, "Most loads to measure between one that holds the bounds and one that breaks them."
    ),
    "certain": _described(
        _QUANTITY, "Required confidence that the answer is the best or within 5% of it; 95% by default."
    ),
}
PLAN = _of_table(options.PLAN)
LOAD = {
    "concurrency": _described(_COUNT, "Concurrent requests, where that is no axis."),
    "rate": _described(
        _QUANTITY, "An open loop: 100, 100:poisson, 100:burst=8, 100:gamma=0.5 (requests/s), 5:sequences."
    ),
    "replay": _described(_TEXT, "A trace whose requests are sent at their times."),
    "replay_speed": _described(_QUANTITY, "How many times as fast as recorded it is replayed."),
    "replay_window": _described(_QUANTITY, "The first part of it that is replayed, such as 10m."),
    "arrivals": _described(
        {"enum": [str(kind) for kind in OPEN_LOOP]},
        "Of an open loop whose rate is an axis; sequences begin at that rate, and need a sequence.",
    ),
    **_of_table(options.LOAD),
}

KEYS: dict[str, dict[str, Any]] = {
    "model": _described(_TEXT, "A path, scheme:locator, or the URL of a running server."),
    "models": _described(
        {
            "anyOf": [
                {"type": "array", "items": _TEXT},
                {"type": "object", "additionalProperties": {"type": "object"}},
            ]
        },
        "Several models, one after the other: [a.onnx, b.onnx], or names with keys of a sweep of their own.",
    ),
    "name": _described(_TEXT, "What to call the model."),
    "backend": _described(_TEXT, "What runs or serves it."),
    "set": _described(
        {"type": "object", "additionalProperties": _VALUE}, "Fixed knobs: knob to value."
    ),
    "input": _described(_TEXTS, "name=8x128:int64:0..30521, or a file."),
    "probe": _described(_TEXTS, "What to measure; by default what the goal needs."),
    "pre": _described(_TEXT, "Function timed before a model in process; it gets the input: file.py:clean."),
    "post": _described(_TEXT, "Function timed after it, which gets the outputs: file.py:decode."),
    "evaluate": _described(_TEXTS, "Metrics of labelled samples, such as accuracy; also those of the goal."),
    "data": _described(_TEXT, "The labelled samples: test.npz, or test.npz:labels; by default the input."),
    "tolerance": _described(
        {"anyOf": [_QUANTITY, {"type": "object", "additionalProperties": _QUANTITY}]},
        "Exclude configurations whose outputs are off from the default's by more: 1e-3, or {boxes: 1%}.",
    ),
    "verify": _described(
        _TEXT, "Function that judges the outputs instead, beside those of the default: file.py:same."
    ),
    "beside": _described(
        _TEXTS, "Other models on the same server at the same time: b.onnx concurrency=4 instances=2."
    ),
    "space": _described(
        {
            "type": "object",
            "additionalProperties": {
                "anyOf": [
                    *_VALUES["anyOf"],
                    {"type": "object", "properties": AXIS, "additionalProperties": False},
                ]
            },
        },
        "What to vary: knob, concurrency or rate to its values: [1, 2, 4], 1..8, 1..9:2, 1..64*2.",
    ),
    "objectives": _described(_AIMS, "Metrics, each in its own direction: {throughput: 10, latency.p99: 5}."),
    "maximize": _described(_AIMS, "A metric, several, or metric to weight."),
    "minimize": _described(_AIMS, "A metric, several, or metric to weight."),
    "require": _described(_TEXTS, "Bounds, such as latency.p99 <= 50ms."),
    "mode": _described(
        {"enum": ["online", "offline"]},
        "Maximize the throughput of a server: online by concurrency, offline by batch_size.",
    ),
    "latency_budget": _described(_QUANTITY, "The same as require: latency.p99 <= 10ms."),
    "min_throughput": _described(_QUANTITY, "The same as require: throughput >= 500/s."),
    "rank": _described(
        {"enum": [str(rank) for rank in Rank]},
        "Rank a configuration at its best load, or each load separately."
    ),
    "price": _described(_QUANTITY, "Price of this machine, for costs: 1.20/h, $1.20/h or 876 EUR/month."),
    "plots": _described(
        {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "properties": {"x": _TEXT, "y": _TEXT, "title": _TEXT, "monotonic": _VALUE},
                "required": ["x", "y"],
                "additionalProperties": False,
            },
        },
        "Charts of your own: name to x and y, each a query or an axis: {a: {x: latency.p99, y: throughput}}.",
    ),
    "strategy": _described(_TEXT, "How to search: quick, grid, ladder, optuna, optuna-nsga2 or optuna-gp."),
    "budget": _object("When the sweep ends.", **BUDGET),
    "plan": _object("How carefully to measure.", **PLAN),
    "load": _object("The load on the server.", **LOAD),
}  # fmt: skip
"""Key to its schema."""

FOREIGN = {
    **model_analyzer_keys.KEYS,
    "max_time": "write it below budget: for the whole sweep, or below plan: for each look",
    "max_trials": "write it below budget:",
    "trust": "give `trust` each time instead, because it lets files run code",
}
"""Names of other programs, or of other parts of this one: what to write instead."""


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a sweep file."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "ModelDyno sweep",
        "type": "object",
        "properties": KEYS,
        "anyOf": [{"required": ["model"]}, {"required": ["models"]}],
        "additionalProperties": False,
    }
