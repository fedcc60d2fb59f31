"""Wall time by line of the user's code, by samples of a thread's stack, and what it says of loaders."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from modeldyno.base.result.trace_data import EventKind, ExecutedOp, RedundancyKind, RedundantOp
from modeldyno.base.stats.statistics import share_interval
from modeldyno.engine.trace.op_events import WITHIN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

OUTSIDE = "outside operators"
"""Stands for a line in the row of what is no time of an operator."""
_LEAST_WAITING = 1 / 2
"""Share of the time that must, at its lower bound, have gone into waiting for a loader."""
_LEAST_GROWING = 0.02
"""Share of the time that a line must have, at its lower bound, that grows an array of NumPy."""
_LEAST_SAMPLES = 10
_GROWING = frozenset({"append", "concatenate", "hstack", "vstack", "insert"})


@dataclass(slots=True)
class LineTime:
    """What the samples of one line say."""

    samples: int = 0
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        """Add a sample, and the time since the one before."""
        self.samples += 1
        self.seconds += seconds


@dataclass(slots=True)
class LineTimes:
    """Wall time of the recorded calls of a region."""

    calls: int = 0
    lines: dict[str, LineTime] = field(default_factory=dict)
    """By the innermost line of the user's code, ``train.py:7``; empty where there was none."""
    waits: dict[str, LineTime] = field(default_factory=dict)
    """Of it, that within a loader of data, by the line that asked for the data."""
    causes: dict[str, LineTime] = field(default_factory=dict)
    """Of it, by the innermost line of the user's code."""
    in_background: bool = False
    """Whether a loader has workers of its own."""

    def add_all(self, other: LineTimes) -> None:
        """Add what was sampled of other calls."""
        self.calls += other.calls
        self.in_background |= other.in_background
        for mine, theirs in (
            (self.lines, other.lines),
            (self.waits, other.waits),
            (self.causes, other.causes),
        ):
            for line, time in theirs.items():
                kept = mine.setdefault(line, LineTime())
                kept.samples, kept.seconds = kept.samples + time.samples, kept.seconds + time.seconds

    def add(self, line: str, seconds: float, waiting: str = "") -> None:
        """Add a sample."""
        self.lines.setdefault(line, LineTime()).add(seconds)
        if waiting:
            self.waits.setdefault(waiting, LineTime()).add(seconds)
            self.causes.setdefault(line, LineTime()).add(seconds)

    @property
    def samples(self) -> int:
        """Number of samples."""
        return sum(time.samples for time in self.lines.values())

    @property
    def seconds(self) -> float:
        """All of the time."""
        return sum(time.seconds for time in self.lines.values())


def line_rows(
    region: str, times: LineTimes, followed: Sequence[ExecutedOp], busy: float
) -> Iterator[ExecutedOp]:
    """Yield a row for each line with its wall time in a call, and one for what is outside operators.

    A line that ran no operator has no number of calls, 0.

    Args:
        region: the name of the region.
        times: the samples of its calls.
        followed: rows of the lines of a call, with the time of the operators that each ran.
        busy: seconds of all operators of a call.
    """
    calls = max(1, times.calls)
    wall = {line: time.seconds / calls for line, time in times.lines.items() if line}
    whole = sum(wall.values())
    for row in followed:
        yield replace(row, total_time=wall.pop(row.name, row.self_time))
    for line, seconds in wall.items():
        yield _row(region, line, seconds)
    if whole:
        yield _row(region, OUTSIDE, max(0.0, whole - busy))


def _row(region: str, name: str, seconds: float) -> ExecutedOp:
    return ExecutedOp(
        name=name, kind=EventKind.LINE, scope=region, calls=0.0, self_time=0.0, total_time=seconds
    )


def loader_findings(region: str, times: LineTimes) -> Iterator[RedundantOp]:
    """Yield where a region waits for data for most of its time."""
    for line, waited in times.waits.items():
        if waited.samples < _LEAST_SAMPLES:
            continue
        if share_interval(waited.samples, times.samples)[0] < _LEAST_WAITING:
            continue
        cause = max((line for line in times.causes if line), key=lambda one: times.causes[one].seconds)
        most = f", most of it in {cause}" if cause != line else ""
        remedy = (
            "give it more workers, or do less for each sample"
            if times.in_background
            else "load in the background (num_workers=), or prepare the samples once"
        )
        share = waited.seconds / times.seconds
        yield RedundantOp(
            kind=RedundancyKind.LOADER,
            name="DataLoader",
            scope=region,
            line=line,
            calls=1.0,
            time=waited.seconds / max(1, times.calls),
            reason=f"{share:.0%} of the wall time is waiting for the data of a loader{most}; {remedy}.",
        )


def growing_lines(region: str, times: LineTimes, file: str, source: str) -> Iterator[RedundantOp]:
    """Yield the lines of a file that grow an array of NumPy in a loop, and take time.

    Args:
        region: the name of the region.
        times: the samples of its calls.
        file: the name of the file, as lines have it.
        source: its text.
    """
    for number, name in _grows_in_loop(source):
        line = f"{file}:{number}"
        time = times.lines.get(line, LineTime())
        if time.samples < _LEAST_SAMPLES:
            continue
        if share_interval(time.samples, times.samples)[0] < _LEAST_GROWING:
            continue
        yield RedundantOp(
            kind=RedundancyKind.GROWTH,
            name=name,
            scope=region,
            line=line,
            calls=1.0,
            time=time.seconds / max(1, times.calls),
            reason=f"an array grows by {name} in a loop, which copies all of it each time, "
            f"{time.seconds / times.seconds:.0%} of the wall time; collect the parts in a list and join "
            "them once.",
        )


def _grows_in_loop(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the call of each ``x = np.append(x, ...)`` in a loop; nothing of wrong code."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return
    loops = (node for node in ast.walk(tree) if isinstance(node, ast.For | ast.While))
    inner = {id(node): node for loop in loops for node in ast.walk(loop) if isinstance(node, ast.Assign)}
    for node in inner.values():
        match node:
            case ast.Assign(
                targets=[ast.Name(id=grown)],
                value=ast.Call(
                    func=ast.Attribute(value=ast.Name(id="np" | "numpy"), attr=attr), args=[first, *_]
                ),
            ) if attr in _GROWING:
                parts = first.elts if isinstance(first, ast.List | ast.Tuple) else [first]
                if any(isinstance(part, ast.Name) and part.id == grown for part in parts):
                    yield node.lineno, f"numpy.{attr}"


def in_region(row: ExecutedOp, region: str) -> bool:
    """Whether a row is of a region, whichever module in it ran it."""
    return row.scope.partition(WITHIN)[0] == region
