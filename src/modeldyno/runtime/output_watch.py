"""What the calls returned whose outputs were looked at, and what is wrong with that.

A fault that comes now and then is seen only by looking often, so outputs are looked at after the timed pass
as far as a little time goes. A fault in a share p of the calls goes unseen in n of them with chance
(1 - p)^n: at 60 looks and p = 5 % that is 4.6 %.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from modeldyno.core.metrics.doubt import Doubt
from modeldyno.data import outputs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.interfaces import Feed

LOOKS = 60
"""Calls whose outputs are looked at after the timed pass, if they are short."""
_TOLERANCE = 1e-3
"""Relative to the largest value of an array: the order in which threads add up changes less than that."""
_REMEMBERED = 64
"""Payloads whose output is remembered, to be compared with that of a later call."""
_NAMED = 3
"""Shapes of an output that a doubt names."""
_WITHOUT_MEASURE = 1e6
"""A relative difference beyond this says only that the first output was next to zero, or not finite."""


@dataclass(slots=True)
class Looks:
    """Outputs that were looked at, by the number of the payload of which they are."""

    calls: int = 0
    repeats: int = 0
    """Of them, those of a payload that had been seen before."""
    faults: dict[tuple[str, str], list[str]] = field(default_factory=lambda: defaultdict(list))
    """A sentence for each call, by output and kind."""
    hollow: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Calls in which an array held minus infinity alone."""
    shapes: dict[str, dict[tuple[int, ...], None]] = field(default_factory=lambda: defaultdict(dict))
    """Shapes of the arrays that had more than one for the same payload."""
    types: dict[str, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))
    """Types of element of the arrays that had more than one for the same payload."""
    differences: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Relative differences, of each array that differed, from the first output of the same payload."""
    first: dict[int, outputs.Sketch] = field(default_factory=dict)
    """What each payload gave first."""

    def add(self, payload: int, output: Feed) -> None:
        """Look at an output."""
        self.calls += 1
        for fault in outputs.find_faults(output):
            self.faults[fault.output, fault.kind].append(fault.sentence)
        for name in outputs.all_minus_infinity(output):
            self.hollow[name] += 1
        now = outputs.sketch(output)
        if payload in self.first:
            self._compare(self.first[payload], now)
        elif len(self.first) < _REMEMBERED:
            self.first[payload] = now

    def _compare(self, before: outputs.Sketch, now: outputs.Sketch) -> None:
        self.repeats += 1
        for name in dict.fromkeys((*before.shapes, *now.shapes)):
            one, other = before.shapes.get(name), now.shapes.get(name)
            if one is None or other is None:  # an output that is not always there is one of no elements
                self.shapes[name] |= dict.fromkeys((one or (0,), other or (0,)))
            elif one != other:
                self.shapes[name] |= dict.fromkeys((one, other))
            elif (was := before.values[name].dtype) != (is_now := now.values[name].dtype) and not (
                was.kind == is_now.kind == "U"  # texts of another length
            ):
                self.types[name] |= dict.fromkeys((was.name, is_now.name))
            else:
                [found] = outputs.agreement({name: before.values[name]}, {name: now.values[name]})
                if found.relative > (_TOLERANCE if before.values[name].dtype.kind in "fc" else 0):
                    self.differences[name].append(found.relative)

    def sentences(self) -> Iterator[str]:
        """Say what is wrong with the outputs, and in how many of the calls."""
        for found in self.faults.values():
            often = "" if len(found) == self.calls else f", in {len(found)} of {self.calls} calls"
            yield f"{found[0]}{often}"

    def doubts(self) -> Iterator[Doubt]:
        """Doubt a model whose equal inputs give unlike outputs, or arrays that say nothing."""
        for name, shapes in self.shapes.items():
            named = [" x ".join(map(str, shape)) or "a single value" for shape in shapes]
            more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
            yield Doubt(
                code="shapes-vary",
                seen=f"output '{name}' had {len(named)} shapes for equal inputs: "
                f"{', '.join(named[:_NAMED])}{more}",
                advice="the calls did unlike amounts of work; seed the model, or read the spread of the "
                "latency beside its middle",
            )
        for name, types in self.types.items():
            yield Doubt(
                code="nondeterministic",
                seen=f"output '{name}' had {len(types)} types of element for equal inputs: "
                f"{', '.join(list(types)[:_NAMED])}",
                advice="the calls took unlike ways; find out what chooses between them",
            )
        for name, sizes in self.differences.items():
            largest = max(sizes)
            size = f", by up to {largest:.2g} of its largest value" if largest < _WITHOUT_MEASURE else ""
            yield Doubt(
                code="nondeterministic",
                seen=f"output '{name}' differed in {len(sizes)} of {self.repeats} calls from that of an "
                f"earlier call with equal inputs{size}",
                advice="put the model into its mode for inference (in torch: model.eval()), or seed what it "
                "draws",
            )
        for name, count in self.hollow.items():
            if (name, "empty") not in self.faults:
                yield Doubt(
                    code="not-finite",
                    seen=f"output '{name}' held minus infinity alone in {count} of {self.calls} calls",
                    advice="nothing, if it is a mask; else the model computes nothing there",
                )
