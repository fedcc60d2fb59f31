"""All measurements of a `ModelProfiler` as one page, one table or one document."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from modeldyno.base import codec, plugins
from modeldyno.base.report.blocks import Table, make_columns
from modeldyno.base.report.charts import Picture
from modeldyno.base.result.result import Result
from modeldyno.base.views.python_wording import translate_doubts
from modeldyno.base.views.text import count
from modeldyno.profiling.views import ViewOptions, headline, numbers, page
from modeldyno.profiling.views.configurations import (
    ConfigurationRun,
    describe,
    lay_out_configurations,
    summarize,
)
from modeldyno.profiling.views.result.page import summary
from modeldyno.reports.write import Page, combine_pages

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.base.report.blocks import Block


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStep:
    """One measurement of a session, or all of a benchmark."""

    name: str
    """The method that was called: profile, benchmark, profile_layers ..."""
    results: tuple[Result, ...]
    tried: tuple[ConfigurationRun, ...] = field(default=())
    """For a benchmark: each configuration, including failed ones."""


def results_of(steps: Sequence[SessionStep]) -> tuple[Result, ...]:
    """Return all Results in the order of measuring."""
    return tuple(result for step in steps for result in step.results)


def encode_session(steps: Sequence[SessionStep]) -> bytes:
    """Encode a single Result as a document, several as an array."""
    results = results_of(steps)
    return codec.encode(results[0]) if len(results) == 1 else codec.encode_several(results)


def tabulate_session(steps: Sequence[SessionStep]) -> Table:
    """Tabulate all numbers in base units; several Results are labelled by step and configuration."""
    results = results_of(steps)
    if len(results) == 1:
        return numbers(results[0])
    tables = [
        (step.name, _configuration(step, result), numbers(result))
        for step in steps
        for result in step.results
    ]
    columns = tables[0][2].columns
    return Table(
        title="Numbers",
        columns=(*make_columns("step", "configuration"), *columns),
        rows=tuple((name, label, *row) for name, label, table in tables for row in table.rows),
    )


def lay_out_session(steps: Sequence[SessionStep], *, graphs: bool, details: bool) -> Page:
    """Lay out the steps below each other on one page."""
    pages = [page for step in steps for page in _pages(step, details=details)]
    combined = pages[0] if len(pages) == 1 else combine_pages(pages)
    if len(pages) > 1:
        name = results_of(steps)[0].name
        combined = replace(combined, title=f"{name}: {count(len(pages), 'measurement')}")
    blocks = combined.blocks if graphs else tuple(b for b in combined.blocks if not isinstance(b, Picture))
    return replace(combined, blocks=blocks)


def _pages(step: SessionStep, *, details: bool) -> Iterator[Page]:
    if step.tried:
        yield Page(
            title=f"{step.name}: {summarize(step.tried)}", blocks=tuple(lay_out_configurations(step.tried))
        )
        return
    for result in step.results:
        translated = replace(result, doubts=translate_doubts(result.doubts))
        yield Page(
            title=f"{step.name}: {headline(translated)}", blocks=tuple(_blocks(translated, details=details))
        )


def _blocks(result: Result, *, details: bool) -> Iterator[Block]:
    if details:
        yield from page(result, ViewOptions(knobs=plugins.knobs))
    else:
        yield from summary(result)


def _configuration(step: SessionStep, result: Result) -> str:
    """Describe the configuration of a Result, if it is of a benchmark."""
    return next((describe(tried.configuration) for tried in step.tried if tried.result is result), "")
