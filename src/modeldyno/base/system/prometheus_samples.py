"""Parses Prometheus' text format."""

from __future__ import annotations

import math
import re

Labels = frozenset[tuple[str, str]]
Samples = dict[str, dict[Labels, float]]
"""Metric to its value per set of labels."""

_LINE = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)\s*(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)(?:\s+-?\d+)?\s*")
_LABEL = re.compile(r'\s*(?P<name>[a-zA-Z_]\w*)\s*=\s*"(?P<value>(?:[^"\\]|\\.)*)"\s*(?:,|$)')
_ESCAPE = re.compile(r"\\(.)")
_PLAIN = {"n": "\n"}


def parse_samples(text: str) -> Samples:
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


def sum_samples(samples: Samples, name: str, **labels: str) -> float | None:
    """Return the sum of a metric over all samples with these labels; None if there are none."""
    required = set(labels.items())
    values = [
        value
        for sample_labels, value in samples.get(name, {}).items()
        if required <= sample_labels and math.isfinite(value)
    ]
    return sum(values) if values else None


def _labels(text: str) -> Labels:
    return frozenset(
        (match["name"], _ESCAPE.sub(lambda escape: _PLAIN.get(escape[1], escape[1]), match["value"]))
        for match in _LABEL.finditer(text)
    )
