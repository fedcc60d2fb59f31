"""Times the submodules within a call of a torch module, by hooks before and after each.

The hooks only take a time stamp, and exist in watched calls alone; shapes are read in a first, untimed call.
On an asynchronous device the times are those of events in its queue. The overhead of a pair of hooks is
measured right before.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from modeldyno.base.clock import perf_counter_ns
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.result.trace_data import Span
from modeldyno.engine.backends.output_leaves import leaves
from modeldyno.engine.backends.torch import hook_overhead
from modeldyno.engine.backends.torch.hook_overhead import HookedModule, Mark, add_hooks, register_hooks
from modeldyno.engine.backends.torch.module_ranges import eager_module
from modeldyno.engine.interfaces.session import Layers
from modeldyno.engine.trace.layer_times import HookOverhead

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import device

    from modeldyno.models.interface import ModuleFilter


@contextmanager
def watch_modules(
    callee: Any, run: Callable[[], Any], place: device, named: ModuleFilter
) -> Iterator[Layers]:
    """Watch the modules below a callee; `run` calls it. Hooks are removed after each watched call.

    Args:
        callee: a module, or its compiled form.
        run: makes a whole call and returns when the device has finished.
        place: the device that it runs on.
        named: selects the modules to watch.
    """
    parts = _parts(callee, named)
    outputs = _record_outputs(run, parts)
    clock = hook_overhead.device_clock(place)
    overhead = (
        hook_overhead.measure_hook_cost(clock, hook_overhead.make_filler(run, parts, place))
        if outputs
        else HookOverhead()
    )
    root_cost = 0.0
    if place.type == "cpu" and outputs:
        overhead = hook_overhead.scale_hook_cost(overhead, run, parts)
        root_cost = overhead.whole * hook_overhead.count_unwatched_hooks(parts)
    marks: list[Mark] = []
    calls: list[tuple[float, list[tuple[int, float]]]] = []

    def call() -> Any:
        marks.clear()
        with ExitStack() as stack:  # the calls in between are not watched
            add_hooks(parts, clock.stamp, marks, stack)
            start, begin = clock.stamp(), perf_counter_ns()
            output = run()
            seconds = (perf_counter_ns() - begin) * 1e-9
        moments = clock.seconds([start, *(moment for _, moment in marks)])[1:]
        calls.append((seconds, [(number, time) for (number, _), time in zip(marks, moments, strict=True)]))
        return output

    def spans(since: int) -> list[list[Span]]:
        roots = (
            (_root_span(callee, seconds, recorded, root_cost), recorded)
            for seconds, recorded in calls[since:]
        )
        return [_with_outputs(nest_spans(recorded, parts, root), outputs) for root, recorded in roots]

    yield Layers(
        call=call, spans=spans, overhead=overhead, doubts=tuple(_unseen_doubts(callee, parts, outputs))
    )


def _root_span(callee: Any, seconds: float, recorded: Sequence[tuple[int, float]], root_cost: float) -> Span:
    """Return the span of a call without the cost of hooks before the first module and after the last."""
    first, last = (recorded[0][1], recorded[-1][1]) if recorded else (0.0, seconds)
    begin, end = min(root_cost / 2, first), max(seconds - root_cost / 2, last)
    return Span(path="", kind=_class_name(callee), begin=begin, end=end)


def _parts(callee: Any, named: ModuleFilter) -> list[HookedModule]:
    """List the modules to watch: those called one by one that `named` selects by path or class."""
    parts: dict[int, HookedModule] = {}
    compiled: list[str] = []
    modules = _named_modules(callee)
    few = eager_module(callee) is None or not all(
        named(path, _class_name(module)) for path, module in modules if path
    )
    for path, module in modules:
        if any(path.startswith(prefix) for prefix in compiled):
            continue
        if _is_compiled(module):
            compiled.append(f"{path}." if path else "")
        if path and not _is_compiled_in_place(module):
            hooked = bool(module._forward_hooks or module._forward_pre_hooks)
            entry = parts.get(id(module), HookedModule(module, _class_name(module), (), few or hooked))
            parts[id(module)] = replace(entry, paths=(*entry.paths, path))
    return [part for part in parts.values() if any(named(path, part.kind) for path in part.paths)]


def _named_modules(callee: Any) -> list[tuple[str, Any]]:
    """Return all modules by all of their paths, parents before children."""
    return list(callee.named_modules(remove_duplicate=False)) if hasattr(callee, "named_modules") else []


def _is_compiled(module: Any) -> bool:
    """Check whether it was compiled or scripted: its submodules are no longer called one by one."""
    return hasattr(module, "_orig_mod") or hasattr(module, "_c") or _is_compiled_in_place(module)


def _is_compiled_in_place(module: Any) -> bool:
    """Check whether it was compiled in place, including its hooks."""
    return getattr(module, "_compiled_call_impl", None) is not None


def _unseen_doubts(callee: Any, parts: Sequence[HookedModule], outputs: Outputs) -> Iterator[Doubt]:
    """Yield a doubt about modules that cannot be watched, with the reason."""
    modules = _named_modules(callee)
    compiled = [path for path, module in modules if _is_compiled(module)]
    if compiled:
        place = compiled[0] or "the model"
        more = f" (and {len(compiled) - 1} more)" if len(compiled) > 1 else ""
        yield Doubt(
            code="unseen-layers",
            seen=f"{place}{more} is compiled or scripted as one unit: its submodules are no longer called "
            "one by one, so their times cannot be measured",
            advice="watch the eager model (`compile=off`, or the original module)",
        )
    elif not parts:
        yield Doubt(
            code="unseen-layers",
            seen="`layers` matches the path or class of no submodule"
            if len(modules) > 1
            else "the model has no submodules",
            advice="see `modeldyno inspect` for the paths and classes of its modules",
        )
    elif not outputs:
        yield Doubt(
            code="unseen-layers",
            seen=f"none of {len(parts)} modules is called as a module; their code runs inside their parents",
            advice="nothing to do if the model was exported; else call the modules, not their forward()",
        )


def _class_name(module: Any) -> str:
    return str(getattr(module, "original_name", "")) or type(getattr(module, "_orig_mod", module)).__name__


def nest_spans(marks: Sequence[Mark], parts: Sequence[Any], root: Span) -> list[Span]:
    """Turn the marks of a call into spans, each nested in the one that was open when it began.

    A shared module gets the path that lies within that of its caller. A module whose end was not recorded,
    as it raised an error, ends with its caller.
    """
    spans = [root]
    open_: list[tuple[int, int]] = [(-1, 0)]
    for number, moment in marks:
        if number >= 0:
            parent = open_[-1][1]
            path = _path_within(parts[number].paths, spans[parent].path)
            open_.append((number, len(spans)))
            spans.append(Span(path=path, kind=parts[number].kind, begin=moment, end=root.end, parent=parent))
        elif any(open_number == ~number for open_number, _ in open_):
            while open_:
                open_number, index = open_.pop()
                spans[index] = replace(spans[index], end=moment)
                if open_number == ~number:
                    break
    return spans


def _path_within(paths: Sequence[str], parent: str) -> str:
    return next((path for path in paths if path.startswith(f"{parent}.")), paths[0])


# -- outputs ------------------------------------------------------------------------------------------


Outputs = dict[str, list[tuple[str, int]]]
"""Path to the description and the bytes of the output of each call."""


def _record_outputs(run: Callable[[], Any], parts: Sequence[HookedModule]) -> Outputs:
    """Record the output of each module in an untimed call."""
    marks: list[Mark] = []
    descriptions: list[tuple[str, int]] = []

    with ExitStack() as stack:
        for number, part in enumerate(parts):
            register_hooks(part.module, *_output_hooks(number, marks, descriptions), stack)
        run()
    root = Span(path="", kind="", begin=0.0, end=len(marks))
    outputs: Outputs = defaultdict(list)
    for span in nest_spans([(number, index) for index, (number, _) in enumerate(marks)], parts, root)[1:]:
        index = int(span.end)
        outputs[span.path].append(descriptions[index] if index < len(descriptions) else ("", 0))
    return outputs


def _output_hooks(
    number: int, marks: list[Mark], descriptions: list[tuple[str, int]]
) -> tuple[Callable[..., None], Callable[..., None]]:
    def enter(_module: Any, _args: Any) -> None:
        marks.append((number, 0))
        descriptions.append(("", 0))

    def leave(_module: Any, _args: Any, output: Any) -> None:
        marks.append((~number, 0))
        descriptions.append(describe_output(output))

    return enter, leave


def describe_output(output: Any) -> tuple[str, int]:
    """Return the shape and dtype of the first tensor of an output, and the bytes of all of its tensors."""
    tensors = [leaf for _, leaf in leaves(output) if hasattr(leaf, "element_size")]
    if not tensors:
        return "", 0
    first, more = tensors[0], len(tensors) - 1
    shape = "x".join(map(str, first.shape)) or "scalar"
    text = f"{shape} {str(first.dtype).removeprefix('torch.')}" + (f" and {more} more" if more else "")
    return text, sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _with_outputs(spans: list[Span], outputs: Outputs) -> list[Span]:
    """Add the recorded output of each call; calls beyond those recorded get that of the last."""
    calls_so_far: defaultdict[str, int] = defaultdict(int)
    result = []
    for span in spans:
        descriptions = outputs.get(span.path)
        if descriptions:
            text, size = descriptions[min(calls_so_far[span.path], len(descriptions) - 1)]
            calls_so_far[span.path] += 1
            span = replace(span, output=text, output_bytes=size)  # noqa: PLW2901 - the same span, completed
        result.append(span)
    return result
