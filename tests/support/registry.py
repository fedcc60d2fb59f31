"""Measurements of a registered model that take no time, and a worker that takes any load for idleness."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.base.identity import new_identity
from modeldyno.engine.environment.idle import IdleRule
from modeldyno.registry.targets import software_here
from modeldyno.registry.worker import WorkerOptions
from modeldyno.testing.sample_results import a_result

if TYPE_CHECKING:
    from modeldyno.base.result.result import Result
    from modeldyno.profiling.request import Request

DIGEST = f"sha256:{'ab' * 32}"
ANY_LOAD = IdleRule(samples=0)
"""Finds a device idle whatever others do: it does not look, which takes longer than the rest of a task."""
ONCE = WorkerOptions(once=True, idle=ANY_LOAD)


def a_measurement(request: Request, milliseconds: float = 2.0) -> Result:
    """Make the Result of a request, measured with this machine's software."""
    batch = int(request.settings.get("batch_size", 1))
    result = a_result(samples=[milliseconds * 1e-3 * batch] * 3000, **new_identity())
    assert result.model is not None
    software = {
        **result.environment.software,
        "safetensors": "0.8.0",
        "onnxruntime": software_here()["onnxruntime"],
    }
    return replace(
        result,
        model=replace(result.model, digest=DIGEST),
        job=replace(result.job, backend="onnxruntime"),
        environment=replace(result.environment, software=software),
        doubts=(),
    )
