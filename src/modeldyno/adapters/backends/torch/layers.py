"""Times the modules within a call of a torch module, by hooks before and after each.

The hooks do no more than take the time and note it, and are there in watched calls alone; shapes are seen in
a first call that nobody times. On a device that works on by itself the time is that of events in its queue.
What a pair of hooks costs is measured right before.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from modeldyno.adapters.backends.output_leaves import leaves
from modeldyno.adapters.backends.torch import hook_overhead
from modeldyno.adapters.backends.torch.hooks import Mark, Part, hook, register
from modeldyno.adapters.backends.torch.module_ranges import eager
from modeldyno.core.metrics.doubt import Doubt
from modeldyno.core.result.trace_data import Span
from modeldyno.core.trace.layer_times import Toll
from modeldyno.interfaces import Layers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import device

    from modeldyno.interfaces import Named


@contextmanager
def watching(callee: Any, run: Callable[[], Any], place: device, named: Named) -> Iterator[Layers]:
    """Watch the modules below a callee; `run` makes a call of it. After each watched call all hooks are gone.

    Args:
        callee: a module, or what was compiled from one.
        run: makes a whole call, and returns when the device has finished.
        place: the device that it runs on.
        named: says which modules to watch.
    """
    parts = _parts(callee, named)
    outputs = _outputs(run, parts)
    clock = hook_overhead.clock(place)
    toll = hook_overhead.measured(clock, hook_overhead.filler(run, parts, place)) if outputs else Toll()
    unasked = 0.0
    if place.type == "cpu" and outputs:
        toll = hook_overhead.in_place(toll, run, parts)
        unasked = toll.whole * hook_overhead.unasked(parts)
    marks: list[Mark] = []
    calls: list[tuple[float, list[tuple[int, float]]]] = []

    def call() -> Any:
        marks.clear()
        with ExitStack() as stack:  # the calls in between are those that nobody watches
            hook(parts, clock.stamp, marks, stack)
            start, begin = clock.stamp(), perf_counter_ns()
            output = run()
            seconds = (perf_counter_ns() - begin) * 1e-9
        moments = clock.seconds([start, *(moment for _, moment in marks)])[1:]
        calls.append((seconds, [(number, at) for (number, _), at in zip(marks, moments, strict=True)]))
        return output

    def spans(since: int) -> list[list[Span]]:
        wholes = ((_whole(callee, seconds, noted, unasked), noted) for seconds, noted in calls[since:])
        return [_described(nested(noted, parts, whole), outputs) for whole, noted in wholes]

    yield Layers(call=call, spans=spans, toll=toll, doubts=tuple(_unseen(callee, parts, outputs)))


def _whole(callee: Any, seconds: float, noted: Sequence[tuple[int, float]], unasked: float) -> Span:
    """Give the span of a call without what hooks cost before the first module and after the last."""
    first, last = (noted[0][1], noted[-1][1]) if noted else (0.0, seconds)
    begin, end = min(unasked / 2, first), max(seconds - unasked / 2, last)
    return Span(path="", kind=_kind(callee), begin=begin, end=end)


def _parts(callee: Any, named: Named) -> list[Part]:
    """List the modules to watch: all that are called one by one, and chosen by a path or their class."""
    found: dict[int, Part] = {}
    fixed: list[str] = []
    modules = _named_modules(callee)
    few = eager(callee) is None or not all(named(path, _kind(module)) for path, module in modules if path)
    for path, module in modules:
        if any(path.startswith(place) for place in fixed):
            continue
        if _is_fixed(module):
            fixed.append(f"{path}." if path else "")
        if path and not _is_traced(module):
            hooked = bool(module._forward_hooks or module._forward_pre_hooks)  # noqa: SLF001 - nothing else tells
            known = found.get(id(module), Part(module, _kind(module), (), few or hooked))
            found[id(module)] = replace(known, paths=(*known.paths, path))
    return [part for part in found.values() if any(named(path, part.kind) for path in part.paths)]


def _named_modules(callee: Any) -> list[tuple[str, Any]]:
    """Give all modules by all of their paths, parents before children."""
    return list(callee.named_modules(remove_duplicate=False)) if hasattr(callee, "named_modules") else []


def _is_fixed(module: Any) -> bool:
    """Whether it was compiled or scripted: the modules in it are no longer called one by one."""
    return hasattr(module, "_orig_mod") or hasattr(module, "_c") or _is_traced(module)


def _is_traced(module: Any) -> bool:
    """Whether it was compiled in place, its hooks with it."""
    return getattr(module, "_compiled_call_impl", None) is not None


def _unseen(callee: Any, parts: Sequence[Part], outputs: Outputs) -> Iterator[Doubt]:
    """Say which modules cannot be watched, and why."""
    modules = _named_modules(callee)
    fixed = [path for path, module in modules if _is_fixed(module)]
    if fixed:
        place = fixed[0] or "the model"
        more = f" (and {len(fixed) - 1} more)" if len(fixed) > 1 else ""
        yield Doubt(
            code="unseen-layers",
            seen=f"{place}{more} is compiled or scripted into one: the modules in it are no longer called "
            "one by one, and what one of them takes cannot be seen",
            advice="watch the eager model (--set compile=off, or the module that it was made of)",
        )
    elif not parts:
        yield Doubt(
            code="unseen-layers",
            seen="no module below the whole has the parts of a path or class that --layers names"
            if len(modules) > 1
            else "there is no module below the whole",
            advice="see `modeldyno inspect` for the paths and classes of its modules",
        )
    elif not outputs:
        yield Doubt(
            code="unseen-layers",
            seen=f"none of {len(parts)} modules is called as one; their code runs in what is around them",
            advice="nothing, if the model was exported; else call modules, not their forward",
        )


def _kind(module: Any) -> str:
    return str(getattr(module, "original_name", "")) or type(getattr(module, "_orig_mod", module)).__name__


def nested(marks: Sequence[Mark], parts: Sequence[Any], whole: Span) -> list[Span]:
    """Make spans of the marks of a call, each within the one that was open when it began.

    A module that is shared has the path that lies within that of the module around it. One whose end was
    not noted, as an error went through it, ends with what is around it.
    """
    spans = [whole]
    open_: list[tuple[int, int]] = [(-1, 0)]
    for number, moment in marks:
        if number >= 0:
            parent = open_[-1][1]
            path = _path(parts[number].paths, spans[parent].path)
            open_.append((number, len(spans)))
            spans.append(Span(path=path, kind=parts[number].kind, begin=moment, end=whole.end, parent=parent))
        elif any(known == ~number for known, _ in open_):
            while open_:
                known, place = open_.pop()
                spans[place] = replace(spans[place], end=moment)
                if known == ~number:
                    break
    return spans


def _path(paths: Sequence[str], around: str) -> str:
    return next((path for path in paths if path.startswith(f"{around}.")), paths[0])


# -- outputs ------------------------------------------------------------------------------------------


Outputs = dict[str, list[tuple[str, int]]]
"""Path to the text and the bytes of each output in turn."""


def _outputs(run: Callable[[], Any], parts: Sequence[Part]) -> Outputs:
    """See what each module gives, in a call that is not timed."""
    marks: list[Mark] = []
    given: list[tuple[str, int]] = []

    with ExitStack() as stack:
        for number, part in enumerate(parts):
            register(part.module, *_seeing(number, marks, given), stack)
        run()
    whole = Span(path="", kind="", begin=0.0, end=len(marks))
    found: Outputs = defaultdict(list)
    for span in nested([(number, place) for place, (number, _) in enumerate(marks)], parts, whole)[1:]:
        place = int(span.end)
        found[span.path].append(given[place] if place < len(given) else ("", 0))
    return found


def _seeing(
    number: int, marks: list[Mark], given: list[tuple[str, int]]
) -> tuple[Callable[..., None], Callable[..., None]]:
    def enter(_module: Any, _given: Any) -> None:
        marks.append((number, 0))
        given.append(("", 0))

    def leave(_module: Any, _given: Any, output: Any) -> None:
        marks.append((~number, 0))
        given.append(described(output))

    return enter, leave


def described(output: Any) -> tuple[str, int]:
    """Give shape and dtype of the first tensor of an output, and the bytes of all of them."""
    tensors = [leaf for _, leaf in leaves(output) if hasattr(leaf, "element_size")]
    if not tensors:
        return "", 0
    first, more = tensors[0], len(tensors) - 1
    shape = "x".join(map(str, first.shape)) or "scalar"
    text = f"{shape} {str(first.dtype).removeprefix('torch.')}" + (f" and {more} more" if more else "")
    return text, sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _described(spans: list[Span], outputs: Outputs) -> list[Span]:
    """Add what each call gave when it was looked at; one more than then gave what the last did."""
    turn: defaultdict[str, int] = defaultdict(int)
    found = []
    for span in spans:
        given = outputs.get(span.path)
        if given:
            text, size = given[min(turn[span.path], len(given) - 1)]
            turn[span.path] += 1
            span = replace(span, output=text, output_bytes=size)  # noqa: PLW2901 - the same span, complete
        found.append(span)
    return found
