"""Stages of requests on their way, from the time stamps that a server's trace has of some of them.

Stamps and the client's record are of one clock, the monotonic one of the machine, and each stage begins where
the one before ends, so that the stages of a request are all of its service time. They are means of the
requests that were traced, whose service time may differ from that of all: by chance, and by the cost of
tracing.
"""

from __future__ import annotations

from enum import StrEnum
from math import ceil, gcd
from typing import TYPE_CHECKING

from modeldyno.base.metrics.measurement import FEWEST_WINDOWS, observed_number, ratio_number
from modeldyno.base.stats import statistics
from modeldyno.serving.load.request_log import sample_records
from modeldyno.serving.load.steady_window import NANO

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.base.metrics.measurement import Measurement
    from modeldyno.base.result.result import Result
    from modeldyno.engine.interfaces.server_stats import RequestStamps
    from modeldyno.serving.load.request_log import Column
    from modeldyno.serving.load.steady_window import SteadyWindow

STAGE_TIME = "stage_time"
UNTRACED = "not traced"
"""Scope of what the service time of all requests is longer than that of the traced ones."""
_PARTS = 80
"""Parts of the traced requests whose variation gives the intervals."""
_TRACED_RATE = 400.0
"""Traced requests per second: enough for means, and at some 25 us each one percent of a core."""


class RequestStage(StrEnum):
    """A stage of a request, in the order in which it passes them."""

    THERE = "way to the server"
    """From its sending until the server has read all of it."""
    PARSE = "request parsed"
    """Until it is in the queue."""
    QUEUE = "queue"
    INPUT = "server inputs"
    COMPUTE = "server compute"
    OUTPUT = "server outputs"
    """Until the response has all outputs."""
    ANSWER = "answer formed"
    """Until the server begins to write the answer."""
    BACK = "way to the client"
    """Until the client has read all of it."""


def has_stages(result: Result) -> bool:
    """Return whether the server of a Result traced requests."""
    return result.find(STAGE_TIME, UNTRACED) is not None


def tracing_step(rate: float, messages: int) -> int:
    """Return n such that one of n requests is traced: few enough at this rate, and each message in turn."""
    step = max(1, ceil(rate / _TRACED_RATE))
    while gcd(step, messages) > 1:
        step += 1
    return step


def measurements(window: SteadyWindow, stamps: Sequence[RequestStamps]) -> Iterator[Measurement]:
    """Yield the mean time of each stage of the traced requests that were due in the window and answered well.

    With it comes by how much the service time of all of these is longer; stamps of others are left out.
    """
    np = statistics.load_numpy()
    records = sample_records(window.due().where(lambda part: part.fine))
    if not stamps or not len(records):
        return
    order = np.argsort(records.sent, kind="stable")
    ids = np.array([stamp.sent for stamp in stamps])
    places = order[np.minimum(np.searchsorted(records.sent[order], ids), order.size - 1)]
    known = records.sent[places] == ids
    if not known.any():
        return
    traced = records.at(places[known])
    edges = np.column_stack((traced.sent, np.array([stamp.ends for stamp in stamps])[known], traced.end))
    by_due = np.argsort(traced.due, kind="stable")
    parts = np.array_split(np.diff(edges[by_due], axis=1) * NANO, min(_PARTS, len(traced)))
    counts = np.array([len(part) for part in parts])
    sums = np.array([part.sum(axis=0) for part in parts])
    for stage, amounts in zip(RequestStage, sums.T, strict=True):
        yield _mean(stage, amounts, counts)
    first_dues = traced.due[by_due][np.cumsum(counts) - counts]
    part_of = np.maximum(np.searchsorted(first_dues, records.due, side="right") - 1, 0)
    service = np.bincount(part_of, (records.end - records.sent) * NANO, len(parts))
    means = service / np.bincount(part_of, minlength=len(parts))
    yield _mean(UNTRACED, means * counts - sums.sum(axis=1), counts)


def _mean(scope: str, amounts: Column, counts: Column) -> Measurement:
    if len(amounts) < FEWEST_WINDOWS:
        return observed_number(STAGE_TIME, float(amounts.sum() / counts.sum()), scope=scope)
    return ratio_number(STAGE_TIME, amounts, counts, scope=scope)
