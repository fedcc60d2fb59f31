"""The wire format of Protocol Buffers (version 3), driven by tables: as much of it as the protocols need.

A schema maps the number of a field to its name and kind. A kind is a word (``string``, ``bytes``, ``bool``,
``int32``, ``int64``, ``uint32``, ``uint64``, ``float``, ``double``; an enumeration is ``int32``), a schema
(a message within), or a list of one kind (repeated). A map is a repeated message of ``key`` and ``value``.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

Kind: TypeAlias = "str | dict[int, tuple[str, Kind]] | list[Kind]"
Schema = dict[int, tuple[str, Kind]]

_VARINT, _EIGHT, _BYTES, _GROUP, _GROUP_END, _FOUR = range(6)
"""Wire types."""
_WIRE = {"string": _BYTES, "bytes": _BYTES, "float": _FOUR, "double": _EIGHT}
"""Word to its wire type; every other word is a varint."""
_FIXED = {"float": ("f", 4), "double": ("d", 8)}
_DEFAULTS: dict[str, Any] = {"string": "", "bytes": b"", "bool": False, "float": 0.0, "double": 0.0}
_LIMITS = {
    "bool": (0, 1), "int32": (-(1 << 31), (1 << 31) - 1), "int64": (-(1 << 63), (1 << 63) - 1),
    "uint32": (0, (1 << 32) - 1), "uint64": (0, (1 << 64) - 1),
}  # fmt: skip
_WORD = 1 << 64
_LONGEST = 10
"""Bytes of a varint at most."""
_DEEPEST = 100
"""Messages within messages that are followed."""


def encode(schema: Schema, values: Mapping[str, Any]) -> bytes:
    """Write a message; what is absent, None, or the default of its kind is left out.

    Raises:
        ValueError: a number does not fit its kind, or a value names no field.
    """
    numbers = {name: (number, kind) for number, (name, kind) in schema.items()}
    if unknown := values.keys() - numbers.keys():
        raise ValueError(f"the message has no field {', '.join(sorted(unknown))}")
    parts: list[bytes] = []
    for name, (number, kind) in numbers.items():
        value = values.get(name)
        if value is not None:
            parts += _field(number, kind, value)
    return b"".join(parts)


def _field(number: int, kind: Kind, value: Any) -> Iterator[bytes]:
    if isinstance(kind, list):
        (each,) = kind
        if isinstance(each, str) and _WIRE.get(each) != _BYTES:
            if len(value):
                yield _delimited(number, _packed(each, value))
            return
        for item in value:
            yield _delimited(number, _bytes(each, item))
    elif isinstance(kind, dict):
        yield _delimited(number, encode(kind, value))
    elif value != _DEFAULTS.get(kind, 0) or value != value:  # noqa: PLR0124 - NaN is no default
        wire = _WIRE.get(kind, _VARINT)
        if wire == _BYTES:
            yield _delimited(number, _bytes(kind, value))
        else:
            yield _varint(number << 3 | wire) + _packed(kind, (value,))


def _bytes(kind: Kind, value: Any) -> bytes:
    if isinstance(kind, dict):
        return encode(kind, value)
    return value.encode() if kind == "string" else bytes(value)


def _delimited(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(data)) + data


def _packed(kind: str, values: Iterable[Any]) -> bytes:
    if kind in _FIXED:
        numbers = tuple(values)
        try:
            return struct.pack(f"<{len(numbers)}{_FIXED[kind][0]}", *numbers)
        except (OverflowError, struct.error):
            raise ValueError(f"a number is no {kind}") from None
    return b"".join(_varint(_unsigned(kind, int(value))) for value in values)


def _unsigned(kind: str, value: int) -> int:
    low, high = _LIMITS[kind]
    if not low <= value <= high:
        raise ValueError(f"{value} is no {kind}")
    return value % _WORD


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:  # noqa: PLR2004 - seven bits a byte
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode(schema: Schema, data: bytes | memoryview) -> dict[str, Any]:
    """Read a message: every field of the schema, with its default where it is absent.

    A message within that is absent is None; fields that the schema does not name are skipped.

    Raises:
        ValueError: it is cut short, or no such message.
    """
    try:
        return _message(schema, memoryview(data), 0)
    except (IndexError, struct.error):
        raise ValueError("the message is cut short") from None
    except UnicodeDecodeError:
        raise ValueError("text in the message is not UTF-8") from None


def _message(schema: Schema, data: memoryview, depth: int) -> dict[str, Any]:
    if depth > _DEEPEST:
        raise ValueError("the message is nested too deeply")
    found = {name: _default(kind) for name, kind in schema.values()}
    for number, wire, value in _raw(data):
        if number not in schema:
            continue
        name, kind = schema[number]
        if isinstance(kind, list):
            found[name] += _several(kind[0], wire, value, depth)
        else:
            one = _single(kind, wire, value, depth)
            # A message that comes in parts is their union; of anything else, the last one holds.
            found[name] = {**found[name], **one} if isinstance(kind, dict) and found[name] else one
    return found


def _default(kind: Kind) -> Any:
    if isinstance(kind, list):
        return []
    return None if isinstance(kind, dict) else _DEFAULTS.get(kind, 0)


def _several(kind: Kind, wire: int, value: Any, depth: int) -> list[Any]:
    """Read one item of a repeated field, or many that were packed together."""
    if not isinstance(kind, str) or wire != _BYTES or _WIRE.get(kind) == _BYTES:
        return [_single(kind, wire, value, depth)]
    if kind in _FIXED:
        letter, size = _FIXED[kind]
        if len(value) % size:
            raise IndexError
        return list(struct.unpack(f"<{len(value) // size}{letter}", value))
    items, at = [], 0
    while at < len(value):
        number, at = _read_varint(value, at)
        items.append(_signed(kind, number))
    return items


def _single(kind: Kind, wire: int, value: Any, depth: int) -> Any:
    expected = _BYTES if isinstance(kind, dict | list) else _WIRE.get(kind, _VARINT)
    if wire != expected:
        raise ValueError("a field of the message has another type than it should")
    if isinstance(kind, dict):
        return _message(kind, value, depth + 1)
    match kind:
        case "string":
            return str(value, "utf-8")
        case "bytes":
            return bytes(value)
        case "float" | "double":
            return struct.unpack(f"<{_FIXED[kind][0]}", value)[0]
    return _signed(str(kind), value)


def _signed(kind: str, value: int) -> int | bool:
    """Read a varint as what it stands for; it may be wider than its kind."""
    if kind == "bool":
        return bool(value)
    bits = 32 if kind.endswith("32") else 64
    value %= 1 << bits
    return value - (1 << bits) if kind.startswith("int") and value >> (bits - 1) else value


def _raw(data: memoryview) -> Iterator[tuple[int, int, Any]]:
    """Give number, wire type and raw value of each field; groups, an old form of messages, are skipped."""
    at, depth = 0, 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        number, wire = tag >> 3, tag & 7
        value: Any = None
        match wire:
            case 0:
                value, at = _read_varint(data, at)
            case 1:
                value, at = _cut(data, at, 8)
            case 2:
                length, at = _read_varint(data, at)
                value, at = _cut(data, at, length)
            case 3:
                depth += 1
                continue
            case 4:
                depth -= 1
                continue
            case 5:
                value, at = _cut(data, at, 4)
            case _:
                raise ValueError("the message has a field of no known type")
        if not depth:
            yield number, wire, value
    if depth:
        raise IndexError


def _cut(data: memoryview, at: int, length: int) -> tuple[memoryview, int]:
    if at + length > len(data):
        raise IndexError
    return data[at : at + length], at + length


def _read_varint(data: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for index in range(_LONGEST):
        byte = data[at + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:  # noqa: PLR2004 - the top bit says that more follow
            return value % _WORD, at + index + 1
    raise ValueError("a number in the message is too long")
