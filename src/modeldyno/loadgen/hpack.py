"""Header compression of HTTP/2 (RFC 7541): reads any block, writes the same few fields again and again."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Field = tuple[bytes, bytes]
Read = TypeVar("Read")

TABLE_SIZE = 4096
"""Bytes of a dynamic table, where nobody says otherwise."""
NO_TABLE = b"\x20"
"""At the beginning of a block: its writer uses no dynamic table from now on."""
_OVERHEAD = 32
"""Bytes that an entry counts beyond its name and value."""
_LEARNED = 256
"""Blocks whose meaning is remembered."""

_PAIRS = (
    ":authority", ":method GET", ":method POST", ":path /", ":path /index.html", ":scheme http",
    ":scheme https", ":status 200", ":status 204", ":status 206", ":status 304", ":status 400", ":status 404",
    ":status 500", "accept-charset", "accept-encoding gzip, deflate",
)  # fmt: skip
_ALONE = (
    "accept-language accept-ranges accept access-control-allow-origin age allow authorization "
    "cache-control content-disposition content-encoding content-language content-length "
    "content-location content-range content-type cookie date etag expect expires from host if-match "
    "if-modified-since if-none-match if-range if-unmodified-since last-modified link location "
    "max-forwards proxy-authenticate proxy-authorization range referer refresh retry-after server "
    "set-cookie strict-transport-security transfer-encoding user-agent vary via www-authenticate"
)
STATIC: tuple[Field, ...] = tuple(
    (name.encode(), value.encode())
    for name, _, value in (pair.partition(" ") for pair in (*_PAIRS, *_ALONE.split()))
)
"""Appendix A; the first has the index 1."""

_LENGTHS = (
    "dnsssssssoussussssssssusssssssss6aacd68baa8b8666555666666678f6cad677777777777777777777"
    "77878djde6f56565666577666567655677777fbedskmkkmmmnmnnnnnonoomnonnnnlmnmnnomlkmmnnlnmmo"
    "lmnnllmlnmnnkmmmnmmnqqkjmnmpqqqrrqopjlqrrqrollqqsrrrkoklmllnmmppooqnqrqqrrrrrsrrrrrqu"
)
"""Appendix B: the length of the code of each byte, and of the end, as a digit to base 36."""


class BadBlock(ValueError):
    """What came is no block of headers."""


def _codes() -> dict[tuple[int, int], int]:
    """Length and code to byte: the code is canonical, so that its lengths tell it."""
    lengths = [int(digit, 36) for digit in _LENGTHS]
    codes: dict[tuple[int, int], int] = {}
    code, before = 0, 0
    for byte in sorted(range(257), key=lambda each: (lengths[each], each)):
        code <<= lengths[byte] - before
        before = lengths[byte]
        codes[before, code] = byte
        code += 1
    return codes


_CODES = _codes()
_SHORTEST, _LONGEST, _PADDING, _END = 5, 30, 7, 256


def unhuffman(data: bytes) -> bytes:
    """Read text in the code of Appendix B."""
    text = bytearray()
    code = length = 0
    for byte in data:
        for shift in range(7, -1, -1):
            code = code << 1 | byte >> shift & 1
            length += 1
            if length >= _SHORTEST and (found := _CODES.get((length, code))) is not None:
                if found == _END:
                    raise BadBlock("a text holds the end of the code")
                text.append(found)
                code = length = 0
            elif length > _LONGEST:
                raise BadBlock("a text is in no code")
    if length > _PADDING or code != (1 << length) - 1:
        raise BadBlock("a text ends in the middle of a byte's code")
    return bytes(text)


class Decoder(Generic[Read]):
    """Reads the blocks of one direction of a connection, in their order."""

    def __init__(self, read: Callable[[Sequence[Field]], Read]) -> None:
        """`read` makes of the fields what is wanted; it must be a function of them alone."""
        self._read = read
        self._table: deque[Field] = deque()
        self._size = 0
        self._limit = TABLE_SIZE
        self._changed = False
        self._learned: dict[bytes, Read] = {}
        """What blocks mean that leave the table as it is, while it is as it is."""

    def __call__(self, block: bytes) -> Read:
        """Read a block; raise BadBlock for what is none."""
        known = self._learned.get(block)
        if known is not None:
            return known
        self._changed = False
        read = self._read(self._fields(block))
        if self._changed:
            self._learned.clear()
        elif len(self._learned) < _LEARNED:
            self._learned[block] = read
        return read

    def _fields(self, block: bytes) -> list[Field]:
        fields: list[Field] = []
        at = 0
        try:
            while at < len(block):
                first = block[at]
                if first & 0x80:
                    index, at = _integer(block, at, 7)
                    fields.append(self._entry(index))
                elif first & 0x40:
                    field, at = self._literal(block, at, 6)
                    fields.append(field)
                    self._add(field)
                elif first & 0x20:
                    limit, at = _integer(block, at, 5)
                    self._shrink(limit)
                else:
                    field, at = self._literal(block, at, 4)
                    fields.append(field)
        except IndexError:
            raise BadBlock("a block of headers is cut off") from None
        return fields

    def _literal(self, block: bytes, at: int, bits: int) -> tuple[Field, int]:
        index, at = _integer(block, at, bits)
        if index:
            name = self._entry(index)[0]
        else:
            name, at = _text(block, at)
        value, at = _text(block, at)
        return (name, value), at

    def _entry(self, index: int) -> Field:
        if not 1 <= index <= len(STATIC) + len(self._table):
            raise BadBlock("a header has an index that nothing has")
        return STATIC[index - 1] if index <= len(STATIC) else self._table[index - len(STATIC) - 1]

    def _add(self, field: Field) -> None:
        self._changed = True
        self._table.appendleft(field)
        self._size += size_of(field)
        self._evict()

    def _shrink(self, limit: int) -> None:
        if limit > TABLE_SIZE:  # we never offer more
            raise BadBlock("the table of headers is to be larger than we allow")
        self._changed = True
        self._limit = limit
        self._evict()

    def _evict(self) -> None:
        while self._size > self._limit:
            self._size -= size_of(self._table.pop())


def size_of(field: Field) -> int:
    """Give what a field takes of a table, bytes."""
    return len(field[0]) + len(field[1]) + _OVERHEAD


def _integer(block: bytes, at: int, bits: int) -> tuple[int, int]:
    most = (1 << bits) - 1
    number = block[at] & most
    at += 1
    shift = 0
    while number >= most:
        byte = block[at]
        at += 1
        number += (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            break
        if shift > 28:  # noqa: PLR2004 - beyond any length
            raise BadBlock("a number of a block of headers is too large")
    return number, at


def _text(block: bytes, at: int) -> tuple[bytes, int]:
    coded = block[at] & 0x80
    length, at = _integer(block, at, 7)
    end = at + length
    if end > len(block):
        raise BadBlock("a block of headers is cut off")
    text = block[at:end]
    return (unhuffman(text) if coded else text), end


def literal(fields: Sequence[Field], *, learn: bool) -> bytes:
    """Write fields in full; `learn`: so that the reader enters them in its table."""
    return b"".join(
        (b"\x40" if learn else b"\x00") + _written(len(name), 7) + name + _written(len(value), 7) + value
        for name, value in fields
    )


def learned(count: int) -> bytes:
    """Write the fields that the first block of a connection had entered, all so many of them."""
    first = len(STATIC) + count
    return b"".join(_indexed(first - i) for i in range(count))


def _indexed(index: int) -> bytes:
    return bytes([0x80 | _written(index, 7)[0]]) + _written(index, 7)[1:]


def _written(number: int, bits: int) -> bytes:
    most = (1 << bits) - 1
    if number < most:
        return bytes([number])
    rest = bytearray([most])
    number -= most
    while number >= 0x80:  # noqa: PLR2004
        rest.append(number & 0x7F | 0x80)
        number >>= 7
    rest.append(number)
    return bytes(rest)
