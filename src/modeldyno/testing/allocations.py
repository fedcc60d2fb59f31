"""What torch's own allocator says that a call held: a witness for predicted memory."""

from __future__ import annotations

import gc
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def recorded_peak(call: Callable[[], object]) -> int:
    """Give the most bytes that a call on the CPU held at once, beyond what was there before it.

    It adds up the memory events of torch.profiler: each allocation and release of a tensor's storage,
    with the bytes that were asked for. Copies in a layout of its own that oneDNN makes inside of a
    convolution or an LSTM are in it, for torch allocates them. What its allocator does not see is not:
    scratch that kernels take from the C library, NumPy's memory, and the work of threads that others than
    torch started. A number such as the 1 in ``x + 1`` is a tensor, too, of 8 bytes, and of 4 more where it
    is converted. Releasing what was allocated before the call gains nothing.

    What the first call of a module leaves for the others (an optimiser's state) is recorded in the first
    call; make one before, if the steady course is asked for.
    """
    import torch  # noqa: PLC0415 - optional

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
    """Add up by address: the profiler's own sizes of what it did not see allocated may be old ones."""
    found: list[tuple[int, int, int]] = []
    waiting = list(roots)
    while waiting:
        event = waiting.pop()
        waiting.extend(event.children)
        if event.name == "[memory]":
            found.append((event.start_time_ns, event.extra_fields.ptr, event.extra_fields.alloc_size))
    held: dict[int, int] = {}
    now = most = 0
    for _, address, size in sorted(found, key=lambda event: event[0]):
        if size > 0:
            held[address] = size
            now += size
        else:
            now -= held.pop(address, 0)
        most = max(most, now)
    return most
