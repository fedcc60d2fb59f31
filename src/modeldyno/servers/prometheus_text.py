"""Parses Prometheus' text format, and reads inference servers' own request statistics from it."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from modeldyno.core.load.server_stats import Account

if TYPE_CHECKING:
    from collections.abc import Mapping

Labels = frozenset[tuple[str, str]]
Samples = dict[str, dict[Labels, float]]
"""Metric to its value per set of labels."""

_LINE = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)\s*(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)(?:\s+-?\d+)?\s*")
_LABEL = re.compile(r'\s*(?P<name>[a-zA-Z_]\w*)\s*=\s*"(?P<value>(?:[^"\\]|\\.)*)"\s*(?:,|$)')
_ESCAPE = re.compile(r"\\(.)")
_PLAIN = {"n": "\n"}
_MICRO = 1e-6
_MLSERVER_HTTP = "rest_server_request_duration_seconds_sum"


def parse(text: str) -> Samples:
    """Return every sample; lines that are not samples are skipped."""
    samples: Samples = {}
    for line in text.splitlines():
        match = None if line.startswith("#") else _LINE.fullmatch(line.strip())
        if match is None:
            continue
        try:
            value = float(match["value"])
        except ValueError:
            continue
        samples.setdefault(match["name"], {})[_labels(match["labels"] or "")] = value
    return samples


def total(samples: Samples, name: str, **labels: str) -> float | None:
    """Return the sum of a metric over all samples with these labels; None if there are none."""
    wanted = set(labels.items())
    values = [
        value
        for sample_labels, value in samples.get(name, {}).items()
        if wanted <= sample_labels and math.isfinite(value)
    ]
    return sum(values) if values else None


def torchserve(samples: Samples, model: str) -> tuple[Account, float]:
    """Return TorchServe's requests and their queue time, and the total seconds from arrival to answer."""
    account = Account(
        requests=int(total(samples, "ts_inference_requests_total", model_name=model) or 0),
        queue=(total(samples, "ts_queue_latency_microseconds", model_name=model) or 0.0) * _MICRO,
    )
    whole = total(samples, "ts_inference_latency_microseconds", model_name=model) or 0.0
    return account, whole * _MICRO


def mlserver(samples: Samples, model: str) -> tuple[Account, float, float]:
    """Return MLServer's requests, and the total seconds that they spent in the model and in the server.

    Over gRPC it reports only the former, which then stands for both.
    """
    account = Account(
        requests=int(total(samples, "model_infer_request_success_total", model=model) or 0),
        failures=int(total(samples, "model_infer_request_failure_total", model=model) or 0),
    )
    inside = total(samples, "model_infer_request_duration_sum", model=model) or 0.0
    whole = total(samples, _MLSERVER_HTTP, method="POST", path="/v2/models/{model_name}/infer")
    return account, inside, whole or inside


def vllm(samples: Samples, model: str = "") -> Account:
    """Return vLLM's counters by phase; `samples` are its sequences, many of which run at once."""
    labels: Mapping[str, str] = {"model_name": model} if model else {}
    return Account(
        requests=int(total(samples, "vllm:request_success_total", **labels) or 0),
        queue=total(samples, "vllm:request_queue_time_seconds_sum", **labels),
        compute=total(samples, "vllm:request_inference_time_seconds_sum", **labels),
    )


def _labels(text: str) -> Labels:
    return frozenset(
        (match["name"], _ESCAPE.sub(lambda escape: _PLAIN.get(escape[1], escape[1]), match["value"]))
        for match in _LABEL.finditer(text)
    )
