"""Prints the plan of ``modeldyno sweep --dry-run``: configurations, impossible points, estimated time."""

from __future__ import annotations

import math
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING

from modeldyno.base import plugins
from modeldyno.base.clock import monotonic
from modeldyno.base.errors import RequestError
from modeldyno.base.option_spelling import spell_for_command_line
from modeldyno.base.report.blocks import Notice, Severity, make_table, note, shorten
from modeldyno.base.views.text import count, format_rough_duration
from modeldyno.cli.actions.printing import print_blocks
from modeldyno.sweeps.loop import check_study
from modeldyno.sweeps.point_to_job import job_at_point
from modeldyno.sweeps.study import trial_effort
from modeldyno.sweeps.study.default_baseline import MOST as DEFAULT_LOADS
from modeldyno.sweeps.study.verification import RIVALS, ROUNDS
from modeldyno.sweeps.views.tables import format_point

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.base.report.blocks import Block
    from modeldyno.sweeps.study.search_space import Axis
    from modeldyno.sweeps.study.study import Study

_MOST_CHECKED, _PATIENCE, _REASON = 100_000, 2.0, 240
"""Limits of the check: points, seconds, and characters of a reason."""
_SHARE, _FEWEST = 0.15, 12
"""Share of all points that a guided search measures, and the minimum number."""
_START = {True: (2.0, 6.0), False: (0.5, 3.0)}
"""Seconds until a server (True) or a process is ready, for a small and a larger model."""


def print_plan(study: Study, chosen: tuple[Axis, ...]) -> int:
    """Print what a sweep would do; return the exit code.

    Raises:
        RequestError: the study is invalid.
    """
    check_study(study)
    print_blocks(*_blocks(study, chosen))
    return 0


def _blocks(study: Study, chosen: tuple[Axis, ...]) -> Iterator[Block]:
    size = study.space.size
    checked, reasons = _count_refused(study)
    refused = sum(reasons.values())
    summary = count(size, "point")
    loads = math.prod(len(axis.values) for axis in study.space.axes if axis.name in study.loads)
    if loads > 1:
        summary += f": {count(size // loads, 'configuration')} at {loads} loads each"
    if refused:
        summary += f"; {refused:,} of {'them' if checked == size else f'the first {checked:,}'} impossible"
    possible = max(1, round(size * (1 - refused / checked)))
    trials, (least, most) = describe_measurements(study, possible), estimate_seconds(study, possible)
    yield Notice(
        severity=Severity.VERDICT,
        text=f"{summary}. The strategy {study.strategy} measures {trials}, which takes "
        f"{format_rough_duration(least)} to "
        f"{format_rough_duration(most)}, or more if the model loads slowly. Nothing was measured.",
    )
    goal = (*map(str, study.goal.objectives), *(f"require {bound}" for bound in study.goal.constraints))
    yield note("; ".join(goal), code="goal")
    yield note(format_point(study.default) or "the backend's own settings", code="default")
    names = {axis.name for axis in chosen}
    rows = tuple(
        (
            axis.name,
            str(axis).partition("=")[2],
            str(len(axis.values)),
            "by default" if axis.name in names else "",
        )
        for axis in study.space.axes
    )
    titles = ("axis", "values", "number>", "")
    yield make_table("Axes", titles, rows)
    if reasons:
        yield make_table(
            "Impossible points, which are skipped",
            ("points>", "why"),
            ((f"{number:,}", reason) for reason, number in reasons.most_common(6)),
        )


def _count_refused(study: Study) -> tuple[int, Counter[str]]:
    """Check points of the space for a short time; return how many were checked, and refusals by reason."""
    reasons: Counter[str] = Counter()
    start, checked = monotonic(), 0
    for candidate in islice(study.space.points(), _MOST_CHECKED):
        checked += 1
        try:
            job_at_point(study, candidate)
        except RequestError as error:
            reasons[shorten(spell_for_command_line(str(error)), _REASON)] += 1
        if monotonic() - start > _PATIENCE:
            break
    return checked, reasons


def describe_measurements(study: Study, possible: int) -> str:
    """Describe how many measurements a strategy makes, including default and verification."""
    default, search, verification = _count_trials(study, possible)
    most = default + search + verification
    limit = study.budget.max_trials
    if study.strategy == "grid":
        return f"{min(limit or most, default + search)} to {min(limit or most, most)} times"
    return f"at most about {min(limit or most, most)} times"


def _count_trials(study: Study, possible: int) -> tuple[int, int, int]:
    loads = any(axis.name in study.loads for axis in study.space.axes)
    default = DEFAULT_LOADS if loads else 1
    search = (
        possible if study.strategy == "grid" else min(possible, max(_FEWEST, math.ceil(_SHARE * possible)))
    )
    return default, search, ROUNDS * (RIVALS + 1)


def estimate_seconds(study: Study, possible: int) -> tuple[float, float]:
    """Estimate the minimum and maximum time of a sweep in seconds, limited by its budget."""
    default, search, verification = _count_trials(study, possible)
    loads = math.prod(len(axis.values) for axis in study.space.axes if axis.name in study.loads)
    is_server = plugins.serves(study.job.backend)
    starts = 1 + math.ceil(search / loads) if is_server else default + search
    fast_start, slow_start = _START[is_server]
    shortest, longest = study.job.plan.min_time, study.job.plan.max_time
    fewest_verifications, most_verifications = RIVALS + 1, verification
    least = (
        starts * fast_start
        + (default + search) * min(shortest, trial_effort.SHORTEST)
        + fewest_verifications * (fast_start + shortest)
    )
    most = (
        starts * slow_start
        + (default + search) * min(longest, trial_effort.LONGEST)
        + most_verifications * (slow_start + longest)
    )
    limit = study.budget.max_time or math.inf
    return min(least, limit), min(most, limit)
