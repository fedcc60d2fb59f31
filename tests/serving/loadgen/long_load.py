"""A load of so many requests that nobody sent, and what the probe made of it: run by test_record_spool.py.

    python long_load.py COUNT FILE

Request i is due at i x 100 us, and takes 1 ms and a part of another that is uniform; one takes 500 ms, three
are refused.
"""

from __future__ import annotations

import json
import resource
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from modeldyno.base.job.load_spec import Arrivals, Load
from modeldyno.base.job.probe_options import ProbeOptions
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Distribution, Measurement
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.engine.interfaces.probe import ProbeContext
from modeldyno.engine.interfaces.request_target import Target, Transport
from modeldyno.engine.interfaces.session import RequestSession
from modeldyno.serving.load.request_log import COLUMNS, Records, empty_records, join_records
from modeldyno.serving.loadgen import driver_pool
from modeldyno.serving.loadgen.running_load import LoadEnd, LoadProgress
from modeldyno.serving.probes import load as probe
from modeldyno.serving.probes import load_monitor
from modeldyno.testing.fakes import a_model

if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCK = 20_000
STEP = 100_000
SLOW, REFUSED = 70_000, (80_001, 80_002, 90_003)
SERVED = 1_000_000_000


class Stream:
    """A load that is over when so many requests have been told."""

    pids = ()

    def __init__(self, count: int) -> None:
        self.count = count
        self.taken = 0

    @property
    def now(self) -> int:
        """When all that was told has ended."""
        return SERVED + self.taken * STEP + 2_000_000

    def take(self, _wait: float) -> LoadProgress:
        """Tell of some more; the blocks of two drivers overlap."""
        first, self.taken = self.taken, min(self.taken + BLOCK, self.count)
        number = np.arange(first, self.taken)
        latency = 1_000_000 + (number * 7919) % 1_000_000
        latency[number == SLOW] = 500_000_000
        due = SERVED + number * STEP
        columns: dict[str, Any] = {name: np.zeros(number.size, dtype) for name, dtype in COLUMNS.items()}
        columns |= {"due": due, "sent": due + 1000, "first": due + latency, "end": due + latency}
        columns["outcome"][np.isin(number, REFUSED)] = RequestOutcome.REFUSED
        columns["driver"] = (number % 2).astype("int32")
        columns["message"] = (number % 8).astype("int32")
        records = join_records([Records(**columns)])
        return LoadProgress(records=records, in_flight=0, backlog=0, ended=self.taken == self.count)

    def usage(self) -> tuple[()]:
        """Cost nothing."""
        return ()

    def stop(self, _grace: float) -> LoadEnd:
        """Tell of nothing more."""
        return LoadEnd(records=empty_records(), replies=(), usages=())


class Session(RequestSession):
    """A server that nobody asks."""

    pid = None

    def target(self, _feeds: object) -> Target:
        """Name no server."""
        return Target(protocol="", transport=Transport.HTTP, host="", port=0, messages=(b"1", b"2"))

    def arrays(self, _reply: object) -> dict[str, Any]:
        """Read nothing."""
        return {}


def peak() -> float:
    """Give the most bytes that this process held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main(count: int, path: str) -> dict[str, Any]:
    """Measure it."""
    stream = Stream(count)

    @contextmanager
    def streaming(*_: object, **__: object) -> Iterator[Stream]:
        yield stream

    driver_pool.run_load_drivers = streaming  # type: ignore[assignment]
    vars(load_monitor).update(perf_counter=lambda: stream.now * 1e-9, monotonic_ns=lambda: stream.now)
    load = Load(arrivals=Arrivals.CONSTANT, rate=1e9 / STEP, requests=10 * count)
    subject = ProbeContext(
        model=a_model(), session=Session(), load=load, observation=ProbeOptions(records=path or None)
    )
    np.random.default_rng(0).random(10).sort()  # what numpy loads late is no part of a load
    base = peak()
    yielded = list(probe.measure(subject, Plan(max_time=600.0, max_runs=10 * count)))
    numbers = {(m.metric, m.scope): m.value for m in yielded if isinstance(m, Measurement)}
    latency = numbers["latency", ""]
    assert isinstance(latency, Distribution)
    return {
        "grown": peak() - base,
        "kept": len(latency),
        "dropped": latency.warmup_dropped,
        "stop": latency.stop,
        "latency": {name: latency.statistic(name) for name in ("min", "p50", "p99", "max", "mean")},
        "requests": {scope: value for (metric, scope), value in numbers.items() if metric == "requests"},
        "doubts": [each.code for each in yielded if isinstance(each, Doubt)],
    }


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), sys.argv[2])))
