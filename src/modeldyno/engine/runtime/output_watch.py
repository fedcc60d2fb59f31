"""Collect what is wrong with the outputs of calls: faults, varying shapes, non-determinism.

An intermittent fault is found only by checking many calls, so outputs are checked after the timed pass
for a short time. A fault in a share p of the calls goes unseen in n of them with probability
(1 - p)^n: at 60 checks and p = 5 % that is 4.6 %, at 300 and p = 1 % it is 4.9 %.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from modeldyno.base.metrics.doubt import Doubt
from modeldyno.engine.data import outputs
from modeldyno.models.interface import Feed

if TYPE_CHECKING:
    from collections.abc import Iterator

LOOKS = 60
"""Calls whose outputs are checked after the timed pass, if they take no longer than a moment."""
LOOKS_OF_SHORT = 300
"""Calls that are checked if they are short."""
_TOLERANCE = 1e-3
"""Relative to the largest value of an array: a different order of summation changes less than that."""
_REMEMBERED = 64
"""Payloads whose output is remembered, to compare it with that of a later call."""
_NO_CHANCE = 8
"""Distinct values of an output that another input gives only if it is the same answer."""
_NAMED = 3
"""Shapes of an output that a doubt lists."""
_WITHOUT_MEASURE = 1e6
"""Beyond this relative difference the first output was close to zero, or not finite."""


def are_alike(one: outputs.Sketch, other: outputs.Sketch) -> bool:
    """Return whether two outputs have the same shapes and types, and the same values but for rounding."""
    checks = OutputChecks()
    checks.compare(one, other)
    return not checks.vary


def _equal(one: outputs.Sketch, other: outputs.Sketch) -> bool:
    """Return whether two outputs have the same floating-point values, so many that it is no chance."""
    import numpy as np  # slow to import

    floats = [name for name, values in one.values.items() if values.dtype.kind in "fc"]
    return all(
        name in other.values and np.array_equal(one.values[name], other.values[name]) for name in floats
    ) and any(len(np.unique(one.values[name])) >= _NO_CHANCE for name in floats)


@dataclass(slots=True)
class OutputChecks:
    """Outputs that were checked, by the number of their payload."""

    calls: int = 0
    repeats: int = 0
    """Number of those calls whose payload had been seen before."""
    faults: dict[tuple[str, str], list[str]] = field(default_factory=lambda: defaultdict(list))
    """A sentence for each call, by output and kind."""
    hollow: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Calls in which an array held only minus infinity."""
    shapes: dict[str, dict[tuple[int, ...], None]] = field(default_factory=lambda: defaultdict(dict))
    """Shapes of the arrays that had several for the same payload."""
    types: dict[str, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))
    """Element types of the arrays that had several for the same payload."""
    differences: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Relative differences from the first output of the same payload, by array."""
    whole: Feed = field(default_factory=dict)
    """The last output of the first payload, for what a sample of its values does not show."""
    others: int = 0
    """Calls that returned the first output of another payload, which differs from that of their own."""
    first: dict[int, outputs.Sketch] = field(default_factory=dict)
    """The first output of each payload."""

    def add(self, payload: int, output: Feed) -> None:
        """Check an output."""
        self.calls += 1
        for fault in outputs.find_faults(output):
            self.faults[fault.output, fault.kind].append(fault.sentence)
        for name in outputs.all_minus_infinity(output):
            self.hollow[name] += 1
        now = outputs.sketch_output(output)
        if payload in self.first:
            self.others += self._is_of_another(payload, now)
            self.compare(self.first[payload], now)
        elif len(self.first) < _REMEMBERED:
            self.first[payload] = now

    def _is_of_another(self, payload: int, now: outputs.Sketch) -> bool:
        """Return whether an output is exactly that of another payload, and not that of its own."""
        own = self.first[payload]
        return not _equal(own, now) and any(_equal(other, now) for other in self.first.values())

    def compare(self, before: outputs.Sketch, now: outputs.Sketch) -> None:
        """Compare an output with an earlier one of equal inputs."""
        self.repeats += 1
        for name in dict.fromkeys((*before.shapes, *now.shapes)):
            one, other = before.shapes.get(name), now.shapes.get(name)
            if one is None or other is None:  # an optional output that is missing counts as empty
                self.shapes[name] |= dict.fromkeys((one or (0,), other or (0,)))
            elif one != other:
                self.shapes[name] |= dict.fromkeys((one, other))
            elif (first := before.values[name].dtype) != (later := now.values[name].dtype) and not (
                first.kind == later.kind == "U"  # texts of another length
            ):
                self.types[name] |= dict.fromkeys((first.name, later.name))
            else:
                [agreement] = outputs.agreement({name: before.values[name]}, {name: now.values[name]})
                if agreement.relative > (_TOLERANCE if before.values[name].dtype.kind in "fc" else 0):
                    self.differences[name].append(agreement.relative)

    @property
    def vary(self) -> bool:
        """Whether equal inputs gave different outputs."""
        return bool(self.shapes or self.types or self.differences)

    def sentences(self) -> Iterator[str]:
        """Describe what is wrong with the outputs, and in how many of the calls."""
        for sentences in self.faults.values():
            frequency = "" if len(sentences) == self.calls else f", in {len(sentences)} of {self.calls} calls"
            yield f"{sentences[0]}{frequency}"

    def doubts(self, *, changed_inputs: bool = False) -> Iterator[Doubt]:
        """Yield doubts about outputs that differ for equal inputs, or that hold only minus infinity.

        If calls change their inputs, these are not equal, and that is the doubt.
        """
        if changed_inputs:
            yield Doubt(
                code="changed-inputs",
                seen="a call changes its inputs in place, so that the next one gets other values",
                advice="let the model work on a copy: x = x / 255 instead of x /= 255",
            )
            return
        if self.others:
            yield Doubt(
                code="earlier-output",
                seen=f"{self.others} of {self.repeats} calls returned what another input had given",
                advice="look for outputs that are returned before they are made, or a buffer that is reused",
            )
        for name, shapes in self.shapes.items():
            named = [" x ".join(map(str, shape)) or "a single value" for shape in shapes]
            more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
            yield Doubt(
                code="shapes-vary",
                seen=f"output '{name}' had {len(named)} shapes for equal inputs: "
                f"{', '.join(named[:_NAMED])}{more}",
                advice="the calls did different amounts of work; seed the model, or read the spread of the "
                "latency along with its median",
            )
        for name, types in self.types.items():
            yield Doubt(
                code="nondeterministic",
                seen=f"output '{name}' had {len(types)} element types for equal inputs: "
                f"{', '.join(list(types)[:_NAMED])}",
                advice="the calls took different paths; find out what chooses between them",
            )
        for name, sizes in self.differences.items():
            largest = max(sizes)
            size = f", by up to {largest:.2g} of its largest value" if largest < _WITHOUT_MEASURE else ""
            yield Doubt(
                code="nondeterministic",
                seen=f"output '{name}' differed in {len(sizes)} of {self.repeats} calls from that of an "
                f"earlier call with equal inputs{size}",
                advice="put the model into inference mode (in torch: model.eval()), or seed its randomness",
            )
        for name, count in self.hollow.items():
            if (name, "empty") not in self.faults:
                yield Doubt(
                    code="not-finite",
                    seen=f"output '{name}' held only minus infinity in {count} of {self.calls} calls",
                    advice="nothing, if it is a mask; otherwise the model computes nothing there",
                )
