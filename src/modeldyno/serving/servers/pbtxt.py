"""Reads and writes text protobuf (``config.pbtxt``) as the mapping that Triton's JSON has."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from modeldyno.base.errors import RequestError
from modeldyno.serving.servers.triton_schema import ENUM, NUMBER, ROOT, TEXT, Field, entry_of, fields_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from modeldyno.serving.servers.triton_config import Config
    from modeldyno.serving.servers.triton_schema import Fields

_TOKEN = re.compile(
    r"""(?:\s|\#[^\n]*)+ |
    (?P<string> "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*' ) |
    (?P<number> -?\s* (?: 0[xX][0-9a-fA-F]+ | (?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?[fF]?
                        | (?:inf(?:inity)?|nan)\b ) ) |
    (?P<word> [A-Za-z_]\w* ) |
    (?P<sign> [:{}<>\[\],;] )""",
    re.VERBOSE,
)
_WHOLE = re.compile(r"(-?)(0[xX][0-9a-fA-F]+|\d+)")
_ESCAPE = re.compile(rb"\\([0-7]{1,3}|[xX][0-9a-fA-F]{1,2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_ESCAPED = {
    b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v",
}  # fmt: skip
_WORD = re.compile(r"[A-Za-z_]\w*")
_CLOSING = {"{": "}", "<": ">"}
_UNKNOWN = Field("")


class Word(str):
    """A word without quotation marks in a field that the schema does not have, which is written as such."""

    __slots__ = ()


def parse_pbtxt(text: str) -> Config:
    """Return the fields of a configuration; repeated fields are lists, maps are mappings by text.

    Raises:
        RequestError: the text is not text protobuf, or a field has a value of another kind.
    """
    return _Reader([*_tokens(text), _Token("end", "", text.count("\n") + 1)][::-1]).message(ROOT, "")


def to_pbtxt(config: Config) -> str:
    """Return a configuration as the text of ``config.pbtxt``."""
    return "".join(f"{line}\n" for line in _message(config, ROOT, ""))


# --- reading ---------------------------------------------------------------------------------------


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


def _tokens(text: str) -> Iterator[_Token]:
    position, line = 0, 1
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise RequestError(f"line {line} is not text protobuf, at {text[position : position + 20]!r}")
        if match.lastgroup:
            yield _Token(match.lastgroup, match[0], line)
        position = match.end()
        line += match[0].count("\n")


@dataclass(frozen=True, slots=True)
class _Reader:
    """Tokens that are left, the next one last."""

    tokens: list[_Token]

    def message(self, fields: Fields, closing: str) -> Config:
        """Return the fields up to a closing sign, or the end of the text."""
        read: Config = {}
        while (token := self.tokens.pop()).text != closing or token.kind not in {"sign", "end"}:
            if token.kind != "word":
                raise _unexpected("the name of a field", token)
            field = fields.get(token.text, _UNKNOWN)
            value = self.value(token.text, field)
            _add(read, token, field, value)
            self.skip(",;")
        return read

    def value(self, name: str, field: Field) -> Any:
        """Return the value after a field's name; only that of a message may be without a colon."""
        colon = self.skip(":")
        if self.skip("["):
            return self.items(name, field)
        if not colon and self.tokens[-1].text not in _CLOSING:
            raise _unexpected(f"':' after '{name}'", self.tokens[-1])
        return self.single(name, field)

    def items(self, name: str, field: Field) -> list[Any]:
        """Return the values of a list, whose bracket is read."""
        if self.skip("]"):
            return []
        items = [self.single(name, field)]
        while self.skip(","):
            items.append(self.single(name, field))
        if not self.skip("]"):
            raise _unexpected("',' or ']'", self.tokens[-1])
        return items

    def single(self, name: str, field: Field) -> Any:
        """Return a value that is not a list."""
        token = self.tokens.pop()
        if token.kind == "sign" and token.text in _CLOSING:
            if field.is_plain and not field.key:
                raise RequestError(f"line {token.line}: '{name}' is a value, and has no fields")
            return self.message(entry_of(field) if field.key else fields_of(field), _CLOSING[token.text])
        if token.kind in {"sign", "end"}:
            raise _unexpected(f"a value of '{name}'", token)
        if (field.holds == TEXT) is not (token.kind == "string") and field.is_plain:
            want = "text in quotation marks" if field.holds == TEXT else "no text in quotation marks"
            raise RequestError(f"line {token.line}: '{name}' takes {want}, not {token.text}")
        if token.kind == "number":
            return _number(token.text)
        if token.kind == "word":
            booleans = {"true": True, "false": False} if field.holds != ENUM else {}
            return booleans.get(token.text, token.text if field.holds == ENUM else Word(token.text))
        parts = [token.text]
        while self.tokens[-1].kind == "string":  # adjacent strings are one
            parts.append(self.tokens.pop().text)
        return b"".join(map(_unquote, parts)).decode(errors="replace")

    def skip(self, signs: str) -> bool:
        """Take the next token if it is one of these signs."""
        token = self.tokens[-1]
        if token.kind == "sign" and token.text in signs:
            self.tokens.pop()
            return True
        return False


def _add(read: Config, name: _Token, field: Field, value: Any) -> None:
    """Add a value to what a message has."""
    if field.key:
        entries = read.setdefault(name.text, {})
        for entry in value if isinstance(value, list) else [value]:
            missing: Any = "" if field.holds == TEXT else {}
            entries[str(entry.get("key", 0 if field.key == NUMBER else ""))] = entry.get("value", missing)
    elif field.repeated:
        read.setdefault(name.text, []).extend(value if isinstance(value, list) else [value])
    elif name.text not in read:
        read[name.text] = value
    elif field is _UNKNOWN:  # given twice, so it is repeated
        values = [read[name.text], value]
        read[name.text] = [item for each in values for item in (each if isinstance(each, list) else [each])]
    else:
        raise RequestError(f"line {name.line}: '{name.text}' is given twice")


def _unexpected(expected: str, token: _Token) -> RequestError:
    return RequestError(f"line {token.line}: expected {expected}, not '{token.text or 'the end'}'")


def _number(text: str) -> int | float:
    text = "".join(text.split())
    if match := _WHOLE.fullmatch(text):
        sign, digits = match.groups()
        octal = len(digits) > 1 and digits[0] == "0" and digits.isdigit()
        return int(sign + (f"0o{digits}" if octal else digits), 0)
    return float(text if text.endswith(("inf", "nan", "infinity")) else text.rstrip("fF"))


def _unquote(text: str) -> bytes:
    return _ESCAPE.sub(_unescape, text[1:-1].encode())


def _unescape(match: re.Match[bytes]) -> bytes:
    body = match[1]
    if body[:1] in b"01234567":
        return bytes([int(body, 8) & 0xFF])
    if body[:1] in b"xX" and len(body) > 1:
        return bytes([int(body[1:], 16)])
    if body[:1] in b"uU" and len(body) > 1:
        return chr(int(body[1:], 16)).encode(errors="replace")
    return _ESCAPED.get(body, body)


# --- writing ---------------------------------------------------------------------------------------


def _message(values: Mapping[str, Any], fields: Fields, indent: str) -> Iterator[str]:
    for name, value in values.items():
        yield from _lines(name, value, fields.get(name, _UNKNOWN), indent)


def _lines(name: str, value: Any, field: Field, indent: str) -> Iterator[str]:
    if field.key and isinstance(value, dict):
        for key, item in value.items():
            yield from _block(name, {"key": key, "value": item}, entry_of(field), indent)
    elif isinstance(value, dict):
        yield from _block(name, value, fields_of(field), indent)
    elif isinstance(value, list) and value and not any(isinstance(item, dict | list) for item in value):
        yield f"{indent}{name}: [{', '.join(_scalar(item, field) for item in value)}]"
    elif isinstance(value, list):
        for item in value:
            yield from _lines(name, item, field, indent)
    elif value is not None:
        yield f"{indent}{name}: {_scalar(value, field)}"


def _block(name: str, values: Mapping[str, Any], fields: Fields, indent: str) -> Iterator[str]:
    yield f"{indent}{name} {{"
    yield from _message(values, fields, indent + "  ")
    yield f"{indent}}}"


def _scalar(value: Any, field: Field) -> str:
    bare = isinstance(value, Word) or (field.holds == ENUM and bool(_WORD.fullmatch(str(value))))
    if field.holds == NUMBER and isinstance(value, str):  # JSON has large numbers as text
        bare = bare or bool(_TOKEN.fullmatch(value))
    if field.holds != TEXT and isinstance(value, bool | int | float):
        return str(value).lower() if isinstance(value, bool) else repr(value)
    return str(value) if bare else _quote(str(value))


def _quote(value: str) -> str:
    """Quote a string for text protobuf, with every byte that is not printable ASCII in octal."""
    plain = {ord("\\"): "\\\\", ord('"'): '\\"', ord("\n"): "\\n"}
    inner = "".join(
        plain.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}") for byte in value.encode()
    )
    return f'"{inner}"'
