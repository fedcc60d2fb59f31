"""Translate what Model Analyzer is told of one model: its goal, what is varied, flags of other programs."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.serving.servers import pbtxt
from modeldyno.serving.servers.triton_repository_reader import CONFIG
from modeldyno.sweeps.model_analyzer_draft import Draft, as_list, as_number, as_section, as_values
from modeldyno.sweeps.model_analyzer_keys import (
    GENAI_PERF_FLAGS,
    METRICS,
    METRICS_WITHOUT_COUNTERPART,
    PERF_ANALYZER_FLAGS,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

RANGES = {
    "instances": ("instance_count", "1", "5", ""),
    "max_batch": ("model_batch_size", "1", "128", "*2"),
    "concurrency": ("concurrency", "1", "1024", "*2"),
    "rate": ("request_rate", "16", "8192", "*2"),
}
"""Axis to the name of its range in Model Analyzer, its ends there, and how it goes on."""
LOADS = ("concurrency", "request_rate", "batch_sizes")
SEARCH = (
    *LOADS, "run_config_search_disable", "request_rate_search_enable", "use_concurrency_formula",
    *(f"run_config_search_{end}_{name}" for name, *_ in RANGES.values() for end in ("min", "max")),
)  # fmt: skip
"""Keys of what is varied."""


def draft_model(
    config: Mapping[str, Any], name: str, below: Mapping[str, Any], *, reference: str, prefix: str = ""
) -> Draft:
    """Translate what holds for a model: its goal, its space, its flags.

    Args:
        config: the whole configuration.
        name: of the model.
        below: what stands below the model.
        reference: where the model is.
        prefix: what stands before a dropped key.

    Raises:
        RequestError: a metric or a flag is unknown, or a number is none.
    """
    draft = Draft(name=name, prefix=prefix)
    draft.tree["model"] = reference
    if (weight := below.get("weighting", config.get("weighting"))) is not None:
        draft.weight = as_number(weight)
    if below.get("cpu_only", config.get("cpu_only")):
        draft.put("set", "device", "cpu")
    _translate_goal(draft, config, below)
    _translate_space(draft, config, below)
    _translate_flags(draft, config, below, batched=_has_batch(reference))
    return draft


def _has_batch(reference: str) -> bool:
    """Return whether a model of a repository takes batches; True if it cannot be read here."""
    folder, _, name = reference.removeprefix("repository:").partition("#")
    try:
        config = pbtxt.parse_pbtxt((Path(folder) / name / CONFIG).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, RequestError):
        return True
    return bool(config.get("max_batch_size", 0))


def _translate_goal(draft: Draft, config: Mapping[str, Any], below: Mapping[str, Any]) -> None:
    weights = below.get("objectives", config.get("objectives"))
    objectives = weights if isinstance(weights, Mapping) else dict.fromkeys(map(str, as_list(weights)), 1)
    for name, weight in objectives.items():
        if query := _query(draft, f"objectives.{name}", str(name)):
            draft.put("objectives", query[0], as_number(weight))
    limits = below.get("constraints", config.get("constraints")) or {}
    for item in limits if isinstance(limits, list) else [limits]:
        for name, ends in as_section("constraints", item).items():
            if query := _query(draft, f"constraints.{name}", str(name)):
                for end, value in as_section(f"constraints.{name}", ends).items():
                    draft.add("require", _bound(query, str(end), value))


def _query(draft: Draft, key: str, name: str) -> tuple[str, str] | None:
    """Return our query of one of their metrics; drop one that has no counterpart."""
    if name in METRICS:
        return METRICS[name]
    if name not in METRICS_WITHOUT_COUNTERPART:
        metrics = {**METRICS, **METRICS_WITHOUT_COUNTERPART}
        raise UnknownName.among(
            "metric of Model Analyzer", name, metrics, listed="its docs/metrics.md lists them all."
        )
    draft.drop(key, METRICS_WITHOUT_COUNTERPART[name])
    return None


def _bound(query: tuple[str, str], end: str, value: Any) -> str:
    """Write a constraint in the unit that it was given in."""
    name, unit = query
    if end not in {"min", "max"}:
        raise UnknownName.among("end of a constraint", end, ("min", "max"))
    return f"{name} {'>=' if end == 'min' else '<='} {as_number(value)}{unit}"


# --- what is varied --------------------------------------------------------------------------------


def _translate_space(draft: Draft, config: Mapping[str, Any], below: Mapping[str, Any]) -> None:
    """Translate what is varied, as Model Analyzer decides it.

    The settings of the server are varied by themselves unless some are given or the search is disabled; the
    load is, unless it is given or the search is disabled. Without any word about it, the usual axes are
    varied.
    """
    parameters = {
        **{key: config[key] for key in LOADS if key in config},
        **(config.get("parameters") or {}),
        **(below.get("parameters") or {}),
    }
    for key in parameters:
        if key not in LOADS:
            raise UnknownName.among("key below parameters:", str(key), LOADS)
    settings = below.get("model_config_parameters", config.get("model_config_parameters"))
    disabled = bool(config.get("run_config_search_disable"))
    named = bool(settings or parameters or disabled or any(config.get(key) is not None for key in SEARCH))
    if settings:
        translate_model_config(draft, settings)
    elif named and not disabled:
        draft.vary("instances", _range(config, "instances"))
        draft.vary("max_batch", _range(config, "max_batch"))
        draft.put("set", "dynamic_batching", True)
    rate = (
        "request_rate" in parameters
        or config.get("request_rate_search_enable")
        or any(config.get(f"run_config_search_{end}_request_rate") is not None for end in ("min", "max"))
    )
    load = "rate" if rate else "concurrency"
    values = parameters.get("request_rate" if rate else "concurrency")
    if config.get("use_concurrency_formula") and values is None and not (disabled or rate):
        _translate_formula(draft, config)
    elif config.get("use_concurrency_formula"):
        draft.drop("use_concurrency_formula", "the load is given")
    if values is not None:
        draft.vary(load, as_values(values))
    elif named and "concurrency" not in draft.tree.get("space", {}):
        draft.vary(load, 1 if disabled and not rate else _range(config, load))
    if (sizes := parameters.get("batch_sizes")) is not None and as_values(sizes) != 1:
        draft.vary("batch_size", as_values(sizes))


def _translate_formula(draft: Draft, config: Mapping[str, Any]) -> None:
    """Vary the concurrency with the instances and the batch: twice the requests that fill all of them."""
    known = {**draft.tree.get("set", {}), **draft.tree.get("space", {})}
    factors = [name for name in ("instances", "max_batch") if name in known]
    draft.put("space", "concurrency", "*".join(("2", *factors)) if factors else 2)
    for key in ("run_config_search_min_concurrency", "run_config_search_max_concurrency"):
        if config.get(key) is not None:
            draft.drop(key, "the concurrency follows from the instances and the batch")


def _range(config: Mapping[str, Any], axis: str) -> str | int:
    """Return the range of an axis, as Model Analyzer walks through it."""
    name, low, high, by = RANGES[axis]
    first = str(config.get(f"run_config_search_min_{name}") or low)
    last = str(config.get(f"run_config_search_max_{name}") or high)
    return int(first) if first == last else f"{first}..{last}{by}"


def translate_model_config(draft: Draft, parameters: Mapping[str, Any]) -> None:
    """Translate what is changed in config.pbtxt: lists are axes."""
    for name, value in parameters.items():
        if name == "max_batch_size":
            draft.vary("max_batch", as_values(value))
        elif name == "instance_group":
            _translate_instances(draft, value)
        elif name == "dynamic_batching":
            _translate_batching(draft, value)
        else:
            _translate_field(draft, f"config.{name}", value)


def _translate_batching(draft: Draft, batching: Any) -> None:
    fields = batching if isinstance(batching, Mapping) else {}
    draft.put("set", "dynamic_batching", batching is not False)
    for name, value in fields.items():
        if name == "max_queue_delay_microseconds":
            draft.vary("queue_delay", as_values(value))
        elif name == "preferred_batch_size":
            sizes = as_list(value)
            several = sizes if any(isinstance(item, list) for item in sizes) else [sizes]
            draft.vary("preferred_batch", [",".join(map(str, as_list(item))) for item in several])
        else:
            _translate_field(draft, f"config.dynamic_batching.{name}", value)


def _translate_instances(draft: Draft, instances: Any) -> None:
    """Translate instance groups: ``[{kind, count}]`` is one choice, and ``[[...], [...]]`` are several."""
    groups = as_list(instances)
    choices = groups if any(isinstance(group, list) for group in groups) else [groups]
    counts: list[Any] = []
    devices: list[str] = []
    pairs: list[tuple[Any, str]] = []
    if any(len(choice) != 1 for choice in choices) and _are_groups(choices):
        draft.vary("config.instance_group", [json.dumps(_whole_groups(choice)) for choice in choices])
        if any(_device(group).startswith("cuda") for choice in choices for group in choice):
            draft.put("set", "device", "cuda")
        return
    for choice in choices:
        if len(choice) != 1 or not isinstance(choice[0], Mapping):
            draft.drop(
                "model_config_parameters.instance_group",
                "several numbers for one of several groups: list the whole groups, [[...], [...]]",
            )
            return
        count, device = as_values(choice[0].get("count", 1)), _device(choice[0])
        counts += [item for item in as_list(count) if item not in counts]
        devices += [device] if device not in devices else []
        pairs += [(item, device) for item in as_list(count)]
    if len(pairs) != len(counts) * len(devices):
        text = "each number of instances would be tried on each device; write both below space:"
        draft.drop("model_config_parameters.instance_group", text)
        return
    draft.vary("instances", counts)
    if devices != [""]:
        draft.vary("device", [device or "cpu" for device in devices])


def _are_groups(choices: Any) -> bool:
    """Return whether each choice is a list of groups, each with one number of instances."""
    return all(
        isinstance(choice, list)
        and all(
            isinstance(group, Mapping) and not isinstance(group.get("count"), list | Mapping)
            for group in choice
        )
        for choice in choices
    )


def _whole_groups(groups: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return instance groups as Triton takes them: each has a kind, and a list of its devices."""
    return [
        {
            **group,
            "kind": group.get("kind", "KIND_AUTO"),
            **({"gpus": as_list(group["gpus"])} if "gpus" in group else {}),
        }
        for group in groups
    ]


def _device(group: Mapping[str, Any]) -> str:
    """Return the device of an instance group; empty if it names none."""
    kind = str(group.get("kind", ""))
    gpus = as_list(group.get("gpus"))
    if kind == "KIND_GPU" or gpus:
        return f"cuda:{gpus[0]}" if len(gpus) == 1 else "cuda"
    return "cpu" if kind == "KIND_CPU" else ""


def _translate_field(draft: Draft, path: str, value: Any) -> None:
    """Translate any other field of config.pbtxt: a list of values is an axis."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            _translate_field(draft, f"{path}.{name}", inner)
    elif isinstance(value, list) and any(isinstance(item, Mapping | list) for item in value):
        key = path.replace("config.", "model_config_parameters.", 1)
        draft.drop(key, "write a list of messages into the model's config.pbtxt")
    else:
        draft.vary(path, as_values(value))


# --- flags of other programs -----------------------------------------------------------------------


def _translate_flags(
    draft: Draft, config: Mapping[str, Any], below: Mapping[str, Any], *, batched: bool
) -> None:
    def flags(key: str) -> dict[str, Any]:
        return {**(config.get(key) or {}), **(below.get(key) or {})}

    _translate_perf_flags(draft, flags("perf_analyzer_flags"), batched=batched)
    _translate_genai_flags(draft, flags("genai_perf_flags"))
    if server := flags("triton_server_flags"):
        arguments = [
            f"--{str(name).replace('_', '-')}={_flag_value(value)}" for name, value in server.items()
        ]
        draft.put("set", "flags", shlex.join(arguments))
    _translate_environment(draft, flags("triton_server_environment"), config.get("triton_launch_mode"))
    contained = config.get("triton_launch_mode") == "docker"
    for key, prefix in (("triton_docker_labels", "container.label"), ("triton_docker_args", "container")):
        for name, value in flags(key).items() if contained else ():
            draft.put("set", f"{prefix}.{name}", _flag_value(value))
        if flags(key) and not contained:
            draft.drop(key, "triton_launch_mode is not docker, and only docker needs it")


def _translate_environment(draft: Draft, variables: Mapping[str, Any], mode: Any) -> None:
    """Translate the environment of a server; one within our own process has ours."""
    if mode == "remote" and variables:
        draft.drop("triton_server_environment", "triton_launch_mode is remote, and the server runs already")
    elif mode == "c_api":
        draft.environment += [f"{name}={value}" for name, value in variables.items()]
    else:
        for name, value in variables.items():
            draft.put("set", f"env.{name}", _flag_value(value))


def _flag_value(value: Any) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _refuse_unknown(flags: Iterable[str]) -> None:
    for name in flags:
        if name not in PERF_ANALYZER_FLAGS:
            listed = "perf_analyzer --help lists them all."
            raise UnknownName.among(
                "flag below perf_analyzer_flags:", str(name), PERF_ANALYZER_FLAGS, listed=listed
            )


def _translate_perf_flags(draft: Draft, flags: Mapping[str, Any], *, batched: bool) -> None:
    rated = "rate" in draft.tree.get("space", {}) or "rate" in draft.tree.get("load", {})
    _refuse_unknown(flags)
    for name, value in flags.items():
        if name in _PLAIN_FLAGS:
            section, part, unit = _PLAIN_FLAGS[name]
            draft.put(section, part, f"{as_number(value)}{unit}" if unit else value)
        elif name == "shape":
            for shape in as_list(value) if isinstance(value, list) else [value]:
                tensor, _, sizes = str(shape).rpartition(":")
                draft.add("input", f"{tensor}={','.join((*(('batch',) if batched else ()), sizes))}")
        elif name == "percentile":
            draft.put("plan", "target", f"p{value}")
        elif name == "latency-threshold":
            draft.add("require", f"latency.p99 <= {as_number(value)}ms")
        elif name == "request-distribution" and rated:
            draft.put("load", "arrivals", value)
        elif knob := _CHOSEN.get((name, str(value))):
            draft.put("set", *knob)
        elif (name, str(value)) not in _USUAL:
            draft.drop(f"perf_analyzer_flags.{name}", _flag_reason(name, value))


_CHOSEN = {
    ("shared-memory", "system"): ("shared_memory", "system"),
    ("grpc-compression-algorithm", "gzip"): ("compression", "gzip"),
    ("grpc-compression-algorithm", "deflate"): ("compression", "deflate"),
}
"""Flag with its value to our knob with its value."""
_USUAL = {("input-data", "random"), ("shared-memory", "none"), ("grpc-compression-algorithm", "none")}
"""Flags with values that are usual here, too."""
_PLAIN_FLAGS = {
    "measurement-interval": ("load", "duration", "ms"),
    "measurement-request-count": ("load", "requests", ""),
    "model-version": ("set", "version", ""),
}
"""Flag to its place in a sweep file, and to its unit."""


def _flag_reason(name: str, value: Any) -> str:
    if name == "request-distribution":
        return "a closed loop has no distribution; write rate: below space:"
    if name == "input-data" and value == "zero":
        return "inputs are random; zeros are a range: input: name=batch,3:float32:0"
    return PERF_ANALYZER_FLAGS[name]


def _translate_prompts(draft: Draft, flags: Mapping[str, Any]) -> tuple[str, ...]:
    """Translate the lengths of prompts, where no file has them; return the flags that are done."""
    mean = flags.get("input-tokens-mean")
    if mean is None or "input-dataset" in flags:
        return ()
    middle, spread = as_number(mean), as_number(flags.get("input-tokens-stddev") or 0)
    if not (math.isfinite(middle) and math.isfinite(spread)):
        raise RequestError(f"the input tokens '{middle}' and '{spread}' are no lengths of prompts.")
    words = sorted({max(1, round(middle - spread)), max(1, round(middle + spread))})
    draft.add("input", f"prompt=1:string:{'..'.join(map(str, words))}")
    return ("input-tokens-mean", "input-tokens-stddev")


def _translate_genai_flags(draft: Draft, flags: Mapping[str, Any]) -> None:
    shaped = _translate_prompts(draft, flags)
    for name, value in flags.items():
        if name in shaped:
            continue
        if name not in GENAI_PERF_FLAGS:
            raise UnknownName.among("flag below genai_perf_flags:", str(name), GENAI_PERF_FLAGS)
        if name == "streaming":
            draft.put("set", "stream", bool(value))
        elif name == "expected-output-tokens":
            draft.put("set", "max_tokens", value)
        elif name == "endpoint":
            draft.put("set", "endpoint", "chat" if "chat" in str(value) else "completions")
        elif name == "random-seed":
            draft.put("plan", "seed", value)
        elif name == "input-dataset" and Path(str(value)).suffix:
            draft.add("input", str(value))
        else:
            draft.drop(f"genai_perf_flags.{name}", GENAI_PERF_FLAGS[name])
