"""Where a document was measured: by what a list of the measurements of a version tells them apart."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from modeldyno.core.comparison.comparison import Comparison
from modeldyno.core.load.explanation import Explanation
from modeldyno.core.load.load_curve import LoadSeries
from modeldyno.core.registry.records import MeasuredAt
from modeldyno.core.result.result import Environment, Result

if TYPE_CHECKING:
    from modeldyno.core.spec.job import Job

Measured = Result | Comparison | Explanation | LoadSeries
"""Documents with figures of a model."""
_SERVER = "url"
"""The scheme of a model on a server that ran already."""
_NAMED_BY = ("device_total", "device_used")
"""Metrics whose scope is the device of a server."""


def measured_at(document: Measured) -> MeasuredAt:
    """Return where a document was measured: of a comparison its candidate, of several loads all of them."""
    match document:
        case Result():
            return _place(document.job, document.environment, _server_devices(document))
        case Explanation():
            return measured_at(document.last)
        case Comparison():
            return measured_at(document.results[-1])
        case _:
            return MeasuredAt() if document.job is None else _place(document.job, document.environment)


def model_digests(document: object) -> frozenset[str]:
    """Return the digests of the models that a document has figures of; none of another kind of document."""
    match document:
        case Result():
            return frozenset({document.model.digest} if document.model else ())
        case Explanation():
            return frozenset().union(*map(model_digests, document.results.values()))
        case Comparison():
            return frozenset().union(*map(model_digests, document.results))
        case LoadSeries(model=model) if model is not None:
            return frozenset({model.digest})
        case _:
            return frozenset()


def _place(job: Job, environment: Environment | None, server_devices: str = "") -> MeasuredAt:
    environment = environment or Environment()
    is_elsewhere = job.model.scheme == _SERVER
    processor = str(environment.hardware.get("processor", ""))
    batch_size = job.config.get("batch_size", 1)
    return MeasuredAt(
        host=(urlsplit(job.model.locator).hostname or "") if is_elsewhere else processor,
        device=server_devices if is_elsewhere else str(job.config.get("device") or environment.device),
        engine=job.backend,
        batch_size=batch_size if isinstance(batch_size, int) else 1,
    )


def _server_devices(result: Result) -> str:
    """Return the devices that a server reported."""
    devices = dict.fromkeys(m.scope for m in result.measurements if m.metric in _NAMED_BY and m.scope)
    return ", ".join(device for device in devices if not device.endswith(" baseline"))
