"""Random images are PNGs of the size asked for, and each another one."""

from __future__ import annotations

import io
import struct
import zlib
from base64 import b64decode
from itertools import chain

import numpy as np
import pytest

from modeldyno.base.errors import RequestError
from modeldyno.base.job.prompt_images import parse_images
from modeldyno.engine.data import prompt_images
from modeldyno.engine.data.batches import Payload
from modeldyno.engine.data.prompt_images import with_images
from modeldyno.engine.data.text_requests import read_request, write_request
from modeldyno.models.interface import RequestStreams


def payload(*texts: str, streams: RequestStreams | None = None) -> Payload:
    feeds = tuple({"prompt": np.array([text], object)} for text in texts)
    return Payload(feeds=feeds, used=(), samples=1, streams=streams, prompt_tokens=7)


def urls_of(payload: Payload) -> list[list[str]]:
    return [read_request(feed["prompt"][0])["images"] for feed in payload.feeds]


def pixels(url: str) -> np.ndarray:
    """Decode a PNG of indexed colours with the filters that are used; checks that its chunks are whole."""
    data = b64decode(url.removeprefix("data:image/png;base64,"))
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = {}, 8
    while at < len(data):
        (size,), kind = struct.unpack(">I", data[at : at + 4]), data[at + 4 : at + 8]
        chunks[kind] = data[at + 8 : at + 8 + size]
        assert struct.unpack(">I", data[at + 8 + size : at + 12 + size])[0] == zlib.crc32(kind + chunks[kind])
        at += 12 + size
    assert list(chunks) == [b"IHDR", b"PLTE", b"IDAT", b"IEND"]
    width, height, *form = struct.unpack(">II5B", chunks[b"IHDR"])
    assert form == [8, 3, 0, 0, 0]
    lines = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, 1 + width)
    rows = np.zeros((height, width), np.uint8)
    for number, line in enumerate(lines):
        rows[number] = np.cumsum(line[1:], dtype=np.uint8) if line[0] == 1 else rows[number - 1] + line[1:]
    return np.frombuffer(chunks[b"PLTE"], np.uint8).reshape(256, 3)[rows]


@pytest.mark.parametrize(("width", "height"), [(64, 48), (5, 3), (1, 1)])
def test_an_image_has_its_size_and_is_noise(width: int, height: int) -> None:
    """Whether the sides are even or not."""
    ((url, *_), *_) = urls_of(with_images(payload("a"), parse_images(f"images:1/{width}x{height}"), seed=1))
    image = pixels(url)
    assert image.shape == (height, width, 3)
    if width > 9:
        assert len(np.unique(image.reshape(-1, 3), axis=0)) > 200


def test_another_reader_agrees() -> None:
    """Pillow, as servers use it, sees the same pixels."""
    image = pytest.importorskip("PIL.Image")
    ((url, *_), *_) = urls_of(with_images(payload("a"), parse_images("images:1/33x21"), seed=1))
    with image.open(io.BytesIO(b64decode(url.partition(",")[2]))) as opened:
        assert (np.asarray(opened.convert("RGB")) == pixels(url)).all()


def test_no_two_images_are_alike_and_the_seed_says_which_they_are() -> None:
    """So that no cache of a server has one, and a load can be run again."""
    images = parse_images("images:1..3/40x40")
    first, again, other = (urls_of(with_images(payload("a", "b"), images, seed=seed)) for seed in (1, 1, 2))
    every = [*chain(*first)]
    assert len({pixels(url).tobytes() for url in every}) == len(every)
    assert {len(urls) for urls in first} == {1, 2, 3}
    assert first == again
    assert not {*chain(*other)} & {*every}


def test_an_image_is_as_large_as_a_photo() -> None:
    """Some 0.3 bytes a pixel, so that it does not vanish on the wire, nor fill it."""
    ((url, *_), *_) = urls_of(with_images(payload("a"), parse_images("images:1/512x512"), seed=1))
    assert 0.25 < len(b64decode(url.partition(",")[2])) / 512**2 < 0.36


def test_a_text_is_sent_with_many_images() -> None:
    """As one that is asked of every image; what a request says beside its text stays."""
    own = write_request({"prompt": "b", "max_tokens": 9})
    with_them = with_images(payload("a", own), parse_images("images:1/8x8"), seed=1)
    requests = [read_request(feed["prompt"][0]) for feed in with_them.feeds]
    assert len(requests) == 64
    assert [request["prompt"] for request in requests[:3]] == ["a", "b", "a"]
    assert requests[1]["max_tokens"] == 9
    (spec,) = with_them.used
    assert (spec.name, spec.source, spec.distinct) == ("images", "images:1/8x8", 64)
    assert with_them.prompt_tokens == 0


def test_large_images_are_of_fewer_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts that begin alike still do; of a trace, or of sessions, no request can be left out."""
    monkeypatch.setattr(prompt_images, "MOST_BYTES", 3.5 * 64 * 64 * 0.42)
    images, texts = parse_images("images:1/64x64"), "abcde"
    assert len(with_images(payload(*texts), images, seed=1).feeds) == 3
    shared = RequestStreams(lengths=(5,), shared=(1, 2, 3, 4, 5))
    cut = with_images(payload(*texts, streams=shared), images, seed=1)
    assert cut.streams == RequestStreams(lengths=(3,), shared=(1, 2, 3))
    for streams in (RequestStreams(lengths=(2, 3)), RequestStreams(lengths=(5,), of_trace=True)):
        with pytest.raises(RequestError, match="images of these 5 requests have about"):
            with_images(payload(*texts, streams=streams), images, seed=1)


def test_sessions_keep_their_turns() -> None:
    """Each with images of its own."""
    streams = RequestStreams(lengths=(2, 1))
    with_them = with_images(payload("a", "b", "c", streams=streams), parse_images("images:1/8x8"), seed=1)
    assert (len(with_them.feeds), with_them.streams) == (3, streams)
