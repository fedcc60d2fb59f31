"""Encodes and decodes Protocol Buffers (version 3) from schema tables; only what the clients need.

A schema maps the number of a field to its name and kind. A kind is a word (``string``, ``bytes``, ``bool``,
``int32``, ``int64``, ``uint32``, ``uint64``, ``float``, ``double``; an enumeration is ``int32``), a schema
(a nested message), or a list of one kind (repeated). A map is a repeated message of ``key`` and ``value``.
A word that ends in ``?`` is of a field in a oneof: written whatever its value, and None if absent.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

Kind: TypeAlias = "str | dict[int, tuple[str, Kind]] | list[Kind]"
Schema = dict[int, tuple[str, Kind]]

_ONEOF = "?"
"""Ending of the kind of a field in a oneof, where a default is a value."""
_VARINT, _EIGHT, _BYTES, _GROUP, _GROUP_END, _FOUR = range(6)
"""Wire types."""
_WIRE_TYPES = {"string": _BYTES, "bytes": _BYTES, "float": _FOUR, "double": _EIGHT}
"""Kind to its wire type; every other kind is a varint."""
_FIXED = {"float": ("f", 4), "double": ("d", 8)}
_DEFAULTS: dict[str, Any] = {"string": "", "bytes": b"", "bool": False, "float": 0.0, "double": 0.0}
_LIMITS = {
    "bool": (0, 1), "int32": (-(1 << 31), (1 << 31) - 1), "int64": (-(1 << 63), (1 << 63) - 1),
    "uint32": (0, (1 << 32) - 1), "uint64": (0, (1 << 64) - 1),
}  # fmt: skip
_MODULUS = 1 << 64
_VARINT_LIMIT = 10
"""Maximum number of bytes of a varint."""
_DEPTH_LIMIT = 100
"""Maximum nesting depth of messages."""


def encode(schema: Schema, values: Mapping[str, Any]) -> bytes:
    """Encode a message; fields that are absent, None, or the default of their kind are omitted.

    Raises:
        ValueError: a number does not fit its kind, or a field is not in the schema.
    """
    numbers = {name: (number, kind) for number, (name, kind) in schema.items()}
    if unknown := values.keys() - numbers.keys():
        raise ValueError(f"the message has no field {', '.join(sorted(unknown))}")
    parts: list[bytes] = []
    for name, (number, kind) in numbers.items():
        value = values.get(name)
        if value is not None:
            parts += _encode_field(number, kind, value)
    return b"".join(parts)


def _encode_field(number: int, kind: Kind, value: Any) -> Iterator[bytes]:
    if isinstance(kind, list):
        (item_kind,) = kind
        if isinstance(item_kind, str) and _WIRE_TYPES.get(item_kind) != _BYTES:
            if len(value):
                yield _length_delimited(number, _packed(item_kind, value))
            return
        for item in value:
            yield _length_delimited(number, _encode_bytes(item_kind, item))
    elif isinstance(kind, dict):
        yield _length_delimited(number, encode(kind, value))
    elif kind.endswith(_ONEOF) or value != _DEFAULTS.get(kind, 0) or value != value:  # noqa: PLR0124 - NaN
        kind = kind.removesuffix(_ONEOF)
        wire = _WIRE_TYPES.get(kind, _VARINT)
        if wire == _BYTES:
            yield _length_delimited(number, _encode_bytes(kind, value))
        else:
            yield _varint(number << 3 | wire) + _packed(kind, (value,))


def _encode_bytes(kind: Kind, value: Any) -> bytes:
    if isinstance(kind, dict):
        return encode(kind, value)
    return value.encode() if kind == "string" else bytes(value)


def _length_delimited(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(data)) + data


def _packed(kind: str, values: Iterable[Any]) -> bytes:
    if kind in _FIXED:
        numbers = tuple(values)
        try:
            return struct.pack(f"<{len(numbers)}{_FIXED[kind][0]}", *numbers)
        except (OverflowError, struct.error):
            raise ValueError(f"a number does not fit {kind}") from None
    return b"".join(_varint(_unsigned(kind, int(value))) for value in values)


def _unsigned(kind: str, value: int) -> int:
    low, high = _LIMITS[kind]
    if not low <= value <= high:
        raise ValueError(f"{value} does not fit {kind}")
    return value % _MODULUS


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode(schema: Schema, data: bytes | memoryview) -> dict[str, Any]:
    """Decode a message: every field of the schema, with its default if absent.

    An absent nested message is None; fields that are not in the schema are skipped.

    Raises:
        ValueError: the data is cut short, or is no such message.
    """
    try:
        return _message(schema, memoryview(data), 0)
    except (IndexError, struct.error):
        raise ValueError("the message is cut short") from None
    except UnicodeDecodeError:
        raise ValueError("text in the message is not UTF-8") from None


def _message(schema: Schema, data: memoryview, depth: int) -> dict[str, Any]:
    if depth > _DEPTH_LIMIT:
        raise ValueError("the message is nested too deeply")
    values = {name: _default(kind) for name, kind in schema.values()}
    for number, wire, value in _raw_fields(data):
        if number not in schema:
            continue
        name, kind = schema[number]
        if isinstance(kind, list):
            values[name] += _read_repeated(kind[0], wire, value, depth)
        else:
            item = _read_single(kind, wire, value, depth)
            # Nested messages that occur twice are merged; of any other field the last one wins.
            values[name] = {**values[name], **item} if isinstance(kind, dict) and values[name] else item
    return values


def _default(kind: Kind) -> Any:
    if isinstance(kind, list):
        return []
    return None if isinstance(kind, dict) or kind.endswith(_ONEOF) else _DEFAULTS.get(kind, 0)


def _read_repeated(kind: Kind, wire: int, value: Any, depth: int) -> list[Any]:
    """Return one item of a repeated field, or all items of a packed one."""
    if not isinstance(kind, str) or wire != _BYTES or _WIRE_TYPES.get(kind) == _BYTES:
        return [_read_single(kind, wire, value, depth)]
    if kind in _FIXED:
        letter, size = _FIXED[kind]
        if len(value) % size:
            raise IndexError
        return list(struct.unpack(f"<{len(value) // size}{letter}", value))
    items, position = [], 0
    while position < len(value):
        number, position = _read_varint(value, position)
        items.append(_signed(kind, number))
    return items


def _read_single(kind: Kind, wire: int, value: Any, depth: int) -> Any:
    kind = kind.removesuffix(_ONEOF) if isinstance(kind, str) else kind
    expected = _BYTES if isinstance(kind, dict | list) else _WIRE_TYPES.get(kind, _VARINT)
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
    """Convert a varint to its kind; it may be wider than the kind."""
    if kind == "bool":
        return bool(value)
    bits = 32 if kind.endswith("32") else 64
    value %= 1 << bits
    return value - (1 << bits) if kind.startswith("int") and value >> (bits - 1) else value


def _raw_fields(data: memoryview) -> Iterator[tuple[int, int, Any]]:
    """Yield number, wire type and raw value of each field; skip groups, an old form of messages."""
    position, depth = 0, 0
    while position < len(data):
        tag, position = _read_varint(data, position)
        number, wire = tag >> 3, tag & 7
        value: Any = None
        match wire:
            case 0:
                value, position = _read_varint(data, position)
            case 1:
                value, position = _take(data, position, 8)
            case 2:
                length, position = _read_varint(data, position)
                value, position = _take(data, position, length)
            case 3:
                depth += 1
                continue
            case 4:
                depth -= 1
                continue
            case 5:
                value, position = _take(data, position, 4)
            case _:
                raise ValueError("the message has a field of an unknown type")
        if not depth:
            yield number, wire, value
    if depth:
        raise IndexError


def _take(data: memoryview, position: int, length: int) -> tuple[memoryview, int]:
    if position + length > len(data):
        raise IndexError
    return data[position : position + length], position + length


def _read_varint(data: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for index in range(_VARINT_LIMIT):
        byte = data[position + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value % _MODULUS, position + index + 1
    raise ValueError("a number in the message is too long")
