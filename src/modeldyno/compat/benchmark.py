"""The return value of `ModelProfiler.benchmark`: figures of each configuration, the best, and a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base import plugins
from modeldyno.base.errors import RequestError
from modeldyno.base.metrics.measurement import Distribution
from modeldyno.base.metrics.metric import METRICS, Better, Query
from modeldyno.profiling.api.result_dict import Figures
from modeldyno.profiling.views.configurations import ConfigurationRun, lay_out_configurations, tabulate

if TYPE_CHECKING:
    from collections.abc import Iterator


class Benchmark(list[Figures]):
    """Figures in the order of the configurations; prints as a table."""

    def best(self, metric: str = "throughput") -> Figures:
        """Return the best configuration by a metric, such as ``"throughput"`` or ``"latency.p99"``.

        A distribution without a statistic is ranked by its median. The ranking takes the point estimates:
        two configurations within each other's confidence interval may change places when measured again.

        Raises:
            RequestError: the metric has no better direction, or no configuration has it.
        """
        query = Query.parse(metric)
        better = METRICS[query.metric].better
        if better is Better.NEITHER:
            raise RequestError(f"{query.metric} has no better direction, so no configuration is best by it.")
        sign = 1.0 if better is Better.HIGHER else -1.0
        ranked = [
            (sign * number, figures) for figures in self if (number := _number(figures, query)) is not None
        ]
        if not ranked:
            raise RequestError(f"No configuration has {metric}; the first one says: {self._first_failure()}.")
        return max(ranked, key=lambda pair: pair[0])[1]

    def table(self) -> str:
        """Return a text table with a row for each configuration."""
        return plugins.terminal().text([tabulate(list(self.tried()))]).rstrip("\n")

    def tried(self) -> Iterator[ConfigurationRun]:
        """Yield each configuration with its result, for reports."""
        for figures in self:
            yield ConfigurationRun(
                configuration=figures.configuration, result=figures.result, failure=figures.failure or ""
            )

    def __str__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        return plugins.html().fragment_of(lay_out_configurations(list(self.tried())))

    def _first_failure(self) -> str:
        return next((figures.failure for figures in self if figures.failure), "nothing was measured")


def _number(figures: Figures, query: Query) -> float | None:
    if figures.result is None or figures.failure:
        return None
    measurement = figures.result.find(query.metric, query.scope)
    default_statistic = (
        "p50" if measurement is not None and isinstance(measurement.value, Distribution) else "mean"
    )
    return figures.result.number(query.metric, query.scope, query.statistic or default_statistic)
