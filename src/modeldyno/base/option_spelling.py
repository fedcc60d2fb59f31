"""Spell the fields that a message names as a reader types them: options, or arguments of Python.

Messages of what is pure name a field in backticks by its name in Python, with a value where it helps:
"pool fresh processes with `processes=5`". Documents keep that text; what shows it spells it.
"""

from __future__ import annotations

import re

FIELDS = frozenset(
    {
        "backend", "baseline_inputs", "beside", "candidate_inputs", "carbon", "concurrency", "configurations",
        "data", "demand", "drivers", "duration", "evaluate",
        "find_load", "force", "headers", "inputs", "layers", "max_regression", "max_runs", "max_time",
        "max_trials",
        "maximize", "memory", "memory_limit", "min_runs", "min_time", "min_warmup", "minimize", "mode",
        "pictures", "pin", "plots", "port", "post", "power", "pre", "precision", "price", "processes", "rate",
        "records",
        "requests", "require", "run", "seed", "sequence", "smallest", "timeout", "token_file", "vary",
    }
)  # fmt: skip
"""The fields that messages name; other words in backticks stay as they are."""
KNOBS = frozenset({"threads", "device", "extra", "max_tokens", "prompt_tokens", "stream", "tokenizer"})
"""Knobs of a backend that messages name with a value."""

_FIELD = re.compile(r"`(?P<name>[a-z_]+)(?:=(?P<value>[^`]+))?`")
_OPTIONS = {
    "baseline_inputs": "baseline-input", "candidate_inputs": "candidate-input",
    "configurations": "configuration", "headers": "header", "inputs": "input", "plots": "plot",
}  # fmt: skip
"""Fields whose option has another name."""
_SWITCHES = frozenset({"force", "run"})
"""Fields that are given without a value."""
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def spell_for_command_line(text: str) -> str:
    """Write fields as options: `max_time` as ``--max-time``, `threads=1` as ``--set threads=1``."""
    return _FIELD.sub(_option, text)


def spell_for_python(text: str) -> str:
    """Write fields as arguments: `max_time` as ``max_time=``, `mode=train` as ``mode='train'``."""
    return _FIELD.sub(_argument, text)


def _option(match: re.Match[str]) -> str:
    name, value = match["name"], match["value"]
    if name in KNOBS and value is not None:
        return f"--set {name}={value}" if value.isalnum() else f"--set '{name}={value}'"
    if name not in FIELDS:
        return match[0]
    option = f"--{_OPTIONS.get(name, name).replace('_', '-')}"
    return option if value is None else f"{option} {_quote(value) if ' ' in value else value}"


def _argument(match: re.Match[str]) -> str:
    name, value = match["name"], match["value"]
    if name not in FIELDS and (name not in KNOBS or value is None):
        return match[0]
    if value is None:
        return f"{name}=True" if name in _SWITCHES else f"{name}="
    return f"{name}={value if _NUMBER.fullmatch(value) else _quote(value)}"


def _quote(value: str) -> str:
    return f"'{value}'"
