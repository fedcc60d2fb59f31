"""What a registry says of a figure that it measures again, of its machine, and of a history."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tests.proofs.cell import Cell, Outcome, Try
from tests.proofs.commands import ROOT, last_line, modeldyno, read_document
from tests.proofs.recorded import recorded_processes, replayed

from modeldyno.core.registry.staleness import FORBIDDING, CanaryReading, machine_change

if TYPE_CHECKING:
    from pathlib import Path

SPEED = """
from pathlib import Path
from modeldyno.testing.known_latency import KnownLatency

mean = float(Path({speed!r}).read_text())
work = KnownLatency(mean, mean, 1.01 * mean, mean, 0.99 * mean)
"""
POLICY = "convert: []\nbatch_sizes: [1]\nmax_time: 3s\nmax_age: 1s\n"


def _measure_again(_seed: int, folder: Path, slowdown: float) -> Try:
    """Register a function, let its figure age, and have it measured again; meanwhile it may become slower."""
    speed = folder / "speed.txt"
    speed.write_text("0.004", encoding="utf-8")
    (folder / "model.py").write_text(SPEED.format(speed=str(speed)), encoding="utf-8")
    (folder / "daily.yaml").write_text(POLICY, encoding="utf-8")
    for words in (
        ("registry", "policy", "-f", "daily.yaml"),
        (
            "registry",
            "add",
            "call:model.py:work",
            "--name",
            "quiet",
            "--policy",
            "daily",
            "--no-copy",
            "--wait",
        ),
    ):
        code, output = modeldyno(folder, *words)
        if code:
            return Try(Outcome.FALSE, f"{words[1]} ended with {code}: {last_line(output, 'modeldyno:')}")
    speed.write_text(str(0.004 * (1 + slowdown)), encoding="utf-8")
    code, output = modeldyno(folder, "worker", "--once", "--for", "1s", "--idle-cpu", "100%")
    modeldyno(folder, "registry", "history", "quiet", "--json", "events.json")
    kinds = [event["kind"] for event in read_document(folder / "events.json")]
    line = ", ".join(kind for kind in kinds if kind.startswith("figure.")) or last_line(output)
    wrong, right = (
        ("figure.confirmed", "figure.changed") if slowdown else ("figure.changed", "figure.confirmed")
    )
    if wrong in kinds:
        return Try(Outcome.FALSE, line)
    return Try(Outcome.TRUE if right in kinds else Outcome.OPEN, line)


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
    with replayed(recorded_processes(seed)):
        return _trend(seed, folder, slowdown, many=40)


CELLS = tuple(
    Cell(
        claim="planted changes" if slowdown else "unchanged code",
        door=door,
        case=", ".join(filter(None, (f"+{slowdown:.0%}" if slowdown else "", how))),
        command=command,
        attempt=partial(attempt, slowdown=slowdown),
        tries=tries,
        most_false=0.05 if door == "canary" else 0.0,
        least_true=(0.0 if how else 0.75 if door == "canary" else 0.9) if slowdown else 0.0,
        quick=quick,
    )
    for door, how, command, attempt, tries, slowdowns, quick in (
        (
            "registry",
            "",
            "modeldyno registry add MODEL --policy daily --wait; modeldyno worker --once",
            _measure_again,
            20,
            (0.0, 0.3),
            "tests/registry/test_figures.py",
        ),
        (
            "canary",
            "",
            "modeldyno worker (on recorded readings)",
            _canary,
            49,
            (0.0, 1.0),
            "tests/registry/test_canary.py",
        ),
        (
            "trend",
            "",
            "modeldyno trend MODEL --fail-on-regression",
            _trend,
            20,
            (0.0, 0.1),
            "tests/core/comparison/test_trend.py",
        ),
        (
            "trend",
            "recorded",
            "modeldyno trend MODEL --fail-on-regression",
            _recorded_trend,
            100,
            (0.0, 0.1, 0.3),
            "tests/core/comparison/test_trend.py",
        ),
    )
    for slowdown in slowdowns
)
