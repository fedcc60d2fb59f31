"""Reads what the workers of a server have counted (`servers.inside_server.runner.Tally`)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.core.load.server_stats import Account

if TYPE_CHECKING:
    from pathlib import Path


def account(folder: Path) -> Account:
    """Sum over all workers; `queue` is left open, for a worker does not see it.

    Raises:
        OSError: a file cannot be read.
    """
    import numpy as np  # noqa: PLC0415 - dear at start-up

    from modeldyno.servers.inside_server.runner import Tally  # noqa: PLC0415 - imports numpy, as it runs alone

    length = Tally.FIELDS + Tally.SIZES
    total = np.zeros(length)
    for path in sorted(folder.glob("*.tally")):
        found = np.fromfile(path, "float64")
        if found.size == length:  # else its worker has just begun it
            total += found
    executions, requests, samples, *stages = total[: Tally.FIELDS].tolist()
    batches = total[Tally.FIELDS :]
    return Account(
        requests=round(requests),
        samples=int(samples),
        executions=int(executions),
        compute_input=stages[0],
        compute=stages[1],
        compute_output=stages[2],
        batches={int(size): int(batches[size]) for size in np.nonzero(batches)[0]},
    )


def completed(worked: Account, told: Account, *, queue: float, whole: float) -> Account:
    """Join what workers counted with what their server told of requests.

    Args:
        worked: of the workers.
        told: of the server: requests and failures.
        queue: seconds that requests waited, in all.
        whole: seconds from the arrival of requests at the server to their answers, in all. What of them is
            neither wait nor work, such as reading and writing JSON, counts as output.
    """
    known = queue + (worked.compute_input or 0.0) + (worked.compute or 0.0)
    return replace(
        worked,
        requests=told.requests,
        failures=told.failures,
        queue=queue,
        compute_output=max(whole - known, worked.compute_output or 0.0),
    )
