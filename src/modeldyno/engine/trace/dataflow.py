"""Data flow of one call: what each step reads, makes and writes, and which copies follow from it.

A framework's session records a Flow; this module is independent of any framework.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING

from modeldyno.base.result.trace_data import EventKind, ExecutedOp

if TYPE_CHECKING:
    from collections.abc import Iterator

HOST = "cpu"

Axes = tuple[tuple[int, int], ...]
"""Size and stride of each axis longer than one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorView:
    """A tensor as a step saw it: a memory location and a layout."""

    storage: int
    """Identifies the memory; not reused for other memory within the call."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In elements."""
    offset: int = 0
    capacity: int
    """Elements that its memory can hold."""
    dtype: str = "float32"
    bytes: int = 0
    device: str = HOST
    """Kind of the device: ``cpu``, ``cuda``."""

    @property
    def size(self) -> int:
        """Elements."""
        return prod(self.shape)

    @property
    def axes(self) -> Axes:
        """Its memory layout, without axes of one element."""
        return tuple((n, step) for n, step in zip(self.shape, self.strides, strict=True) if n != 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowStep:
    """One call of the framework by the model's code."""

    name: str
    """As written in the code: ``Tensor.contiguous``, ``torch.tensor``."""
    scope: str = ""
    """Path of the module whose code makes the call."""
    line: str = ""
    """Line of the user's code that makes it, such as ``mynet.py:19``; empty within a library."""
    inputs: tuple[TensorView, ...] = ()
    """The first is the tensor that the step works on."""
    outputs: tuple[TensorView, ...] = ()
    writes: frozenset[int] = frozenset()
    """Memory that it changes, without what it allocates."""
    awaited: tuple[TensorView, ...] = ()
    """Tensors whose values the host needs before it can continue."""
    place: str = ""
    """Kind of the device given as argument."""
    literal: bool = False
    """Whether that device is written in the code, not taken from another tensor."""
    time: float = 0.0
    """Seconds of its operators."""
    listed: int = 0
    """Numbers of the Python list that it makes a tensor of; 0 if it makes it of something else."""
    names_dtype: bool = False
    """Whether a data type is written in the call, also by its name, as in ``double``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedCall:
    """A call of a module, by no other module, whose result could have been differentiated."""

    module: str
    """The name of its class."""
    line: str
    """The line of the user's code that called it."""
    gradients: list[bool]
    """One for each gradient that has come back, also after the flow has ended."""

    @property
    def used(self) -> bool:
        """Whether a gradient has come back."""
        return bool(self.gradients)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFlow:
    """The data flow of one call."""

    steps: tuple[FlowStep, ...]
    device: str = HOST
    """Kind of device that the model runs on."""
    weights: frozenset[int] = frozenset()
    """Memory of parameters."""
    given: frozenset[int] = frozenset()
    """Other memory from before the call: inputs, buffers."""
    outputs: frozenset[int] = frozenset()
    """Memory of what the call returned."""
    kept: frozenset[int] = frozenset()
    """Memory allocated in the call that outlives it in another way, such as a cache."""
    tracked: tuple[TrackedCall, ...] = ()
    """Calls of modules under autograd, where they were watched."""

    def within(self, seconds: float) -> DataFlow:
        """Return the flow with its steps shortened in proportion, if they sum to more than `seconds`.

        Recording lengthens short steps several times, so that together they may exceed a whole plain call.
        """
        recorded = sum(step.time for step in self.steps)
        if recorded <= seconds:
            return self
        steps = tuple(replace(step, time=step.time * seconds / recorded) for step in self.steps)
        return replace(self, steps=steps)

    def quicker(self, other: DataFlow) -> DataFlow:
        """Return the flow with the shorter time of each step; unchanged if `other` has other steps."""
        if [step.name for step in self.steps] != [step.name for step in other.steps]:
            return self
        pairs = zip(self.steps, other.steps, strict=True)
        return replace(self, steps=tuple(replace(one, time=min(one.time, twin.time)) for one, twin in pairs))


def sum_lines(flow: DataFlow) -> tuple[ExecutedOp, ...]:
    """Sum the steps of each line of the user's code; the slowest first. Steps of no line are left out."""
    rows: dict[tuple[str, str], ExecutedOp] = {}
    stored: set[int] = set()
    for step in flow.steps:
        before = {value.storage for value in step.inputs} | stored
        made = {value.storage: value.bytes for value in step.outputs if value.storage not in before}
        stored |= made.keys()
        if not step.line:
            continue
        key = (step.scope, step.line)
        row = rows.get(key) or ExecutedOp(
            name=step.line, kind=EventKind.LINE, scope=step.scope, calls=0.0, self_time=0.0, total_time=0.0
        )
        rows[key] = replace(
            row,
            calls=row.calls + 1,
            self_time=row.self_time + step.time,
            total_time=row.total_time + step.time,
            allocated=row.allocated + sum(made.values()),
        )
    return tuple(sorted(rows.values(), key=lambda row: -row.total_time))


def sum_calls(flow: DataFlow) -> tuple[ExecutedOp, ...]:
    """Sum the steps of each call of the framework, by its name in the code; the slowest first."""
    rows: dict[tuple[str, str], ExecutedOp] = {}
    for step in flow.steps:
        key = (step.scope, step.name)
        row = rows.get(key) or ExecutedOp(
            name=step.name.removeprefix("torch.Tensor.")
            if step.name.startswith("torch.Tensor.")
            else step.name,
            scope=step.scope,
            calls=0.0,
            self_time=0.0,
            total_time=0.0,
        )
        rows[key] = replace(
            row,
            calls=row.calls + 1,
            self_time=row.self_time + step.time,
            total_time=row.total_time + step.time,
        )
    return tuple(sorted(rows.values(), key=lambda row: -row.total_time))


# --- names ---------------------------------------------------------------------------------------

COPYING = frozenset({
    "clone", "contiguous", "to", "type", "type_as", "float", "half", "double", "bfloat16", "int", "long",
    "short", "char", "byte", "bool", "reshape", "flatten", "ravel", "cpu", "cuda", "copy_", "__deepcopy__",
    "_to_copy",
})  # fmt: skip
"""Calls that copy, convert or move; each returns its input where nothing has to be done."""
_MAKERS = frozenset({
    "tensor", "as_tensor", "asarray", "from_numpy", "scalar_tensor", "arange", "range", "linspace",
    "logspace", "zeros", "ones", "full", "eye", "tril_indices", "triu_indices",
})  # fmt: skip
"""Calls that make a tensor from plain numbers."""
_EMPTY = frozenset({"empty", "empty_like", "new_empty", "empty_strided", "zeros", "zeros_like", "new_zeros"})
_READS_SHAPE_ONLY = frozenset({
    "empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "new_empty",
    "new_zeros", "new_ones", "new_full", "new_tensor",
})  # fmt: skip
"""Calls that read the shape of their input, but not its values."""


def unqualified_name(name: str) -> str:
    """Return a call's name without its owner: ``contiguous`` for ``Tensor.contiguous``."""
    return name.replace("::", ".").rpartition(".")[2]


# --- memory --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyStep:
    """A step that copied `source` into new memory."""

    index: int
    source: TensorView
    result: TensorView


@dataclass(frozen=True, slots=True, kw_only=True)
class DataLocation:
    """A location of the same data, found by following copies back."""

    storage: int
    offset: int
    capacity: int
    axes: Axes
    since: int
    """The step that read the data there."""


@dataclass(frozen=True)
class MemoryHistory:
    """What a Flow did to each piece of memory; computed on first use."""

    flow: DataFlow

    @property
    def steps(self) -> tuple[FlowStep, ...]:
        """The steps of the flow."""
        return self.flow.steps

    @cached_property
    def made(self) -> dict[int, int]:
        """Memory to the step that made it."""
        makers: dict[int, int] = {}
        before = set(self.flow.given | self.flow.weights)
        for index, step in enumerate(self.steps):
            before |= {value.storage for value in step.inputs} - makers.keys()
            for value in step.outputs:
                if value.storage not in before:
                    makers.setdefault(value.storage, index)
        return makers

    @cached_property
    def written(self) -> dict[int, list[int]]:
        """Memory to the steps that changed it after it was made."""
        writers: defaultdict[int, list[int]] = defaultdict(list)
        for index, step in enumerate(self.steps):
            for storage in step.writes:
                writers[storage].append(index)
        return writers

    @cached_property
    def read(self) -> dict[int, list[int]]:
        """Memory to the steps that used its values; a step that only makes a view of it does not."""
        readers: defaultdict[int, list[int]] = defaultdict(list)
        for index, step in enumerate(self.steps):
            made = {value.storage for value in step.outputs}
            is_view = made and not step.writes and made <= {value.storage for value in step.inputs}
            for storage in {value.storage for value in step.inputs} if not is_view else ():
                readers[storage].append(index)
        return readers

    @cached_property
    def dependent(self) -> set[int]:
        """Memory whose values depend on inputs or weights."""
        storages = set(self.flow.given | self.flow.weights)
        for step in self.steps:
            if unqualified_name(step.name) not in _READS_SHAPE_ONLY and any(
                value.storage in storages for value in step.inputs
            ):
                storages |= step.writes | {value.storage for value in step.outputs}
        return storages

    @cached_property
    def constant(self) -> set[int]:
        """Memory of constants that the call makes on the host, and of what is computed from them alone."""
        storages: set[int] = set()
        for step in self.steps:
            fresh = not step.inputs and unqualified_name(step.name) in _MAKERS and not step.place
            if fresh or (step.inputs and all(value.storage in storages for value in step.inputs)):
                storages |= {value.storage for value in step.outputs if value.device == HOST}
        return storages

    @cached_property
    def copies(self) -> dict[int, CopyStep]:
        """Step index to the copy that the model's code asks for there."""
        result: dict[int, CopyStep] = {}
        for index, step in enumerate(self.steps):
            if unqualified_name(step.name) in COPYING and step.inputs and len(step.outputs) == 1:
                copy = self._find_copy(index, step)
                if copy is not None:
                    result[index] = copy
        return result

    def _find_copy(self, index: int, step: FlowStep) -> CopyStep | None:
        (result,) = step.outputs
        if unqualified_name(step.name) == "copy_":
            if len(step.inputs) != 2 or not self._fills_fresh(index, result):
                return None
            source = step.inputs[1]
        else:
            source = step.inputs[0]
            if self.made.get(result.storage) != index:
                return None  # nothing was copied: the input already was as requested
        if source.size != result.size or source.storage == result.storage:
            return None
        return CopyStep(index=index, source=source, result=result)

    def _fills_fresh(self, index: int, result: TensorView) -> bool:
        """Whether a step fills fresh memory completely, and nothing else writes it."""
        maker = self.made.get(result.storage)
        return (
            maker is not None
            and unqualified_name(self.steps[maker].name) in _EMPTY
            and self.written.get(result.storage) == [index]
            and self.read.get(result.storage, [index])[0] >= index
            and result.size == result.capacity
        )

    @cached_property
    def copied(self) -> dict[int, CopyStep]:
        """Memory to the copy that filled it."""
        return {copy.result.storage: copy for copy in self.copies.values()}

    def changes(self, storage: int, begin: int, end: int | None = None) -> bool:
        """Whether memory changes after the step `begin`, and before `end` where given."""
        return any(begin < at and (end is None or at < end) for at in self.written.get(storage, ()))

    def lives_on(self, storage: int) -> bool:
        """Whether memory allocated in the call outlives it."""
        return storage in self.flow.outputs or storage in self.flow.kept

    def replaceable(self, copy: CopyStep, earlier: DataLocation) -> bool:
        """Whether all users of a copy could use the earlier location of the data."""
        if self.changes(copy.result.storage, copy.index) or self.changes(earlier.storage, earlier.since):
            return False
        if not self.lives_on(copy.result.storage):
            return True
        own = earlier.storage in self.made and not self.lives_on(earlier.storage)
        all_of_it = (
            earlier.capacity == copy.result.capacity
        )  # part of a large tensor is copied to free the rest
        return own and all_of_it and copy.result.storage not in self.flow.kept

    def earlier_locations(self, copy: CopyStep) -> Iterator[DataLocation]:
        """Yield earlier locations of a copy's data, as long as it is certainly the same data."""
        value, since = copy.source, copy.index
        axes = value.axes
        storage, offset, capacity, dtype = value.storage, value.offset, value.capacity, value.dtype
        while True:
            yield DataLocation(storage=storage, offset=offset, capacity=capacity, axes=axes, since=since)
            before = self.copied.get(storage)
            if before is None or before.source.dtype != dtype or before.source.device != value.device:
                return
            through = _axes_of_source(axes, offset, before)
            if through is None or self.changes(storage, before.index, since):
                return
            axes, since, source = through, before.index, before.source
            storage, offset, capacity = source.storage, source.offset, source.capacity

    @cached_property
    def known(self) -> set[int]:
        """Memory that appears as input or output of a step."""
        return {value.storage for step in self.steps for value in (*step.inputs, *step.outputs)}

    @cached_property
    def orders(self) -> dict[int, int]:
        """Copies to earlier copies that made the same data in the same layout."""
        first: dict[object, int] = {}
        repeated: dict[int, int] = {}
        for index, copy in self.copies.items():
            source, result = copy.source, copy.result
            same = source.dtype == result.dtype and source.device == result.device
            if not same or source.axes == result.axes or self.changes(result.storage, index):
                continue
            *_, origin = self.earlier_locations(copy)
            version = sum(at < origin.since for at in self.written.get(origin.storage, ()))
            key = (origin.storage, version, origin.offset, origin.axes, result.axes, result.dtype)
            earlier = first.setdefault(key, index)
            if earlier != index and not self.lives_on(result.storage):
                repeated[index] = earlier
        return repeated


def _axes_of_source(axes: Axes, offset: int, copy: CopyStep) -> Axes | None:
    """Return the axes by which a view of a copy is read from its source; None if unknown.

    A copy is dense, so that its axes can be distinguished by size and stride.
    """
    source, result = copy.source.axes, copy.result.axes
    if [n for n, _ in source] != [n for n, _ in result] or offset != copy.result.offset:
        return None
    if sorted(axes) != sorted(result) or len(set(result)) != len(result):
        return None
    return tuple(source[result.index(axis)] for axis in axes)
