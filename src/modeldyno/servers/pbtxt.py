"""Parses text protobuf (``config.pbtxt``) into the mapping that `triton_config` writes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from modeldyno.errors import RequestError
from modeldyno.servers.triton_config import LISTS, MAPS, Config

if TYPE_CHECKING:
    from collections.abc import Iterator

_TOKEN = re.compile(
    r"""(?:\s|\#[^\n]*)+ |
    (?P<string> "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*' ) |
    (?P<number> [-+]? (?: 0[xX][0-9a-fA-F]+ | (?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?f? ) ) |
    (?P<word> [A-Za-z_]\w* ) |
    (?P<sign> [:{}<>\[\],;] )""",
    re.VERBOSE,
)
_WHOLE = re.compile(r"[-+]?(0[xX][0-9a-fA-F]+|0|[1-9]\d*)")
_ESCAPE = re.compile(rb"\\([0-7]{1,3}|[xX][0-9a-fA-F]{1,2}|.)", re.DOTALL)
_ESCAPED = {b"n": b"\n", b"t": b"\t", b"r": b"\r"}
_CLOSING = {"{": "}", "<": ">"}
_END = ("end", "")

Token = tuple[str, str]
"""Kind and text."""


def parse_pbtxt(text: str) -> Config:
    """Return the fields of a configuration; repeated fields are lists, maps are mappings.

    Raises:
        RequestError: the text is not text protobuf.
    """
    tokens = [*_tokens(text), _END]
    tokens.reverse()
    return _message(tokens, _END)


def _tokens(text: str) -> Iterator[Token]:
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            line = text.count("\n", 0, position) + 1
            raise RequestError(f"line {line} is not text protobuf, at {text[position : position + 20]!r}")
        position = match.end()
        if match.lastgroup:
            yield match.lastgroup, match[0]


def _message(tokens: list[Token], end: Token) -> Config:
    """Return the fields up to an end token."""
    fields: Config = {}
    while (token := tokens.pop()) != end:
        kind, name = token
        if kind != "word":
            raise RequestError(f"expected the name of a field, not '{name or 'the end'}'")
        if tokens[-1] == ("sign", ":"):
            tokens.pop()
        _add_field(fields, name, _value(tokens))
        if tokens[-1] in {("sign", ","), ("sign", ";")}:
            tokens.pop()
    return fields


def _add_field(fields: Config, name: str, value: Any) -> None:
    if name in MAPS and isinstance(value, dict):
        fields.setdefault(name, {})[str(value.get("key", ""))] = value.get("value", "")
    elif name in LISTS:
        fields.setdefault(name, []).extend(value if isinstance(value, list) else [value])
    else:
        fields[name] = value


def _value(tokens: list[Token]) -> Any:
    kind, text = tokens.pop()
    if kind == "string":
        parts = [text]
        while tokens[-1][0] == "string":  # adjacent strings are one
            parts.append(tokens.pop()[1])
        return "".join(map(_unquote, parts))
    if kind == "number":
        return int(text, 0) if _WHOLE.fullmatch(text) else float(text.rstrip("f"))
    if kind == "word":
        return {"true": True, "false": False}.get(text, text)
    if text in _CLOSING:
        return _message(tokens, ("sign", _CLOSING[text]))
    if text == "[":
        return _list(tokens)
    raise RequestError(f"expected a value, not '{text or 'the end'}'")


def _list(tokens: list[Token]) -> list[Any]:
    items: list[Any] = []
    while tokens[-1] != ("sign", "]"):
        items.append(_value(tokens))
        if tokens[-1] == ("sign", ","):
            tokens.pop()
    tokens.pop()
    return items


def _unquote(text: str) -> str:
    return _ESCAPE.sub(_unescape, text[1:-1].encode()).decode(errors="replace")


def _unescape(match: re.Match[bytes]) -> bytes:
    body = match[1]
    if body[:1] in b"01234567":
        return bytes([int(body, 8) & 0xFF])
    if body[:1] in b"xX" and len(body) > 1:
        return bytes([int(body[1:], 16)])
    return _ESCAPED.get(body, body)
