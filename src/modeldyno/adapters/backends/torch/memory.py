"""What torch's allocators do during a call, from the memory events of torch.profiler.

The allocators of the CPU, of CUDA and of XPU all report to the profiler each piece that they give out and
take back, so one way serves them all. The profiler's tree has each of these events below the operator
that caused it; ranges that hooks open and close add the modules. In the backward course the number of a
node of autograd leads back to the module that made it. What libraries take from the system by themselves,
such as scratch inside of oneDNN or MKL, passes no allocator of torch and is not seen.
"""

from __future__ import annotations

import gc
import os
import warnings
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from modeldyno.adapters.backends.torch.module_ranges import as_ranges
from modeldyno.core.result.static_data import Held
from modeldyno.core.trace.allocations import Category, Event, Named, Recorded
from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from torch import Tensor
    from torch.nn import Module

    from modeldyno.adapters.backends.torch.inputs import Placement
    from modeldyno.interfaces import Feed

TELLING = frozenset({"cpu", "cuda", "xpu"})
"""Devices whose allocator reports to the profiler."""
_CALL, _STAGE, _MODULE = "modeldyno call", "modeldyno stage:", "modeldyno module:"
"""Names of ranges."""
_NODE = "autograd::engine::evaluate_function"
"""How the name of an event begins that is one node of the backward course."""


def check(device: str) -> None:
    """Refuse a device whose allocator tells nothing.

    Raises:
        RequestError: it is such a device.
    """
    kind = device.partition(":")[0]
    if kind not in TELLING:
        raise RequestError(f"torch's allocator on {kind} tells nothing of what it does; use cpu or cuda.")


@contextmanager
def watching(
    call: Callable[[], object], callee: Any, placement: Placement, feed: Feed
) -> Iterator[Callable[[], Recorded]]:
    """Have the calls of a session watched.

    Raises:
        RequestError: the allocator of its device tells nothing.
    """
    device = str(placement.place)
    check(device)
    compiled = getattr(callee, "_orig_mod", None)
    before = (*weights(callee if compiled is None else compiled), *_given(placement, feed))
    module = callee if compiled is None else None  # hooks would have it compiled once more

    yield lambda: record(lambda _notes: call(), module, device=device, before=lambda: before)


def _given(placement: Placement, feed: Feed) -> Iterator[Held]:
    """Give the bytes that a payload takes on the device."""
    for name, array in feed.items():
        kind = placement.kind if array.dtype.kind == "f" else None
        each = array.dtype.itemsize if kind is None else kind.itemsize
        yield Held(scope=name, role=Category.INPUTS, bytes=array.size * each)


def weights(module: Module) -> tuple[Held, ...]:
    """Give the bytes of parameters and buffers, each storage once, by the module that has them."""
    named = (*module.named_parameters(), *module.named_buffers())
    return held(Category.WEIGHTS, ((name.rpartition(".")[0], tensor) for name, tensor in named))


def held(category: Category, tensors: Iterable[tuple[str, Tensor]]) -> tuple[Held, ...]:
    """Give the bytes of tensors by name, each storage once."""
    seen: set[int] = set()
    found: list[Held] = []
    for name, tensor in tensors:
        if (place := address(tensor)) not in seen:
            seen.add(place)
            found.append(Held(scope=name, role=category, bytes=storage_bytes(tensor)))
    return tuple(found)


def address(tensor: Tensor) -> int:
    """Give the address of the storage of a tensor; its own identity where it has none."""
    try:
        return tensor.untyped_storage().data_ptr() or id(tensor)
    except (NotImplementedError, RuntimeError):  # sparse and wrapped tensors have no storage of their own
        return id(tensor)


def storage_bytes(tensor: Tensor) -> int:
    """Give the bytes of the storage of a tensor, or of its elements where it has none."""
    try:
        return int(tensor.untyped_storage().nbytes())
    except (NotImplementedError, RuntimeError):
        return int(tensor.numel() * tensor.element_size())


@dataclass(slots=True)
class Notes:
    """What a watched call says of itself."""

    stage: Any = None
    """The range that is open."""
    addresses: dict[str, tuple[Category, frozenset[int]]] = field(default_factory=dict)
    """Stage to what lay where as it began."""

    def begin(self, stage: str, category: Category | None = None, tensors: Iterable[Tensor] = ()) -> None:
        """Begin a stage, and end the one before; say what some memory has turned out to be."""
        from torch.autograd.profiler import record_function  # noqa: PLC0415 - heavy

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


def record(
    call: Callable[[Notes], object],
    module: Module | None,
    *,
    device: str,
    before: Callable[[], tuple[Held, ...]],
) -> Recorded:
    """Make a call and tell what the allocator of a device did.

    Args:
        call: notes its stages, if it has any.
        module: whose parts are told apart; None tells none apart.
        device: such as ``cuda:0``; what happens on others is left out.
        before: gives what was there before, once the call is over.
    """
    import torch  # noqa: PLC0415 - heavy
    from torch.autograd.profiler import record_function  # noqa: PLC0415 - heavy

    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler says when it starts
    notes = Notes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with (
            as_ranges(module, _MODULE),
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
            gc.collect()  # what hangs in circles of references is no leak
    results: Any = profile.profiler and profile.profiler.kineto_results
    return told(results.experimental_event_tree(), notes, torch.device(device), before())


# --- reading the profiler's tree -----------------------------------------------------------------


class _Where(NamedTuple):
    """What an event of the tree lies in."""

    scope: str = ""
    node: int | None = None
    """Number of the node of autograd that is evaluated; None where none is."""
    operator: int = 0
    category: Category | None = None


@dataclass(slots=True)
class _Reading:
    """What was read of the tree so far."""

    memory: list[tuple[int, Any, _Where]] = field(default_factory=list)
    """Time in nanoseconds, the event's own fields, and where."""
    made: list[tuple[int, int, str]] = field(default_factory=list)
    """Time of an operator, the number of the node of autograd that it may make, its module."""
    stages: dict[str, tuple[int, int]] = field(default_factory=dict)
    call: tuple[int, int] = (0, 0)
    operators: int = 0

    def read(self, roots: Iterable[Any]) -> None:
        """Go through the whole tree."""
        waiting = [(root, _Where()) for root in roots]
        while waiting:
            event, where = waiting.pop()
            if event.name == "[memory]":
                self.memory.append((event.start_time_ns, event.extra_fields, where))
                continue
            within = self._within(event, where)
            waiting.extend((child, within) for child in event.children)

    def _within(self, event: Any, where: _Where) -> _Where:
        """Say where the children of an event are."""
        name: str = event.name
        if name.startswith("modeldyno "):
            return self._range(event, where)
        number = getattr(event.extra_fields, "sequence_number", None)
        if number is None or event.extra_fields.scope.name != "FUNCTION":
            return where  # a range of the user's own, the inside of a node, or no operator at all
        if name.startswith(_NODE):  # made of operators, and none itself
            return where._replace(scope="", node=number, operator=0)
        if where.node is None and number >= 0:
            self.made.append((event.start_time_ns, number, where.scope))
        if not where.operator:
            self.operators += 1
            where = where._replace(operator=self.operators)
        return where

    def _range(self, event: Any, where: _Where) -> _Where:
        name, span = event.name, (event.start_time_ns, event.end_time_ns)
        if name.startswith(_MODULE):  # perhaps called anew in the backward course
            return where._replace(scope=name.removeprefix(_MODULE), node=None, operator=0)
        if name.startswith(_STAGE):
            stage = name.removeprefix(_STAGE)
            self.stages[stage] = span
            return where._replace(category=_CATEGORIES.get(stage))
        self.call = span
        return where


_CATEGORIES = {"copy": Category.INPUTS, "optimizer": Category.WORKSPACE}
"""Stage of a training step to what is taken in it."""


def told(roots: Iterable[Any], notes: Notes, device: Any, before: tuple[Held, ...]) -> Recorded:
    """Read the profiler's tree of events."""
    reading = _Reading()
    reading.read(roots)
    makers = {number: scope for _, number, scope in sorted(reading.made)}  # the last with a number makes it
    start, end = reading.call

    def seconds(time: int) -> float:
        return max(0.0, (time - start) * 1e-9)

    return Recorded(
        events=tuple(
            Event(
                seconds(time),
                fields.ptr,
                fields.alloc_size,
                where.scope if where.node is None else makers.get(where.node, ""),
                where.operator,
                where.category,
                fields.total_reserved,
                fields.total_allocated,
            )
            for time, fields, where in sorted(reading.memory, key=lambda found: found[0])
            if _is_on(fields.device, device)
        ),
        seconds=seconds(end),
        before=before,
        stages={
            name: (seconds(begin), seconds(over))
            for name, (begin, over) in sorted(reading.stages.items(), key=lambda stage: stage[1])
        },
        named=tuple(
            Named(time=seconds(reading.stages[stage][0]), category=category, addresses=addresses)
            for stage, (category, addresses) in notes.addresses.items()
            if stage in reading.stages
        ),
    )


def _is_on(there: Any, device: Any) -> bool:
    """Say whether an event is of a device; one without a number is the only one of its kind."""
    return there.type == device.type and (device.index is None or there.index in {None, device.index})
