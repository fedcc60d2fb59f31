"""Answers that are text travel compressed, to browsers that say that they take it.

A page of 60 kB is 10 kB on the way, which a phone notices. Streams and pictures go as they are. What a page
says cannot be guessed from its length: it holds the token of its forms, but the cookie that it belongs to is
not sent along by pages of other sites, so none of them can ask for it again and again.
"""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders

if TYPE_CHECKING:
    from modeldyno.dashboard.guard import AsgiApp, Message, Receive, Scope, Send

_LEAST = 1000
"""Bytes below which an answer is one packet anyway."""
_LONG = 100_000
"""Bytes from which others would wait while it is compressed, so a thread does it."""
_LEVEL = 5
_KINDS = ("text/html", "text/csv", "application/json", "image/svg+xml")
"""Media types of whole texts; ``text/event-stream`` is none of them."""


def takes_gzip(accepted: str) -> bool:
    """Return whether an Accept-Encoding header allows gzip; one that is empty does not."""
    weights: dict[str, bool] = {}
    for one in accepted.lower().split(","):
        name, *parameters = (word.strip() for word in one.split(";"))
        refused = any(word.startswith("q=0") and not word[3:].strip(".0") for word in parameters)
        weights[name] = not refused
    return weights.get("gzip", weights.get("*", False))


def compress(content: bytes, level: int = _LEVEL) -> bytes:
    """Compress by gzip; the same bytes give the same bytes."""
    return gzip.compress(content, level, mtime=0)


class Compression:
    """Compresses the answers of an application that are text and worth it."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        accepts = takes_gzip(", ".join(Headers(scope=scope).getlist("accept-encoding")))
        begun: Message | None = None

        async def send_compressed(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=list(message["headers"]))
                if headers.get("content-type", "").partition(";")[0] not in _KINDS:
                    await send(message)
                    return
                headers.add_vary_header("Accept-Encoding")
                begun = {**message, "headers": headers.raw}
                return
            if begun is not None:
                start, begun = begun, None
                body = message.get("body", b"")
                if accepts and len(body) >= _LEAST and not message.get("more_body"):
                    packed = await run_in_threadpool(compress, body) if len(body) > _LONG else compress(body)
                    headers = MutableHeaders(raw=start["headers"])
                    headers["content-encoding"] = "gzip"
                    headers["content-length"] = str(len(packed))
                    message = {**message, "body": packed}
                await send(start)
            await send(message)

        await self._app(scope, receive, send_compressed)
