"""What a call of a marked region costs: off, on, and beside the least that Python can do.

Rounds alternate: each makes a short loop of every kind in turn, and gives the cost of a call over the
plain function of the same round. The median over the rounds is printed, with the middle half of them. The
least that a block can cost is that of a class whose `__enter__` and `__exit__` do nothing.

Then, if torch is installed, what recording the operators of a call costs beside torch.profiler alone: with
the same options, and with its stacks, by which it tells modules.

    python bench/decorators.py [--rounds 400]
"""

from __future__ import annotations

import argparse
import statistics
from functools import wraps
from importlib.util import find_spec
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from modeldyno import Profiled
from modeldyno.regions import Schedule

if TYPE_CHECKING:
    from collections.abc import Callable

CALLS = 500
"""In one loop: short enough that most are not interrupted."""
OFF, ON = 100, 2000
"""Nanoseconds that a call of a marked function may cost."""
KEPT_OFF, BLOCK_OFF, BLOCK_ON = 0.5, 1.25, 10.0
"""How many empty with blocks a block may cost, whose mark is kept in a name or asked for each time."""


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


def kept_mark(recorder: Profiled) -> Callable[[int], int]:
    """Use a block whose mark is kept in a name."""
    mark = recorder("block")

    def function(x: int) -> int:
        with mark:
            return x

    return function


class Empty:
    """The least that a block can be."""

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Do nothing."""


def empty_block(x: int) -> int:
    """Use a block that does nothing."""
    with Empty():
        return x


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
        "empty with block": empty_block,
        "with profiled, off": block(off),
        "with a kept mark, off": kept_mark(off),
        "with profiled, on": block(on),
    }
    costs_by_name: dict[str, list[float]] = {name: [] for name in loops}
    for number in range(rounds):
        order = list(loops) if number % 2 == 0 else list(reversed(loops))
        for name in order:
            costs_by_name[name].append(cost(loops[name]))
    base = costs_by_name["plain"]
    print(f"{rounds} rounds of {CALLS} calls; a plain call takes {statistics.median(base):.0f} ns\n")
    medians = {}
    for name, costs in costs_by_name.items():
        if name != "plain":
            added = [mine - least for mine, least in zip(costs, base, strict=True)]
            low, medians[name], high = statistics.quantiles(added, n=4)
            print(f"{name:<28} + {medians[name]:>5.0f} ns   ({low:.0f} to {high:.0f} ns)")
    print()
    for name, bound in (("@profiled, off", OFF), ("@profiled, on", ON)):
        print(f"{name}: {medians[name]:.0f} ns, bound {bound} ns: {verdict(medians[name], bound)}")
    for name, bound in (
        ("with a kept mark, off", KEPT_OFF),
        ("with profiled, off", BLOCK_OFF),
        ("with profiled, on", BLOCK_ON),
    ):
        ratio = medians[name] / medians["empty with block"]
        print(f"{name}: {ratio:.1f} x an empty block, bound {bound}: {verdict(ratio, bound)}")
    if find_spec("torch") is not None:
        compare_operators()


def verdict(overhead: float, bound: float) -> str:
    """Say whether a bound held."""
    return "held" if overhead <= bound else "BROKEN"


def compare_operators(rounds: int = 40) -> None:
    """Alternate calls of a network whose operators are recorded, and print the time of each kind."""
    import torch  # optional
    from torch.profiler import ProfilerActivity, profile  # optional

    torch.set_num_threads(1)
    network = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(20)))
    batch = torch.randn(8, 64)

    def step() -> None:
        with torch.no_grad():
            network(batch)

    def run_profiler(*, reads: bool = False, stacks: bool = False) -> None:
        with profile(
            activities=[ProfilerActivity.CPU], record_shapes=True, profile_memory=True, with_stack=stacks
        ) as recorded:
            step()
        if reads:
            recorded.key_averages()

    recorder = Profiled()
    recorder.enable()
    ours = recorder("step", ops=Schedule(active=rounds + 1))(step)
    ours()  # the data flow of the first one is followed
    kinds: dict[str, Callable[[], None]] = {
        "plain": step,
        "torch.profiler": run_profiler,
        "torch.profiler, stacks": lambda: run_profiler(stacks=True),
        "torch.profiler, and its table": lambda: run_profiler(reads=True),
        "with profiled, ops=True": ours,
    }
    times: dict[str, list[float]] = {name: [] for name in kinds}
    for number in range(rounds):
        for name in list(kinds) if number % 2 == 0 else list(reversed(kinds)):
            begin = perf_counter_ns()
            kinds[name]()
            times[name].append((perf_counter_ns() - begin) * 1e-6)
    print(f"\n{rounds} rounds of a call of 20 layers")
    for name, costs in times.items():
        print(f"{name:<30} {statistics.median(costs):>6.2f} ms")
    for name in ("torch.profiler", "torch.profiler, stacks", "torch.profiler, and its table"):
        ratios = [
            mine / theirs for mine, theirs in zip(times["with profiled, ops=True"], times[name], strict=True)
        ]
        low, middle, high = statistics.quantiles(ratios, n=4)
        print(f"ours is {middle:.2f} x {name} ({low:.2f} to {high:.2f})")


if __name__ == "__main__":
    main()
