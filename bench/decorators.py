"""What a call of a decorated function costs: off, on, and beside the least that a timing decorator can do.

Rounds alternate: each makes a short loop of every kind in turn, and gives the cost of a call over the
plain function of the same round. The median over the rounds is printed, with the middle half of them.

    python bench/decorators.py [--rounds 400]
"""

from __future__ import annotations

import argparse
import statistics
from functools import wraps
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from modeldyno import Profiled

if TYPE_CHECKING:
    from collections.abc import Callable

CALLS = 500
"""In one loop: short enough that most are not interrupted."""
BOUND = 2000
"""Nanoseconds that a call may cost at most when it is off."""


def plain(x: int) -> int:
    """Do next to nothing."""
    return x


def bare(function: Callable[[int], int]) -> Callable[[int], int]:
    """Decorate with two looks at the clock and a list."""
    times: list[int] = []

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> int:
        begin = perf_counter_ns()
        try:
            return function(*args, **kwargs)
        finally:
            times.append(perf_counter_ns() - begin)

    return wrapper


def block(recorder: Profiled) -> Callable[[int], int]:
    """Use a block, as one writes it."""

    def function(x: int) -> int:
        with recorder("block"):
            return x

    return function


def cost(function: Callable[[int], int]) -> float:
    """Time a loop; nanoseconds of a call."""
    begin = perf_counter_ns()
    for _ in range(CALLS):
        function(1)
    return (perf_counter_ns() - begin) / CALLS


def main() -> None:
    """Alternate the loops, and print each beside the plain one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=400)
    rounds = parser.parse_args().rounds
    off, on = Profiled(), Profiled()
    on.enable()
    loops = {
        "plain": plain,
        "bare perf_counter decorator": bare(plain),
        "@profiled, off": off(plain),
        "@profiled, on": on(plain),
        "with profiled, off": block(off),
        "with profiled, on": block(on),
    }
    found: dict[str, list[float]] = {name: [] for name in loops}
    for number in range(rounds):
        order = list(loops) if number % 2 == 0 else list(reversed(loops))
        for name in order:
            found[name].append(cost(loops[name]))
    base = found["plain"]
    print(f"{rounds} rounds of {CALLS} calls; a plain call takes {statistics.median(base):.0f} ns\n")
    for name, costs in found.items():
        if name != "plain":
            added = [mine - least for mine, least in zip(costs, base, strict=True)]
            low, middle, high = statistics.quantiles(added, n=4)
            ratio = statistics.median(costs) / statistics.median(base)
            print(f"{name:<28} + {middle:>5.0f} ns   x {ratio:>5.1f}   ({low:.0f} to {high:.0f} ns)")
    worst = max(
        statistics.median(c - b for c, b in zip(found[name], base, strict=True))
        for name in found
        if name.endswith("off")
    )
    print(f"\noff: {worst:.0f} ns at most, bound {BOUND} ns: {'held' if worst < BOUND else 'BROKEN'}")


if __name__ == "__main__":
    main()
