"""The times of a group of requests: the second turns of sessions, or those that one server answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base.metrics.measurement import Distribution, Measurement
from modeldyno.base.stats import statistics
from modeldyno.serving.load.answer_times import answer_time
from modeldyno.serving.load.request_log import FirstPieces, sample_records
from modeldyno.serving.load.steady_window import NANO

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.serving.load.request_log import Records
    from modeldyno.serving.load.steady_window import SteadyWindow

_SAMPLE = 100_000
"""Most requests whose times are kept by group."""


def answered_requests(window: SteadyWindow) -> Records:
    """Return the requests of a window that were answered well, with the first piece of each answer."""
    return sample_records(FirstPieces(records=window.due().where(lambda part: part.fine)), _SAMPLE)


def group_times(window: SteadyWindow, records: Records, scope: str, why: str) -> Iterator[Measurement]:
    """Yield latency and time to the first token of a group, in the order in which its requests were due."""
    np = statistics.load_numpy()
    records = records.at(np.argsort(records.due, kind="stable"))
    for metric in ("latency", "time_to_first_token"):
        times = answer_time(metric, records) * NANO
        if (known := times[~np.isnan(times)]).size:
            value = Distribution.of(known, void=why, **window.how)
            yield Measurement(metric=metric, value=value, scope=scope)
