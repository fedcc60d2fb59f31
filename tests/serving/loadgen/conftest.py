"""A load driven within the test's own process, so that no test waits for one to start."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from time import monotonic_ns
from typing import TYPE_CHECKING

import pytest

from modeldyno.engine.interfaces.request_target import Reply
from modeldyno.serving.load.request_log import Records, join_records
from modeldyno.serving.loadgen import driver_main, record_frames
from modeldyno.serving.loadgen.arrivals import LoadShare
from modeldyno.serving.loadgen.driver_protocol import DriverCommand
from modeldyno.serving.loadgen.kernel_timer import make_timer
from modeldyno.serving.loadgen.load_loop import LoadLoop

if TYPE_CHECKING:
    from collections.abc import Callable

    from modeldyno.base.job.load_spec import Load
    from modeldyno.engine.interfaces.request_target import Target


@dataclass(frozen=True, kw_only=True)
class Driven:
    records: Records
    replies: tuple[Reply, ...]
    faults: tuple[Reply, ...]
    opened: int
    sent: int


@pytest.fixture
def driven() -> Callable[..., Driven]:
    """Give a function that drives a load until all has ended, or for so many seconds."""

    def drive(target: Target, load: Load, *, seconds: float = 30.0, grace: float = 5.0) -> Driven:
        loop = driver_main._new_loop()
        try:
            return loop.run_until_complete(_drive(target, load, seconds, grace, loop))
        finally:
            loop.run_until_complete(asyncio.sleep(0))
            loop.close()

    return drive


async def _drive(
    target: Target, load: Load, seconds: float, grace: float, loop: asyncio.AbstractEventLoop
) -> Driven:
    drive = LoadLoop(load, LoadShare(), len(target.messages), loop)
    order = DriverCommand(
        target=target,
        load=load,
        share=LoadShare(),
        seed=0,
        addresses=tuple(each.host for each in target.servers),
    )
    drive.count_tokens = getattr(driver_main._stream_client(target), "tokens", None)
    pool = drive.carrier = driver_main.make_carrier(order, drive, loop)
    drive.timer = make_timer(loop, drive.ring)
    over = loop.create_future()
    drive.finished = lambda: over.set_result(None)
    drive.start(monotonic_ns())
    parts: list[Records] = []
    blocks: list[record_frames.RecordBlock] = []
    deadline = loop.time() + seconds
    while loop.time() < deadline and not (blocks and blocks[-1].ended):
        await asyncio.sleep(0.02)
        blocks.append(drive.block())
        parts.append(record_frames.decode_rows(blocks[-1].rows, blocks[-1].times, 0))
    drive.stop(grace)
    await over
    drive.timer.close()
    last = drive.block()
    parts.append(record_frames.decode_rows(last.rows, last.times, 0))
    pool.close()  # type: ignore[attr-defined]
    await asyncio.sleep(0.02)
    return Driven(
        records=join_records(parts),
        replies=tuple(reply for _, reply in drive.answers()),
        faults=tuple(reply for _, reply in drive.faults()),
        opened=last.opened,
        sent=last.sent,
    )
