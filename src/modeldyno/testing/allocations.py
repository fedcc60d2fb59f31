"""What torch's own allocator says that a call held: a witness for predicted memory."""

from __future__ import annotations

import gc
import warnings
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def recorded_peak(call: Callable[[], object]) -> int:
    """Give the most bytes that a call on the CPU held at once, beyond what was there before it.

    It adds up the memory events of torch.profiler: each allocation and release of a tensor's storage,
    with the bytes that were asked for. What the allocator does not see is not in it: scratch that kernels
    (oneDNN, MKL) take from the C library, NumPy's memory, and the work of threads that other than torch
    started. A number such as the 1 in ``x + 1`` is a tensor, too, of 8 bytes, and of 4 more where it is
    converted. Releasing what was allocated before the call gains nothing, for the profiler does not know its
    size; but what an earlier recording has seen allocated, it knows.

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
    events = [event for event in profiler.kineto_results.events() if event.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    return max(accumulate((int(event.nbytes()) for event in events), initial=0))
