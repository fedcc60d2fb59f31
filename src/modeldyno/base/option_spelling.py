"""Spell the fields that a message names as a reader types them: options, or arguments of Python.

Messages of what is below the command line name a field in backticks by its name in Python, with a value where
it helps: "pool fresh processes with `processes=5`". Documents and the dashboard keep that text; what shows it
to somebody who types spells it. A command that a message suggests stays one: ``modeldyno show ID``.
"""

from __future__ import annotations

import re

from modeldyno.base.options import LOAD, PLAN

_OPTIONS = {row.name: row.flag for row in (*PLAN, *LOAD)} | {
    "all_servers": "--all", "baseline_inputs": "--baseline-input", "candidate_inputs": "--candidate-input",
    "certain": "--until", "configurations": "--configuration", "devices": "--device", "headers": "--header",
    "idle_for": "--for", "inputs": "--input", "objectives": "--objective", "plots": "--plot",
}  # fmt: skip
"""Fields whose option is of a table, or has another name."""
FUNCTIONS = frozenset({"find_load", "rerank"})
"""Options that are functions of Python."""
SWITCHES = frozenset({"all_servers", "force", "inline", "overwrite", "run", "trust"})
"""Fields that are given without a value on the command line."""
FIELDS = frozenset(
    {
        "backend", "baseline", "beside", "budget", "carbon", "chart", "concurrency", "data", "demand",
        "evaluate", "export", "fields", "generate", "layers", "max_regression", "max_trials", "maximize",
        "measurements", "memory", "metric", "minimize", "mode", "most", "name", "optimizer", "output",
        "outputs", "pictures", "port", "post", "power", "pre", "price", "prompt", "rank", "rate",
        "records", "replay", "replay_speed", "replay_window",
        "require", "smallest", "space", "storage", "token_file", "trace", "undecided", "vary", "verify",
        *_OPTIONS, *FUNCTIONS, *SWITCHES,
    }
)  # fmt: skip
"""The fields that messages name; other words in backticks stay as they are."""
KNOBS = frozenset(
    {
        "batch_size", "compile", "device", "extra", "launch", "max_tokens", "program",
        "server", "threads", "tokenizer",
    }
)  # fmt: skip
"""Knobs of a backend that messages name with a value."""

_FIELD = re.compile(r"`(?P<name>[a-z_]+)(?:=(?P<value>[^`]+))?`")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def spell_for_command_line(text: str) -> str:
    """Write fields as options: `max_time` as ``--max-time``, `threads=1` as ``--set threads=1``."""
    return _FIELD.sub(_option, text)


def spell_for_python(text: str) -> str:
    """Write fields as arguments: `max_time` as ``max_time=``, `mode=train` as ``mode='train'``."""
    return _FIELD.sub(_argument, text)


def names_field(text: str, name: str) -> bool:
    """Return whether a message names a field."""
    return any(match["name"] == name for match in _FIELD.finditer(text))


def _option(match: re.Match[str]) -> str:
    name, value = match["name"], match["value"]
    if name in KNOBS and value is not None:
        return f"--set {name}={value}" if value.isalnum() else f"--set '{name}={value}'"
    if name not in FIELDS:
        return match[0]
    option = _OPTIONS.get(name) or f"--{name.replace('_', '-')}"
    return option if value is None else f"{option} {_quote(value) if ' ' in value else value}"


def _argument(match: re.Match[str]) -> str:
    name, value = match["name"], match["value"]
    if name not in FIELDS and (name not in KNOBS or value is None):
        return match[0]
    if value is None:
        return f"{name}{'()' if name in FUNCTIONS else '=True' if name in SWITCHES else '='}"
    return f"{name}={value if _NUMBER.fullmatch(value) else _quote(value)}"


def _quote(value: str) -> str:
    return f"'{value}'"
