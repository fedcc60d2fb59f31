"""Triton model configurations as plain mappings, whose values are changed by path.

The mapping has the shape of Triton's ModelConfig in JSON, so the same mapping serves as the file of a
repository (text protobuf, `serving.servers.pbtxt`) and as the override in a load request (JSON).
"""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError
from modeldyno.serving.servers.triton_schema import ROOT, TEXT, Field, Fields, fields_of

if TYPE_CHECKING:
    from collections.abc import Mapping

Config = dict[str, Any]
"""Field to a value, a Config, or a list of either."""

DTYPES = {
    "bool": "TYPE_BOOL", "string": "TYPE_STRING", "bfloat16": "TYPE_BF16",
    "uint8": "TYPE_UINT8", "uint16": "TYPE_UINT16", "uint32": "TYPE_UINT32", "uint64": "TYPE_UINT64",
    "int8": "TYPE_INT8", "int16": "TYPE_INT16", "int32": "TYPE_INT32", "int64": "TYPE_INT64",
    "float16": "TYPE_FP16", "float32": "TYPE_FP32", "float64": "TYPE_FP64",
}  # fmt: skip


def with_settings(config: Config, settings: Mapping[str, str]) -> Config:
    """Return the configuration with further values: paths such as ``instance_group.0.count`` to texts.

    The text of a field that holds text is taken as it is. Any other is read as JSON if it is JSON, as a list
    if it has commas, or else as is. The index of a repeated field may be omitted, and is then 0; the key of
    a map may have dots.

    Raises:
        RequestError: a path leads through a value that has no fields.
    """
    result = copy.deepcopy(config)
    for path, text in settings.items():
        parts = [part for part in path.split(".") if part]
        if not parts:
            raise RequestError(
                "A setting of the configuration needs a path, such as config.max_batch_size=8."
            )
        _set(result, parts, text, path, ROOT)
    return result


def _set(values: Config, parts: list[str], text: str, path: str, fields: Fields) -> None:
    """Set what a path leads to, from a message on."""
    name, *rest = parts
    field = fields.get(name, Field(""))
    if not rest:
        value = _parse_value(text, field)
        values[name] = [value] if field.repeated and not isinstance(value, list) else value
    elif field.key:
        _set_entry(values.setdefault(name, {}), rest, text, path, field)
    elif field.repeated:
        index = int(rest.pop(0)) if rest[0].isdigit() else 0
        items = values.setdefault(name, [])
        items.extend({} for _ in range(index + 1 - len(items)))
        if rest:
            _set(_with_fields(items[index], name, path), rest, text, path, fields_of(field))
        else:
            items[index] = _parse_value(text, field)
    else:
        _set(_with_fields(values.setdefault(name, {}), name, path), rest, text, path, fields_of(field))


def _set_entry(entries: Config, rest: list[str], text: str, path: str, field: Field) -> None:
    """Set an entry of a map, or a field of its value."""
    inner = fields_of(field)
    key = ".".join(rest)
    if len(rest) > 1 and rest[-1] in inner:
        key = ".".join(rest[:-1])
        _set(_with_fields(entries.setdefault(key, {}), key, path), rest[-1:], text, path, inner)
    elif inner.keys() == {"string_value"} and not text.startswith("{"):
        entries[key] = {"string_value": text}
    else:
        entries[key] = _parse_value(text, Field(field.holds))


def _with_fields(value: Any, name: str, path: str) -> Config:
    if not isinstance(value, dict):
        raise RequestError(f"config.{path}: '{name}' is {value!r}, which has no fields.")
    return value


def _parse_value(text: str, field: Field) -> Any:
    if field.holds == TEXT and not (field.repeated or field.key):
        return text
    try:
        return json.loads(text)
    except ValueError:
        pass
    if "," in text:
        return [_parse_value(part.strip(), field) for part in text.split(",") if part.strip()]
    return text
