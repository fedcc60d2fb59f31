"""Reads the text of a ``config.pbtxt``: text protobuf, as the mapping that `triton_config` writes."""

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
"""Its kind, and its text."""


def parsed(text: str) -> Config:
    """Read the fields of a configuration; those that repeat are lists, maps are mappings.

    Raises:
        RequestError: it is no text protobuf.
    """
    tokens = [*_tokens(text), _END]
    tokens.reverse()
    return _message(tokens, _END)


def _tokens(text: str) -> Iterator[Token]:
    place = 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            line = text.count("\n", 0, place) + 1
            raise RequestError(f"line {line} is no text protobuf, at {text[place : place + 20]!r}")
        place = match.end()
        if match.lastgroup:
            yield match.lastgroup, match[0]


def _message(tokens: list[Token], end: Token) -> Config:
    """Read fields up to an end."""
    found: Config = {}
    while (token := tokens.pop()) != end:
        kind, name = token
        if kind != "word":
            raise RequestError(f"there should be the name of a field, and not '{name or 'the end'}'")
        if tokens[-1] == ("sign", ":"):
            tokens.pop()
        _put(found, name, _value(tokens))
        if tokens[-1] in {("sign", ","), ("sign", ";")}:
            tokens.pop()
    return found


def _put(found: Config, name: str, value: Any) -> None:
    if name in MAPS and isinstance(value, dict):
        found.setdefault(name, {})[str(value.get("key", ""))] = value.get("value", "")
    elif name in LISTS:
        found.setdefault(name, []).extend(value if isinstance(value, list) else [value])
    else:
        found[name] = value


def _value(tokens: list[Token]) -> Any:
    kind, text = tokens.pop()
    if kind == "string":
        parts = [text]
        while tokens[-1][0] == "string":  # those that follow each other are one
            parts.append(tokens.pop()[1])
        return "".join(map(_unquoted, parts))
    if kind == "number":
        return int(text, 0) if _WHOLE.fullmatch(text) else float(text.rstrip("f"))
    if kind == "word":
        return {"true": True, "false": False}.get(text, text)
    if text in _CLOSING:
        return _message(tokens, ("sign", _CLOSING[text]))
    if text == "[":
        return _list(tokens)
    raise RequestError(f"there should be a value, and not '{text or 'the end'}'")


def _list(tokens: list[Token]) -> list[Any]:
    found: list[Any] = []
    while tokens[-1] != ("sign", "]"):
        found.append(_value(tokens))
        if tokens[-1] == ("sign", ","):
            tokens.pop()
    tokens.pop()
    return found


def _unquoted(text: str) -> str:
    return _ESCAPE.sub(_plain, text[1:-1].encode()).decode(errors="replace")


def _plain(match: re.Match[bytes]) -> bytes:
    body = match[1]
    if body[:1] in b"01234567":
        return bytes([int(body, 8) & 0xFF])
    if body[:1] in b"xX" and len(body) > 1:
        return bytes([int(body[1:], 16)])
    return _ESCAPED.get(body, body)
