"""Which data went where in one call, and what that says of each piece of memory.

A framework's session takes a Flow down; nothing here knows a framework.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

HOST = "cpu"

Axes = tuple[tuple[int, int], ...]
"""Size and stride of each axis longer than one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A tensor as a step saw it: a place in memory, and how to read it."""

    storage: int
    """Names the memory; never used again for other memory within the call."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In elements."""
    offset: int = 0
    capacity: int
    """Elements that its memory has room for."""
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
        """How it lies in memory; axes of one element mean nothing."""
        return tuple((n, step) for n, step in zip(self.shape, self.strides, strict=True) if n != 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One call of the framework by the model's code."""

    name: str
    """As it is written there: ``Tensor.contiguous``, ``torch.tensor``."""
    scope: str = ""
    """Path of the module whose code makes it."""
    line: str = ""
    """Of the user's code that makes it, such as ``mynet.py:19``; empty where a library does all by itself."""
    inputs: tuple[Value, ...] = ()
    """The first is what the step is about."""
    outputs: tuple[Value, ...] = ()
    writes: frozenset[int] = frozenset()
    """Memory that it changes, what it makes anew left out."""
    awaited: tuple[Value, ...] = ()
    """Tensors whose numbers the host must know before it can go on."""
    place: str = ""
    """Kind of the device that it names."""
    literal: bool = False
    """Whether that name is written in the code, not taken from another tensor."""
    time: float = 0.0
    """Seconds of the operators within."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """Which data went where in one call."""

    steps: tuple[Step, ...]
    device: str = HOST
    """Kind of the device that the model runs on."""
    weights: frozenset[int] = frozenset()
    """Memory of parameters."""
    given: frozenset[int] = frozenset()
    """Other memory from before the call: inputs, buffers."""
    outputs: frozenset[int] = frozenset()
    """Memory of what the call returned."""
    kept: frozenset[int] = frozenset()
    """Memory made in the call that lives on otherwise, such as a cache."""


# --- names ---------------------------------------------------------------------------------------

COPYING = frozenset({
    "clone", "contiguous", "to", "type", "type_as", "float", "half", "double", "bfloat16", "int", "long",
    "short", "char", "byte", "bool", "reshape", "flatten", "ravel", "cpu", "cuda", "copy_", "__deepcopy__",
    "_to_copy",
})  # fmt: skip
"""What code writes in order to copy, convert or move; each gives its own input where it need not."""
_MAKING = frozenset({
    "tensor", "as_tensor", "asarray", "from_numpy", "scalar_tensor", "arange", "range", "linspace",
    "logspace", "zeros", "ones", "full", "eye", "tril_indices", "triu_indices",
})  # fmt: skip
"""What makes a tensor out of nothing but numbers."""
_EMPTY = frozenset({"empty", "empty_like", "new_empty", "empty_strided", "zeros", "zeros_like", "new_zeros"})
_SHAPED = frozenset({
    "empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "new_empty",
    "new_zeros", "new_ones", "new_full", "new_tensor",
})  # fmt: skip
"""What reads the shape of its input, and none of its numbers."""


def bare(name: str) -> str:
    """Give what is called, without what it is called on: ``contiguous`` of ``Tensor.contiguous``."""
    return name.replace("::", ".").rpartition(".")[2]


# --- memory --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A step that put what `source` shows into memory of its own."""

    index: int
    source: Value
    result: Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Where the same data lies, found by going back through copies."""

    storage: int
    offset: int
    capacity: int
    axes: Axes
    since: int
    """The step that read it there."""


@dataclass(frozen=True)
class Memory:
    """What a Flow did to each piece of memory; worked out when it is asked for."""

    flow: Flow

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps of the flow."""
        return self.flow.steps

    @cached_property
    def made(self) -> dict[int, int]:
        """Memory to the step that made it."""
        found: dict[int, int] = {}
        before = set(self.flow.given | self.flow.weights)
        for index, step in enumerate(self.steps):
            before |= {value.storage for value in step.inputs} - found.keys()
            for value in step.outputs:
                if value.storage not in before:
                    found.setdefault(value.storage, index)
        return found

    @cached_property
    def written(self) -> dict[int, list[int]]:
        """Memory to the steps that changed it after it was made."""
        found: defaultdict[int, list[int]] = defaultdict(list)
        for index, step in enumerate(self.steps):
            for storage in step.writes:
                found[storage].append(index)
        return found

    @cached_property
    def read(self) -> dict[int, list[int]]:
        """Memory to the steps that used its numbers; one that only looks at it in another way does not."""
        found: defaultdict[int, list[int]] = defaultdict(list)
        for index, step in enumerate(self.steps):
            made = {value.storage for value in step.outputs}
            looks = made and not step.writes and made <= {value.storage for value in step.inputs}
            for storage in {value.storage for value in step.inputs} if not looks else ():
                found[storage].append(index)
        return found

    @cached_property
    def dependent(self) -> set[int]:
        """Memory whose numbers depend on inputs or weights."""
        found = set(self.flow.given | self.flow.weights)
        for step in self.steps:
            if bare(step.name) not in _SHAPED and any(value.storage in found for value in step.inputs):
                found |= step.writes | {value.storage for value in step.outputs}
        return found

    @cached_property
    def constant(self) -> set[int]:
        """Memory of constants that the call makes with the host, and of what is made of them alone."""
        found: set[int] = set()
        for step in self.steps:
            fresh = not step.inputs and bare(step.name) in _MAKING and not step.place
            if fresh or (step.inputs and all(value.storage in found for value in step.inputs)):
                found |= {value.storage for value in step.outputs if value.device == HOST}
        return found

    @cached_property
    def copies(self) -> dict[int, Copy]:
        """The copies that the model's code asks for, by their steps."""
        found: dict[int, Copy] = {}
        for index, step in enumerate(self.steps):
            if bare(step.name) in COPYING and step.inputs and len(step.outputs) == 1:
                copy = self._copied(index, step)
                if copy is not None:
                    found[index] = copy
        return found

    def _copied(self, index: int, step: Step) -> Copy | None:
        (result,) = step.outputs
        if bare(step.name) == "copy_":
            if len(step.inputs) != 2 or not self._fills(index, result):  # noqa: PLR2004 - to and from
                return None
            source = step.inputs[1]
        else:
            source = step.inputs[0]
            if self.made.get(result.storage) != index:
                return None  # nothing was copied: what was asked for held already
        if source.size != result.size or source.storage == result.storage:
            return None
        return Copy(index=index, source=source, result=result)

    def _fills(self, index: int, result: Value) -> bool:
        """Whether a step gives fresh memory its first and only contents."""
        maker = self.made.get(result.storage)
        return (
            maker is not None
            and bare(self.steps[maker].name) in _EMPTY
            and self.written.get(result.storage) == [index]
            and self.read.get(result.storage, [index])[0] >= index
            and result.size == result.capacity
        )

    @cached_property
    def copied(self) -> dict[int, Copy]:
        """Memory to the copy that filled it."""
        return {copy.result.storage: copy for copy in self.copies.values()}

    def changes(self, storage: int, begin: int, end: int | None = None) -> bool:
        """Whether memory changes behind the step `begin`, and before `end` where one is given."""
        return any(begin < at and (end is None or at < end) for at in self.written.get(storage, ()))

    def lives_on(self, storage: int) -> bool:
        """Whether memory is there after the call, though it was not before."""
        return storage in self.flow.outputs or storage in self.flow.kept

    def replaceable(self, copy: Copy, seen: Seen) -> bool:
        """Whether all that use a copy could use where the data was before."""
        if self.changes(copy.result.storage, copy.index) or self.changes(seen.storage, seen.since):
            return False
        if not self.lives_on(copy.result.storage):
            return True
        own = seen.storage in self.made and not self.lives_on(seen.storage)
        whole = seen.capacity == copy.result.capacity  # a part of something large is copied to free the rest
        return own and whole and copy.result.storage not in self.flow.kept

    def ancestry(self, copy: Copy) -> Iterator[Seen]:
        """Go back through the copies that the data came by, as far as it is surely the same data."""
        value, since = copy.source, copy.index
        axes = value.axes
        storage, offset, capacity, dtype = value.storage, value.offset, value.capacity, value.dtype
        while True:
            yield Seen(storage=storage, offset=offset, capacity=capacity, axes=axes, since=since)
            before = self.copied.get(storage)
            if before is None or before.source.dtype != dtype or before.source.device != value.device:
                return
            through = _through(axes, offset, before)
            if through is None or self.changes(storage, before.index, since):
                return
            axes, since, source = through, before.index, before.source
            storage, offset, capacity = source.storage, source.offset, source.capacity

    @cached_property
    def known(self) -> set[int]:
        """Memory that the model's code has a hold of."""
        return {value.storage for step in self.steps for value in (*step.inputs, *step.outputs)}

    @cached_property
    def orders(self) -> dict[int, int]:
        """Copies to the earlier ones that gave the same data in the same order."""
        first: dict[object, int] = {}
        found: dict[int, int] = {}
        for index, copy in self.copies.items():
            source, result = copy.source, copy.result
            same = source.dtype == result.dtype and source.device == result.device
            if not same or source.axes == result.axes or self.changes(result.storage, index):
                continue
            *_, origin = self.ancestry(copy)
            version = sum(at < origin.since for at in self.written.get(origin.storage, ()))
            key = (origin.storage, version, origin.offset, origin.axes, result.axes, result.dtype)
            earlier = first.setdefault(key, index)
            if earlier != index and not self.lives_on(result.storage):
                found[index] = earlier
        return found


def _through(axes: Axes, offset: int, copy: Copy) -> Axes | None:
    """Say how data that is read so from a copy would be read from what was copied; None if unknown.

    A copy is dense, so that its axes can be told apart by size and stride.
    """
    source, result = copy.source.axes, copy.result.axes
    if [n for n, _ in source] != [n for n, _ in result] or offset != copy.result.offset:
        return None
    if sorted(axes) != sorted(result) or len(set(result)) != len(result):
        return None
    return tuple(source[result.index(axis)] for axis in axes)
