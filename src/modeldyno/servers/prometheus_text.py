"""Prometheus' text format, and what engines tell in it of their own work."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from modeldyno.core.load.server_stats import Account

if TYPE_CHECKING:
    from collections.abc import Mapping

Labels = frozenset[tuple[str, str]]
Samples = dict[str, dict[Labels, float]]
"""Metric to its value for each set of labels."""

_LINE = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)\s*(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)(?:\s+-?\d+)?\s*")
_LABEL = re.compile(r'\s*(?P<name>[a-zA-Z_]\w*)\s*=\s*"(?P<value>(?:[^"\\]|\\.)*)"\s*(?:,|$)')
_ESCAPE = re.compile(r"\\(.)")
_PLAIN = {"n": "\n"}
_MICRO = 1e-6
_MLSERVER_HTTP = "rest_server_request_duration_seconds_sum"


def parse(text: str) -> Samples:
    """Read every sample; what is no sample is passed over."""
    found: Samples = {}
    for line in text.splitlines():
        match = None if line.startswith("#") else _LINE.fullmatch(line.strip())
        if match is None:
            continue
        try:
            value = float(match["value"])
        except ValueError:
            continue
        found.setdefault(match["name"], {})[_labels(match["labels"] or "")] = value
    return found


def total(samples: Samples, name: str, **labels: str) -> float | None:
    """Sum a metric over all that has these labels; None where there is none."""
    wanted = set(labels.items())
    values = [
        value for found, value in samples.get(name, {}).items() if wanted <= found and math.isfinite(value)
    ]
    return sum(values) if values else None


def torchserve(samples: Samples, model: str) -> tuple[Account, float]:
    """Read TorchServe's requests and their wait, and the seconds from arrival to answer, in all."""
    counted = Account(
        requests=int(total(samples, "ts_inference_requests_total", model_name=model) or 0),
        queue=(total(samples, "ts_queue_latency_microseconds", model_name=model) or 0.0) * _MICRO,
    )
    whole = total(samples, "ts_inference_latency_microseconds", model_name=model) or 0.0
    return counted, whole * _MICRO


def mlserver(samples: Samples, model: str) -> tuple[Account, float, float]:
    """Read MLServer's requests, and the seconds that they were with the model, and with the server, in all.

    Over gRPC it tells only the former, and both are that.
    """
    counted = Account(
        requests=int(total(samples, "model_infer_request_success_total", model=model) or 0),
        failures=int(total(samples, "model_infer_request_failure_total", model=model) or 0),
    )
    inside = total(samples, "model_infer_request_duration_sum", model=model) or 0.0
    whole = total(samples, _MLSERVER_HTTP, method="POST", path="/v2/models/{model_name}/infer")
    return counted, inside, whole or inside


def vllm(samples: Samples, model: str = "") -> Account:
    """Read vLLM's: the phases of a request; `samples` are its sequences, of which it runs many at once."""
    labels: Mapping[str, str] = {"model_name": model} if model else {}
    return Account(
        requests=int(total(samples, "vllm:request_success_total", **labels) or 0),
        queue=total(samples, "vllm:request_queue_time_seconds_sum", **labels),
        compute=total(samples, "vllm:request_inference_time_seconds_sum", **labels),
    )


def _labels(text: str) -> Labels:
    return frozenset(
        (match["name"], _ESCAPE.sub(lambda found: _PLAIN.get(found[1], found[1]), match["value"]))
        for match in _LABEL.finditer(text)
    )
