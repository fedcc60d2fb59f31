"""Header compression of HTTP/2 (RFC 7541): decodes any block, encodes a fixed set of fields."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Field = tuple[bytes, bytes]
Read = TypeVar("Read")

TABLE_SIZE = 4096
"""Default size of the dynamic table, bytes."""
NO_TABLE = b"\x20"
"""At the start of a block: the encoder stops using the dynamic table."""
_OVERHEAD = 32
"""Bytes that an entry adds to its name and value."""
_CACHE_LIMIT = 256
"""Maximum number of cached decoded blocks."""

_PAIRS = (
    ":authority", ":method GET", ":method POST", ":path /", ":path /index.html", ":scheme http",
    ":scheme https", ":status 200", ":status 204", ":status 206", ":status 304", ":status 400", ":status 404",
    ":status 500", "accept-charset", "accept-encoding gzip, deflate",
)  # fmt: skip
_NAMES = (
    "accept-language accept-ranges accept access-control-allow-origin age allow authorization "
    "cache-control content-disposition content-encoding content-language content-length "
    "content-location content-range content-type cookie date etag expect expires from host if-match "
    "if-modified-since if-none-match if-range if-unmodified-since last-modified link location "
    "max-forwards proxy-authenticate proxy-authorization range referer refresh retry-after server "
    "set-cookie strict-transport-security transfer-encoding user-agent vary via www-authenticate"
)
STATIC: tuple[Field, ...] = tuple(
    (name.encode(), value.encode())
    for name, _, value in (pair.partition(" ") for pair in (*_PAIRS, *_NAMES.split()))
)
"""Static table (Appendix A); the first entry has the index 1."""

_LENGTHS = (
    "dnsssssssoussussssssssusssssssss6aacd68baa8b8666555666666678f6cad677777777777777777777"
    "77878djde6f56565666577666567655677777fbedskmkkmmmnmnnnnnonoomnonnnnlmnmnnomlkmmnnlnmmo"
    "lmnnllmlnmnnkmmmnmmnqqkjmnmpqqqrrqopjlqrrqrollqqsrrrkoklmllnmmppooqnqrqqrrrrrsrrrrrqu"
)
"""Huffman code lengths (Appendix B) of each byte and of the end symbol, as digits to base 36."""


class BadBlock(ValueError):
    """The bytes are not a valid header block."""


def _codes() -> dict[tuple[int, int], int]:
    """Return (length, code) to byte; the code is canonical, so its lengths determine it."""
    lengths = [int(digit, 36) for digit in _LENGTHS]
    codes: dict[tuple[int, int], int] = {}
    code, previous = 0, 0
    for byte in sorted(range(257), key=lambda symbol: (lengths[symbol], symbol)):
        code <<= lengths[byte] - previous
        previous = lengths[byte]
        codes[previous, code] = byte
        code += 1
    return codes


_CODES = _codes()
_SHORTEST, _LONGEST, _PADDING, _END = 5, 30, 7, 256


def unhuffman(data: bytes) -> bytes:
    """Decode text in the Huffman code of Appendix B."""
    text = bytearray()
    code = length = 0
    for byte in data:
        for shift in range(7, -1, -1):
            code = code << 1 | byte >> shift & 1
            length += 1
            if length >= _SHORTEST and (symbol := _CODES.get((length, code))) is not None:
                if symbol == _END:
                    raise BadBlock("a text contains the end symbol")
                text.append(symbol)
                code = length = 0
            elif length > _LONGEST:
                raise BadBlock("a text has an unknown code")
    if length > _PADDING or code != (1 << length) - 1:
        raise BadBlock("a text ends in the middle of a byte's code")
    return bytes(text)


class Decoder(Generic[Read]):
    """Decodes the header blocks of one direction of a connection, in order."""

    def __init__(self, read: Callable[[Sequence[Field]], Read]) -> None:
        """`read` converts the fields; it must depend on nothing else."""
        self._read = read
        self._table: deque[Field] = deque()
        self._size = 0
        self._limit = TABLE_SIZE
        self._changed = False
        self._cache: dict[bytes, Read] = {}
        """Decoded blocks that do not change the table; valid while the table is unchanged."""

    def __call__(self, block: bytes) -> Read:
        """Decode a block; raise BadBlock if it is invalid."""
        cached = self._cache.get(block)
        if cached is not None:
            return cached
        self._changed = False
        read = self._read(self._fields(block))
        if self._changed:
            self._cache.clear()
        elif len(self._cache) < _CACHE_LIMIT:
            self._cache[block] = read
        return read

    def _fields(self, block: bytes) -> list[Field]:
        fields: list[Field] = []
        position = 0
        try:
            while position < len(block):
                first = block[position]
                if first & 0x80:
                    index, position = _decode_integer(block, position, 7)
                    fields.append(self._entry(index))
                elif first & 0x40:
                    field, position = self._literal(block, position, 6)
                    fields.append(field)
                    self._add(field)
                elif first & 0x20:
                    limit, position = _decode_integer(block, position, 5)
                    self._shrink(limit)
                else:
                    field, position = self._literal(block, position, 4)
                    fields.append(field)
        except IndexError:
            raise BadBlock("a header block is cut off") from None
        return fields

    def _literal(self, block: bytes, position: int, bits: int) -> tuple[Field, int]:
        index, position = _decode_integer(block, position, bits)
        if index:
            name = self._entry(index)[0]
        else:
            name, position = _decode_text(block, position)
        value, position = _decode_text(block, position)
        return (name, value), position

    def _entry(self, index: int) -> Field:
        if not 1 <= index <= len(STATIC) + len(self._table):
            raise BadBlock("a header has an invalid index")
        return STATIC[index - 1] if index <= len(STATIC) else self._table[index - len(STATIC) - 1]

    def _add(self, field: Field) -> None:
        self._changed = True
        self._table.appendleft(field)
        self._size += size_of(field)
        self._evict()

    def _shrink(self, limit: int) -> None:
        if limit > TABLE_SIZE:  # we never offer more
            raise BadBlock("the header table would exceed the allowed size")
        self._changed = True
        self._limit = limit
        self._evict()

    def _evict(self) -> None:
        while self._size > self._limit:
            self._size -= size_of(self._table.pop())


def size_of(field: Field) -> int:
    """Return a field's size in a table, bytes."""
    return len(field[0]) + len(field[1]) + _OVERHEAD


def _decode_integer(block: bytes, position: int, bits: int) -> tuple[int, int]:
    limit = (1 << bits) - 1
    number = block[position] & limit
    position += 1
    shift = 0
    while number >= limit:
        byte = block[position]
        position += 1
        number += (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            break
        if shift > 28:
            raise BadBlock("a number in a header block is too large")
    return number, position


def _decode_text(block: bytes, position: int) -> tuple[bytes, int]:
    coded = block[position] & 0x80
    length, position = _decode_integer(block, position, 7)
    end = position + length
    if end > len(block):
        raise BadBlock("a header block is cut off")
    text = block[position:end]
    return (unhuffman(text) if coded else text), end


def encode_literal(fields: Sequence[Field], *, learn: bool) -> bytes:
    """Encode fields in full; with `learn`, the decoder adds them to its table."""
    return b"".join(
        (b"\x40" if learn else b"\x00")
        + _encode_integer(len(name), 7)
        + name
        + _encode_integer(len(value), 7)
        + value
        for name, value in fields
    )


def encode_learned(count: int) -> bytes:
    """Encode the `count` fields that the first block of a connection added to the table."""
    first = len(STATIC) + count
    return b"".join(_indexed(first - i) for i in range(count))


def _indexed(index: int) -> bytes:
    return bytes([0x80 | _encode_integer(index, 7)[0]]) + _encode_integer(index, 7)[1:]


def _encode_integer(number: int, bits: int) -> bytes:
    limit = (1 << bits) - 1
    if number < limit:
        return bytes([number])
    encoded = bytearray([limit])
    number -= limit
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
