"""How even the calls of a model are: the time of the quickest of a few calls relative to their median."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from time import perf_counter

from modeldyno.plugin import (
    Better,
    Doubt,
    LocalSession,
    Measurement,
    MetricRow,
    Pass,
    Plan,
    Probe,
    ProbeContext,
    observed_number,
)

METRICS = {
    "call_evenness": MetricRow(
        name="call_evenness",
        unit="1",
        better=Better.HIGHER,
        sentence="Time of the quickest call relative to the median.",
    )
}
"""What an entry point of modeldyno.metrics names: without it there is no bound on the metric."""

CALLS = 20


class CallEvenness(Probe):
    """Times a few calls one by one."""

    needs = LocalSession
    pass_ = Pass.SECOND
    metrics = ("call_evenness",)

    def measure(self, subject: ProbeContext, plan: Plan) -> Iterator[Measurement | Doubt]:
        """Yield the metric; and a doubt, if few calls were made."""
        times = []
        for number in range(CALLS):
            if subject.interrupted():
                break
            call = subject.calls[number % len(subject.calls)]
            begin = perf_counter()
            call()
            times.append(perf_counter() - begin)
        if times:
            yield observed_number("call_evenness", min(times) / median(times))
        if len(times) < CALLS:
            yield Doubt(
                code="few-calls", seen=f"evenness of {len(times)} calls", advice="let the run come to its end"
            )
