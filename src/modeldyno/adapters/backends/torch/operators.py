"""What torch runs within calls, by torch.profiler: operators, kernels, transfers, waits, ranges."""

from __future__ import annotations

import gzip
import os
import shutil
import warnings
from bisect import bisect_right
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Any

from modeldyno.adapters.backends.torch.module_ranges import as_ranges, eager
from modeldyno.core.result.trace_data import Happening
from modeldyno.core.trace.op_events import Occurrence, WatchedCalls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from torch import device

_MODULE = "module: "
"""How the ranges begin that we put around modules; what follows is the path."""
_ALLOCATING = frozenset({
    "aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty", "aten::resize_",
})  # fmt: skip
"""Operators that only take memory: it belongs to what called them."""
_COMPILED = "## "
"""How the ranges begin that torch.compile puts around its own kernels, which have no other name."""
_ACTIVITIES = {"cuda": "CUDA", "xpu": "XPU"}


def watched(
    run: Callable[[], Any], callee: Callable[..., Any], place: device, calls: int, trace: Path | None
) -> WatchedCalls:
    """Make so many calls under torch.profiler, and tell what happened within them.

    Args:
        run: makes a call; it need not wait for the device.
        callee: what the call is of; its modules are told apart unless they are compiled.
        place: where it runs.
        calls: how many calls to watch.
        trace: a file for the trace of all of them, in the form that Chrome and Perfetto read.

    Raises:
        OSError: the trace cannot be written.
    """
    import torch  # noqa: PLC0415 - heavy

    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # what it says of itself is no news
    finish, module = _finisher(place), eager(callee)
    times: list[float] = []
    with ExitStack() as stack:
        stack.enter_context(as_ranges(module, _MODULE))
        stack.enter_context(_nvtx())
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        profiler = stack.enter_context(_profiler(place))
        for _ in range(calls):
            begin = perf_counter()
            with torch.profiler.record_function(_MODULE):
                run()
            finish()
            times.append(perf_counter() - begin)
    if trace is not None:
        _export(profiler, trace)
    return WatchedCalls(
        times=tuple(times), occurrences=occurrences(profiler.events() or ()), hidden=module is None
    )


def _profiler(place: device) -> Any:
    from torch.profiler import ProfilerActivity, profile  # noqa: PLC0415 - heavy

    kinds = ("CPU", _ACTIVITIES.get(place.type, "CPU"))
    activities = [getattr(ProfilerActivity, kind) for kind in dict.fromkeys(kinds)]
    return profile(activities=activities, record_shapes=True, profile_memory=True)


def _finisher(place: device) -> Callable[[], None]:
    import torch  # noqa: PLC0415 - heavy

    library: Any = getattr(torch, place.type)
    return getattr(library, "synchronize", lambda: None)


@contextmanager
def _nvtx() -> Iterator[None]:
    """Have the NVTX ranges of the model show as ranges, too: the profiler does not see them by itself."""
    import torch  # noqa: PLC0415 - heavy

    nvtx: Any = torch.cuda.nvtx
    push, pop = nvtx.range_push, nvtx.range_pop
    is_open: list[Any] = []

    def pushed(text: str) -> Any:
        is_open.append(torch.profiler.record_function(text))
        is_open[-1].__enter__()
        return push(text)

    def popped() -> Any:
        if is_open:
            is_open.pop().__exit__(None, None, None)
        return pop()

    nvtx.range_push, nvtx.range_pop = pushed, popped
    try:
        yield
    finally:
        nvtx.range_push, nvtx.range_pop = push, pop


def _export(profiler: Any, path: Path) -> None:
    """Write the trace, compressed if the name says so; a file is there only when it is whole."""
    with TemporaryDirectory(dir=path.parent) as folder:
        plain = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(plain))
        if path.suffix == ".gz":
            packed = Path(folder) / "trace.json.gz"
            with plain.open("rb") as source, gzip.open(packed, "wb", compresslevel=6) as target:
                shutil.copyfileobj(source, target)
            plain = packed
        plain.replace(path)


# --- events --------------------------------------------------------------------------------------


def occurrences(events: Iterable[Any]) -> tuple[Occurrence, ...]:
    """Turn what the profiler gives into occurrences within the calls.

    An event is of the innermost module whose range it lies in. A kernel is told by the operator that
    launched it, and so once; one that no operator launched, such as Triton's, is of the module alone.
    Ranges that the device repeats are not kernels.
    """
    every = list(events)
    on_host = [event for event in every if _device(event) == "CPU"]
    ranges = {event.name for event in on_host if _is_range(event)}
    begins = sorted(event.time_range.start for event in on_host if event.name == _MODULE)
    found: list[Occurrence] = []
    places: dict[int, int] = {}
    for event in sorted(on_host, key=lambda event: (event.time_range.start, -event.time_range.end)):
        line = list(_line(event))
        scope = _scope(line)
        if scope is None:
            continue  # the profiler itself, or the wait that ends our call
        call = _call(event, begins)
        launched = [kernel for kernel in event.kernels if kernel.name not in ranges]
        if not event.name.startswith(_MODULE) and not _is_runtime(event):
            parent = next((places[id(each)] for each in line[1:] if id(each) in places), None)
            places[id(event)] = len(found)
            found.append(replace(_occurrence(event, scope, launched, parent), call=call))
        found += (_launched(kernel.name, kernel.duration, scope, call) for kernel in launched)
    return (*found, *_launched_alone(every, on_host, ranges, begins))


def _call(event: Any, begins: Sequence[float]) -> int:
    """Say in which call an event lies, by when each began: one on another thread hangs on none."""
    return max(0, bisect_right(begins, event.time_range.start) - 1)


def _launched_alone(
    every: Sequence[Any], on_host: Sequence[Any], ranges: set[str], begins: Sequence[float]
) -> Iterator[Occurrence]:
    """Give the kernels that hang on no operator; the call of the device's library has the same number."""
    known = Counter((kernel.name, kernel.duration) for event in on_host for kernel in event.kernels)
    launches = {event.id: event for event in on_host if _is_runtime(event)}
    for event in every:
        if _device(event) == "CPU" or event.name in ranges:
            continue
        duration = event.time_range.end - event.time_range.start
        if known[event.name, duration]:
            known[event.name, duration] -= 1
            continue
        launch = launches.get(event.id)
        scope = _scope(_line(launch))
        if scope is not None:
            yield _launched(event.name, duration, scope, _call(launch, begins))


def _scope(line: Iterable[Any]) -> str | None:
    """Give the path of the innermost module; None outside of our calls."""
    name = next((each.name for each in line if each.name.startswith(_MODULE)), None)
    return None if name is None else str(name.removeprefix(_MODULE))


def _device(event: Any) -> str:
    return str(event.device_type).rpartition(".")[2]


def _line(event: Any) -> Iterator[Any]:
    """Give an event and all that it lies in, the innermost first."""
    while event is not None:
        yield event
        event = event.cpu_parent


def _is_range(event: Any) -> bool:
    return bool(getattr(event, "is_user_annotation", False)) or event.name.startswith(_MODULE)


def _is_runtime(event: Any) -> bool:
    """Whether it is a call of a device's library, which is part of the operator that makes it."""
    kind = getattr(event, "activity_type", None)
    runtime = str(kind).endswith(("_runtime", "_driver")) or (
        kind is None and event.name.startswith(("cuda", "hip", "cuLaunch"))
    )
    return runtime and not _is_wait(event)


def _is_wait(event: Any) -> bool:
    return "Synchronize" in event.name and not event.name.startswith("aten::")


def _occurrence(event: Any, scope: str, launched: Sequence[Any], parent: int | None) -> Occurrence:
    within = [child for child in event.cpu_children if _is_runtime(child)]
    memory = [event, *(child for child in event.cpu_children if child.name in _ALLOCATING)]
    takes = event.name not in _ALLOCATING or event.cpu_parent is None or _is_range(event.cpu_parent)
    named = _is_range(event) and not event.name.startswith(_COMPILED)
    kind = Happening.RANGE if named else Happening.OPERATOR
    kernels = (*launched, *(kernel for child in within for kernel in child.kernels))
    return Occurrence(
        name=event.name,
        kind=Happening.SYNCHRONISATION if _is_wait(event) else kind,
        scope=scope,
        shapes=shapes(event.input_shapes or ()),
        self_time=1e-6 * (event.self_cpu_time_total + sum(child.cpu_time_total for child in within)),
        total_time=1e-6 * event.cpu_time_total,
        device_time=1e-6 * sum(kernel.duration for kernel in kernels),
        allocated=float(sum(map(_allocated, memory))) if takes else 0.0,
        parent=parent,
    )


def _allocated(event: Any) -> int:
    return int(event.self_cpu_memory_usage + event.self_device_memory_usage)


def _launched(name: str, duration: float, scope: str, call: int) -> Occurrence:
    kind = Happening.TRANSFER if name.lower().startswith("memcpy") else Happening.KERNEL
    return Occurrence(name=name, kind=kind, scope=scope, device_time=1e-6 * duration, call=call)


def shapes(found: Iterable[Any]) -> str:
    """Show the shapes of tensors, and of those in lists: ``8x128, 128x64``; what is none is left out."""
    texts = []
    for shape in found:
        if shape and all(isinstance(n, int) for n in shape):
            texts.append("x".join(map(str, shape)))
        elif shape:
            texts.append(f"[{shapes(shape)}]")
    return ", ".join(texts)
