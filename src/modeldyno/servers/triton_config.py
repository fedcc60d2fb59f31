"""Triton model configurations as plain mappings: changes values by path, and writes text protobuf.

The mapping has the shape of Triton's ModelConfig in JSON, so the same mapping serves as the file of a
repository (text protobuf) and as the override in a load request (JSON).
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Config = dict[str, Any]
"""Field to a value, a Config, or a list of either."""

DTYPES = {
    "bool": "TYPE_BOOL", "string": "TYPE_STRING", "bfloat16": "TYPE_BF16",
    "uint8": "TYPE_UINT8", "uint16": "TYPE_UINT16", "uint32": "TYPE_UINT32", "uint64": "TYPE_UINT64",
    "int8": "TYPE_INT8", "int16": "TYPE_INT16", "int32": "TYPE_INT32", "int64": "TYPE_INT64",
    "float16": "TYPE_FP16", "float32": "TYPE_FP32", "float64": "TYPE_FP64",
}  # fmt: skip

_ENUMS = {"kind", "data_type", "format", "timeout_action", "priority"}
"""Fields whose values are enumeration names, which text protobuf does not quote."""
MAPS = {
    "parameters", "metric_tags", "cc_model_filenames", "priority_queue_policy", "input_map", "output_map",
    "inputs", "default_priority_queue_policy",
}  # fmt: skip
"""Fields that map keys to values."""
LISTS = {
    "input", "output", "instance_group", "preferred_batch_size", "gpus", "dims", "profile", "batch_input",
    "batch_output", "model_warmup", "control_input", "state", "versions", "step", "host_policy",
    "gpu_execution_accelerator", "cpu_execution_accelerator", "resources", "secondary_devices",
}  # fmt: skip
"""Repeated fields; a single value stands for a list of one."""
_ENUM_NAME = re.compile(r"[A-Z][A-Z0-9_]*")


def with_settings(config: Config, settings: Mapping[str, str]) -> Config:
    """Return the configuration with further values: paths such as ``instance_group.0.count`` to texts.

    A text is read as JSON if it is JSON, as a list if it has commas, or else as is. The index of a repeated
    field may be omitted, and is then 0.

    Raises:
        RequestError: a path leads through a value that has no fields.
    """
    result: Config = json.loads(json.dumps(config))
    for path, text in settings.items():
        parts = [part for part in path.split(".") if part]
        if not parts:
            raise RequestError(
                "A setting of the configuration needs a path, such as config.max_batch_size=8."
            )
        _set(result, parts, _parse_value(text), path)
    return result


def to_pbtxt(config: Config) -> str:
    """Return the configuration as the text of ``config.pbtxt``."""
    return "".join(f"{line}\n" for name, value in config.items() for line in _field(name, value, ""))


def _set(fields: Config, parts: list[str], value: Any, path: str) -> None:
    name, *rest = parts
    if not rest:
        fields[name] = [value] if name in LISTS and not isinstance(value, list) else value
        return
    if name == "parameters" and len(rest) == 1 and not isinstance(value, dict):
        fields.setdefault(name, {})[rest[0]] = {"string_value": str(value)}
        return
    inner = fields.setdefault(name, [] if name in LISTS else {})
    if isinstance(inner, list):
        index = int(rest.pop(0)) if rest[0].isdigit() else 0
        if not rest:
            inner.extend({} for _ in range(index + 1 - len(inner)))
            inner[index] = value
            return
        inner.extend({} for _ in range(index + 1 - len(inner)))
        inner = inner[index]
    if not isinstance(inner, dict):
        raise RequestError(f"config.{path}: '{name}' is {inner!r}, which has no fields.")
    _set(inner, rest, value, path)


def _parse_value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        pass
    if "," in text:
        return [_parse_value(part.strip()) for part in text.split(",") if part.strip()]
    return text


def _field(name: str, value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, list):
        if value and not any(isinstance(item, dict | list) for item in value):
            yield f"{indent}{name}: [{', '.join(_scalar(name, item) for item in value)}]"
        else:
            for item in value:
                yield from _field(name, item, indent)
    elif isinstance(value, dict) and name in MAPS:
        for key, item in value.items():
            yield from _message(name, {"key": int(key) if key.isdigit() else key, "value": item}, indent)
    elif isinstance(value, dict):
        yield from _message(name, value, indent)
    elif value is not None:
        yield f"{indent}{name}: {_scalar(name, value)}"


def _message(name: str, fields: Config, indent: str) -> Iterator[str]:
    yield f"{indent}{name} {{"
    for inner, value in fields.items():
        yield from _field(inner, value, indent + "  ")
    yield f"{indent}}}"


def _scalar(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if name in _ENUMS and _ENUM_NAME.fullmatch(str(value)):
        return str(value)
    return _quote(str(value))


def _quote(value: str) -> str:
    """Quote a string for text protobuf, with every byte that is not printable ASCII in octal."""
    plain = {ord("\\"): "\\\\", ord('"'): '\\"', ord("\n"): "\\n"}
    inner = "".join(
        plain.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}")  # noqa: PLR2004 - ASCII
        for byte in value.encode()
    )
    return f'"{inner}"'
