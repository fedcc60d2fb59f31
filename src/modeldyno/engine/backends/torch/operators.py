"""Records what torch runs within calls, with torch.profiler: operators, kernels, transfers, waits, ranges."""

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
from typing import TYPE_CHECKING, Any

from modeldyno.base.clock import perf_counter
from modeldyno.base.result.trace_data import EventKind
from modeldyno.engine.backends.torch.module_ranges import (
    annotate_modules,
    eager_module,
    watch_all_module_calls,
)
from modeldyno.engine.trace.op_events import WITHIN, Occurrence, WatchedCalls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from torch import device

_MODULE = "module: "
"""Prefix of the ranges that we put around modules; the path follows."""
_WITHIN = f"{_MODULE}{WITHIN}"
"""Prefix of the ranges of modules in a block of code; the range around them has its name."""
_ALLOCATING = frozenset({
    "aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty", "aten::resize_",
})  # fmt: skip
"""Operators that only allocate: their memory counts for the operator that called them."""
_COMPILED = "## "
"""Prefix of the ranges that torch.compile puts around its own kernels, which have no other name."""
_RECORDING = frozenset({"PythonDispatchMode", "Activity Buffer Request", "Buffer Flush"})
"""What torch calls the work of recording itself, and of following the data flow."""
_ACTIVITIES = {"cuda": "CUDA", "xpu": "XPU"}


def watch_operators(
    run: Callable[[], Any], callee: Callable[..., Any], place: device, calls: int, trace: Path | None
) -> WatchedCalls:
    """Make `calls` calls under torch.profiler and record what happens within them.

    Args:
        run: makes a call; it need not wait for the device.
        callee: the module that is called; its submodules get ranges unless they are compiled.
        place: the device that it runs on.
        calls: how many calls to watch.
        trace: file for the trace of all calls, in the format of Chrome and Perfetto; None for no trace.

    Raises:
        OSError: the trace cannot be written.
    """
    import torch  # heavy

    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # keeps the profiler from logging
    finish, module = _synchronizer(place), eager_module(callee)
    times: list[float] = []
    with ExitStack() as stack:
        stack.enter_context(annotate_modules(module, _MODULE))
        stack.enter_context(_nvtx_as_ranges())
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


def record_operators(name: str) -> Callable[[], Callable[[], tuple[Occurrence, ...]]]:
    """Begin to record what torch runs from here on, in a block of that name; return what ends it.

    That returns what reads the occurrences: torch takes several times as long for it as for recording.

    Within another recording it is a range of that one: the occurrences are the other's, and none its own.
    Modules that are called in the block have ranges in it.
    """
    import torch  # heavy

    block: Any = torch.profiler.record_function(f"{_MODULE}{name}")
    cuda: Any = torch.cuda
    if torch.autograd.profiler._is_profiler_enabled:
        block.__enter__()
        return lambda: _end_range(block)
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # keeps the profiler from logging
    place = torch.device("cuda" if cuda.is_initialized() else "cpu")
    watching = ExitStack()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        profiler = _profiler(place)
        profiler.__enter__()
    block.__enter__()
    watching.enter_context(_ranges_of_modules())

    def end() -> Callable[[], tuple[Occurrence, ...]]:
        watching.close()
        _end_range(block)
        _synchronizer(place)()
        profiler.__exit__(None, None, None)
        return lambda: occurrences(profiler.events() or ())

    return end


@contextmanager
def _ranges_of_modules() -> Iterator[None]:
    """Make each module that this block calls a range."""
    import torch  # heavy

    ranges: list[Any] = []
    # A tenth of the cost of record_function, where this version has it.
    make_range: Any = getattr(torch._C._profiler, "_RecordFunctionFast", torch.profiler.record_function)

    def begin(path: str) -> None:
        ranges.append(make_range(f"{_WITHIN}{path}"))
        ranges[-1].__enter__()

    with watch_all_module_calls(begin, lambda: ranges.pop().__exit__(None, None, None)):
        yield


def _end_range(block: Any) -> Callable[[], tuple[Occurrence, ...]]:
    block.__exit__(None, None, None)
    return tuple


def _profiler(device: device) -> Any:
    from torch.profiler import ProfilerActivity, profile  # heavy

    kinds = ("CPU", _ACTIVITIES.get(device.type, "CPU"))
    activities = [getattr(ProfilerActivity, kind) for kind in dict.fromkeys(kinds)]
    return profile(activities=activities, record_shapes=True, profile_memory=True)


def _synchronizer(device: device) -> Callable[[], None]:
    import torch  # heavy

    library: Any = getattr(torch, device.type)
    return getattr(library, "synchronize", lambda: None)


@contextmanager
def _nvtx_as_ranges() -> Iterator[None]:
    """Turn the model's NVTX ranges into profiler ranges, which the profiler does not do by itself."""
    import torch  # heavy

    nvtx: Any = torch.cuda.nvtx
    push, pop = nvtx.range_push, nvtx.range_pop
    open_ranges: list[Any] = []

    def range_push(text: str) -> Any:
        open_ranges.append(torch.profiler.record_function(text))
        open_ranges[-1].__enter__()
        return push(text)

    def range_pop() -> Any:
        if open_ranges:
            open_ranges.pop().__exit__(None, None, None)
        return pop()

    nvtx.range_push, nvtx.range_pop = range_push, range_pop
    try:
        yield
    finally:
        nvtx.range_push, nvtx.range_pop = push, pop


def _export(profiler: Any, path: Path) -> None:
    """Write the trace, compressed if the name ends in .gz; the file appears only once it is complete."""
    with TemporaryDirectory(dir=path.parent) as folder:
        written = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(written))
        if path.suffix == ".gz":
            compressed = Path(folder) / "trace.json.gz"
            with written.open("rb") as source, gzip.open(compressed, "wb", compresslevel=6) as target:
                shutil.copyfileobj(source, target)
            written = compressed
        written.replace(path)


# --- events --------------------------------------------------------------------------------------


def occurrences(events: Iterable[Any]) -> tuple[Occurrence, ...]:
    """Turn profiler events into occurrences within the calls.

    An event belongs to the innermost module whose range it lies in. A kernel is reported once, with the
    operator that launched it; one that no operator launched, such as a Triton kernel, belongs to the module
    only. Ranges that the device repeats are not kernels.
    """
    all_events = list(events)
    on_host = [event for event in all_events if _device_kind(event) == "CPU"]
    ranges = {event.name for event in on_host if _is_range(event)}
    begins = sorted(event.time_range.start for event in on_host if event.name == _MODULE)
    result: list[Occurrence] = []
    index_of: dict[int, int] = {}
    for event in sorted(on_host, key=lambda event: (event.time_range.start, -event.time_range.end)):
        ancestors = list(_ancestors(event))
        scope = _scope(ancestors)
        if scope is None:
            continue  # the profiler itself, or the synchronisation at the end of our call
        call = _call_index(event, begins)
        kernels = [kernel for kernel in event.kernels if kernel.name not in ranges]
        if event.name not in _RECORDING and not event.name.startswith(_MODULE) and not _is_runtime(event):
            parent = next(
                (index_of[id(ancestor)] for ancestor in ancestors[1:] if id(ancestor) in index_of), None
            )
            index_of[id(event)] = len(result)
            result.append(replace(_occurrence(event, scope, kernels, parent), call=call))
        result += (_kernel_occurrence(kernel.name, kernel.duration, scope, call) for kernel in kernels)
    return (*result, *_orphan_kernels(all_events, on_host, ranges, begins))


def _call_index(event: Any, begins: Sequence[float]) -> int:
    """Return the index of an event's call, by start time: events of other threads have no parent."""
    return max(0, bisect_right(begins, event.time_range.start) - 1)


def _orphan_kernels(
    all_events: Sequence[Any], on_host: Sequence[Any], ranges: set[str], begins: Sequence[float]
) -> Iterator[Occurrence]:
    """Yield kernels without an operator; the runtime call that launched one has the same event id."""
    remaining = Counter((kernel.name, kernel.duration) for event in on_host for kernel in event.kernels)
    launches = {event.id: event for event in on_host if _is_runtime(event)}
    for event in all_events:
        if _device_kind(event) == "CPU" or event.name in ranges:
            continue
        duration = event.time_range.end - event.time_range.start
        if remaining[event.name, duration]:
            remaining[event.name, duration] -= 1
            continue
        launch = launches.get(event.id)
        scope = _scope(_ancestors(launch))
        if scope is not None:
            yield _kernel_occurrence(event.name, duration, scope, _call_index(launch, begins))


def _scope(ancestors: Iterable[Any]) -> str | None:
    """Return the path of the innermost module; None outside of our calls."""
    names = [event.name for event in ancestors if event.name.startswith(_MODULE)]
    if not names:
        return None
    block = next((name for name in names if not name.startswith(_WITHIN)), _MODULE)
    place = str(names[0].removeprefix(_MODULE))
    return place if block is names[0] else f"{block.removeprefix(_MODULE)}{place}"


def _device_kind(event: Any) -> str:
    return str(event.device_type).rpartition(".")[2]


def _ancestors(event: Any) -> Iterator[Any]:
    """Yield an event and its ancestors, the innermost first."""
    while event is not None:
        yield event
        event = event.cpu_parent


def _is_range(event: Any) -> bool:
    return bool(getattr(event, "is_user_annotation", False)) or event.name.startswith(_MODULE)


def _is_runtime(event: Any) -> bool:
    """Check whether it is a call of the device runtime, which is part of the operator that makes it."""
    kind = getattr(event, "activity_type", None)
    runtime = str(kind).endswith(("_runtime", "_driver")) or (
        kind is None and event.name.startswith(("cuda", "hip", "cuLaunch"))
    )
    return runtime and not _is_wait(event)


def _is_wait(event: Any) -> bool:
    return "Synchronize" in event.name and not event.name.startswith("aten::")


def _occurrence(event: Any, scope: str, kernels: Sequence[Any], parent: int | None) -> Occurrence:
    runtime_calls = [child for child in event.cpu_children if _is_runtime(child)]
    memory = [event, *(child for child in event.cpu_children if child.name in _ALLOCATING)]
    counts_memory = event.name not in _ALLOCATING or event.cpu_parent is None or _is_range(event.cpu_parent)
    named = _is_range(event) and not event.name.startswith(_COMPILED)
    kind = EventKind.RANGE if named else EventKind.OPERATOR
    recording = [
        child for call in (event, *runtime_calls) for child in call.cpu_children if _is_recording(child)
    ]
    all_kernels = (*kernels, *(kernel for child in (*runtime_calls, *recording) for kernel in child.kernels))
    return Occurrence(
        name=event.name,
        kind=EventKind.SYNCHRONISATION if _is_wait(event) else kind,
        scope=scope,
        shapes=format_shapes(event.input_shapes or ()),
        self_time=1e-6 * (event.self_cpu_time_total + sum(map(_time_without_recording, runtime_calls))),
        total_time=1e-6 * event.cpu_time_total,
        device_time=1e-6 * sum(kernel.duration for kernel in all_kernels),
        allocated=float(sum(map(_allocated_bytes, memory))) if counts_memory else 0.0,
        parent=parent,
    )


def _is_recording(event: Any) -> bool:
    return event.name in _RECORDING


def _time_without_recording(event: Any) -> float:
    return float(
        event.cpu_time_total
        - sum(child.cpu_time_total for child in event.cpu_children if _is_recording(child))
    )


def _allocated_bytes(event: Any) -> int:
    return int(event.self_cpu_memory_usage + event.self_device_memory_usage)


def _kernel_occurrence(name: str, duration: float, scope: str, call: int) -> Occurrence:
    kind = EventKind.TRANSFER if name.lower().startswith("memcpy") else EventKind.KERNEL
    return Occurrence(name=name, kind=kind, scope=scope, device_time=1e-6 * duration, call=call)


def format_shapes(input_shapes: Iterable[Any]) -> str:
    """Format the shapes of tensors, also in lists: ``8x128, 128x64``; skip what has no shape."""
    texts = []
    for shape in input_shapes:
        if shape and all(isinstance(n, int) for n in shape):
            texts.append("x".join(map(str, shape)))
        elif shape:
            texts.append(f"[{format_shapes(shape)}]")
    return ", ".join(texts)
