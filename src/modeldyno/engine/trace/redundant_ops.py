"""Find redundant steps of a call: copies, casts, transfers and waits that the result does not need.

The rules are conservative: a step is redundant only if everything that could need it was seen not to. Only
copies that the model's own code asks for are judged, not what a library does inside one of its calls.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.base.result.trace_data import RedundancyKind, RedundantOp
from modeldyno.engine.trace.dataflow import COPYING, HOST, DataLocation, MemoryHistory, unqualified_name

if TYPE_CHECKING:
    from modeldyno.engine.trace.dataflow import CopyStep, DataFlow, FlowStep, TensorView

_MOVING = frozenset({"to", "cpu", "cuda", "type_as"})
_FROM_HOST = frozenset({"tensor", "as_tensor", "asarray", "from_numpy"})
"""Calls that make a tensor of numbers on the host."""
_READING = frozenset({
    "item", "tolist", "numpy", "__array__", "__bool__", "__int__", "__float__", "__index__", "__format__",
    "__contains__", "equal", "allclose", "is_nonzero",
})  # fmt: skip
"""Calls that return values to Python."""


def find_redundant_ops(flow: DataFlow) -> tuple[RedundantOp, ...]:
    """Return the redundant steps of a call, identical ones summed, the slowest first."""
    memory = MemoryHistory(flow)
    by_key: dict[tuple[str, str, str, str, str], RedundantOp] = {}
    for index in range(len(flow.steps)):
        waste = _judge_step(memory, index)
        if waste is not None:
            key = (waste.kind, waste.name, waste.scope, waste.line, waste.reason)
            before = by_key.get(key)
            by_key[key] = waste if before is None else _sum(before, waste)
    return tuple(sorted(by_key.values(), key=lambda waste: (-waste.time, -waste.bytes)))


def _sum(one: RedundantOp, other: RedundantOp) -> RedundantOp:
    return replace(
        one, calls=one.calls + other.calls, time=one.time + other.time, bytes=one.bytes + other.bytes
    )


def _judge_step(memory: MemoryHistory, index: int) -> RedundantOp | None:
    """Return what is redundant about one step, by the first rule that applies."""
    copy = memory.copies.get(index)
    waste = _transfer(memory, index) or _synchronisation(memory, index)
    if waste is not None or copy is None or copy.result.size <= 1:
        return waste
    return (
        _cast_back(memory, copy)
        or _needless_copy(memory, copy)
        or _repeated_copy(memory, copy)
        or _weight_conversion(memory, copy)
    )


# --- copies --------------------------------------------------------------------------------------


def _needless_copy(memory: MemoryHistory, copy: CopyStep) -> RedundantOp | None:
    """Check for a copy of data that already exists in the same layout."""
    if copy.source.dtype != copy.result.dtype or copy.source.device != copy.result.device:
        return None
    for depth, earlier in enumerate(memory.earlier_locations(copy)):
        if earlier.axes == copy.result.axes and memory.replaceable(copy, earlier):
            return _copy_waste(memory, copy) if not depth else _round_trip(memory, copy)
    return None


def _copy_waste(memory: MemoryHistory, copy: CopyStep) -> RedundantOp:
    step = memory.steps[copy.index]
    return _make_waste(
        memory,
        RedundancyKind.COPY,
        (copy.index,),
        f"{_short_name(step.name)} copies {_format_tensor(copy.source)}, and neither the copy nor the "
        "original changes afterwards; use the original",
    )


def _round_trip(memory: MemoryHistory, copy: CopyStep) -> RedundantOp:
    before = memory.copied[copy.source.storage]
    only = memory.read[before.result.storage] == [copy.index]
    steps = (before.index, copy.index) if only else (copy.index,)
    remedy = "leave out both" if only else "use the earlier tensor"
    return _make_waste(
        memory,
        RedundancyKind.LAYOUT,
        steps,
        f"{_short_name(memory.steps[copy.index].name)} brings {_format_tensor(copy.source)} back to the "
        f"memory layout that it had before {_name_in_scope(memory, before.index, copy.index)}; {remedy}",
    )


def _repeated_copy(memory: MemoryHistory, copy: CopyStep) -> RedundantOp | None:
    """Check for a copy to a layout that an earlier copy already made."""
    first = memory.orders.get(copy.index)
    if first is None:
        return None
    return _make_waste(
        memory,
        RedundancyKind.LAYOUT,
        (copy.index,),
        f"{_short_name(memory.steps[copy.index].name)} copies {_format_tensor(copy.source)} to a "
        f"memory layout that {_name_in_scope(memory, first, copy.index)} already made; reuse the first copy",
    )


def _cast_back(memory: MemoryHistory, copy: CopyStep) -> RedundantOp | None:
    """Check for a cast to another dtype and straight back."""
    before = memory.copied.get(copy.source.storage)
    if before is None or before.source.dtype != copy.result.dtype or not _is_reversible(before):
        return None
    middle = before.result.storage
    sole = memory.read[middle] == [copy.index] and not memory.lives_on(middle)
    original = DataLocation(
        storage=before.source.storage,
        offset=0,
        capacity=before.source.capacity,
        axes=(),
        since=before.index,
    )
    same_tensor = copy.source.size == before.result.size and before.source.device == copy.result.device
    changed = memory.changes(middle, before.index)
    if not (sole and same_tensor and not changed and memory.replaceable(copy, original)):
        return None
    outer, inner = before.source.dtype, before.result.dtype
    loss = ", which loses precision" if _is_lossy(outer, inner) else ""
    return _make_waste(
        memory,
        RedundancyKind.CAST,
        (before.index, copy.index),
        f"{outer} is cast to {inner} and straight back to {outer}{loss}; leave out both casts",
    )


def _weight_conversion(memory: MemoryHistory, copy: CopyStep) -> RedundantOp | None:
    """Check for the conversion of a whole weight."""
    source, result = copy.source, copy.result
    if source.storage not in memory.flow.weights or source.size != source.capacity:
        return None
    if source.device != result.device or (source.dtype, source.axes) == (result.dtype, result.axes):
        return None
    if memory.changes(source.storage, -1) or memory.changes(result.storage, copy.index):
        return None
    if memory.lives_on(result.storage):
        return None
    cast = source.dtype != result.dtype
    target = result.dtype if cast else "another memory layout"
    return _make_waste(
        memory,
        RedundancyKind.CAST if cast else RedundancyKind.LAYOUT,
        (copy.index,),
        f"{_short_name(memory.steps[copy.index].name)} converts a weight of {_format_tensor(source)} to "
        f"{target} in each call; store it that way",
    )


# --- transfers and waits -------------------------------------------------------------------------


def _transfer(memory: MemoryHistory, index: int) -> RedundantOp | None:
    """Check for a transfer between host and device, or one that would happen if there were a device."""
    step = memory.steps[index]
    reason = _transfer_reason(memory, step)
    if not reason:
        return None
    # A constant also costs its creation; without a real transfer that is its only cost.
    making = (memory.made[step.inputs[0].storage],) if _is_constant(memory, step) else ()
    return _make_waste(memory, RedundancyKind.TRANSFER, (*making, index), reason)


def _transfer_reason(memory: MemoryHistory, step: FlowStep) -> str:
    """Describe a needless transfer and its remedy; empty where there is none."""
    verb = unqualified_name(step.name)
    if not step.inputs:
        away = verb in _FROM_HOST and any(value.device != HOST for value in step.outputs)
        return _CONSTANT.format(_short_name(step.name)) if away else ""
    source = step.inputs[0]
    if source.storage in memory.flow.weights:
        return ""  # offloaded weights are too large to stay on the device
    if _is_constant(memory, step):
        return _CONSTANT.format(_short_name(memory.steps[memory.made[source.storage]].name))
    ends = {source.device, *(value.device for value in step.outputs)}
    if len(ends) > 1 and HOST in ends and verb in COPYING:
        return _TO_HOST if source.device != HOST else _TO_DEVICE
    written = verb in _MOVING and step.place == HOST and step.literal and source.storage in memory.dependent
    return _TO_HOST if written and memory.flow.device == HOST else ""


def _is_constant(memory: MemoryHistory, step: FlowStep) -> bool:
    """Whether a step moves a constant that the call has created."""
    moves = unqualified_name(step.name) in _MOVING and step.place != ""
    return moves and any(value.storage in memory.constant for value in step.inputs[:1])


def _synchronisation(memory: MemoryHistory, index: int) -> RedundantOp | None:
    """Check for a synchronisation: the host waits for values from the device."""
    step = memory.steps[index]
    verb = unqualified_name(step.name)
    awaited = step.awaited or (step.inputs[:1] if verb in _READING else ())
    if not any(_is_on_device(memory, value, step) for value in awaited):
        return None
    name = "a condition on a tensor" if verb == "__bool__" else _short_name(step.name)
    if verb in _READING:
        reason = f"{name} makes the host wait until the device has reached this point; keep it a tensor"
    else:
        reason = (
            f"{name} makes the host wait for the device, as the size of its result depends on the "
            "values; use a mask or torch.where"
        )
    return _make_waste(memory, RedundancyKind.SYNCHRONISATION, (index,), reason)


def _is_on_device(memory: MemoryHistory, value: TensorView, step: FlowStep) -> bool:
    """Whether a value lies on the device; in a run on the host, whether it would if there were a device.

    In a run on the host, what depends neither on inputs nor on weights would stay on the host. What a step
    makes internally depends on what its inputs depend on.
    """
    if value.device != memory.flow.device:
        return False
    if memory.flow.device != HOST or value.storage in memory.dependent:
        return True
    return value.storage not in memory.known and any(v.storage in memory.dependent for v in step.inputs)


# --- descriptions --------------------------------------------------------------------------------


def _make_waste(
    memory: MemoryHistory, kind: RedundancyKind, steps: tuple[int, ...], reason: str
) -> RedundantOp:
    wasted = [memory.steps[index] for index in steps]
    last = wasted[-1]
    moved = sum(_bytes(step) for step in wasted) if kind is not RedundancyKind.TRANSFER else _bytes(last)
    return RedundantOp(
        kind=kind,
        name=_short_name(last.name),
        scope=last.scope,
        line=last.line,
        calls=1.0,
        time=sum(step.time for step in wasted),
        bytes=float(moved),
        reason=f"{reason}.",
    )


def _name_in_scope(memory: MemoryHistory, index: int, other: int) -> str:
    step = memory.steps[index]
    where = f" in {step.scope or 'the model'}" if step.scope != memory.steps[other].scope else ""
    return f"{_short_name(step.name)}{where}"


_CONSTANT = "{} creates the same constant in each call and moves it; create it once, with register_buffer"
_TO_HOST = "it copies data to the host within the call; leave that to the caller"
_TO_DEVICE = "it copies data from the host within the call; create it on the device, or before the call"

_FLOATS = {"float16": 1, "bfloat16": 1, "float32": 2, "float64": 3}
"""Floating-point dtypes, ordered by precision."""
_WHOLE = ("bool", "uint8", "int8", "int16", "int32", "int64")
_WIDE = ("int32", "int64", "float32", "float64")


def _is_reversible(cast: CopyStep) -> bool:
    """Whether a cast only changes the representation; float to integer, for example, truncates."""
    outer, inner = cast.source.dtype, cast.result.dtype
    if outer == inner:
        return False
    return (outer in _FLOATS and inner in _FLOATS) or (outer in _WHOLE and inner in _WIDE)


def _is_lossy(outer: str, inner: str) -> bool:
    """Whether a cast to `inner` and back loses precision."""
    return outer in _FLOATS and _FLOATS[inner] <= _FLOATS[outer]


def _short_name(name: str) -> str:
    return name.removeprefix("torch.") if name.startswith("torch.Tensor.") else name


def _format_tensor(value: TensorView) -> str:
    return f"{'x'.join(map(str, value.shape))} {value.dtype}"


def _bytes(step: FlowStep) -> int:
    return max((value.bytes for value in (*step.outputs[:1], *step.inputs[:1])), default=0)
