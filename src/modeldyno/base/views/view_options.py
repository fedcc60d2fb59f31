"""How much of a document to show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from modeldyno.base.job.knob import Knob
from modeldyno.base.metrics.constraints import Judgement
from modeldyno.base.report.chosen_plot import ChosenPlot
from modeldyno.base.result.result import Result

SORTS = ("order", "macs", "parameters", "flops", "weight_bytes", "bytes")
"""Sort keys of modules: definition order, or a number in descending order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewOptions:
    """What to show of a document; a kind of document ignores what it does not have."""

    depth: int | None = None
    """Levels of the module tree to show below the root; None chooses as many as fit a short table."""
    sort: str = "order"
    """One of SORTS."""
    filter: str = ""
    """Show only modules with this text in their path or class."""
    verbose: bool = False
    """Whether to list every operator, and of a comparison also what is equal on both sides."""
    judgements: tuple[Judgement, ...] = ()
    """The verdicts on the bounds that were required of a Result."""
    top: int = 5
    """Configurations of a study that a table shows, without the default."""
    configurations: tuple[str, ...] = ()
    """Configurations of a study to show in detail, and nothing else: ``3``, ``default``, ``text_3``."""
    plots: tuple[ChosenPlot, ...] = ()
    """Charts of a study that were chosen, in place of those that are usual."""
    stored: bool = True
    """Whether the Results of a study's trials are stored, so that they can be referred to."""
    load_result: Callable[[str], Result | None] = lambda _: None
    """Returns the Result of a trial by its id, if it is still stored."""
    knobs: Callable[[str], Sequence[Knob]] = lambda _: ()
    """Returns the knobs of a backend: findings propose them, commands leave out those at their default."""


PLAIN = ViewOptions()
