"""Twelve kinds of functions that seem faster than the work they are asked for, and the honest one.

``modeldyno profile call:tests/support/cheats.py:memo_by_value --input x=8x256`` and so on. Each asks for
what `honest` does; `NAMED` says by which doubt each is found.
"""

from __future__ import annotations

import itertools
import queue
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Callable

Array = NDArray[np.float32]
INPUT = "x=8x256"


def _work(x: Array, layers: int = 200) -> Array:
    y = x
    for _ in range(layers):
        y = np.sin(y) + x
    return y


def honest(x: Array) -> Array:
    """Do the work that all others are asked for."""
    return _work(x)


_by_value: dict[bytes, Array] = {}


def memo_by_value(x: Array) -> Array:
    """Answer inputs it has seen from a table."""
    key = x.ravel()[:8].tobytes()
    if key not in _by_value:
        _by_value[key] = _work(x)
    return _by_value[key]


_by_address: dict[int, Array] = {}


def forget() -> None:
    """Empty the tables, in which an earlier test of the same process may have left its addresses."""
    for table in (_by_value, _by_address, _by_shape):
        table.clear()


def memo_by_address(x: Array) -> Array:
    """Answer arrays at addresses it has seen from a table."""
    key = x.__array_interface__["data"][0]
    if key not in _by_address:
        _by_address[key] = _work(x)
    return _by_address[key]


_by_shape: dict[tuple[int, ...], Array] = {}


def memo_by_shape(x: Array) -> Array:
    """Answer inputs of a shape it has seen with what one of them gave."""
    if x.shape not in _by_shape:
        _by_shape[x.shape] = _work(x)
    return _by_shape[x.shape]


class _Lazy:
    def __init__(self, x: Array) -> None:
        self.x, self.shape, self.dtype, self.ndim = x, x.shape, x.dtype, x.ndim

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return _work(self.x)


def lazy(x: Array) -> _Lazy:
    """Return an array that is computed when it is read."""
    return _Lazy(x)


class _Pending:
    """An array on a device: reading it waits until the device has made it."""

    def __init__(self, x: Array) -> None:
        self.x, self.made, self.value = x, threading.Event(), x

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        self.made.wait()
        return self.value


class _Device:
    """Computes what is submitted, one after the other, in a thread of its own."""

    def __init__(self) -> None:
        self.submitted: queue.Queue[_Pending] = queue.Queue(maxsize=32)
        self.thread: threading.Thread | None = None

    def submit(self, pending: _Pending) -> _Pending:
        if self.thread is None:
            self.thread = threading.Thread(target=self._run, daemon=True)
            self.thread.start()
        self.submitted.put(pending)
        return pending

    def _run(self) -> None:
        while True:
            pending = self.submitted.get()
            pending.value = _work(pending.x)
            pending.made.set()


_device = _Device()


def unsynchronised(x: Array) -> _Pending:
    """Submit the work to a device, and do not wait for it."""
    return _device.submit(_Pending(x))


_earlier: list[Array] = []


def earlier_result(x: Array) -> Array:
    """Return what the call before should have returned, and do only a part of the work."""
    result = _earlier.pop() if _earlier else _work(x)
    _earlier.append(_work(x, layers=20))
    return result


def narrow(x: Array) -> Array:
    """Compute in half precision, and return float32."""
    return _work(x).astype(np.float16).astype(np.float32)


def part_of_batch(x: Array) -> Array:
    """Compute half of the rows, and repeat them."""
    half = _work(x[: len(x) // 2])
    return np.concatenate([half, half])


_first: list[Array] = []


def first_call(x: Array) -> Array:
    """Do the work in the first call, and return a copy of its result afterwards."""
    if not _first:
        _first.append(_work(x))
    return _first[0].copy()


_ring = [np.zeros((8, 256), np.float32) for _ in range(8)]
_number = itertools.count()
_unfilled: queue.SimpleQueue[tuple[Array, Array]] = queue.SimpleQueue()


def _fill() -> None:
    while True:
        x, y = _unfilled.get()
        y[:] = _work(x)


def thread(x: Array) -> Array:
    """Let a thread fill the array that is returned, after the call."""
    number = next(_number)
    if number == 0:
        threading.Thread(target=_fill, daemon=True).start()
    y = _ring[number % len(_ring)]
    _unfilled.put((x, y))
    return y


class _Bin:
    """Does the work when the garbage collector finds it."""

    def __init__(self, x: Array, y: Array) -> None:
        self.x, self.y, self.itself = x, y, self

    def __del__(self) -> None:
        self.y[:] = _work(self.x)


def collector(x: Array) -> Array:
    """Leave the work to the garbage collector, which runs now and then."""
    y = x + 1
    _Bin(x, y)
    return y


_real_ns, _real = time.perf_counter_ns, time.perf_counter
_begin_ns, _begin = _real_ns(), _real()


def patched_clock(x: Array) -> Array:
    """Slow the clock down to a hundredth."""
    time.perf_counter_ns = lambda: _begin_ns + (_real_ns() - _begin_ns) // 100
    time.perf_counter = lambda: _begin + (_real() - _begin) / 100
    return _work(x)


NAMED: dict[Callable[..., Any], str] = {
    memo_by_value: "answers-repeat",
    memo_by_address: "answers-repeat",
    memo_by_shape: "constant-output",
    lazy: "lazy-output",
    unsynchronised: "lazy-output",
    earlier_result: "earlier-output",
    narrow: "coarse-output",
    part_of_batch: "rows-repeat",
    first_call: "constant-output",
    thread: "deferred-work",
    collector: "deferred-work",
    patched_clock: "replaced-clock",
}
"""The doubt by which each is found."""
