"""Which steps of a call the result does not need: copies, casts, transfers, waits.

The rules are conservative: a step is called needless only where everything that could need it was seen
not to. What a step of a library does inside is that library's: only copies that the model's own code
asks for are judged.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.core.result.trace_data import Waste, WasteKind
from modeldyno.core.trace.dataflow import COPYING, HOST, Memory, Seen, bare

if TYPE_CHECKING:
    from modeldyno.core.trace.dataflow import Copy, Flow, Step, Value

_MOVING = frozenset({"to", "cpu", "cuda", "type_as"})
_FROM_HOST = frozenset({"tensor", "as_tensor", "asarray", "from_numpy"})
"""What makes a tensor of numbers that lie with the host."""
_TELLING = frozenset({
    "item", "tolist", "numpy", "__array__", "__bool__", "__int__", "__float__", "__index__", "__format__",
    "__contains__", "equal", "allclose", "is_nonzero",
})  # fmt: skip
"""What hands numbers to the host's language."""


def wastes(flow: Flow) -> tuple[Waste, ...]:
    """Judge each step of a call; alike ones are summed up, the costliest first."""
    memory = Memory(flow)
    whole: dict[tuple[str, str, str, str, str], Waste] = {}
    for index in range(len(flow.steps)):
        found = _judged(memory, index)
        if found is not None:
            key = (found.kind, found.name, found.scope, found.line, found.reason)
            before = whole.get(key)
            whole[key] = found if before is None else _sum(before, found)
    return tuple(sorted(whole.values(), key=lambda waste: (-waste.time, -waste.bytes)))


def _sum(one: Waste, other: Waste) -> Waste:
    return replace(
        one, calls=one.calls + other.calls, time=one.time + other.time, bytes=one.bytes + other.bytes
    )


def _judged(memory: Memory, index: int) -> Waste | None:
    """Judge one step; the first rule that holds has the word."""
    copy = memory.copies.get(index)
    found = _transfer(memory, index) or _wait(memory, index)
    if found is not None or copy is None or copy.result.size <= 1:
        return found
    return _cast_back(memory, copy) or _same(memory, copy) or _again(memory, copy) or _of_weight(memory, copy)


# --- copies --------------------------------------------------------------------------------------


def _same(memory: Memory, copy: Copy) -> Waste | None:
    """Judge a copy of what lies somewhere in the same order already."""
    if copy.source.dtype != copy.result.dtype or copy.source.device != copy.result.device:
        return None
    for depth, seen in enumerate(memory.ancestry(copy)):
        if seen.axes == copy.result.axes and memory.replaceable(copy, seen):
            return _copy(memory, copy) if not depth else _round_trip(memory, copy)
    return None


def _copy(memory: Memory, copy: Copy) -> Waste:
    step = memory.steps[copy.index]
    return _waste(
        memory,
        WasteKind.COPY,
        (copy.index,),
        f"{_short(step.name)} copies {_described(copy.source)}, and neither the copy nor the original "
        "changes afterwards; use the original",
    )


def _round_trip(memory: Memory, copy: Copy) -> Waste:
    before = memory.copied[copy.source.storage]
    only = memory.read[before.result.storage] == [copy.index]
    steps = (before.index, copy.index) if only else (copy.index,)
    what = "leave out both" if only else "use it as it was before"
    return _waste(
        memory,
        WasteKind.LAYOUT,
        steps,
        f"{_short(memory.steps[copy.index].name)} brings {_described(copy.source)} back into the order "
        f"that it had before {_named(memory, before.index, copy.index)}; {what}",
    )


def _again(memory: Memory, copy: Copy) -> Waste | None:
    """Judge a copy into an order that an earlier copy made already."""
    first = memory.orders.get(copy.index)
    if first is None:
        return None
    return _waste(
        memory,
        WasteKind.LAYOUT,
        (copy.index,),
        f"{_short(memory.steps[copy.index].name)} brings {_described(copy.source)} into an order that "
        f"{_named(memory, first, copy.index)} made of it already; keep the first",
    )


def _cast_back(memory: Memory, copy: Copy) -> Waste | None:
    """Judge a cast to another dtype and straight back."""
    before = memory.copied.get(copy.source.storage)
    if before is None or before.source.dtype != copy.result.dtype or not _is_reversible(before):
        return None
    middle = before.result.storage
    sole = memory.read[middle] == [copy.index] and not memory.lives_on(middle)
    seen = Seen(
        storage=before.source.storage,
        offset=0,
        capacity=before.source.capacity,
        axes=(),
        since=before.index,
    )
    whole = copy.source.size == before.result.size and before.source.device == copy.result.device
    changed = memory.changes(middle, before.index)
    if not (sole and whole and not changed and memory.replaceable(copy, seen)):
        return None
    outer, inner = before.source.dtype, before.result.dtype
    loss = f", which costs digits that {outer} has" if _is_lossy(outer, inner) else ""
    return _waste(
        memory,
        WasteKind.CAST,
        (before.index, copy.index),
        f"{outer} becomes {inner} and straight {outer} again{loss}; leave out both casts",
    )


def _of_weight(memory: Memory, copy: Copy) -> Waste | None:
    """Judge the conversion of a whole weight."""
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
    into = f"to {result.dtype}" if cast else "into another order"
    return _waste(
        memory,
        WasteKind.CAST if cast else WasteKind.LAYOUT,
        (copy.index,),
        f"{_short(memory.steps[copy.index].name)} brings a weight of {_described(source)} {into} anew "
        "in each call; store it so",
    )


# --- transfers and waits --------------------------------------------------------------------------


def _transfer(memory: Memory, index: int) -> Waste | None:
    """Judge what crosses between host and device, or would if there were one."""
    step = memory.steps[index]
    reason = _crossing(memory, step)
    if not reason:
        return None
    # A constant costs its making, too; where it does not really cross, that is all.
    making = (memory.made[step.inputs[0].storage],) if _is_constant(memory, step) else ()
    return _waste(memory, WasteKind.TRANSFER, (*making, index), reason)


def _crossing(memory: Memory, step: Step) -> str:
    """Say what crosses needlessly, and what to do; nothing where nothing does."""
    verb = bare(step.name)
    if not step.inputs:
        away = verb in _FROM_HOST and any(value.device != HOST for value in step.outputs)
        return _ANEW.format(_short(step.name)) if away else ""
    source = step.inputs[0]
    if source.storage in memory.flow.weights:
        return ""  # weights that are brought in are too large to stay
    if _is_constant(memory, step):
        return _ANEW.format(_short(memory.steps[memory.made[source.storage]].name))
    ends = {source.device, *(value.device for value in step.outputs)}
    if len(ends) > 1 and HOST in ends and verb in COPYING:
        return _TO_HOST if source.device != HOST else _TO_DEVICE
    written = verb in _MOVING and step.place == HOST and step.literal and source.storage in memory.dependent
    return _TO_HOST if written and memory.flow.device == HOST else ""


def _is_constant(memory: Memory, step: Step) -> bool:
    """Whether it moves a constant that the call has made."""
    moves = bare(step.name) in _MOVING and step.place != ""
    return moves and any(value.storage in memory.constant for value in step.inputs[:1])


def _wait(memory: Memory, index: int) -> Waste | None:
    """Judge where the host waits for numbers of the device."""
    step = memory.steps[index]
    verb = bare(step.name)
    awaited = step.awaited or (step.inputs[:1] if verb in _TELLING else ())
    if not any(_is_there(memory, value, step) for value in awaited):
        return None
    name = "a condition on a tensor" if verb == "__bool__" else _short(step.name)
    if verb in _TELLING:
        reason = f"{name} makes the host wait until a device has come to this point; keep it a tensor"
    else:
        reason = (
            f"{name} makes the host wait for a device, as the size of what it gives depends on the "
            "numbers; use a mask or torch.where"
        )
    return _waste(memory, WasteKind.SYNCHRONISATION, (index,), reason)


def _is_there(memory: Memory, value: Value, step: Step) -> bool:
    """Whether numbers lie on the device; on the host, whether they would if there were one.

    There, what depends neither on inputs nor on weights would stay with the host. What a step makes
    within itself is like what the step is about.
    """
    if value.device != memory.flow.device:
        return False
    if memory.flow.device != HOST or value.storage in memory.dependent:
        return True
    return value.storage not in memory.known and any(v.storage in memory.dependent for v in step.inputs)


# --- words ---------------------------------------------------------------------------------------


def _waste(memory: Memory, kind: WasteKind, steps: tuple[int, ...], reason: str) -> Waste:
    found = [memory.steps[index] for index in steps]
    last = found[-1]
    moved = sum(_bytes(step) for step in found) if kind is not WasteKind.TRANSFER else _bytes(last)
    return Waste(
        kind=kind,
        name=_short(last.name),
        scope=last.scope,
        line=last.line,
        calls=1.0,
        time=sum(step.time for step in found),
        bytes=float(moved),
        reason=f"{reason}.",
    )


def _named(memory: Memory, index: int, beside: int) -> str:
    step = memory.steps[index]
    where = f" in {step.scope or 'the model'}" if step.scope != memory.steps[beside].scope else ""
    return f"{_short(step.name)}{where}"


_ANEW = "{} makes the same numbers anew in each call and moves them; make them once, with register_buffer"
_TO_HOST = "it takes numbers to the host within the call; leave that to whoever needs them there"
_TO_DEVICE = "it takes numbers from the host within the call; make them on the device, or before the call"

_FLOATS = {"float16": 1, "bfloat16": 1, "float32": 2, "float64": 3}
"""Fractions, by their order of size."""
_WHOLE = ("bool", "uint8", "int8", "int16", "int32", "int64")
_HOLDING = ("int32", "int64", "float32", "float64")


def _is_reversible(cast: Copy) -> bool:
    """Whether a cast is no computation by itself, as that of a fraction to a whole number is."""
    outer, inner = cast.source.dtype, cast.result.dtype
    if outer == inner:
        return False
    return (outer in _FLOATS and inner in _FLOATS) or (outer in _WHOLE and inner in _HOLDING)


def _is_lossy(outer: str, inner: str) -> bool:
    """Whether fractions lose digits on the way."""
    return outer in _FLOATS and _FLOATS[inner] <= _FLOATS[outer]


def _short(name: str) -> str:
    return name.removeprefix("torch.") if name.startswith("torch.Tensor.") else name


def _described(value: Value) -> str:
    return f"{'x'.join(map(str, value.shape))} {value.dtype}"


def _bytes(step: Step) -> int:
    return max((value.bytes for value in (*step.outputs[:1], *step.inputs[:1])), default=0)
