"""What a sweep can be told: the names, and what may stand behind each, in the words of JSON Schema."""

from __future__ import annotations

from typing import Any

from modeldyno.core.study.goal import Rank

STRATEGY = "quick"
AIMS = {"objectives": None, "maximize": True, "minimize": False}
"""Key of objectives to whether they are to be raised; None where the table of metrics says so of each."""
GOALS = frozenset(AIMS) | {"require", "mode", "latency_budget", "min_throughput", "rank"}
"""Keys of what is to be found, rather than of what is measured."""

_TEXT = {"type": "string"}
_COUNT = {"type": ["integer", "string"]}
_QUANTITY = {"type": ["number", "string"]}
_VALUE = {"type": ["string", "number", "boolean"]}
_TEXTS = {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]}
_VALUES = {"anyOf": [_VALUE, {"type": "array", "items": {"anyOf": [_VALUE, {"type": "array"}]}}]}
_AIMS = {
    "anyOf": [_TEXT, {"type": "array", "items": _TEXT}, {"type": "object", "additionalProperties": _QUANTITY}]
}


def _told(shape: dict[str, Any], sentence: str) -> dict[str, Any]:
    return {**shape, "description": sentence}


def _table(sentence: str, **properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object", "properties": properties, "additionalProperties": False, "description": sentence,
    }  # fmt: skip


AXIS = {
    "values": _told(_VALUES, "A list, or a range such as 1..8."),
    "from": _told(_QUANTITY, "First of a range."),
    "to": _told(_QUANTITY, "Last of a range, itself included where a step meets it."),
    "times": _told(_QUANTITY, "Factor from one value to the next."),
    "step": _told(_QUANTITY, "Difference of one value to the next; 1 if neither is given."),
    "start": _told(_QUANTITY, "The same as from."),
    "stop": _told(_QUANTITY, "The same as to."),
    "if": _told(
        {"anyOf": [_TEXT, {"type": "object", "additionalProperties": _VALUES, "maxProperties": 1}]},
        "An axis before this one, and its values for which this one matters: {dynamic_batching: true}.",
    ),
}
"""What an axis of the space may be told where a list or a text does not do."""

BUDGET = {
    "max_time": _told(_QUANTITY, "Longest time of the whole sweep, such as 10m."),
    "max_trials": _told(_COUNT, "Most measurements, those that verify included."),
    "certain": _told(_QUANTITY, "Share of resamples in which the best must be best; 95% if not given."),
}
PLAN = {
    "max_time": _told(
        _QUANTITY, "Longest look at a trial; 10s if not given, and while searching 3s at most."
    ),
    "min_time": _told(_QUANTITY, "Shortest steady measuring; 1s if not given."),
    "min_runs": _told(_COUNT, "Fewest steady samples."),
    "max_runs": _told(_COUNT, "Most steady samples."),
    "min_warmup": _told(_COUNT, "Fewest samples left out as warm-up."),
    "target": _told(_TEXT, "Statistic whose interval is to be narrow, such as p50."),
    "precision": _told(_QUANTITY, "Half-width of that interval; 2% if not given."),
    "seed": _told(_COUNT, "Seed of random inputs, and of the search."),
    "pin": _told(_VALUE, "Cores to stay on, such as 0,1 or 0-3."),
    "timeout": _told(_QUANTITY, "Longest life of a child process."),
    "memory_limit": _told(_QUANTITY, "Most memory of a child process, such as 2GiB."),
}
LOAD = {
    "concurrency": _told(_COUNT, "Requests on their way at once, where that is no axis."),
    "rate": _told(_QUANTITY, "An open loop: 100, 100:poisson, 100:burst=8 (requests/s)."),
    "arrivals": _told({"enum": ["constant", "poisson", "burst"]}, "Of an open loop whose rate is an axis."),
    "duration": _told(_QUANTITY, "Length of the steady window; until the plan is met if not given."),
    "requests": _told(_COUNT, "Requests to measure."),
    "ramp": _told(_QUANTITY, "Grow to the full load over so long."),
    "timeout": _told(_QUANTITY, "When a request is given up; 60s if not given."),
    "retries": _told(_COUNT, "Send again what the server did not answer."),
    "drivers": _told(_COUNT, "Processes that send."),
}

KEYS: dict[str, dict[str, Any]] = {
    "model": _told(_TEXT, "A path, or scheme:locator, or the URL of a server that runs."),
    "name": _told(_TEXT, "What to call the model."),
    "backend": _told(_TEXT, "What runs or serves it."),
    "set": _told(
        {"type": "object", "additionalProperties": _VALUE}, "Knobs that stay as they are: knob to value."
    ),
    "input": _told(_TEXTS, "name=8x128:int64:0..30521, or a file."),
    "probe": _told(_TEXTS, "What to measure; by default what the goal needs."),
    "beside": _told(
        _TEXTS, "Other models on the same server at the same time: b.onnx concurrency=4 instances=2."
    ),
    "space": _told(
        {
            "type": "object",
            "additionalProperties": {
                "anyOf": [
                    *_VALUES["anyOf"],
                    {"type": "object", "properties": AXIS, "additionalProperties": False},
                ]
            },
        },
        "What is varied: knob, concurrency or rate to its values: [1, 2, 4], 1..8, 1..9:2, 1..64*2.",
    ),
    "objectives": _told(_AIMS, "Metrics, each with its own direction: {throughput: 10, latency.p99: 5}."),
    "maximize": _told(_AIMS, "A metric, several, or metric to weight."),
    "minimize": _told(_AIMS, "A metric, several, or metric to weight."),
    "require": _told(_TEXTS, "Bounds, such as latency.p99 <= 50ms."),
    "mode": _told(
        {"enum": ["online", "offline"]}, "Maximise the throughput of a server: online under a latency budget."
    ),
    "latency_budget": _told(_QUANTITY, "The same as require: latency.p99 <= 10ms."),
    "min_throughput": _told(_QUANTITY, "The same as require: throughput >= 500/s."),
    "rank": _told(
        {"enum": [str(rank) for rank in Rank]},
        "A configuration stands for itself at its best load, or each load apart."
    ),
    "strategy": _told(_TEXT, "How to search: quick, grid, ladder, optuna, optuna-nsga2 or optuna-gp."),
    "budget": _table("When the sweep ends.", **BUDGET),
    "plan": _table("How carefully to measure.", **PLAN),
    "load": _table("What the server is put under.", **LOAD),
}  # fmt: skip
"""Key to what may stand behind it."""

FOREIGN = {
    "models": "write model:, and those on the same server below beside:; for the others a file each",
    "profile_models": "write model:, and those on the same server below beside:; for the others a file each",
    "run_config_profile_models_concurrently_enable": "write the other models below beside:",
    "weighting": "write maximize: with a weight for each model, such as {throughput@a: 2, throughput@b: 1}",
    "model_repository": "write model: DIRECTORY#MODEL, or the path of the model's file",
    "max_time": "write it below budget: for the whole sweep, or below plan: for each look",
    "max_trials": "write it below budget:",
    "model_config_parameters": "write space: with instances, max_batch, queue_delay, or config.PATH",
    "parameters": "write space: with concurrency: or batch_size:",
    "concurrency": "write it below space: to vary it, or below load: to keep it",
    "batch_sizes": "write batch_size: below space:",
    "request_rate": "write rate: below space: to vary it, or below load: to keep it",
    "constraints": "write require:, such as latency.p99 <= 10ms",
    "run_config_search_mode": "write strategy: quick, grid, ladder or optuna",
    "triton_launch_mode": "write set: with launch: docker, or server: http://host:8000",
    "client_protocol": "write set: with protocol: grpc",
    "trust": "what runs code is said each time, by --trust on the command line",
}
"""What other programs, or other places of this one, call it: what to write instead."""


def schema() -> dict[str, Any]:
    """Give the JSON Schema of a sweep in a file."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "ModelDyno sweep",
        "type": "object",
        "properties": KEYS,
        "required": ["model"],
        "additionalProperties": False,
    }
