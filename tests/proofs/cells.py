"""The matrix: the claims, the doors, and every cell that is tried."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tests.proofs import kept, measured, registered
from tests.proofs.cell import Cell, Outcome, Try
from tests.proofs.commands import neighbours, write_digits, write_function, write_work
from tests.proofs.doors import CHANGE_DOORS, ChangeDoor
from tests.proofs.recorded import replayed

if TYPE_CHECKING:
    from pathlib import Path

CLAIMS = {
    "unchanged code": "Code that has not changed is not called worse, by latency or by memory.",
    "planted changes": "A function that has become slower is called worse, or undecided where that is not "
    "sure, but it does not pass.",
    "intervals": "The 95 % interval covers the truth (of memory: within 3 %); where others disturbed the "
    "machine, a doubt says so.",
    "rates": "Rates and times of streamed answers, from a fraction of a second to several, are right to 3 % "
    "(percentiles to 10 %), or withheld with a reason.",
    "bounds": "A bound that is held is not called broken, and the other way round.",
    "best configuration": "What is called the best is the best or within 5 % of it, over the whole space, or "
    "the sentence says what was not tried.",
    "largest load": "The largest load that holds lies within the interval of the answer.",
    "conversions": "A conversion by a recipe that is right is said to agree; a model whose weights have "
    "changed is said to differ.",
    "fresh figures": "A figure is fresh until it is older than its policy allows.",
    "documents": "A genuine document verifies; one with a changed figure does not.",
    "borrowed speed": "A model that answers from a table, or when its answer is read, is not called better, "
    "and a doubt names it.",
}
DOORS = {
    "command": "`profile`",
    "tag": "`profile --baseline @main`",
    "json": "`profile --baseline FILE`",
    "store": "`profile --baseline ID`",
    "checkout": "`profile --baseline FILE`, of another checkout",
    "directory": "`profile --baseline ./base`, a directory with another checkout",
    "job file": "a job file",
    "pytest": "pytest plugin",
    "action": "GitHub action",
    "gate()": "Python",
    "detect_regressions": "`detect_regressions`",
    "check": "`check`",
    "compare": "`compare`",
    "files": "`compare FILE FILE`",
    "trend": "`trend`",
    "registry": "registry, a figure measured again",
    "dashboard": "dashboard, a measurement that was asked for",
    "canary": "registry, the reference model of a machine",
    "load": "`load`",
    "sweep": "`sweep`",
}
"""Doors by key, with what they are called on the page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Untried:
    """A figure for which a claim cannot be tried, and why."""

    claim: str
    door: str
    case: str
    command: str
    why: str


UNTRIED = (
    Untried(
        claim="intervals",
        door="command",
        case="energy",
        command="modeldyno profile MODEL",
        why="cannot be tried without a counter of energy, which this machine has not",
    ),
)


def _judge(seed: int, folder: Path, door: ChangeDoor, slowdown: float) -> Try:
    """Judge unchanged code (the digit classifier and the quiet function in turn), or a slower function."""
    unchanged = not slowdown
    before = write_digits if unchanged and seed % 2 else write_function
    after = before if unchanged else partial(write_function, slowdown=slowdown)
    return _outcome(*door.judge(folder, before, after), slowdown)


def _judge_recorded(seed: int, folder: Path, door: ChangeDoor, slowdown: float) -> Try:
    """Judge the function on processes that a busy machine has run, unchanged or slower."""
    with replayed(seed):
        verdict, line = door.judge(folder, write_function, partial(write_function, slowdown=slowdown))
    return _outcome(verdict, line, slowdown)


def _judge_beside(seed: int, folder: Path, door: ChangeDoor, slowdown: float) -> Try:
    """Judge a function that computes: unchanged, beside neighbours, or slower, where these have gone."""
    del seed
    with ExitStack() as later, ExitStack() as earlier:

        def before(place: Path) -> str:
            if slowdown:
                earlier.enter_context(neighbours())
            return write_work(place)

        def after(place: Path) -> str:
            earlier.close()
            if not slowdown:
                later.enter_context(neighbours())
            return write_work(place, slowdown)

        verdict, line = door.judge(folder, before, after)
    return _outcome(verdict, line, slowdown)


def _outcome(verdict: str, line: str, slowdown: float) -> Try:
    if verdict == "error":
        return Try(Outcome.FALSE, line)
    if not slowdown:
        return Try(Outcome.FALSE if verdict == "worse" else Outcome.TRUE, line)
    return Try({"worse": Outcome.TRUE, "undecided": Outcome.OPEN}.get(verdict, Outcome.FALSE), line)


CELLS: tuple[Cell, ...] = (
    *(
        Cell(
            claim="unchanged code",
            door=door.key,
            command=door.command,
            attempt=partial(_judge, door=door, slowdown=0.0),
            tries=100,
            seconds=door.seconds,
            quick=door.quick,
        )
        for door in CHANGE_DOORS
    ),
    *(
        Cell(
            claim="planted changes",
            door=door.key,
            case=f"+{slowdown:.0%}",
            command=door.command,
            attempt=partial(_judge, door=door, slowdown=slowdown),
            tries=20,
            seconds=door.seconds,
            least_true=least,
            quick=door.quick,
        )
        for door in CHANGE_DOORS
        for slowdown, least in ((0.05, 0.0 if door.stored else 0.9), (0.1, 0.9), (0.2, 0.9))
    ),
    *(
        Cell(
            claim="planted changes" if slowdown else "unchanged code",
            door=door.key,
            case=f"+{slowdown:.0%}, recorded" if slowdown else "recorded",
            command=door.command,
            attempt=partial(_judge_recorded, door=door, slowdown=slowdown),
            tries=30 if slowdown else 100,
            seconds=4.0 if door.key == "action" else 0.5,
            alone=True,
            most_false=0.05 if slowdown and door.stored else 0.0,
            quick=door.quick,
        )
        for door in CHANGE_DOORS
        for slowdown in (0.0, 0.05, 0.1, 0.2)
    ),
    *(
        Cell(
            claim="planted changes" if slowdown else "unchanged code",
            door=door.key,
            case=f"+{slowdown:.0%}, the baseline beside neighbours" if slowdown else "beside neighbours",
            command=door.command,
            attempt=partial(_judge_beside, door=door, slowdown=slowdown),
            tries=20,
            seconds=5 * door.seconds,
            alone=True,
            quick="tests/proofs/test_doors.py::test_neighbours_of_one_side_are_no_change",
        )
        for door in CHANGE_DOORS
        if door.stored
        for slowdown in (0.0, 0.2)
    ),
    *registered.CELLS,
    *measured.CELLS,
    *kept.CELLS,
)
