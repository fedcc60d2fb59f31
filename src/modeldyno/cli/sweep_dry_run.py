"""What ``modeldyno sweep --dry-run`` prints: how many configurations, what cannot be, how long it takes."""

from __future__ import annotations

import math
import time
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING

from modeldyno.cli.printing import listened, print_blocks
from modeldyno.core.report.blocks import Align, Column, Notice, Severity, Table, shorten
from modeldyno.core.study import trial_effort
from modeldyno.core.study.default_baseline import MOST as DEFAULT_LOADS
from modeldyno.core.study.verification import RIVALS, ROUNDS
from modeldyno.errors import RequestError
from modeldyno.runtime.engine import serves
from modeldyno.sweeps.loop import check
from modeldyno.sweeps.point_to_job import placed
from modeldyno.views.study.rows import point
from modeldyno.views.text import count, lasting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.core.report.blocks import Block
    from modeldyno.core.study.search_space import Axis
    from modeldyno.core.study.study import Study

_CHECKED, _PATIENCE, _REASON = 100_000, 2.0, 240
"""Points that are looked at at most, for so many seconds, and characters of a reason."""
_SHARE, _FEW = 0.15, 12
"""Of all points, and at least so many, what a search that is guided measures."""
_START = {True: (2.0, 6.0), False: (0.5, 3.0)}
"""Seconds until a server, or a process, is ready: a small model, a larger one."""


def plan(study: Study, chosen: tuple[Axis, ...]) -> int:
    """Print what a sweep would do; give the exit code.

    Raises:
        RequestError: it cannot be carried out.
    """
    check(study)
    with listened():
        print_blocks(*_blocks(study, chosen))
    return 0


def _blocks(study: Study, chosen: tuple[Axis, ...]) -> Iterator[Block]:
    size = study.space.size
    seen, reasons = _refused(study)
    refused = sum(reasons.values())
    whole = count(size, "point")
    loads = math.prod(len(axis.values) for axis in study.space.axes if axis.name in study.loads)
    if loads > 1:
        whole += f": {count(size // loads, 'configuration')} at {loads} loads each"
    if refused:
        whole += f"; {refused:,} of {'them' if seen == size else f'the first {seen:,}'} cannot be"
    possible = max(1, round(size * (1 - refused / seen)))
    trials, (least, most) = measurements(study, possible), seconds(study, possible)
    yield Notice(
        severity=Severity.VERDICT,
        text=f"{whole}. The strategy {study.strategy} measures {trials}, which takes {lasting(least)} to "
        f"{lasting(most)}, more where the model is slow to load. Nothing was measured.",
    )
    goal = (*map(str, study.goal.objectives), *(f"require {bound}" for bound in study.goal.constraints))
    yield Notice(severity=Severity.NOTE, code="goal", text="; ".join(goal))
    yield Notice(
        severity=Severity.NOTE, code="default", text=point(study.default) or "the backend's own settings"
    )
    names = {axis.name for axis in chosen}
    rows = tuple(
        (
            axis.name,
            str(axis).partition("=")[2],
            str(len(axis.values)),
            "by our choice" if axis.name in names else "",
        )
        for axis in study.space.axes
    )
    columns = (
        Column(title="axis"),
        Column(title="values"),
        Column(title="number", align=Align.RIGHT),
        Column(title=""),
    )
    yield Table(title="What is varied", columns=columns, rows=rows)
    if reasons:
        yield Table(
            title="What cannot be, and is skipped",
            columns=(Column(title="points", align=Align.RIGHT), Column(title="why")),
            rows=tuple((f"{number:,}", reason) for reason, number in reasons.most_common(6)),
        )


def _refused(study: Study) -> tuple[int, Counter[str]]:
    """Look at the points of the space, as far as a moment goes; count those that cannot be by the reason."""
    reasons: Counter[str] = Counter()
    begun, seen = time.monotonic(), 0
    for each in islice(study.space.points(), _CHECKED):
        seen += 1
        try:
            placed(study, each)
        except RequestError as error:
            reasons[shorten(str(error), _REASON)] += 1
        if time.monotonic() - begun > _PATIENCE:
            break
    return seen, reasons


def measurements(study: Study, possible: int) -> str:
    """Say how many measurements a strategy makes, those of the default and of the verification included."""
    default, search, verification = _trials(study, possible)
    most = default + search + verification
    limit = study.budget.max_trials
    if study.strategy == "grid":
        return f"{min(limit or most, default + search)} to {min(limit or most, most)} times"
    return f"at most about {min(limit or most, most)} times"


def _trials(study: Study, possible: int) -> tuple[int, int, int]:
    loads = any(axis.name in study.loads for axis in study.space.axes)
    default = DEFAULT_LOADS if loads else 1
    search = possible if study.strategy == "grid" else min(possible, max(_FEW, math.ceil(_SHARE * possible)))
    return default, search, ROUNDS * (RIVALS + 1)


def seconds(study: Study, possible: int) -> tuple[float, float]:
    """Estimate the least and the most time of a sweep; its budget bounds both."""
    default, search, verification = _trials(study, possible)
    loads = math.prod(len(axis.values) for axis in study.space.axes if axis.name in study.loads)
    served = serves(study.job.backend)
    starts = 1 + math.ceil(search / loads) if served else default + search
    quick, slow = _START[served]
    look, whole = study.job.plan.min_time, study.job.plan.max_time
    few, many = RIVALS + 1, verification
    least = starts * quick + (default + search) * min(look, trial_effort.SHORTEST) + few * (quick + look)
    most = starts * slow + (default + search) * min(whole, trial_effort.LONGEST) + many * (slow + whole)
    limit = study.budget.max_time or math.inf
    return min(least, limit), min(most, limit)
