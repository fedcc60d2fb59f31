"""Reads inference servers' own request statistics from Prometheus' text format."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.base.system.prometheus_samples import Samples, sum_samples
from modeldyno.engine.interfaces.server_stats import ServerCounters

if TYPE_CHECKING:
    from pathlib import Path

_MICRO = 1e-6
_MLSERVER_HTTP = "rest_server_request_duration_seconds_sum"


def torchserve_counters(samples: Samples, model: str) -> tuple[ServerCounters, float]:
    """Return TorchServe's requests and their queue time, and the total seconds from arrival to answer."""
    account = ServerCounters(
        requests=int(sum_samples(samples, "ts_inference_requests_total", model_name=model) or 0),
        queue=(sum_samples(samples, "ts_queue_latency_microseconds", model_name=model) or 0.0) * _MICRO,
    )
    total = sum_samples(samples, "ts_inference_latency_microseconds", model_name=model) or 0.0
    return account, total * _MICRO


def mlserver_counters(samples: Samples, model: str) -> tuple[ServerCounters, float, float]:
    """Return MLServer's requests, and the total seconds that they spent in the model and in the server.

    Over gRPC it reports only the former, which then stands for both.
    """
    account = ServerCounters(
        requests=int(sum_samples(samples, "model_infer_request_success_total", model=model) or 0),
        failures=int(sum_samples(samples, "model_infer_request_failure_total", model=model) or 0),
    )
    inside = sum_samples(samples, "model_infer_request_duration_sum", model=model) or 0.0
    total = sum_samples(samples, _MLSERVER_HTTP, method="POST", path="/v2/models/{model_name}/infer")
    return account, inside, total or inside


def sum_worker_counters(folder: Path) -> ServerCounters:
    """Return the sum over all workers; `queue` is None, since a worker does not see it.

    Raises:
        OSError: a file cannot be read.
    """
    import numpy as np  # slow to import

    from modeldyno.serving.servers.inside_server.runner import Tally  # imports numpy, as it runs alone

    length = Tally.FIELDS + Tally.SIZES
    total = np.zeros(length)
    for path in sorted(folder.glob("*.tally")):
        counters = np.fromfile(path, "float64")
        if counters.size == length:  # else its worker has just created it
            total += counters
    executions, requests, samples, *stages = total[: Tally.FIELDS].tolist()
    batches = total[Tally.FIELDS :]
    return ServerCounters(
        requests=round(requests),
        samples=int(samples),
        executions=int(executions),
        compute_input=stages[0],
        compute=stages[1],
        compute_output=stages[2],
        batches={int(size): int(batches[size]) for size in np.nonzero(batches)[0]},
    )


def merge_server_counters(
    worked: ServerCounters, reported: ServerCounters, *, queue: float, total: float
) -> ServerCounters:
    """Combine the workers' counters with the server's own.

    Args:
        worked: counters of the workers.
        reported: counters of the server: requests and failures.
        queue: total seconds that requests waited.
        total: total seconds from the arrival of requests at the server to their answers. The part that is
            neither waiting nor work, such as reading and writing JSON, counts as output.
    """
    attributed = queue + (worked.compute_input or 0.0) + (worked.compute or 0.0)
    return replace(
        worked,
        requests=reported.requests,
        failures=reported.failures,
        queue=queue,
        compute_output=max(total - attributed, worked.compute_output or 0.0),
    )
