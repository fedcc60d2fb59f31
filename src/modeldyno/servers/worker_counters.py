"""Sums the counters of a server's workers (`servers.inside_server.runner.Tally`)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.core.load.server_stats import ServerCounters

if TYPE_CHECKING:
    from pathlib import Path


def sum_worker_counters(folder: Path) -> ServerCounters:
    """Return the sum over all workers; `queue` is None, since a worker does not see it.

    Raises:
        OSError: a file cannot be read.
    """
    import numpy as np  # noqa: PLC0415 - slow to import

    from modeldyno.servers.inside_server.runner import Tally  # noqa: PLC0415 - imports numpy, as it runs alone

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
    worked: ServerCounters, reported: ServerCounters, *, queue: float, whole: float
) -> ServerCounters:
    """Combine the workers' counters with the server's own.

    Args:
        worked: counters of the workers.
        reported: counters of the server: requests and failures.
        queue: total seconds that requests waited.
        whole: total seconds from the arrival of requests at the server to their answers. The part that is
            neither waiting nor work, such as reading and writing JSON, counts as output.
    """
    attributed = queue + (worked.compute_input or 0.0) + (worked.compute or 0.0)
    return replace(
        worked,
        requests=reported.requests,
        failures=reported.failures,
        queue=queue,
        compute_output=max(whole - attributed, worked.compute_output or 0.0),
    )
