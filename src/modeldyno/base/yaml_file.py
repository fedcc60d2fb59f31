"""Read a YAML file (a sweep, a job, a policy) as a tree of text, with the line of every part.

Nothing in the file is interpreted here: a value is the text in the file, and its meaning is decided by
its parser, exactly as for an option of the command line. So ``compile: off`` is the word off, and YAML's
own tags, anchors, aliases and types are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from modeldyno.base import codec
from modeldyno.base.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

Place = tuple[str, ...]
"""Keys from the root to a part; an item of a list has its number, from 0."""
Tree = dict[str, Any]
"""Key to text, a number, a boolean, a list of these, or a Tree."""

SUFFIXES = (".yaml", ".yml")
_MAX_BYTES, _MAX_DEPTH = 1 << 20, 8
"""Bytes of a file, and levels of nesting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileConfig:
    """Configuration of a command: from a file, from options, or both."""

    tree: Tree
    lines: Mapping[Place, int] = field(default_factory=dict)
    """Line of each part; parts that no file contains have none."""
    origin: str = ""
    """Name of the file."""

    def over(self, other: FileConfig) -> FileConfig:
        """Merge with another configuration, which this one overrides key by key, also within parts."""
        overridden: set[Place] = set()
        tree = _merge(self.tree, other.tree, (), overridden)
        lines = {
            place: line
            for place, line in other.lines.items()
            if not any(place[: len(prefix)] == prefix for prefix in overridden)
        }
        return FileConfig(tree=tree, lines={**lines, **self.lines}, origin=other.origin or self.origin)

    @contextmanager
    def at(self, *place: str) -> Iterator[None]:
        """Prefix errors raised within by the line of this part, or of the nearest enclosing part.

        A part from an option has no line, even if a file contains its neighbours.
        """
        try:
            yield
        except RequestError as error:
            line = self.line(place)
            if line is not None and not error.located:
                error.args, error.located = (f"{self.origin}, line {line}: {error}",), True
            raise

    def line(self, place: Place) -> int | None:
        """Return the line of this part, or of the nearest enclosing part; None for a part from an option."""
        while place and place not in self.lines and not self._has_key(place):
            place = place[:-1]
        return self.lines.get(place) if place else None

    def _has_key(self, place: Place) -> bool:
        """Return whether the tree has a part at this place under a key."""
        parent: Any = self.tree
        for name in place[:-1]:
            parent = parent.get(name) if isinstance(parent, Mapping) else None
        return isinstance(parent, Mapping) and place[-1] in parent


def _merge(above: Tree, below: Tree, place: Place, overridden: set[Place]) -> Tree:
    merged = dict(below)
    for name, value in above.items():
        before = below.get(name)
        if isinstance(value, dict) and isinstance(before, dict):
            merged[name] = _merge(value, before, (*place, name), overridden)
        else:
            merged[name] = value
            overridden.add((*place, name))
    return merged


def read_yaml_file(path: Path) -> FileConfig:
    """Read a file.

    Raises:
        RequestError: it cannot be read, is not YAML, or holds more than keys, text and lists.
    """
    return parse_yaml_text(read_config_text(path), str(path))


def read_config_text(path: Path) -> str:
    """Read the text of a configuration.

    Raises:
        RequestError: it cannot be read, is too large, or is no text.
    """
    try:
        codec.check_no_stream(path)
        if path.stat().st_size > _MAX_BYTES:
            raise RequestError(f"{path} has {path.stat().st_size:,} bytes, too many for a configuration.")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise RequestError(f"Cannot read {path}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise RequestError(f"{path} is not text in UTF-8.") from error


def parse_yaml_text(text: str, origin: str) -> FileConfig:
    """Parse the text of a file; `origin` is its name in errors.

    Raises:
        RequestError: it is not YAML, or holds more than keys, text and lists.
    """
    import yaml  # only a file needs it

    lines: dict[Place, int] = {}
    try:
        events = yaml.parse(text, Loader=yaml.SafeLoader)
        tree = _read_document(_Reader(events=events, origin=origin, lines=lines))
    except yaml.YAMLError as error:
        raise RequestError(_yaml_error_message(error, origin)) from error
    return FileConfig(tree=tree, lines=lines, origin=origin)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """The parser's events, from which no object is constructed, and the lines of what was read."""

    events: Iterator[Any]
    origin: str
    lines: dict[Place, int]

    def wrong(self, event: Any, problem: str) -> RequestError:
        return RequestError(f"{self.origin}, line {event.start_mark.line + 1}: {problem}")

    def next(self) -> tuple[str, Any]:
        """Return the next event and its kind, refusing anchors, aliases and tags."""
        event = next(self.events)
        kind = type(event).__name__.removesuffix("Event")
        if kind == "Alias" or getattr(event, "anchor", None):
            raise self.wrong(event, "anchors (&) and aliases (*) are not supported; write the value out.")
        if getattr(event, "tag", None):
            raise self.wrong(
                event, f"the tag {event.tag} is not supported: the file is plain text; remove the tag."
            )
        return kind, event


def _read_document(reader: _Reader) -> Tree:
    """Read the single document, whose root is a mapping."""
    tree: Any = None
    while (item := reader.next())[0] != "StreamEnd":
        kind, event = item
        if kind == "DocumentStart" and tree is not None:
            raise reader.wrong(event, "a second document (---) begins; a file holds one.")
        if kind in {"Mapping", "MappingStart", "SequenceStart", "Scalar"}:
            tree = _read_value(reader, kind, event, ())
    if not isinstance(tree, dict):
        raise RequestError(f"{reader.origin} is not a mapping; begin with: model: model.onnx")
    return tree


def _read_value(reader: _Reader, kind: str, event: Any, place: Place) -> Any:
    if len(place) > _MAX_DEPTH:
        raise reader.wrong(event, f"more than {_MAX_DEPTH} levels.")
    reader.lines.setdefault(place, event.start_mark.line + 1)
    if kind == "Scalar":
        return event.value
    if kind == "SequenceStart":
        return list(_read_items(reader, place))
    return dict(_read_fields(reader, place))


def _read_items(reader: _Reader, place: Place) -> Iterator[Any]:
    number = 0
    while (item := reader.next())[0] != "SequenceEnd":
        yield _read_value(reader, *item, (*place, str(number)))
        number += 1


def _read_fields(reader: _Reader, place: Place) -> Iterator[tuple[str, Any]]:
    names: set[str] = set()
    while (item := reader.next())[0] != "MappingEnd":
        kind, event = item
        if kind != "Scalar":
            raise reader.wrong(event, "a key must be a word, not a list.")
        name = event.value
        if name in names:
            raise reader.wrong(event, f"'{name}' occurs twice; give it once.")
        names.add(name)
        reader.lines[(*place, name)] = event.start_mark.line + 1
        yield name, _read_value(reader, *reader.next(), (*place, name))


def _yaml_error_message(error: Exception, origin: str) -> str:
    """Describe where the text is not valid YAML."""
    mark = getattr(error, "problem_mark", None)
    where = f", line {mark.line + 1}" if mark is not None else ""
    problem = str(getattr(error, "problem", "") or getattr(error, "reason", "") or "").strip()
    hint = "; indent with spaces, not with tabs" if r"\t" in problem else ""
    return f"{origin}{where}: this is not YAML ({problem or 'unreadable'}){hint}."


# --- configurations of other tools ------------------------------------------------------------------

_MAX_VALUES, _MAX_FOREIGN_DEPTH = 10_000, 20
_VALUE_ERRORS = (ValueError, LookupError, AttributeError)
"""What a date that is none raises, a whole number of 5,000 digits, or a word tagged as a boolean."""


def read_foreign_yaml(path: Path) -> Any:
    """Read a file: keys, lists, text, numbers, booleans, dates.

    Raises:
        RequestError: it cannot be read, is not YAML, or is larger than a configuration.
    """
    import yaml  # only a file needs it

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
        if size > _MAX_VALUES or len(open_parts) > _MAX_FOREIGN_DEPTH:
            much = f"more than {_MAX_VALUES:,} values or {_MAX_FOREIGN_DEPTH} levels"
            raise _refusal(path, event, f"{much}, too many for a configuration.")


def _refusal(path: Path, event: Any, problem: str) -> RequestError:
    return RequestError(f"{path}, line {event.start_mark.line + 1}: {problem}")
