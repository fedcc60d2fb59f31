"""Read a YAML file of another program, whose values have types and which may use anchors.

Tags that make objects are refused, and so is a file that is deeper than any configuration, or that its
aliases make larger: a few lines of them stand for any number of values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from modeldyno.documents.yaml_file import read_config_text
from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_MAX_VALUES, _MAX_DEPTH = 10_000, 20
_VALUE_ERRORS = (ValueError, LookupError, AttributeError)
"""What a date that is none raises, a whole number of 5,000 digits, or a word tagged as a boolean."""


def read_foreign_yaml(path: Path) -> Any:
    """Read a file: keys, lists, text, numbers, booleans, dates.

    Raises:
        RequestError: it cannot be read, is not YAML, or is larger than a configuration.
    """
    import yaml  # noqa: PLC0415 - only a file needs it

    text = read_config_text(path)
    try:
        _check_size(yaml.parse(text, Loader=yaml.SafeLoader), path)
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        raise RequestError(f"{path}{where}: this is not YAML.") from error
    except _VALUE_ERRORS as error:
        reason = str(error).partition(";")[0]
        raise RequestError(f"{path} has a value that cannot be read ({reason}).") from error


def _check_size(events: Iterable[Any], path: Path) -> None:
    """Refuse a file that is too deep, or too large once its aliases are written out.

    Raises:
        RequestError: it is, or an alias names a part that contains it.
    """
    sizes: dict[str, int] = {}
    open_parts: list[tuple[str | None, int]] = []
    size = 0
    for event in events:
        kind = type(event).__name__
        size += 1
        if kind in {"MappingStartEvent", "SequenceStartEvent"}:
            open_parts.append((event.anchor, size - 1))
        elif kind in {"MappingEndEvent", "SequenceEndEvent"}:
            anchor, before = open_parts.pop()
            if anchor:
                sizes[anchor] = size - before
        elif kind == "ScalarEvent" and event.anchor:
            sizes[event.anchor] = 1
        elif kind == "AliasEvent":
            if event.anchor not in sizes:
                raise _refusal(path, event, f"*{event.anchor} names nothing that ends before it.")
            size += sizes[event.anchor]
        if size > _MAX_VALUES or len(open_parts) > _MAX_DEPTH:
            much = f"more than {_MAX_VALUES:,} values or {_MAX_DEPTH} levels"
            raise _refusal(path, event, f"{much}, too many for a configuration.")


def _refusal(path: Path, event: Any, problem: str) -> RequestError:
    return RequestError(f"{path}, line {event.start_mark.line + 1}: {problem}")
