"""Sample explanations, for tests of code that reads or shows them: results whose parts are known."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from modeldyno.base.job.load_spec import Load
from modeldyno.base.metrics.measurement import Distribution, Interval, Measurement, observed_number
from modeldyno.serving.load.explanation import ECHO, Explanation, RunLevel
from modeldyno.serving.load.request_stages import STAGE_TIME, UNTRACED, RequestStage
from modeldyno.testing.sample_results import a_job, a_small_result

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from modeldyno.base.result.result import Result

MILLI = 1e-3
_CREATED = "2026-01-02T03:04:05.678+00:00"
ALONE = {"compute": 5.2, "queue": 0.02, "input": 0.1, "output": 0.08, "network": 0.5, "wait": 0.01}
"""Milliseconds of the stages of a request alone, which takes 5.91 ms."""
LOADED = {"compute": 5.6, "queue": 9.0, "input": 0.1, "output": 0.1, "network": 0.6, "wait": 0.02}
"""Those of a request under load, which takes 15.42 ms."""
_METRICS = {
    "compute": "compute_time", "queue": "queue_time", "input": "compute_input_time",
    "output": "compute_output_time", "network": "network_time",
}  # fmt: skip


def spread(milliseconds: float, count: int = 40) -> Distribution:
    """Return samples with this mean, 1 % around it."""
    steps = [1 + 0.01 * (2 * (place % 2) - 1) for place in range(count)]
    return Distribution.of([milliseconds * MILLI * step for step in steps])


def a_called_result(
    latency: float = 5.0,
    *,
    bound: float | None = 3.0,
    parts: tuple[float, float, float] | None = (4.2, 0.8, 4.96),
) -> Result:
    """Return a profile; `parts` are milliseconds in operators, outside of them, and of an unwatched call."""
    measurements = [Measurement(metric="latency", value=spread(latency))]
    if bound is not None:
        measurements.append(Measurement(metric="roofline_latency", value=bound * MILLI, scope="here"))
    names = ("operator_time", "dispatch_time", "unwatched_time")
    measurements += [
        Measurement(metric=name, value=spread(part), scope="ops")
        for name, part in zip(names, parts or (), strict=False)
    ]
    return a_small_result(name="mini", model=None, job=a_job("mini"), measurements=tuple(measurements))


def a_served_result(
    stages: Mapping[str, float], concurrency: int = 1, *, known: bool = True, count: int = 40
) -> Result:
    """Return a load; without `known` its server reports no statistics."""
    waited = stages["wait"]
    service = sum(stages.values()) - waited
    measurements = [
        Measurement(metric="latency", value=spread(service + waited, count)),
        Measurement(metric="service_time", value=spread(service, count)),
        Measurement(metric="send_lag", value=spread(waited, count)),
    ]
    if known:
        measurements += _numbers((_METRICS[name], time) for name, time in stages.items() if name in _METRICS)
    job = replace(a_job("mini"), backend="triton", probes=("load",), load=Load(concurrency=concurrency))
    return a_small_result(name="mini", model=None, job=job, measurements=tuple(measurements))


STAMPED_ALONE = dict(zip(RequestStage, (0.1, 0.05, 0.02, 0.1, 5.2, 0.06, 0.07, 0.3), strict=True))
"""Milliseconds of the stages of a request alone by time stamps: 5.9 ms, the service time of `ALONE`."""
STAMPED_LOADED = dict(zip(RequestStage, (0.2, 0.05, 9.0, 0.1, 5.6, 0.08, 0.07, 0.3), strict=True))
"""Those of a request under load: 15.4 ms, the service time of `LOADED`."""


def a_stamped_result(result: Result, stages: Mapping[RequestStage, float], untraced: float = 0.0) -> Result:
    """Return a load whose server traced requests, too; all requests took `untraced` milliseconds longer."""
    measurements = [
        observed_number(
            STAGE_TIME,
            time * MILLI,
            scope=scope,
            interval=Interval(low=(time - 0.01) * MILLI, high=(time + 0.01) * MILLI),
        )
        for scope, time in [*stages.items(), (UNTRACED, untraced)]
    ]
    return replace(result, measurements=(*result.measurements, *measurements))


def _numbers(times: Iterable[tuple[str, float]]) -> list[Measurement]:
    return [
        observed_number(
            metric, time * MILLI, interval=Interval(low=0.98 * time * MILLI, high=1.02 * time * MILLI)
        )
        for metric, time in times
    ]


def an_explanation(**changes: Any) -> Explanation:
    """Return the explanation of a model that was called, served alone and under load, with an echo."""
    echo = {"compute": 0.1, "queue": 0.02, "input": 0.1, "output": 0.08, "network": 0.45, "wait": 0.01}
    parts: dict[str, Any] = {
        "id": "e4b1" * 3,
        "created": _CREATED,
        "results": {
            RunLevel.IN_PROCESS.value: a_called_result(),
            RunLevel.ALONE.value: a_served_result(ALONE),
            RunLevel.LOADED.value: a_served_result(LOADED, 4),
            ECHO: a_served_result(echo),
        },
    }
    return Explanation(**(parts | changes))
