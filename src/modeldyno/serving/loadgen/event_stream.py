"""Decodes answers that are streamed: server-sent events, and JSON lines.

Server-sent events are decoded as the WHATWG's HTML standard has it (9.2.6, "Interpreting an event stream"):
lines end in LF, CR or CRLF, an event in an empty line; its lines of data are joined by LF; comments and other
fields are skipped, and so is a mark of the byte order at the start. What is left without an empty line at the
end is no event. All of it is decoded as bytes, so that a character that the network cuts in two is whole
again. An event is complete, and its time is taken, as soon as the bytes arrive that end its empty line.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    TextStart = Callable[[bytes], int]
    """Returns where something generated begins in the data of an event; 0 if there is nothing."""
    IsReasoning = Callable[[bytes], bool]
    """Returns whether that is reasoning."""

DONE = b"[DONE]"
"""The data of the event by which OpenAI's protocol ends a stream."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_END = b"\n\n"


class StreamEvent(NamedTuple):
    """An event of a stream, or a line of JSON."""

    kind: bytes
    """The field ``event``; empty if it has none."""
    data: bytes

    @property
    def is_end(self) -> bool:
        """Whether it says only that the stream has ended."""
        return self.data.strip() == DONE

    @property
    def is_error(self) -> bool:
        """Whether the server reports an error, by the kind of the event or in its JSON."""
        if self.kind in _ERROR_KINDS:
            return True
        return b'"error' in self.data and _tells_error(self.json())

    def json(self) -> Any:
        """Return the data as JSON, invalid UTF-8 replaced; None if it is none."""
        try:
            return json.loads(self.data.decode(errors="replace"))
        except (ValueError, RecursionError):
            return None


_ERROR_KINDS = {b"error", b"response.failed"}
"""Kinds of an event that reports an error: of most servers, and of OpenAI's responses."""


def _tells_error(content: Any) -> bool:
    """Return whether JSON tells an error: most servers have a key, some a type, some a reason to finish."""
    if not isinstance(content, dict):
        return False
    if content.get("error") or content.get("error_code"):
        return True
    if "error" in (content.get("object"), content.get("type")) or content.get("type") == "response.failed":
        return True
    choices = content.get("choices")
    return isinstance(choices, list) and any(
        isinstance(choice, dict) and choice.get("finish_reason") == "error" for choice in choices
    )


class StreamDecoder(Protocol):
    """Decodes a stream as it arrives."""

    @property
    def between(self) -> bool:
        """Whether the next byte begins a server-sent event, and none before it does."""

    def feed(self, data: bytes) -> list[StreamEvent]:
        """Return the events that these bytes complete."""

    def finish(self) -> list[StreamEvent]:
        """Return the event that the end of the stream completes, if there is one."""


class EventDecoder:
    """Decodes server-sent events."""

    __slots__ = ("_at_start", "_cut", "_rest")

    def __init__(self) -> None:
        self._rest = bytearray()
        """The event that has begun, its lines ended by LF."""
        self._cut = False
        """Whether the last byte was a CR, so that an LF that follows belongs to it."""
        self._at_start = True

    def feed(self, data: bytes) -> list[StreamEvent]:
        """Return the events that these bytes complete."""
        if self._cut or b"\r" in data:
            data = self._with_one_line_end(data)
        rest = self._rest
        if rest:
            seen = len(rest) - 1
            rest += data
            end = rest.rfind(_END, seen)
            if end < 0:
                return []
            text = bytes(rest[:end])
            del rest[: end + 2]
        else:
            text, complete, left = data.rpartition(_END)
            rest += left
            if not complete:
                return []
        if self._at_start:
            self._at_start = False
            text = text.removeprefix(_BYTE_ORDER_MARK)
        if _END not in text:
            event = _event(text)
            return [] if event is None else [event]
        return [event for part in text.split(_END) if (event := _event(part)) is not None]

    @property
    def between(self) -> bool:
        """Whether the next byte begins an event, and none before it does."""
        return not (self._rest or self._cut or self._at_start)

    def finish(self) -> list[StreamEvent]:
        """Return nothing: an event without its empty line is none."""
        return []

    def _with_one_line_end(self, data: bytes) -> bytes:
        """Return the bytes with LF at the end of every line, whichever the server uses."""
        if self._cut and data.startswith(b"\n"):
            data = data[1:]
            self._cut = False
        if data:
            self._cut = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _event(text: bytes) -> StreamEvent | None:
    """Return the event of these lines; None if they have no data."""
    if text.startswith(b"data:") and b"\n" not in text:  # nearly all are one line
        return StreamEvent(b"", text[6:] if text.startswith(b" ", 5) else text[5:])
    kind, data = b"", []
    for line in text.split(b"\n"):
        name, _, value = line.partition(b":")
        if name == b"data":
            data.append(value.removeprefix(b" "))
        elif name == b"event":
            kind = value.removeprefix(b" ")
    return StreamEvent(kind, b"\n".join(data)) if data else None


class LineDecoder:
    """Decodes JSON lines: each line that is not empty is an event."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[StreamEvent]:
        """Return the lines that these bytes complete."""
        text, complete, left = data.rpartition(b"\n")
        if complete:
            text, self._rest = bytes(self._rest + text), bytearray()
        self._rest += left
        return (
            [StreamEvent(b"", line) for part in text.split(b"\n") if (line := part.strip())]
            if complete
            else []
        )

    @property
    def between(self) -> bool:
        """Return that lines are no server-sent events."""
        return False

    def finish(self) -> list[StreamEvent]:
        """Return the last line if it has no end."""
        return self.feed(b"\n")


_DECODERS: dict[bytes, type[EventDecoder | LineDecoder]] = {
    b"text/event-stream": EventDecoder,
    b"application/x-ndjson": LineDecoder,
    b"application/ndjson": LineDecoder,
    b"application/jsonl": LineDecoder,
    b"application/jsonlines": LineDecoder,
    b"application/x-jsonlines": LineDecoder,
    b"application/stream+json": LineDecoder,
}
"""Type of the content to its decoder."""


def decoder_of(content_type: bytes) -> type[EventDecoder | LineDecoder] | None:
    """Return the decoder for a type of content, whatever its parameters; None if it is no stream."""
    return _DECODERS.get(content_type.partition(b";")[0].strip().lower())


def decode_stream(content_type: bytes, body: bytes) -> Iterator[StreamEvent]:
    """Yield the events of a whole answer, without those that only say that it has ended."""
    make = decoder_of(content_type)
    if make is not None:
        decoder = make()
        yield from (event for event in (*decoder.feed(body), *decoder.finish()) if not event.is_end)


_EMPTY_LINE = re.compile(rb"\n\n|\r\n\r\n|\r\r")
_LAST = (1024, 8192, 65536)
"""Bytes at the end of an answer that nearly always have the last events; more, if they repeat a long text."""


def last_parts(body: bytes) -> Iterator[bytes]:
    """Yield the last events of a stream, each time more of them, from an empty line on; at last all."""
    for size in _LAST:
        if size >= len(body):
            break
        end = body[-size:]
        if (line := _EMPTY_LINE.search(end)) is not None:
            yield end[line.end() :]
    yield body


class PieceCounter:
    """Counts the pieces of an answer as they arrive: events with data, or with what `text_start` finds."""

    __slots__ = ("_before_text", "_decoder", "_is_reasoning", "_text_start", "failed", "reasoning")

    def __init__(
        self,
        decoder: StreamDecoder,
        text_start: TextStart | None = None,
        is_reasoning: IsReasoning | None = None,
    ) -> None:
        self.failed = False
        """Whether the server reported an error."""
        self.reasoning = 0
        """Number of pieces of reasoning before the first one of the answer itself."""
        self._is_reasoning = is_reasoning
        """Looked for until that came; None then."""
        self._decoder = decoder
        self._text_start = text_start
        self._before_text = b""
        """What the last piece had before its text: most events of an answer begin alike."""

    def feed(self, data: bytes) -> int:
        """Return the number of pieces that these bytes complete."""
        count = 0
        for kind, text in self._decoder.feed(data):
            count += self.is_piece(kind, text)
        return count

    @property
    def between(self) -> bool:
        """Whether the next byte begins a server-sent event."""
        return self._decoder.between

    def finish(self) -> int:
        """Return the number of pieces that the end of the answer completes."""
        return sum(self.is_piece(*event) for event in self._decoder.finish())

    def is_piece(self, kind: bytes, data: bytes) -> bool:
        """Return whether an event is a piece of the answer; note an error, and reasoning."""
        if (kind or b'"error' in data) and StreamEvent(kind, data).is_error:
            self.failed = True
            return False
        if self._text_start is None:
            return bool(data) and not StreamEvent(kind, data).is_end
        before = self._before_text
        if before and data.startswith(before) and data[len(before) : len(before) + 1] not in _NO_TEXT:
            return True
        start = self._text_start(data)
        if not start:
            return False
        if self._is_reasoning is not None:
            if self._is_reasoning(data):
                self.reasoning += 1
                return True
            self._is_reasoning = None
        self._before_text = data[:start]
        return True


_NO_TEXT = (b'"', b"")
"""What follows the beginning of an event that has no text: the end of an empty one, or of the event."""
