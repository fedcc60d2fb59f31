"""The rows of the metrics that the probe and the sampler measure."""

from __future__ import annotations

from modeldyno.plugin import Better, MetricRow

METRICS = {
    row.name: row
    for row in (
        MetricRow(
            name="evenness",
            unit="1",
            better=Better.HIGHER,
            sentence="Time of the quickest call relative to the median.",
        ),
        MetricRow(
            name="load_average",
            unit="cores",
            better=Better.NEITHER,
            circumstance=True,
            sentence="Processes that wanted a core, in the mean of the last minute.",
        ),
    )
}
