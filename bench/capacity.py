"""The largest load that holds a bound, searched for on servers whose true capacity is known.

Every search has a bound of its own and noise of its own. Beside ours stand the rules of two peers as
their documents tell them, on the same servers and clock: perf_analyzer's (windows of 5 s until three
in a row agree to 10 %, then bisection of the whole range) and AIPerf's (doubling, then bisection, by
what each run gave). They search the concurrency of a closed loop; ours also the rate of an open one, where
a load above the capacity has no steady state. All in virtual time. The status is 1 where fewer than 95
of 100 of our intervals hold the true capacity, or where a search took more than 10 measurements.

    python bench/capacity.py [--searches 100] [--seconds 20] [--server rate]
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from scipy.signal import lfilter
from scipy.stats import gamma

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.support import queueing_theory as queueing
from tests.support.simulated_load import simulate

from modeldyno.base.job.load_spec import Arrivals, Load
from modeldyno.base.metrics.constraints import Constraint
from modeldyno.base.metrics.metric import Query
from modeldyno.base.metrics.queries import answers_under_load
from modeldyno.serving.load import load_analysis
from modeldyno.serving.load.capacity import Capacity, propose
from modeldyno.serving.load.capacity_steps import CONCURRENCY, RATE, CapacitySearch, NextLoad
from modeldyno.serving.load.load_curve import LoadPoint, raw_percentiles
from modeldyno.serving.load.request_log import COLUMNS, Records, sample_records
from modeldyno.serving.load.steady_window import SteadyWindow
from modeldyno.testing.service_model import Durations, Service, exponential, lognormal

MOST = 256
WARM = 0.1
"""Share of a run that is its warm-up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server whose p99 under each load is known."""

    service: Service
    p99: Callable[[float], float]
    bounds: tuple[float, float]
    """Seconds between which the bound on p99 is drawn."""
    knob: str = CONCURRENCY

    @property
    def overload_rate(self) -> float:
        """The rate of an open loop at which it is busy all the time."""
        return self.service.workers / self.service.durations.mean

    def capacity(self, bound: float) -> float:
        """Give the largest load that holds the bound; 0 for none."""
        if self.knob == CONCURRENCY:
            return sum(1 for slots in range(1, MOST) if self.p99(slots) <= bound)
        low, high = 0.0, self.overload_rate
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if self.p99(middle) <= bound else (low, middle)
        return low


def open_markov(workers: int, seconds: float) -> Server:
    """Give exponential workers in an open loop, M/M/k."""
    service = Service(durations=exponential(seconds), workers=workers)

    @lru_cache(None)
    def p99(rate: float) -> float:
        return queueing.open_exponential(rate, seconds, workers).quantile(0.99) if rate else 0.0

    idle = -seconds * math.log(0.01)
    return Server(service=service, p99=p99, bounds=(1.2 * idle, 20 * idle), knob=RATE)


def open_worker(durations: Durations) -> Server:
    """Give one worker in an open loop: its p99 by a very long run under each of many rates, and between."""

    @lru_cache(None)
    def curve() -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(999)
        times = np.concatenate([durations.draw(rng, 4096) for _ in range(3000)])
        gaps = rng.exponential(1.0, times.size)
        busy = 1 - np.geomspace(0.98, 0.02, 60)
        return busy, np.array([np.quantile(_sojourns(times, gaps * durations.mean / b), 0.99) for b in busy])

    def p99(rate: float) -> float:
        busy, latencies = curve()
        return float(np.exp(np.interp(rate * durations.mean, busy, np.log(latencies))))

    idle = float(np.quantile(np.concatenate([durations.draw(np.random.default_rng(1), 4096)] * 9), 0.99))
    return Server(service=Service(durations=durations), p99=p99, bounds=(1.6 * idle, 10 * idle), knob=RATE)


def _sojourns(times: np.ndarray, gaps: np.ndarray) -> np.ndarray:
    """Give how long each request is with one worker that takes so long, when they come at these gaps."""
    excess: np.ndarray = np.cumsum(times[:-1] - gaps[1:])
    least = np.minimum.accumulate(np.minimum(excess, 0.0))
    waited: np.ndarray = np.concatenate(([0.0], excess - least)) + times
    return waited


def markov(workers: int, seconds: float) -> Server:
    """Give exponential workers in a closed loop: a wait of Erlang's distribution, and then the service."""

    @lru_cache(None)
    def p99(slots: float) -> float:
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


def correlated_durations(seconds: float, sigma: float, rho: float) -> Durations:
    """Give times of a worker whose speed wanders: their logarithms are an AR(1) process."""

    def draw(rng: np.random.Generator, count: int) -> np.ndarray:
        noise = rng.standard_normal(count) * math.sqrt(1 - rho**2)
        noise[:1] /= math.sqrt(1 - rho**2)
        times: np.ndarray = seconds * np.exp(sigma * lfilter([1.0], [1.0, -rho], noise))
        return times

    return Durations(draw=draw, mean=seconds * math.exp(sigma**2 / 2), deviation=0.0)


def closed_worker(durations: Durations) -> Server:
    """Give one worker in a closed loop."""
    return Server(service=Service(durations=durations), p99=one_worker(durations), bounds=(0.02, 0.5))


def one_worker(durations: Durations) -> Callable[[float], float]:
    """Give the p99 of one worker in a closed loop: each waits for as many services as there are slots."""

    @lru_cache(None)
    def totals() -> np.ndarray:
        rng = np.random.default_rng(999)
        blocks = [durations.draw(rng, 4096) for _ in range(1000)]
        return np.concatenate(([0.0], np.cumsum(np.concatenate(blocks))))

    @lru_cache(None)
    def p99(load: float) -> float:
        slots = round(load)
        return float(np.quantile(totals()[slots:] - totals()[:-slots], 0.99))

    return p99


SERVERS: dict[str, Server] = {
    "M/M/4, 10 ms": markov(4, 0.010),
    "one worker, lognormal": closed_worker(lognormal(0.004, 0.5)),
    "one worker, correlated": closed_worker(correlated_durations(0.004, 0.4, 0.95)),
    "rate, M/M/1, 4 ms": open_markov(1, 0.004),
    "rate, M/M/4, 10 ms": open_markov(4, 0.010),
    "rate, lognormal": open_worker(lognormal(0.004, 0.5)),
    "rate, correlated": open_worker(correlated_durations(0.004, 0.4, 0.95)),
}


def taking_turns(service: Service, load: Load, seed: int) -> Records:
    """Give the records of one worker in a closed loop: slots take turns, so that no calendar is needed."""
    rng, slots = np.random.default_rng(seed), load.slots or 1
    count = int((load.duration or 0.0) / service.durations.mean * 1.3) // 4096 + 1
    ends = np.cumsum(np.concatenate([service.durations.draw(rng, 4096) for _ in range(count)]))
    ends = ends[: np.searchsorted(ends, load.duration or 0.0)]
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

    def window(self, value: float, seconds: float) -> SteadyWindow:
        """Put it under a load; the warm-up is cut off, and not counted as time that was spent."""
        self.runs += 1
        self.spent += seconds
        seed, service = 1000 * self.seed + self.runs, self.server.service
        if self.server.knob == RATE:
            load = Load(arrivals=Arrivals.POISSON, rate=value, duration=seconds * (1 + WARM))
            records = simulate(service, load, seed=seed).records
            begin = int(records.due.min()) + int(seconds * WARM * 1e9)
            return SteadyWindow(records=records, begin=begin, end=begin + int(seconds * 1e9), load=load)
        slots = round(value)
        load = Load(concurrency=slots, duration=seconds * (1 + WARM) + 4 * slots * self.server.p99(1) / 99)
        records = (
            taking_turns(service, load, seed)
            if service.workers == 1
            else simulate(service, load, seed=seed).records
        )
        end = int(records.due.max())
        return SteadyWindow(records=records, begin=end - int(seconds * 1e9), end=end, load=load)

    def p99(self, slots: int, seconds: float) -> float:
        """Give the plain quantile of one run."""
        due = sample_records(self.window(slots, seconds).due())
        return float(np.quantile((due.end - due.due) * 1e-9, 0.99, method="inverted_cdf"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a search gave."""

    passed: float
    failed: float
    runs: int
    spent: float
    end: str = ""
    path: tuple[tuple[float, float, str, str], ...] = ()
    """The loads, for how many times as long as planned, the codes of their doubts, and the verdicts."""

    def holds(self, truth: float) -> bool:
        """Say whether the true capacity lies in what was answered."""
        return self.passed <= truth < self.failed


def ours(meter: Meter, bound: float, seconds: float) -> Found:
    """Search as we do."""
    constraint = Constraint(query=Query(metric="latency", statistic="p99"), at_most=True, bound=bound)
    search = CapacitySearch(bounds=(constraint,), most=MOST)
    if meter.server.knob == RATE:  # a user begins anywhere between a hundredth and three times of it
        first = meter.server.overload_rate * float(
            np.exp(np.random.default_rng(meter.seed).uniform(-4.6, 1.1))
        )
        search = CapacitySearch(bounds=(constraint,), knob=RATE, start=first, most=1024 * first)
    history: list[LoadPoint] = []
    while isinstance(step := propose(search, history), NextLoad):
        window = meter.window(step.load, seconds * step.care)
        measured = tuple(load_analysis.measurements(window))
        judged = (constraint.judge(measured),)
        history.append(
            LoadPoint(
                load=step.load,
                judgements=judged,
                answers=(*answers_under_load(measured), *raw_percentiles(judged, measured)),
                doubts=tuple(doubt.code for doubt in load_analysis.doubts(window)),
                care=step.care,
            )
        )
    assert isinstance(step, Capacity)
    return Found(
        passed=step.passed or 0,
        failed=step.failed or math.inf,
        runs=meter.runs,
        spent=meter.spent,
        end=step.end,
        path=tuple((r.load, r.care, ",".join(r.doubts), str(r.judgements[0].verdict)) for r in history),
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
    percentiles: list[tuple[float, float]] = []
    for _ in range(10):
        due = sample_records(meter.window(load, 5.0).due())
        percentiles.append((float(np.quantile((due.end - due.due) * 1e-9, 0.99)), len(due) / 5.0))
        last = percentiles[-3:]
        if len(last) == 3 and all(max(column) <= 1.1 * min(column) for column in zip(*last, strict=True)):
            return sum(p99 for p99, _ in last) / 3
    return None


RULES = {"ours": ours, "AIPerf's rule": aiperf, "perf_analyzer's rule": perf_analyzer}


def search(order: tuple[str, str, int, float]) -> tuple[float, float, Found]:
    """Make one search; give the true capacity, the bound, and what was found."""
    name, rule, seed, seconds = order
    server = SERVERS[name]
    bound = float(np.exp(np.random.default_rng(seed).uniform(*np.log(server.bounds))))
    return server.capacity(bound), bound, RULES[rule](Meter(server=server, seed=seed), bound, seconds)


def lines(name: str, rule: str, outcomes: list[tuple[float, float, Found]], verbose: bool) -> Iterator[str]:
    """Sum a rule's searches up."""
    all_found = [f for _, _, f in outcomes]
    right = sum(f.holds(truth) for truth, _, f in outcomes)
    widths = [f.failed / f.passed - 1 for f in all_found if f.passed and f.failed < math.inf]
    errors = [abs(f.passed - truth) / max(truth, 1) for truth, _, f in outcomes]
    none = sum(f.end == "unstable" for f in all_found)
    runs, spent = [f.runs for f in all_found], [f.spent for f in all_found]
    yield (
        f"{name:24}{rule:22}{right:4} of {len(outcomes)}  runs {np.mean(runs):4.1f} (at most {max(runs)})  "
        f"time {np.mean(spent):5.0f} s  width {np.median(widths) if widths else math.nan:6.1%}  "
        f"off {np.median(errors):6.1%} (p95 {np.quantile(errors, 0.95):6.1%})"
        + (f"  unstable {none}" if none else "")
    )
    if verbose:
        ends = [f.end for f in all_found]
        yield f"    ends: { {end: ends.count(end) for end in dict.fromkeys(ends)} }"
        for truth, bound, f in outcomes:
            if not f.holds(truth):
                yield f"    missed: {truth:.5g} at {bound * 1e3:.1f} ms, answered {f}"


def main() -> int:
    """Search on all servers by all rules."""
    parser = argparse.ArgumentParser(description="the largest load that holds a bound, against known truth")
    parser.add_argument("--searches", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=20.0, help="of the Plan, for one load")
    parser.add_argument("--rule", choices=RULES, action="append")
    parser.add_argument("--server", default="", help="only those whose names hold this")
    parser.add_argument("-v", "--verbose", action="store_true")
    options = parser.parse_args()
    status = 0
    with ProcessPoolExecutor() as pool:
        for name in (name for name in SERVERS if options.server in name):
            rules = options.rule or RULES
            for rule in rules if SERVERS[name].knob == CONCURRENCY else {"ours"}.intersection(rules):
                begin = perf_counter()
                orders = [(name, rule, seed, options.seconds) for seed in range(options.searches)]
                outcomes = list(pool.map(search, orders, chunksize=4))
                for line in lines(name, rule, outcomes, options.verbose):
                    print(line, flush=True)
                if options.verbose:
                    print(f"    in {perf_counter() - begin:.0f} s of ours")
                if rule == "ours":
                    right = sum(f.holds(truth) for truth, _, f in outcomes)
                    status |= right < 0.95 * len(outcomes) or max(f.runs for _, _, f in outcomes) > 10
    return status


if __name__ == "__main__":
    sys.exit(main())
