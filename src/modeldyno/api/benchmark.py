"""What `ModelProfiler.benchmark` gives: the figures of each configuration, with the best and a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno import plugins
from modeldyno.api.result_dict import Figures, value
from modeldyno.core.metrics.measurement import Distribution
from modeldyno.core.metrics.metric import METRICS, Better, Query
from modeldyno.errors import RequestError
from modeldyno.views.configurations import Tried, lay_out, tabulate

if TYPE_CHECKING:
    from collections.abc import Iterator


class Benchmark(list[Figures]):
    """Figures in the order of the configurations; it prints as a table."""

    def best(self, metric: str = "throughput") -> Figures:
        """Give the configuration that is best by a metric: ``"throughput"``, ``"latency.p99"``.

        A distribution without a statistic stands for its median. Samples are taken as they are, so that
        two that differ by less than their intervals may change places when they are measured again.

        Raises:
            RequestError: the metric is better neither way, or no configuration has it.
        """
        query = Query.parse(metric)
        better = METRICS[query.metric].better
        if better is Better.NEITHER:
            raise RequestError(
                f"{query.metric} is better neither way, so that no configuration is best by it."
            )
        sign = 1.0 if better is Better.HIGHER else -1.0
        known = [(sign * number, each) for each in self if (number := _number(each, query)) is not None]
        if not known:
            raise RequestError(f"No configuration has {metric}; the first one says: {self._complaint()}.")
        return max(known, key=lambda pair: pair[0])[1]

    def table(self) -> str:
        """Give a row for each configuration, as text."""
        return str(plugins.resolve("reporter", "terminal").text([tabulate(list(self.tried()))])).rstrip("\n")

    def tried(self) -> Iterator[Tried]:
        """Give what a report lays out."""
        for each in self:
            yield Tried(configuration=each.configuration, result=each.result, failure=each.failure or "")

    def __str__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        return str(plugins.resolve("reporter", "html").fragment_of(lay_out(list(self.tried()))))

    def _complaint(self) -> str:
        return next((each.failure for each in self if each.failure), "nothing was measured")


def _number(figures: Figures, query: Query) -> float | None:
    if figures.result is None or figures.failure:
        return None
    found = figures.result.find(query.metric, query.scope)
    usual = "p50" if found is not None and isinstance(found.value, Distribution) else "mean"
    return value(figures.result, query.metric, query.statistic or usual, query.scope)
