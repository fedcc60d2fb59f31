"""A sweep in a file of YAML: read as a tree of text, with the line of every part.

Nothing in the file is interpreted here: a word is the text that stands there, and what it means is
settled by whoever asks for it, exactly as for an option of the command line. So ``compile: off`` is the
word off, and no tag, anchor, alias or type of YAML's own can do anything; they are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from pathlib import Path

Place = tuple[str, ...]
"""Keys from the root to a part; an item of a list has its number from 0."""
Tree = dict[str, Any]
"""Key to text, a number, a truth, a list of these, or a Tree."""

SUFFIXES = (".yaml", ".yml")
_LARGEST, _DEEPEST = 1 << 20, 8
"""Bytes of a file, and levels of a part within others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """What a sweep is told: by a file, by options, or by both."""

    tree: Tree
    lines: Mapping[Place, int] = field(default_factory=dict)
    """Where each part stands; what no file told has none."""
    origin: str = ""
    """What to call the file."""

    def over(self, other: Words) -> Words:
        """Give the words of another, with these in their stead: key by key, and within those parts, too."""
        gone: set[Place] = set()
        tree = _merged(self.tree, other.tree, (), gone)
        lines = {place: line for place, line in other.lines.items() if not _below(place, gone)}
        return Words(tree=tree, lines={**lines, **self.lines}, origin=other.origin or self.origin)

    @contextmanager
    def at(self, *place: str) -> Iterator[None]:
        """Have a mistake within tell the line of this part, or of the nearest part around it.

        What an option told has no line, though a file may tell of its neighbours.
        """
        try:
            yield
        except RequestError as error:
            line = self._line(place)
            if line is not None and not str(error).startswith(self.origin):
                error.args = (f"{self.origin}, line {line}: {error}",)
            raise

    def _line(self, place: Place) -> int | None:
        while place and place not in self.lines and not self._names(place):
            place = place[:-1]
        return self.lines.get(place) if place else None

    def _names(self, place: Place) -> bool:
        """Say whether a part stands in the tree under a name of its own."""
        around: Any = self.tree
        for name in place[:-1]:
            around = around.get(name) if isinstance(around, Mapping) else None
        return isinstance(around, Mapping) and place[-1] in around


def _merged(above: Tree, below: Tree, place: Place, gone: set[Place]) -> Tree:
    found = dict(below)
    for name, value in above.items():
        before = below.get(name)
        if isinstance(value, dict) and isinstance(before, dict):
            found[name] = _merged(value, before, (*place, name), gone)
        else:
            found[name] = value
            gone.add((*place, name))
    return found


def _below(place: Place, gone: set[Place]) -> bool:
    return any(place[: len(each)] == each for each in gone)


def read(path: Path) -> Words:
    """Read a file.

    Raises:
        RequestError: it cannot be read, is no YAML, or holds more than names, text and lists.
    """
    try:
        if path.stat().st_size > _LARGEST:
            raise RequestError(f"{path} has {path.stat().st_size:,} bytes; no sweep is that large.")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise RequestError(f"Cannot read {path}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise RequestError(f"{path} is no text in UTF-8.") from error
    return parse(text, str(path))


def parse(text: str, origin: str) -> Words:
    """Read the text of a file; `origin` is what to call it.

    Raises:
        RequestError: it is no YAML, or holds more than names, text and lists.
    """
    import yaml  # noqa: PLC0415 - only a file needs it

    lines: dict[Place, int] = {}
    try:
        events = yaml.parse(text, Loader=yaml.SafeLoader)
        tree = _document(_Reader(events=events, origin=origin, lines=lines))
    except yaml.YAMLError as error:
        raise RequestError(_no_yaml(error, origin)) from error
    return Words(tree=tree, lines=lines, origin=origin)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """The events of a parser, which constructs nothing, and the lines of what was read of them."""

    events: Iterator[Any]
    origin: str
    lines: dict[Place, int]

    def wrong(self, event: Any, what: str) -> RequestError:
        return RequestError(f"{self.origin}, line {event.start_mark.line + 1}: {what}")

    def next(self) -> tuple[str, Any]:
        """Give the next event and what it is called, once it is harmless."""
        event = next(self.events)
        kind = type(event).__name__.removesuffix("Event")
        if kind == "Alias" or getattr(event, "anchor", None):
            raise self.wrong(event, "anchors (&) and aliases (*) are not read here; write it out.")
        if getattr(event, "tag", None):
            raise self.wrong(
                event, f"the tag {event.tag} is refused: a sweep is plain text; leave the tag away."
            )
        return kind, event


def _document(reader: _Reader) -> Tree:
    """Read the one document, whose root has names."""
    tree: Any = None
    while (found := reader.next())[0] != "StreamEnd":
        kind, event = found
        if kind == "DocumentStart" and tree is not None:
            raise reader.wrong(event, "a second document (---) begins; a file holds one sweep.")
        if kind in {"Mapping", "MappingStart", "SequenceStart", "Scalar"}:
            tree = _value(reader, kind, event, ())
    if not isinstance(tree, dict):
        raise RequestError(f"{reader.origin} holds no names with values; begin with: model: model.onnx")
    return tree


def _value(reader: _Reader, kind: str, event: Any, place: Place) -> Any:
    if len(place) > _DEEPEST:
        raise reader.wrong(event, f"more than {_DEEPEST} levels; a sweep has four at most.")
    reader.lines.setdefault(place, event.start_mark.line + 1)
    if kind == "Scalar":
        return event.value
    if kind == "SequenceStart":
        return list(_items(reader, place))
    return dict(_fields(reader, place))


def _items(reader: _Reader, place: Place) -> Iterator[Any]:
    number = 0
    while (found := reader.next())[0] != "SequenceEnd":
        yield _value(reader, *found, (*place, str(number)))
        number += 1


def _fields(reader: _Reader, place: Place) -> Iterator[tuple[str, Any]]:
    seen: set[str] = set()
    while (found := reader.next())[0] != "MappingEnd":
        kind, event = found
        if kind != "Scalar":
            raise reader.wrong(event, "a name is a word, and no list.")
        name = event.value
        if name in seen:
            raise reader.wrong(event, f"'{name}' stands twice; give it once.")
        seen.add(name)
        reader.lines[(*place, name)] = event.start_mark.line + 1
        yield name, _value(reader, *reader.next(), (*place, name))


def _no_yaml(error: Exception, origin: str) -> str:
    """Say where the text stops to be YAML."""
    mark = getattr(error, "problem_mark", None)
    where = f", line {mark.line + 1}" if mark is not None else ""
    said = str(getattr(error, "problem", "") or getattr(error, "reason", "") or "").strip()
    hint = "; indent by blanks, not by tabs" if r"\t" in said else ""
    return f"{origin}{where}: this is no YAML ({said or 'unreadable'}){hint}."
