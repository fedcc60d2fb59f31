from __future__ import annotations

import asyncio
import sys
from time import monotonic_ns
from typing import TYPE_CHECKING

import pytest

from modeldyno.serving.loadgen.driver_main import _new_loop
from modeldyno.serving.loadgen.kernel_timer import KernelTimer, LoopTimer, Timer, make_timer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MILLISECOND = 1_000_000
KINDS = [LoopTimer, *([KernelTimer] if sys.platform.startswith("linux") else [])]


@pytest.fixture(params=[asyncio.new_event_loop, _new_loop])
def loop(request: pytest.FixtureRequest) -> Iterator[asyncio.AbstractEventLoop]:
    made = request.param()
    yield made
    made.close()


def rung(
    loop: asyncio.AbstractEventLoop, kind: Callable[..., Timer], times: list[int], wait: float
) -> list[int]:
    """Set the timer to each time as the one before has rung; give when it rang."""
    rang: list[int] = []

    def ring() -> None:
        rang.append(monotonic_ns())
        if len(rang) < len(times):
            made.set(times[len(rang)])

    async def go() -> None:
        made.set(times[0])
        for _ in range(1000):
            await asyncio.sleep(wait)
            if len(rang) >= len(times):
                break
        await asyncio.sleep(wait)

    made = kind(loop, ring)
    loop.run_until_complete(go())
    made.close()
    made.close()
    return rang


@pytest.mark.parametrize("kind", KINDS)
def test_a_timer_rings_once_and_never_early(
    kind: Callable[..., Timer], loop: asyncio.AbstractEventLoop
) -> None:
    """A time that has passed rings at once; without a new time it is quiet."""
    now = monotonic_ns()
    times = [now + 3 * MILLISECOND, now + 7 * MILLISECOND, now - MILLISECOND, now + 12 * MILLISECOND]
    rang = rung(loop, kind, times, 0.02)
    assert len(rang) == 4
    assert all(when >= time for when, time in zip(rang, times, strict=True))
    assert rang == sorted(rang)


@pytest.mark.parametrize("kind", KINDS)
def test_the_last_time_that_was_set_counts(
    kind: Callable[..., Timer], loop: asyncio.AbstractEventLoop
) -> None:
    """And a closed timer rings no more."""
    rang: list[int] = []
    made = kind(loop, lambda: rang.append(monotonic_ns()))
    soon = monotonic_ns() + 5 * MILLISECOND
    made.set(soon + 3_600_000 * MILLISECOND)
    made.set(soon)
    loop.run_until_complete(asyncio.sleep(0.05))
    assert len(rang) == 1
    made.set(monotonic_ns() + MILLISECOND)
    made.close()
    loop.run_until_complete(asyncio.sleep(0.02))
    assert len(rang) == 1


def test_the_finest_timer_is_chosen(loop: asyncio.AbstractEventLoop) -> None:
    """That of the kernel, where it has one."""
    made = make_timer(loop, lambda: None)
    assert isinstance(made, KernelTimer if sys.platform.startswith("linux") else LoopTimer)
    made.close()


@pytest.mark.slow
@pytest.mark.skipif(KernelTimer not in KINDS, reason="this kernel has no such timer")
def test_the_timer_of_the_kernel_is_finer_than_a_millisecond(loop: asyncio.AbstractEventLoop) -> None:
    """Of many rings, the median is late by less than half a millisecond."""
    now = monotonic_ns()
    times = [now + 1_300_000 * index for index in range(1, 400)]
    rang = rung(loop, KernelTimer, times, 0.01)
    late = sorted(when - time for when, time in zip(rang, times, strict=True))
    assert late[len(late) // 2] < 0.5 * MILLISECOND
