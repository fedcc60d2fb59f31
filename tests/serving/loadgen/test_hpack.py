from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeldyno.serving.loadgen.hpack import (
    NO_TABLE,
    STATIC,
    BadBlock,
    Decoder,
    Field,
    encode_learned,
    encode_literal,
    unhuffman,
)

REQUESTS = [
    "828684410f7777772e6578616d706c652e636f6d",
    "828684be58086e6f2d6361636865",
    "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
]
CODED_RESPONSES = [
    (
        "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff"
        "6e919d29ad171863c78f0b97c8e9ae82ae43d3"
    ),
    "4883640effc1c0bf",
]


def decoder() -> Decoder[list[Field]]:
    return Decoder(list)


def test_the_static_table_is_that_of_the_rfc() -> None:
    """Appendix A has 61 entries; these are the corners."""
    assert len(STATIC) == 61
    assert STATIC[0] == (b":authority", b"")
    assert STATIC[7] == (b":status", b"200")
    assert STATIC[14] == (b"accept-charset", b"")
    assert STATIC[15] == (b"accept-encoding", b"gzip, deflate")
    assert STATIC[30] == (b"content-type", b"")
    assert STATIC[60] == (b"www-authenticate", b"")


def test_the_requests_of_the_rfc_are_read() -> None:
    """Appendix C.3: the second and third block refer to what the first one entered."""
    read = decoder()
    blocks = [read(bytes.fromhex(block)) for block in REQUESTS]
    common = [(b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/")]
    assert blocks[0] == [*common, (b":authority", b"www.example.com")]
    assert blocks[1] == [*blocks[0], (b"cache-control", b"no-cache")]
    assert blocks[2] == [
        (b":method", b"GET"),
        (b":scheme", b"https"),
        (b":path", b"/index.html"),
        (b":authority", b"www.example.com"),
        (b"custom-key", b"custom-value"),
    ]


def test_the_coded_responses_of_the_rfc_are_read() -> None:
    """Appendix C.6: text in the Huffman code."""
    read = decoder()
    first = read(bytes.fromhex(CODED_RESPONSES[0]))
    assert first == [
        (b":status", b"302"),
        (b"cache-control", b"private"),
        (b"date", b"Mon, 21 Oct 2013 20:13:21 GMT"),
        (b"location", b"https://www.example.com"),
    ]
    assert read(bytes.fromhex(CODED_RESPONSES[1])) == [(b":status", b"307"), *first[1:]]


def test_a_block_that_leaves_the_table_alone_is_read_only_once() -> None:
    """And read anew when the table has changed under it."""
    calls: list[list[Field]] = []

    def note(fields: object) -> int:
        calls.append(fields)  # type: ignore[arg-type]
        return len(calls)

    read = Decoder(note)
    assert read(encode_literal([(b"a", b"1")], learn=True)) == 1
    assert [read(b"\xbe"), read(b"\xbe")] == [2, 2]
    read(encode_literal([(b"b", b"2")], learn=True))
    assert read(b"\xbe") == 4
    assert calls[1] == [(b"a", b"1")]
    assert calls[3] == [(b"b", b"2")]


FIELDS = st.lists(
    st.tuples(st.binary(min_size=1, max_size=300), st.binary(max_size=300)), min_size=1, max_size=9
)


@given(fields=FIELDS)
def test_what_is_written_is_read(fields: list[Field]) -> None:
    """In full, and by the entries of the first block as long as the table holds them."""
    assert decoder()(encode_literal(fields, learn=False)) == fields
    assert decoder()(NO_TABLE + encode_literal(fields, learn=False)) == fields
    read = decoder()
    assert read(encode_literal(fields, learn=True)) == fields
    if sum(len(name) + len(value) + 32 for name, value in fields) <= 4096:
        assert read(encode_learned(len(fields))) == fields


def test_entries_leave_a_table_that_is_full() -> None:
    """The oldest first; a table made smaller forgets, too."""
    read = decoder()
    big = (b"a", b"x" * 3000)
    read(encode_literal([(b"old", b"1"), big], learn=True))
    read(encode_literal([(b"b", b"y" * 1100)], learn=True))
    with pytest.raises(BadBlock, match="index"):
        read(b"\xbf")
    read(b"\x20")
    with pytest.raises(BadBlock, match="index"):
        read(b"\xbe")


@pytest.mark.parametrize(
    "block",
    [
        b"\x80",  # index 0
        b"\xff\xff\xff\xff\xff\xff\x7f",  # a number without end
        b"\xff\x80\x80",  # cut off
        b"\x40\x05ab",  # a name cut off
        b"\x40",
        b"\x3f\xe2\x1f",  # a table of 4097 bytes
        b"\x40\x81\x00\x00",  # code that is cut off: '0' is five zero bits
        b"\x40\x84\xff\xff\xff\xff\x00",  # the end of the code
    ],
)
def test_a_damaged_block_is_refused(block: bytes) -> None:
    """It says so, and nothing else happens."""
    with pytest.raises(BadBlock):
        decoder()(block)


@given(data=st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    """Nothing but BadBlock comes of them."""
    for read in (unhuffman, decoder()):
        try:
            read(data)
        except BadBlock:
            continue
