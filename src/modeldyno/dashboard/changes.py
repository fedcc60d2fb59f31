"""Tells open pages that the store has changed, as server-sent events."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from starlette.requests import Request

    from modeldyno.dashboard.store_access import ChangeWatch

_PAUSE = 0.5
"""Seconds between two looks."""
_SIGN_OF_LIFE = 30
"""Looks without a change after which a comment is sent, so that a connection that is gone is noticed."""


def change_stream(request: Request, watch: ChangeWatch, ending: Callable[[], bool]) -> StreamingResponse:
    """Answer with a stream: the mark of the store now, and again whenever it has moved."""
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(
        marks(watch, ending, request.is_disconnected), media_type="text/event-stream", headers=headers
    )


async def marks(
    watch: ChangeWatch, ending: Callable[[], bool], gone: Callable[[], Awaitable[bool]], pause: float = _PAUSE
) -> AsyncIterator[str]:
    """Yield an event for the mark of the store, and one for each later mark, until `ending` or `gone`."""
    last, quiet = None, 0
    while not ending():
        mark = await run_in_threadpool(watch.mark)
        if mark != last:
            last, quiet = mark, 0
            yield f"event: change\ndata: {mark}\n\n"
        elif quiet >= _SIGN_OF_LIFE:
            quiet = 0
            yield ": still here\n\n"
        await asyncio.sleep(pause)
        quiet += 1
        if await gone():
            return
