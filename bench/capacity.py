"""The largest load that holds a bound, searched for on servers whose true capacity is known.

Every search has a bound of its own and noise of its own. Beside ours stand the rules of two peers as
their documents tell them, on the same servers and clock: perf_analyzer's (windows of 5 s until three
in a row agree to 10 %, then bisection of the whole range) and AIPerf's (doubling, then bisection, by
what each run gave). All in virtual time. The status is 1 where fewer than 95 of 100 of our intervals
hold the true capacity, or where a search took more than 10 measurements.

    python bench/capacity.py [--searches 100] [--seconds 20]
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from time import perf_counter
from typing import Any

import numpy as np
from scipy.signal import lfilter
from scipy.stats import gamma

from modeldyno.core import served
from modeldyno.core.approach import Step
from modeldyno.core.capacity import Capacity, Search, propose
from modeldyno.core.goal import Constraint
from modeldyno.core.ladder import Rung, plain
from modeldyno.core.load import Load
from modeldyno.core.metric import Query
from modeldyno.core.records import COLUMNS, Records
from modeldyno.core.served import Window
from modeldyno.testing.service import Durations, Service, exponential, lognormal
from modeldyno.testing.simulation import simulate

MOST = 256
WARM = 0.1
"""Share of a run that is its warm-up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server whose p99 under each concurrency is known."""

    service: Service
    p99: Callable[[int], float]
    bounds: tuple[float, float]
    """Seconds between which the bound on p99 is drawn."""

    def capacity(self, bound: float) -> int:
        """Give the largest concurrency that holds the bound; 0 for none."""
        return sum(1 for slots in range(1, MOST) if self.p99(slots) <= bound)


def markov(workers: int, seconds: float) -> Server:
    """Give exponential workers in a closed loop: a wait of Erlang's distribution, and then the service."""

    @lru_cache(None)
    def p99(slots: int) -> float:
        ahead = slots - workers
        if ahead <= 0:
            return -seconds * math.log(0.01)
        grid = (np.arange(4000) + 0.5) / 4000
        waits = gamma.ppf(grid, ahead, scale=seconds / workers)
        low, high = 0.0, 100 * seconds * slots
        for _ in range(60):
            middle = (low + high) / 2
            beyond = np.exp(-np.clip(middle - waits, 0, None) / seconds).mean()
            low, high = (middle, high) if beyond > 0.01 else (low, middle)
        return high

    return Server(
        service=Service(durations=exponential(seconds), workers=workers), p99=p99, bounds=(0.06, 0.6)
    )


def correlated(seconds: float, sigma: float, rho: float) -> Server:
    """Give one worker whose speed wanders: the logarithms of its times are an AR(1) process."""

    def draw(rng: np.random.Generator, count: int) -> np.ndarray:
        noise = rng.standard_normal(count) * math.sqrt(1 - rho**2)
        noise[0] /= math.sqrt(1 - rho**2)
        return seconds * np.exp(sigma * lfilter([1.0], [1.0, -rho], noise))

    durations = Durations(draw=draw, mean=seconds * math.exp(sigma**2 / 2), deviation=0.0)
    return Server(service=Service(durations=durations), p99=one_worker(durations), bounds=(0.02, 0.5))


def one_worker(durations: Durations) -> Callable[[int], float]:
    """Give the p99 of one worker in a closed loop: each waits for as many services as there are slots."""

    @lru_cache(None)
    def totals() -> np.ndarray:
        rng = np.random.default_rng(999)
        blocks = [durations.draw(rng, 4096) for _ in range(1000)]
        return np.concatenate(([0.0], np.cumsum(np.concatenate(blocks))))

    @lru_cache(None)
    def p99(slots: int) -> float:
        return float(np.quantile(totals()[slots:] - totals()[:-slots], 0.99))

    return p99


SERVERS: dict[str, Server] = {
    "M/M/4, 10 ms": markov(4, 0.010),
    "one worker, lognormal": Server(
        service=Service(durations=lognormal(0.004, 0.5)),
        p99=one_worker(lognormal(0.004, 0.5)),
        bounds=(0.02, 0.5),
    ),
    "one worker, correlated": correlated(0.004, 0.4, 0.95),
}


def taking_turns(service: Service, load: Load, seed: int) -> Records:
    """Give the records of one worker in a closed loop: slots take turns, so that no calendar is needed."""
    rng, slots = np.random.default_rng(seed), load.slots or 1
    count = int((load.duration or 0.0) / service.durations.mean * 1.3) // 4096 + 1
    ends = np.cumsum(np.concatenate([service.durations.draw(rng, 4096) for _ in range(count)]))
    ends = ends[: np.searchsorted(ends, load.duration)]
    due = np.concatenate((np.zeros(slots), ends))[: ends.size]
    columns: dict[str, Any] = {name: np.zeros(ends.size, dtype) for name, dtype in COLUMNS.items()}
    times = {"due": due, "sent": due, "first": ends, "end": ends}
    return Records(**columns | {name: (1e9 * column).astype("int64") + 1 for name, column in times.items()})


# --- a measurement ---------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Meter:
    """Measures a server in virtual time, afresh each time."""

    server: Server
    seed: int
    spent: float = 0.0
    runs: int = 0

    def window(self, slots: int, seconds: float) -> Window:
        """Put it under a load; the warm-up is cut off, and not counted as time that was spent."""
        self.runs += 1
        self.spent += seconds
        load = Load(concurrency=slots, duration=seconds * (1 + WARM) + 4 * slots * self.server.p99(1) / 99)
        seed = 1000 * self.seed + self.runs
        service = self.server.service
        records = (
            taking_turns(service, load, seed)
            if service.workers == 1
            else simulate(service, load, seed=seed).records
        )
        end = int(records.due.max())
        return Window(records=records, begin=end - int(seconds * 1e9), end=end, load=load)

    def p99(self, slots: int, seconds: float) -> float:
        """Give the plain quantile of one run."""
        due = self.window(slots, seconds).due()
        return float(np.quantile((due.end - due.due) * 1e-9, 0.99, method="inverted_cdf"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a search gave."""

    passed: float
    failed: float
    runs: int
    spent: float
    end: str = ""

    def holds(self, truth: int) -> bool:
        """Say whether the true capacity lies in what was answered."""
        return self.passed <= truth < self.failed


def ours(meter: Meter, bound: float, seconds: float) -> Found:
    """Search as we do."""
    constraint = Constraint(query=Query(metric="latency", statistic="p99"), at_most=True, bound=bound)
    search = Search(bounds=(constraint,), most=MOST)
    history: list[Rung] = []
    while isinstance(step := propose(search, history), Step):
        window = meter.window(round(step.load), seconds * step.care)
        measured = tuple(served.measurements(window))
        judged = (constraint.judge(measured),)
        history.append(
            Rung(load=step.load, judgements=judged, answers=tuple(plain(judged, measured)), care=step.care)
        )
    assert isinstance(step, Capacity)
    return Found(
        passed=step.passed or 0,
        failed=step.failed or math.inf,
        runs=meter.runs,
        spent=meter.spent,
        end=step.end,
    )


def aiperf(meter: Meter, bound: float, seconds: float) -> Found:
    """Double until the p99 of a run is too high, then bisect; at most 10 runs."""
    passed, failed, load = 0, math.inf, 1
    while meter.runs < 10 and failed - passed > 1:
        if meter.p99(load, seconds) <= bound:
            passed = load
        else:
            failed = load
        load = 2 * load if failed == math.inf else (passed + int(failed)) // 2
    return Found(passed=passed, failed=failed, runs=meter.runs, spent=meter.spent)


def perf_analyzer(meter: Meter, bound: float, _seconds: float) -> Found:
    """Bisect all loads, each measured in windows of 5 s until three in a row agree to 10 %."""
    passed, failed = 0, MOST
    runs = 0
    while failed - passed > 1:
        load = (passed + failed) // 2
        runs += 1
        value = stable(meter, load)
        if value is None:
            return Found(passed=passed, failed=failed, runs=runs, spent=meter.spent, end="unstable")
        passed, failed = (load, failed) if value <= bound else (passed, load)
    return Found(passed=passed, failed=failed, runs=runs, spent=meter.spent)


def stable(meter: Meter, load: int) -> float | None:
    """Give the mean p99 of three windows that agree; None where ten windows do not."""
    seen: list[tuple[float, float]] = []
    for _ in range(10):
        due = meter.window(load, 5.0).due()
        seen.append((float(np.quantile((due.end - due.due) * 1e-9, 0.99)), len(due) / 5.0))
        last = seen[-3:]
        if len(last) == 3 and all(max(column) <= 1.1 * min(column) for column in zip(*last, strict=True)):
            return sum(p99 for p99, _ in last) / 3
    return None


RULES = {"ours": ours, "AIPerf's rule": aiperf, "perf_analyzer's rule": perf_analyzer}


def search(order: tuple[str, str, int, float]) -> tuple[int, float, Found]:
    """Make one search; give the true capacity, the bound, and what was found."""
    name, rule, seed, seconds = order
    server = SERVERS[name]
    bound = float(np.exp(np.random.default_rng(seed).uniform(*np.log(server.bounds))))
    return server.capacity(bound), bound, RULES[rule](Meter(server=server, seed=seed), bound, seconds)


def lines(name: str, rule: str, found: list[tuple[int, float, Found]], verbose: bool) -> Iterator[str]:
    """Sum a rule's searches up."""
    all_found = [f for _, _, f in found]
    right = sum(f.holds(truth) for truth, _, f in found)
    widths = [f.failed / f.passed - 1 for f in all_found if f.passed and f.failed < math.inf]
    errors = [abs(f.passed - truth) / max(truth, 1) for truth, _, f in found]
    none = sum(f.end == "unstable" for f in all_found)
    runs, spent = [f.runs for f in all_found], [f.spent for f in all_found]
    yield (
        f"{name:24}{rule:22}{right:4} of {len(found)}  runs {np.mean(runs):4.1f} (at most {max(runs)})  "
        f"time {np.mean(spent):5.0f} s  width {np.median(widths) if widths else math.nan:6.1%}  "
        f"off {np.median(errors):6.1%} (p95 {np.quantile(errors, 0.95):6.1%})"
        + (f"  unstable {none}" if none else "")
    )
    if verbose:
        ends = [f.end for f in all_found]
        yield f"    ends: { {end: ends.count(end) for end in dict.fromkeys(ends)} }"
        for truth, bound, f in found:
            if not f.holds(truth):
                yield f"    missed: {truth} at {bound * 1e3:.1f} ms, answered {f}"


def main() -> int:
    """Search on all servers by all rules."""
    parser = argparse.ArgumentParser(description="the largest load that holds a bound, against known truth")
    parser.add_argument("--searches", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=20.0, help="of the Plan, for one load")
    parser.add_argument("--rule", choices=RULES, action="append")
    parser.add_argument("-v", "--verbose", action="store_true")
    given = parser.parse_args()
    status = 0
    with ProcessPoolExecutor() as pool:
        for name in SERVERS:
            for rule in given.rule or RULES:
                begin = perf_counter()
                orders = [(name, rule, seed, given.seconds) for seed in range(given.searches)]
                found = list(pool.map(search, orders, chunksize=4))
                for line in lines(name, rule, found, given.verbose):
                    print(line, flush=True)
                if given.verbose:
                    print(f"    in {perf_counter() - begin:.0f} s of ours")
                if rule == "ours":
                    right = sum(f.holds(truth) for truth, _, f in found)
                    status |= right < 0.95 * len(found) or max(f.runs for _, _, f in found) > 10
    return status


if __name__ == "__main__":
    sys.exit(main())
