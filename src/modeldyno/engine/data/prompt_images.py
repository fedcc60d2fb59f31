"""Random images in requests to a language model, each another one, so that no cache of a server has it.

Pixels are noise of blocks, so that an image has some 0.3 bytes a pixel, as many as a photo. To be cheap, few
such noises are compressed: an image is one of them in 256 random colours of its own.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from base64 import b64encode
from dataclasses import dataclass, replace
from itertools import cycle, islice
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError
from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.job.prompt_images import IMAGES
from modeldyno.base.stats.units import BYTES, format_quantity
from modeldyno.engine.data.batches import MOST_TEXTS
from modeldyno.engine.data.text_requests import IMAGES as FIELD
from modeldyno.engine.data.text_requests import read_request, write_request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.random import Generator

    from modeldyno.base.job.prompt_images import PromptImages
    from modeldyno.engine.data.batches import Payload
    from modeldyno.models.interface import Feed

MOST_BYTES = 128 * 2**20
"""Bytes of the images of all requests together, from which on there are fewer requests."""
_URL_BYTES_PER_PIXEL = 0.42
_OF_IMAGES = 1
"""Tells the random numbers of images from those of texts."""
_POOL = (4, 64)
_POOL_PIXELS = 2**24
"""Fewest and most noises, and the pixels that they have together in between: about a fifth of a second."""
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_INDEXED = (8, 3, 0, 0, 0)
"""Of a PNG: eight bits a pixel, which are the number of a colour."""
_SUB, _UP = 1, 2
"""Filters of a PNG: a pixel less the one before it, and less the one above it."""
_COLOURS = 256


@dataclass(frozen=True, slots=True)
class _Noise:
    """A PNG but for its colours."""

    before: bytes
    after: bytes

    def url(self, generator: Generator) -> str:
        """Return the data URL of an image of these pixels in random colours."""
        colours = _chunk(b"PLTE", generator.bytes(3 * _COLOURS))
        return f"data:image/png;base64,{b64encode(self.before + colours + self.after).decode()}"


def with_images(payload: Payload, images: PromptImages, *, seed: int) -> Payload:
    """Add random images to each request; there are more requests than texts if texts are few.

    Raises:
        RequestError: the requests of a trace, or of sessions, would be too large.
    """
    import numpy as np  # slow to import

    generator = np.random.default_rng((seed, _OF_IMAGES))
    payload = _of_count(payload, images)
    digest = hashlib.sha256()
    urls = _image_urls(images, len(payload.feeds), generator)
    feeds = []
    for feed, request_urls in zip(payload.feeds, urls, strict=True):
        digest.update("".join(request_urls).encode())
        feeds.append(_with_urls(feed, request_urls))
    used = InputSpec(
        name=IMAGES,
        source=str(images),
        digest=f"sha256:{digest.hexdigest()}",
        distinct=len(feeds),
    )
    return replace(payload, feeds=tuple(feeds), used=(*payload.used, used))


def _of_count(payload: Payload, images: PromptImages) -> Payload:
    """Repeat or leave out texts, so that their images are many but not too large.

    What is known of the tokens of texts is not of requests with images.
    """
    size = images.count.typical * images.width.typical * images.height.typical * _URL_BYTES_PER_PIXEL
    most = max(1, int(MOST_BYTES / size))
    feeds, streams = payload.feeds, payload.streams
    if streams is None:
        feeds = tuple(islice(cycle(feeds), min(most, max(len(feeds), MOST_TEXTS))))
    elif len(feeds) > most:
        if streams.of_trace or len(streams.lengths) > 1 or streams.expected:
            raise RequestError(
                f"The images of these {len(feeds):,} requests have about "
                f"{format_quantity(size * len(feeds), BYTES, 2)}; send fewer requests, or set {IMAGES} or "
                "image_size to less."
            )
        feeds = feeds[:most]
        streams = replace(streams, lengths=(most,), shared=streams.shared[:most])
    used = tuple(
        replace(spec, distinct=None if spec.distinct is None else min(spec.distinct, len(feeds)))
        for spec in payload.used
    )
    return replace(payload, feeds=feeds, streams=streams, used=used, prompt_tokens=0)


def _with_urls(feed: Feed, urls: list[str]) -> Feed:
    """Return a request with images beside each of its texts."""
    import numpy as np  # slow to import

    ((name, texts),) = feed.items()
    written = [write_request({**read_request(str(text)), FIELD: urls}) for text in texts.reshape(-1)]
    return {name: np.array(written, object).reshape(texts.shape)}


def _image_urls(images: PromptImages, requests: int, generator: Generator) -> Iterator[list[str]]:
    """Yield the data URLs of the images of each request."""
    least, most = _POOL
    area = images.width.typical * images.height.typical
    count = min(most, max(least, int(_POOL_PIXELS / area)))
    sizes = zip(images.width.draw(count, generator), images.height.draw(count, generator), strict=True)
    pool = [_draw_noise(int(width), int(height), generator) for width, height in sizes]
    for number in images.count.draw(requests, generator):
        yield [pool[at].url(generator) for at in generator.integers(len(pool), size=number)]


def _draw_noise(width: int, height: int, generator: Generator) -> _Noise:
    """Draw colours of blocks of two by two pixels."""
    import numpy as np  # slow to import

    rows, columns = -(-height // 2), -(-width // 2)
    noise = generator.integers(_COLOURS, size=(rows, columns), dtype=np.uint8)
    noise = noise.repeat(2, axis=1)[:, :width]
    lines = np.zeros((2 * rows, 1 + width), np.uint8)
    lines[0::2, 0], lines[1::2, 0] = _SUB, _UP
    lines[0::2, 1] = noise[:, 0]
    lines[0::2, 2:] = np.diff(noise, axis=1)
    header = _chunk(b"IHDR", struct.pack(">II5B", width, height, *_INDEXED))
    pixels = _chunk(b"IDAT", zlib.compress(lines[:height].tobytes(), 1))
    return _Noise(_SIGNATURE + header, pixels + _chunk(b"IEND", b""))


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
