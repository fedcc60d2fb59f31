"""Records what torch's allocators do during a call, from the memory events of torch.profiler.

The allocators of the CPU, CUDA and XPU all report each allocation and release to the profiler. The profiler's
event tree has these events below the operator that caused them; ranges opened by hooks add the modules. In
the backward pass the sequence number of an autograd node leads back to the module that created it. Memory
that libraries take from the system directly, such as scratch space of oneDNN or MKL, is not seen.
"""

from __future__ import annotations

import gc
import os
import warnings
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from modeldyno.base.errors import RequestError
from modeldyno.base.result.static_data import MemoryItem
from modeldyno.engine.backends.torch.module_ranges import annotate_modules
from modeldyno.engine.trace.allocations import AllocationEvent, AllocationRecord, CategorizedMemory
from modeldyno.engine.trace.memory_category import Category

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from torch import Tensor
    from torch.nn import Module

    from modeldyno.engine.backends.torch.inputs import Placement
    from modeldyno.models.interface import Feed

_REPORTING = frozenset({"cpu", "cuda", "xpu"})
"""Devices whose allocator reports to the profiler."""
_CALL, _STAGE, _MODULE = "modeldyno call", "modeldyno stage:", "modeldyno module:"
"""Names, or prefixes of names, of profiler ranges."""
_AUTOGRAD_NODE = "autograd::engine::evaluate_function"
"""Prefix of the name of an event that evaluates one autograd node of the backward pass."""


def check_reporting_device(device: str) -> None:
    """Refuse a device whose allocator does not report to the profiler.

    Raises:
        RequestError: the allocator of the device does not report.
    """
    kind = device.partition(":")[0]
    if kind not in _REPORTING:
        raise RequestError(f"torch's allocator on {kind} does not report to the profiler; use cpu or cuda.")


@contextmanager
def watch_allocations(
    call: Callable[[], object], callee: Any, placement: Placement, feed: Feed
) -> Iterator[Callable[[], AllocationRecord]]:
    """Return a function that makes a call and records its allocations.

    Raises:
        RequestError: the allocator of the device does not report.
    """
    device = str(placement.place)
    check_reporting_device(device)
    compiled = getattr(callee, "_orig_mod", None)
    before = (*weight_holdings(callee if compiled is None else compiled), *_input_bytes(placement, feed))
    module = callee if compiled is None else None  # hooks would trigger another compilation

    yield lambda: record_allocations(lambda _notes: call(), module, device=device, before=lambda: before)


def _input_bytes(placement: Placement, feed: Feed) -> Iterator[MemoryItem]:
    """Yield the bytes that each input takes on the device."""
    for name, array in feed.items():
        dtype = placement.kind if array.dtype.kind == "f" else None
        itemsize = array.dtype.itemsize if dtype is None else dtype.itemsize
        yield MemoryItem(scope=name, role=Category.INPUTS, bytes=array.size * itemsize)


def weight_holdings(module: Module) -> tuple[MemoryItem, ...]:
    """Return the bytes of parameters and buffers by module, each storage once."""
    named = (*module.named_parameters(), *module.named_buffers())
    return tensor_holdings(Category.WEIGHTS, ((name.rpartition(".")[0], tensor) for name, tensor in named))


def tensor_holdings(category: Category, tensors: Iterable[tuple[str, Tensor]]) -> tuple[MemoryItem, ...]:
    """Return the bytes of tensors by name, each storage once."""
    addresses: set[int] = set()
    holdings: list[MemoryItem] = []
    for name, tensor in tensors:
        if (storage := address(tensor)) not in addresses:
            addresses.add(storage)
            holdings.append(MemoryItem(scope=name, role=category, bytes=storage_bytes(tensor)))
    return tuple(holdings)


def address(tensor: Tensor) -> int:
    """Return the address of a tensor's storage; the id of the tensor if it has no storage."""
    try:
        return tensor.untyped_storage().data_ptr() or id(tensor)
    except (NotImplementedError, RuntimeError):  # sparse and wrapped tensors have no storage of their own
        return id(tensor)


def storage_bytes(tensor: Tensor) -> int:
    """Return the bytes of a tensor's storage, or of its elements if it has no storage."""
    try:
        return int(tensor.untyped_storage().nbytes())
    except (NotImplementedError, RuntimeError):
        return int(tensor.numel() * tensor.element_size())


@dataclass(slots=True)
class CallStages:
    """Stages that a watched call reports, as profiler ranges."""

    stage: Any = None
    """The open range."""
    addresses: dict[str, tuple[Category, frozenset[int]]] = field(default_factory=dict)
    """Stage to the category and addresses of memory reported at its begin."""

    def begin(self, stage: str, category: Category | None = None, tensors: Iterable[Tensor] = ()) -> None:
        """Begin a stage and end the previous one; report the category of existing tensors."""
        from torch.autograd.profiler import record_function  # heavy

        self.end()
        if category is not None:
            self.addresses[stage] = category, frozenset(map(address, tensors))
        self.stage = record_function(f"{_STAGE}{stage}")
        self.stage.__enter__()

    def end(self) -> None:
        """End the stage."""
        if self.stage is not None:
            self.stage.__exit__(None, None, None)
            self.stage = None


def record_allocations(
    call: Callable[[CallStages], object],
    module: Module | None,
    *,
    device: str,
    before: Callable[[], tuple[MemoryItem, ...]],
) -> AllocationRecord:
    """Make a call and record what the allocator of a device did.

    Args:
        call: reports its stages, if it has any.
        module: whose submodules get ranges; None for no breakdown.
        device: such as ``cuda:0``; events of other devices are left out.
        before: returns what was allocated before; called after the call.
    """
    import torch  # heavy
    from torch.autograd.profiler import record_function  # heavy

    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # keeps the profiler from logging its start
    notes = CallStages()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with (
            annotate_modules(module, _MODULE),
            torch.profiler.profile(
                activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True, acc_events=True
            ) as profile,
        ):
            with record_function(_CALL):
                try:
                    result = call(notes)
                finally:
                    notes.end()
            del result
            gc.collect()  # reference cycles are not leaks
    results: Any = profile.profiler and profile.profiler.kineto_results
    return read_allocations(results.experimental_event_tree(), notes, torch.device(device), before())


# --- reading the profiler's tree -----------------------------------------------------------------


class _Location(NamedTuple):
    """Where an event lies in the tree."""

    scope: str = ""
    node: int | None = None
    """Sequence number of the autograd node being evaluated; None outside of the backward pass."""
    operator: int = 0
    category: Category | None = None
    kind: str = ""
    """Name of the operator."""


@dataclass(slots=True)
class _TreeReader:
    """Collects memory events, operators and stages from the profiler's tree."""

    memory: list[tuple[int, Any, _Location]] = field(default_factory=list)
    """Time in nanoseconds, the event's own fields, and its location."""
    made: list[tuple[int, int, str]] = field(default_factory=list)
    """Time of an operator, the sequence number of the autograd node that it may create, its module."""
    stages: dict[str, tuple[int, int]] = field(default_factory=dict)
    call: tuple[int, int] = (0, 0)
    operators: int = 0

    def read(self, roots: Iterable[Any]) -> None:
        """Walk the whole tree."""
        waiting = [(root, _Location()) for root in roots]
        while waiting:
            event, location = waiting.pop()
            if event.name == "[memory]":
                self.memory.append((event.start_time_ns, event.extra_fields, location))
                continue
            inner = self._within(event, location)
            waiting.extend((child, inner) for child in event.children)

    def _within(self, event: Any, location: _Location) -> _Location:
        """Return the location of the children of an event."""
        name: str = event.name
        if name.startswith("modeldyno "):
            return self._range(event, location)
        number = getattr(event.extra_fields, "sequence_number", None)
        if number is None or event.extra_fields.scope.name != "FUNCTION":
            return location  # a user's range, the inside of an autograd node, or not an operator
        if name.startswith(_AUTOGRAD_NODE):  # consists of operators, and is not one itself
            return location._replace(scope="", node=number, operator=0, kind="")
        if location.node is None and number >= 0:
            self.made.append((event.start_time_ns, number, location.scope))
        if not location.operator:
            self.operators += 1
            location = location._replace(operator=self.operators, kind=name.replace("::", "."))
        return location

    def _range(self, event: Any, location: _Location) -> _Location:
        name, span = event.name, (event.start_time_ns, event.end_time_ns)
        if name.startswith(_MODULE):  # perhaps recomputed in the backward pass
            return location._replace(scope=name.removeprefix(_MODULE), node=None, operator=0, kind="")
        if name.startswith(_STAGE):
            stage = name.removeprefix(_STAGE)
            self.stages[stage] = span
            return location._replace(category=_CATEGORIES.get(stage))
        self.call = span
        return location


_CATEGORIES = {"copy": Category.INPUTS, "optimizer": Category.WORKSPACE}
"""Stage of a training step to the category of memory allocated in it."""


def read_allocations(
    roots: Iterable[Any], notes: CallStages, device: Any, before: tuple[MemoryItem, ...]
) -> AllocationRecord:
    """Build the recording from the profiler's event tree."""
    reading = _TreeReader()
    reading.read(roots)
    makers = {
        number: scope for _, number, scope in sorted(reading.made)
    }  # the last operator with a number creates the node
    start, end = reading.call

    def seconds(time: int) -> float:
        return max(0.0, (time - start) * 1e-9)

    return AllocationRecord(
        events=tuple(
            AllocationEvent(
                seconds(time),
                fields.ptr,
                fields.alloc_size,
                location.scope if location.node is None else makers.get(location.node, ""),
                location.operator,
                location.category,
                fields.total_reserved,
                fields.total_allocated,
                location.kind,
            )
            for time, fields, location in sorted(reading.memory, key=lambda entry: entry[0])
            if _is_on_device(fields.device, device)
        ),
        seconds=seconds(end),
        before=before,
        stages={
            name: (seconds(begin), seconds(over))
            for name, (begin, over) in sorted(reading.stages.items(), key=lambda stage: stage[1])
        },
        named=tuple(
            CategorizedMemory(time=seconds(reading.stages[stage][0]), category=category, addresses=addresses)
            for stage, (category, addresses) in notes.addresses.items()
            if stage in reading.stages
        ),
    )


def _is_on_device(event_device: Any, device: Any) -> bool:
    """Check whether an event is of a device; a device without an index is the only one of its kind."""
    return event_device.type == device.type and (
        device.index is None or event_device.index in {None, device.index}
    )
