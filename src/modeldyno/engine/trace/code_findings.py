"""Find what a block of code could do without, by its data flow: growth, casts in a loop, float64, gradients.

These rules are about a user's own loops, so each finding has a line, and none comes from a single occurrence.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from modeldyno.base.result.trace_data import RedundancyKind, RedundantOp
from modeldyno.engine.trace.dataflow import MemoryHistory, unqualified_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.engine.trace.dataflow import DataFlow, FlowStep

_JOINS = frozenset({"cat", "concat", "concatenate", "hstack", "vstack", "append"})
_LEAST_JOINS = 4
"""Times that an array must have grown at one line."""
_LEAST_CASTS = 3
"""Times that one tensor must have been cast in the same way."""
_LEAST_ELEMENTS = 32
"""Elements that must have been set one by one at one line."""
_LEAST_LISTED = 64
"""Numbers of a Python list from which on a tensor is worth being made otherwise."""
_LEAST_LISTS = 2
"""Times that such a list must have been converted at one line; one of _LARGE_LIST numbers is enough."""
_LARGE_LIST = 4096
_WIDE_SHARE = 0.1
"""Share of the time of all steps that must have gone into float64."""
_FLOAT64 = "float64"
_MAKERS = frozenset({"tensor", "as_tensor", "asarray", "from_numpy", "stack"})


def find_in_code(flow: DataFlow, *, whole: bool = False) -> tuple[RedundantOp, ...]:
    """Return what the code of a flow could do without, the slowest first.

    Args:
        flow: what was recorded.
        whole: whether it is all of a script, so that what no step made comes from outside torch.
    """
    outside = flow.given if whole else frozenset()
    rules = (_growing_arrays, _repeated_casts, _single_elements, _python_lists, _gradients)
    findings = [finding for rule in rules for finding in rule(flow)] + [*_double_precision(flow, outside)]
    return tuple(sorted(findings, key=lambda finding: (-finding.time, -finding.bytes)))


def _growing_arrays(flow: DataFlow) -> Iterator[RedundantOp]:
    """Find arrays that are copied whole each time that something is added to them."""
    made: dict[int, tuple[str, int]] = {}
    chains: defaultdict[str, list[FlowStep]] = defaultdict(list)
    for step in flow.steps:
        if unqualified_name(step.name) not in _JOINS or not step.line or not step.outputs:
            continue
        grown = step.outputs[0]
        for value in step.inputs:
            if made.get(value.storage, ("", 0)) == (step.line, value.size) and value.size < grown.size:
                chains[step.line].append(step)
                break
        made[grown.storage] = (step.line, grown.size)
    for steps in chains.values():
        if len(steps) >= _LEAST_JOINS:
            copied, last = sum(step.outputs[0].bytes for step in steps), steps[-1].outputs[0].bytes
            yield _finding(
                RedundancyKind.GROWTH,
                steps,
                f"an array grows by {_short(steps[0])} in a loop, which copies all of it each time; collect "
                "the parts in a list and join them once",
                time=sum(step.time for step in steps) * (1 - last / copied),
                moved=copied - last,
            )


def _repeated_casts(flow: DataFlow) -> Iterator[RedundantOp]:
    """Find a tensor that is cast to the same data type again and again, and never changes."""
    memory = MemoryHistory(flow)
    casts: defaultdict[tuple[str, int, str, object], list[int]] = defaultdict(list)
    for index, copy in memory.copies.items():
        source, line = copy.source, flow.steps[index].line
        if source.dtype != copy.result.dtype and line and not memory.changes(copy.result.storage, index):
            casts[line, source.storage, copy.result.dtype, (source.offset, source.axes)].append(index)
    lines: defaultdict[tuple[str, str], list[FlowStep]] = defaultdict(list)
    for (line, storage, dtype, _), indices in casts.items():
        has_own_rule = storage in flow.weights and not memory.changes(storage, -1)
        changes = memory.changes(storage, indices[0], indices[-1])
        if len(indices) >= _LEAST_CASTS and not changes and not has_own_rule:
            lines[line, dtype] += [flow.steps[index] for index in indices[1:]]
    for (_, dtype), steps in lines.items():
        yield _finding(
            RedundancyKind.CAST,
            steps,
            f"{_short(steps[0])} casts the same tensor to {dtype} again and again; "
            "cast it once, before the loop",
        )


def _single_elements(flow: DataFlow) -> Iterator[RedundantOp]:
    """Find tensors that Python fills element by element."""
    lines: defaultdict[str, list[FlowStep]] = defaultdict(list)
    for step in flow.steps:
        if unqualified_name(step.name) == "__setitem__" and step.line and step.inputs:
            lines[step.line].append(step)
    for steps in lines.values():
        if len(steps) >= _LEAST_ELEMENTS and len({step.inputs[0].storage for step in steps}) * 8 <= len(
            steps
        ):
            yield _finding(
                RedundancyKind.ELEMENTS,
                steps,
                "Python sets a tensor piece by piece; compute it by one operation on whole tensors, such as "
                "torch.arange, a comparison, torch.tril or torch.where",
            )


def _python_lists(flow: DataFlow) -> Iterator[RedundantOp]:
    """Find tensors that are made of long Python lists, as masks are."""
    lines: defaultdict[str, list[FlowStep]] = defaultdict(list)
    for step in flow.steps:
        if step.listed >= _LEAST_LISTED and step.line:
            lines[step.line].append(step)
    for steps in lines.values():
        if len(steps) >= _LEAST_LISTS or steps[0].listed >= _LARGE_LIST:
            yield _finding(
                RedundancyKind.ELEMENTS,
                steps,
                f"{_short(steps[0])} makes a tensor of a Python list of {steps[0].listed:,} numbers; compute "
                "it by operations on tensors, or keep it for the next time",
            )


def _double_precision(flow: DataFlow, outside: frozenset[int]) -> Iterator[RedundantOp]:
    """Find float64 that nobody has named in the code, as NumPy's numbers bring it, and what it costs.

    It begins where a tensor is made of them, or where memory that came from outside torch is first used.
    """
    origin: FlowStep | None = None
    wide = []
    for step in flow.steps:
        made = any(value.dtype == _FLOAT64 for value in step.outputs)
        if not made or not step.line:
            continue
        fed = any(value.dtype == _FLOAT64 for value in step.inputs)
        comes = any(value.dtype == _FLOAT64 and value.storage in outside for value in step.inputs)
        makes = unqualified_name(step.name) in _MAKERS and not fed
        if (comes or makes) and not step.names_dtype and origin is None:
            origin = step
        elif fed and not step.names_dtype and origin is not None:
            wide.append(step)
    total = sum(step.time for step in flow.steps)
    time = sum(step.time for step in wide)
    if origin is not None and wide and time >= _WIDE_SHARE * total:
        slowest = max(wide, key=lambda step: step.time)
        yield _finding(
            RedundancyKind.PRECISION,
            [origin],
            f"{_short(origin)} makes float64 of numbers of NumPy or Python, and {len(wide):,} operators "
            f"compute in it, {time / total:.0%} of the operator time, most at {slowest.line}; float32 takes "
            "about half of it",
            time=time / 2,
            moved=sum(value.bytes for value in origin.outputs),
        )


def _gradients(flow: DataFlow) -> Iterator[RedundantOp]:
    """Find calls of modules that keep what gradients need, of which none was computed."""
    lines: defaultdict[tuple[str, str], list[bool]] = defaultdict(list)
    for call in flow.tracked:
        lines[call.line, call.module].append(call.used)
    for (line, module), used in lines.items():
        if line and len(used) > 1 and not any(used):
            yield RedundantOp(
                kind=RedundancyKind.GRADIENT,
                name=module,
                scope="",
                line=line,
                calls=float(len(used)),
                time=0.0,
                reason=f"{module} keeps its activations for gradients that nobody computes; call it within "
                "torch.no_grad() or torch.inference_mode().",
            )


def _finding(
    kind: RedundancyKind,
    steps: Sequence[FlowStep],
    reason: str,
    *,
    time: float | None = None,
    moved: float | None = None,
) -> RedundantOp:
    first = steps[0]
    return RedundantOp(
        kind=kind,
        name=_short(first),
        scope=first.scope,
        line=first.line,
        calls=float(len(steps)),
        time=sum(step.time for step in steps) if time is None else time,
        bytes=float(sum(value.bytes for step in steps for value in step.outputs) if moved is None else moved),
        reason=f"{reason}.",
    )


def _short(step: FlowStep) -> str:
    """Return a function as users write it; what takes memory of NumPy has no other name of its own."""
    if step.name.startswith("aten.lift_fresh"):
        return "torch.from_numpy"
    return step.name.removeprefix("torch.") if step.name.startswith("torch.Tensor.") else step.name
