"""A sweep file in the making, from a configuration of Model Analyzer."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from modeldyno.base import options
from modeldyno.base.errors import RequestError
from modeldyno.sweeps.model_analyzer_keys import KEYS

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedKey:
    """A key of Model Analyzer that the sweep file does not have."""

    key: str
    """With the model it stands below, such as ``add.cpu_only``."""
    reason: str
    """Why, or what does it here."""

    def __str__(self) -> str:
        return f"{self.key}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslatedSweep:
    """What a configuration of Model Analyzer means as a sweep."""

    tree: dict[str, Any]
    """The content of the sweep file."""
    options: tuple[str, ...] = ()
    """Words of the command line that no sweep file holds, such as ``--top 3``."""
    environment: tuple[str, ...] = ()
    """Variables to set before the command, as ``NAME=VALUE``."""
    dropped: tuple[DroppedKey, ...] = ()

    def text(self, file: str = "sweep.yaml") -> str:
        """Return the sweep file, with what was left out and the command as comments."""
        import yaml  # only a file needs it

        body: str = yaml.safe_dump(
            self.tree, sort_keys=False, default_flow_style=None, allow_unicode=True, width=100
        )
        lines = [f"# {self.command(file)}"]
        if self.dropped:
            lines += ["# Left out:", *(f"#   {item}" for item in self.dropped)]
        return "\n".join(lines) + "\n" + body

    def command(self, file: str = "sweep.yaml") -> str:
        """Return the command line that measures the sweep in a file."""
        prefix = ("env", *self.environment) if self.environment else ()
        return shlex.join([*prefix, "modeldyno", "sweep", file, *self.options])

    def command_line(self) -> str:
        """Return the command line that measures the sweep without a file, if it has one model."""
        prefix = ("env", *self.environment) if self.environment else ()
        return shlex.join([*prefix, "modeldyno", "sweep", *command_words(self.tree), *self.options])


@dataclass(slots=True, kw_only=True)
class Draft:
    """A sweep file in the making."""

    name: str = ""
    """Of the model."""
    prefix: str = ""
    """What stands before a dropped key."""
    tree: dict[str, Any] = field(default_factory=dict)
    options: list[tuple[str, ...]] = field(default_factory=list)
    environment: list[str] = field(default_factory=list)
    dropped: list[DroppedKey] = field(default_factory=list)
    weight: float | None = None

    def drop(self, key: str, reason: str = "") -> None:
        """Leave a key out."""
        self.dropped.append(DroppedKey(key=self.prefix + key, reason=reason or KEYS[key]))

    def put(self, section: str, name: str, value: Any) -> None:
        """Set a part of a section, such as ``set`` or ``load``."""
        self.tree.setdefault(section, {})[name] = value

    def add(self, key: str, text: str) -> None:
        """Add an item to a list, such as ``require``."""
        self.tree.setdefault(key, []).append(text)

    def vary(self, name: str, values: Any) -> None:
        """Add an axis; a single value is a setting, or a load."""
        if isinstance(values, list) and len(values) == 1:
            (values,) = values
        if isinstance(values, list) or (isinstance(values, str) and ".." in values):
            self.put("space", name, values)
        else:
            self.put("load" if name in {"concurrency", "rate"} else "set", name, values)


# --- values ----------------------------------------------------------------------------------------


_SECTIONS = (
    "parameters", "model_config_parameters", "perf_analyzer_flags", "genai_perf_flags", "triton_server_flags",
    "triton_server_environment", "triton_docker_args", "triton_docker_labels", "plots",
)  # fmt: skip
"""Keys with further keys below them."""


def check_section(key: str, value: Any) -> None:
    """Refuse a key that has no keys below it, but should.

    Raises:
        RequestError: `key` is such a key, perhaps with its model in front, and `value` is no mapping.
    """
    if key.rpartition(".")[2] in _SECTIONS:
        as_section(key, value)


def as_section(key: str, value: Any) -> Mapping[str, Any]:
    """Return what stands below a key; nothing where it is left empty.

    Raises:
        RequestError: it is something else than keys with values.
    """
    below = value or {}
    if not isinstance(below, Mapping):
        raise RequestError(f"'{key}' holds keys with values, not {str(value)[:_MAX_SHOWN]}.")
    return below


_MAX_SHOWN = 60
"""Characters of a wrong value that are shown."""


def as_list(value: Any) -> list[Any]:
    """Return the items of a list, or of text with commas."""
    if value is None:
        return []
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return list(value) if isinstance(value, list | tuple) else [value]


def as_names(value: Any) -> list[str]:
    """Return the names of a list whose items may have parts below them."""
    return [
        str(name)
        for item in ([value] if isinstance(value, Mapping) else as_list(value))
        for name in (item if isinstance(item, Mapping) else [item])
    ]


def as_values(value: Any) -> Any:
    """Return values for an axis: a list, a range as text, or a single one."""
    if isinstance(value, Mapping):
        step = value.get("step", 1)
        return f"{value.get('start')}..{value.get('stop')}{'' if step == 1 else f':{step}'}"
    items = [(int(item) if isinstance(item, str) and item.isdigit() else item) for item in as_list(value)]
    return items[0] if len(items) == 1 else items


def as_number(value: Any) -> int | float:
    """Return a number, whole where it is.

    Raises:
        RequestError: it is none.
    """
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise RequestError(f"'{str(value)[:_MAX_SHOWN]}' is not a number.") from None
    return int(number) if number.is_integer() else number


# --- the command line ------------------------------------------------------------------------------


def command_words(tree: Mapping[str, Any]) -> Iterator[str]:
    """Yield the words of ``modeldyno sweep`` for a sweep with one model."""
    first, *others = [tree["model"]] if "model" in tree else [m["model"] for m in tree["models"].values()]
    yield first
    for model in others:
        yield from ("--also", model)
    for key, flag in (("set", "--set"), ("space", "--space")):
        for name, value in tree.get(key, {}).items():
            yield from (flag, f"{name}={_word(value)}")
    for key, flag in (("input", "--input"), ("beside", "--beside"), ("require", "--require")):
        for text in tree.get(key, ()):
            yield from (flag, text)
    for metric, weight in tree.get("objectives", {}).items():
        yield from ("--objective", metric if weight == 1 else f"{metric}:{weight}")
    single = ("mode", "latency_budget", "min_throughput", "strategy")
    load = dict(tree.get("load", {}))
    if "arrivals" in load and "rate" in load:
        load["rate"] = f"{load['rate']}:{load.pop('arrivals')}"
    flags = {row.field: row.flag for row in (*options.PLAN, *options.LOAD)}
    for name, value in {
        **{key: tree[key] for key in single if key in tree},
        **tree.get("budget", {}),
        **tree.get("plan", {}),
        **load,
    }.items():
        yield from (flags.get(name, f"--{name.replace('_', '-')}"), str(value))


def _word(value: Any) -> str:
    """Write the value of a setting, or the values of an axis, as the command line takes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(f"[{item}]" if "," in str(item) else _word(item) for item in value)
    return str(value)
