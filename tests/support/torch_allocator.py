"""Measure what torch's own allocator says that a call held, to check predicted memory."""

from __future__ import annotations

import gc
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def recorded_peak(call: Callable[[], object]) -> int:
    """Return the peak bytes that a call on the CPU held, beyond what was allocated before it.

    It adds up the memory events of torch.profiler: each allocation and release of a tensor's storage, with
    the requested bytes. Copies that oneDNN makes in its own layout inside a convolution or an LSTM are
    included, because torch allocates them. Not included is what its allocator does not see: scratch memory
    that kernels take from the C library, NumPy's memory, and the work of threads that torch
    did not start. A number such as the 1 in ``x + 1`` is a tensor, too, of 8 bytes, and of 4 more where it is
    converted. Releasing what was allocated before the call does not count.

    State that the first call of a module creates (that of an optimizer) is recorded in the first call; make
    one call before to measure the steady state.
    """
    import torch

    gc.collect()
    activities = [torch.profiler.ProfilerActivity.CPU]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.profiler.profile(activities=activities, profile_memory=True, acc_events=True) as profile:
            result = call()
    del result
    profiler = profile.profiler
    assert profiler is not None
    assert profiler.kineto_results is not None
    return _peak(profiler.kineto_results.experimental_event_tree())


def _peak(roots: Iterable[Any]) -> int:
    """Add up events by address: the profiler's sizes of blocks allocated before it started may be stale."""
    events: list[tuple[int, int, int]] = []
    pending = list(roots)
    while pending:
        event = pending.pop()
        pending.extend(event.children)
        if event.name == "[memory]":
            events.append((event.start_time_ns, event.extra_fields.ptr, event.extra_fields.alloc_size))
    live: dict[int, int] = {}
    current = peak = 0
    for _, address, size in sorted(events, key=lambda event: event[0]):
        if size > 0:
            live[address] = size
            current += size
        else:
            current -= live.pop(address, 0)
        peak = max(peak, current)
    return peak
