"""What we say of a load beside what the server itself recorded of the same requests.

A server of known service times is put under a load; its own record of each request (from the arrival of
the whole request to the writing of its answer) is the truth. What lies between is the loopback: every
other request asks for what is answered at once, and tells how long it takes under the same circumstances.
What is expected is the truth with a loopback drawn at random added to each request. The status is 1 where
mean, p50, p95 or p99 of the service time, in the median of the rounds, is off from that by more than 2 %.

Then the two figures of the open loop: the lag of sending at 2,000 requests a second, and a stall of 2 s,
which belongs into the latency of all that were due in it.

    python bench/served_truth.py [--rounds 5] [--seconds 20] [--priority]

With --priority (root only) the load and the server go before the machine's other processes.
"""

from __future__ import annotations

import argparse
import os
import sys
from statistics import median
from time import monotonic
from typing import TYPE_CHECKING

import numpy as np

from modeldyno.base.job.load_spec import Arrivals, Load
from modeldyno.base.metrics.measurement import Distribution
from modeldyno.engine.interfaces.request_target import Target, Transport
from modeldyno.serving.load import load_analysis
from modeldyno.serving.load.request_log import join_records
from modeldyno.serving.load.steady_window import SteadyWindow
from modeldyno.serving.loadgen.driver_pool import run_load_drivers
from modeldyno.testing.server import serve_in_subprocess

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.serving.load.request_log import Records
    from modeldyno.testing.server import RunningServer

STATISTICS = ("mean", "p50", "p95", "p99")
ALLOWED = 0.02
CASES: dict[str, tuple[tuple[str, ...], Load]] = {  # half of the requests are work
    "M/M/1 at 50 %": (
        ("--service", "exponential:0.010"),
        Load(arrivals=Arrivals.POISSON, rate=100),
    ),
    "M/M/4 at 80 %": (
        ("--service", "exponential:0.010", "--workers", "4"),
        Load(arrivals=Arrivals.POISSON, rate=640),
    ),
    "M/D/1 at 80 %": (
        ("--service", "constant:0.010"),
        Load(arrivals=Arrivals.POISSON, rate=160),
    ),
    "closed, 8 on 2, lognormal": (
        ("--service", "lognormal:0.010:0.5", "--workers", "2"),
        Load(concurrency=8),
    ),
    "closed, 16 in batches of 8": (
        ("--service", "constant:0.010", "--batch", "8", "--delay", "0.002", "--each", "0.001"),
        Load(concurrency=16),
    ),
}


WORK, AT_ONCE = "/", "/v2/health/ready"


def drive(
    server: RunningServer, load: Load, seconds: float, seed: int, paths: tuple[str, ...] = (WORK,)
) -> Records:
    """Put a server under a load for so long, and let it drain; the paths take turns."""
    messages = tuple(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() for path in paths)
    target = Target(
        protocol="http", transport=Transport.HTTP, host=server.host, port=server.port, messages=messages
    )
    parts = []
    with run_load_drivers(target, load, seed=seed) as driving_:
        end = monotonic() + seconds
        while monotonic() < end:
            parts.append(driving_.take(0.25).records)
        return join_records([*parts, driving_.stop(10.0).records])


def report_metric(records: Records, load: Load, metric: str) -> Distribution:
    """Give what we report of all requests of a load."""
    window = SteadyWindow(
        records=records, begin=int(records.due.min()), end=int(records.due.max()) + 1, load=load
    )
    spread = next(each.value for each in load_analysis.measurements(window) if each.metric == metric)
    assert isinstance(spread, Distribution)
    return spread


def compare(arguments: tuple[str, ...], load: Load, seconds: float, seed: int) -> dict[str, float]:
    """Give of each statistic how far ours is off, and the truth; and the mean loopback."""
    with serve_in_subprocess(*arguments, "--seed", str(seed)) as server:
        records = drive(server, load, seconds, seed, (WORK, AT_ONCE))
        truth = server.truth()
    work, at_once = (records.chosen(records.message == message) for message in (0, 1))
    assert len(work) == len(truth) == int(work.fine.sum())
    ours = report_metric(work, load, "service_time")
    between = report_metric(at_once, load, "service_time")
    true = (truth.end - truth.arrival) * 1e-9
    drawn = np.random.default_rng(seed).choice(between.samples(), true.size)
    theirs, expected = Distribution.of(true), Distribution.of(true + drawn)
    off = {name: ours.statistic(name) / expected.statistic(name) - 1 for name in STATISTICS}
    true_values = {f"true {name}": theirs.statistic(name) for name in STATISTICS}
    return off | true_values | {"loopback": between.statistic("mean")}


def rows(rounds: int, seconds: float) -> Iterator[bool]:
    """Print a row for each case; give whether it is within what is allowed."""
    print(f"{'':28}{'loopback':>9}" + "".join(f"{name:>20}" for name in STATISTICS))
    print(f"{'':28}{'':>9}" + "".join(f"{'true':>12}{'off':>8}" for _ in STATISTICS))
    for name, (arguments, load) in CASES.items():
        compared_rows = [compare(arguments, load, seconds, seed) for seed in range(rounds)]
        between = median(row["loopback"] for row in compared_rows)
        off = {each: median(row[each] for row in compared_rows) for each in STATISTICS}
        true = {each: median(row[f"true {each}"] for row in compared_rows) for each in STATISTICS}
        figures = "".join(f"{true[each] * 1e3:9.3f} ms{off[each]:8.2%}" for each in STATISTICS)
        print(f"{name:28}{between * 1e6:6.0f} us{figures}", flush=True)
        yield max(map(abs, off.values())) <= ALLOWED


def open_loop(seconds: float) -> bool:
    """Print how late requests are sent, and what a stall does; give whether both are as they should be."""
    load = Load(arrivals=Arrivals.POISSON, rate=2000)
    with serve_in_subprocess() as server:
        lag = report_metric(drive(server, load, seconds, 0), load, "send_lag").statistic("p99")
    print(f"\n2,000/s poisson: send lag p99 {lag * 1e6:.0f} us")
    slots = Load(arrivals=Arrivals.POISSON, rate=2000, concurrency=16)
    with serve_in_subprocess("--service", "constant:0.001", "--workers", "4", "--stall", "4:2") as server:
        records = drive(server, slots, 12.0, 0)
    latency, service = (report_metric(records, slots, name) for name in ("latency", "service_time"))
    late, low = latency.statistic("p99"), service.statistic("p99")
    print(f"stalled for 2 s: latency p99 {late:.2f} s, service time p99 {low * 1e3:.1f} ms")
    return lag <= 1e-3 and late > 1.0 > 10 * low


def main() -> int:
    """Run all; say whether the figures hold."""
    parser = argparse.ArgumentParser(description="our record of a load beside the server's own")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each load")
    parser.add_argument("--priority", action="store_true", help="before the machine's other processes")
    options = parser.parse_args()
    if options.priority:
        os.setpriority(os.PRIO_PROCESS, 0, -15)
    held = all(list(rows(options.rounds, options.seconds)))
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    return 0 if open_loop(options.seconds) and held else 1


if __name__ == "__main__":
    sys.exit(main())
