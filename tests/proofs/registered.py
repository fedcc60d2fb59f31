"""What a registry says of a figure that it measures again, of its machine, and of a history."""

from __future__ import annotations

from functools import partial
from time import sleep
from typing import TYPE_CHECKING

from tests.dashboard.conftest import visitor_of
from tests.proofs.cell import Cell, Outcome, Try
from tests.proofs.commands import ROOT, last_line, modeldyno, read_document
from tests.proofs.recorded import replayed

from modeldyno.base import plugins
from modeldyno.registry.records.staleness import FORBIDDING, CanaryReading, machine_change

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SPEED = """
from pathlib import Path
from modeldyno.testing.known_latency import KnownLatency

mean = float(Path({speed!r}).read_text())
work = KnownLatency(mean, mean, 1.01 * mean, mean, 0.99 * mean)
"""
POLICY = "convert: []\nbatch_sizes: [1]\nmax_time: 3s\nmax_age: {age}\n"
DASHBOARD = "dashboard"
SEE_OTHER = 303


def _register(folder: Path, age: str) -> None:
    """Register a function that takes 4 ms, and measure it.

    Raises:
        RuntimeError: a command failed.
    """
    speed = folder / "speed.txt"
    speed.write_text("0.004", encoding="utf-8")
    (folder / "model.py").write_text(SPEED.format(speed=str(speed)), encoding="utf-8")
    (folder / "daily.yaml").write_text(POLICY.format(age=age), encoding="utf-8")
    add = "registry add call:model.py:work --name quiet --policy daily --no-copy --wait"
    for words in ("registry policy -f daily.yaml", add):
        code, output = modeldyno(folder, *words.split())
        if code:
            raise RuntimeError(f"{words} ended with {code}: {last_line(output, 'modeldyno:')}")


def _measure_again(_seed: int, folder: Path, slowdown: float, door: str) -> Try:
    """Measure a figure again, as it has aged or as somebody asks; the function may have become slower."""
    _register(folder, age="14d" if door == DASHBOARD else "1s")
    (folder / "speed.txt").write_text(str(0.004 * (1 + slowdown)), encoding="utf-8")
    if door == DASHBOARD:
        with plugins.store(f"sqlite:///{folder / 'store.db'}") as store:
            here = store.registry.targets()[0].id
            page = "/models/quiet/1"
            form = {"do": "measure", "recipe": "source", "batch": "1", "target": here}
            answer = visitor_of(store).send(f"{page}/measure", page, **form)
            if answer.status_code != SEE_OTHER:
                return Try(Outcome.FALSE, f"the form was answered with {answer.status_code}")
    code, output = modeldyno(folder, "worker", "--once", "--for", "1s", "--idle-cpu", "100%")
    modeldyno(folder, "registry", "history", "quiet", "--json", "events.json")
    kinds = [event["kind"] for event in read_document(folder / "events.json")]
    line = ", ".join(kind for kind in kinds if kind.startswith("figure.")) or f"{code}: {last_line(output)}"
    wrong, right = (
        ("figure.confirmed", "figure.changed") if slowdown else ("figure.changed", "figure.confirmed")
    )
    if wrong in kinds:
        return Try(Outcome.FALSE, line)
    return Try(Outcome.TRUE if right in kinds else Outcome.OPEN, line)


def _fresh(seed: int, folder: Path) -> Try:
    """Read the state of a figure a second after it was measured: by its policy it is fresh, or too old.

    Open is a figure that others disturbed, which the product calls doubtful.
    """
    aged = bool(seed % 2)
    _register(folder, age="1s" if aged else "14d")
    sleep(1)
    modeldyno(folder, "registry", "show", "quiet/1", "--json", "version.json")
    figures = read_document(folder / "version.json")["figures"]
    states, right = {each["figure"]["state"] for each in figures}, {"stale" if aged else "fresh"}
    line = f"{', '.join(sorted(states)) or 'no figure'}, and {', '.join(right)} is right"
    if states == {"doubtful"}:
        return Try(Outcome.OPEN, line)
    return Try(Outcome.TRUE if states == right else Outcome.FALSE, line)


def _canary(seed: int, folder: Path, slowdown: float) -> Try:
    """Give the rule of the reference model twenty recorded readings, and two that may be slower.

    Those that a worker would not keep, as others disturbed them, are left out.
    """
    del folder
    runs = read_document(ROOT / "bench" / "gate_runs" / "gate.json")["runs"]
    kept = [run for run in runs if run["model"] == "resnet18" and not FORBIDDING & set(run["doubts"])]
    seconds = [run["latency.p50"] for run in kept]
    begin = seed % (len(seconds) - 21)
    readings = [
        CanaryReading(at=f"2026-01-{day + 1:02}T03:00:00+00:00", seconds=value)
        for day, value in enumerate(seconds[begin : begin + 22])
    ]
    later = [
        CanaryReading(at=reading.at, seconds=reading.seconds * (1 + slowdown)) for reading in readings[20:]
    ]
    change = machine_change(readings[:20], later)
    line = change.sentence if change else "no change"
    if slowdown and not change:
        return Try(Outcome.OPEN, line)
    return Try(Outcome.TRUE if bool(change) == bool(slowdown) else Outcome.FALSE, line)


def _trend(_seed: int, folder: Path, slowdown: float, many: int = 8) -> Try:
    """Measure a function so often, the later half perhaps slower, and ask for its history."""
    speed = folder / "speed.txt"
    (folder / "model.py").write_text(SPEED.format(speed=str(speed)), encoding="utf-8")
    for at in range(many):
        speed.write_text(str(0.004 * (1 + (slowdown if 2 * at >= many else 0))), encoding="utf-8")
        modeldyno(folder, "profile", "call:model.py:work", "--max-time", "2", "--name", "quiet", "-q")
    code, output = modeldyno(folder, "trend", "quiet", "--fail-on-regression")
    line = f"exit code {code}: {last_line(output, 'quiet')}"
    if slowdown and code == 0:
        return Try(
            Outcome.FALSE if "stable" in output and "could have been seen" not in output else Outcome.OPEN,
            line,
        )
    return Try(Outcome.TRUE if code == bool(slowdown) else Outcome.FALSE, line)


def _recorded_trend(seed: int, folder: Path, slowdown: float) -> Try:
    with replayed(seed):
        return _trend(seed, folder, slowdown, many=40)


def _cells(
    door: str,
    attempt: Callable[..., Try],
    command: str,
    quick: str,
    *slowdowns: float,
    seconds: float,
    alone: bool = True,
    how: str = "",
    tries: int = 20,
    most_false: float = 0.0,
    least_true: float = 0.9,
) -> tuple[Cell, ...]:
    """Return the cells of a door that judges a change: one of unchanged code, and one for each slowdown."""
    return tuple(
        Cell(
            claim="planted changes" if slowdown else "unchanged code",
            door=door,
            case=", ".join(filter(None, (f"+{slowdown:.0%}" if slowdown else "", how))),
            command=command,
            attempt=partial(attempt, slowdown=slowdown),
            tries=tries,
            seconds=seconds,
            alone=alone,
            most_false=most_false,
            least_true=least_true if slowdown else 0.0,
            quick=quick,
        )
        for slowdown in (0.0, *slowdowns)
    )


_ADD = "modeldyno registry add MODEL --policy daily --wait"
_TREND = "modeldyno trend MODEL --fail-on-regression"
_FIGURES = "tests/registry/test_figures.py"
_MEASURED = "tests/dashboard/test_writes.py::test_a_measurement_is_queued"
_OF_TREND = "tests/comparison/change/test_trend.py"
_CANARY = "tests/registry/test_canary.py"
CELLS = (
    *_cells(
        "registry",
        partial(_measure_again, door="registry"),
        f"{_ADD}; modeldyno worker --once",
        _FIGURES,
        0.3,
        seconds=60.0,
    ),
    *_cells(
        DASHBOARD,
        partial(_measure_again, door=DASHBOARD),
        f"{_ADD}; the form of a measurement; modeldyno worker --once",
        _MEASURED,
        0.3,
        seconds=60.0,
    ),
    *_cells(
        "canary", _canary, "modeldyno worker (on recorded readings)", _CANARY, 1.0,
        seconds=0.1, tries=49, most_false=0.05, least_true=0.75,
    ),
    *_cells("trend", _trend, _TREND, _OF_TREND, 0.1, seconds=45.0, alone=False),
    *_cells(
        "trend", _recorded_trend, _TREND, _OF_TREND, 0.1, 0.3,
        seconds=2.0, how="recorded", tries=100, least_true=0.0,
    ),
    Cell(
        claim="fresh figures",
        door="registry",
        command=f"{_ADD}; modeldyno registry show NAME",
        attempt=_fresh,
        tries=20,
        seconds=50.0,
        alone=True,
        quick=_FIGURES,
    ),
)  # fmt: skip
