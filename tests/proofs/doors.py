"""Doors at which a change is judged: each measures a model, then another, as its page says."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.proofs import commands
from tests.proofs.commands import last_line, modeldyno, python, read_document, within
from tests.test_action import run as run_action

Said = Literal["worse", "not worse", "undecided", "error"]
_BY_EXIT_CODE: dict[int, Said] = {0: "not worse", 1: "worse", 5: "undecided"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeDoor:
    """A door that judges a change."""

    key: str
    """Of `tests.proofs.cells.DOORS`."""
    command: str
    """What is typed; MODEL is the model."""
    judge: Callable[[Path, Callable[[Path], str], Callable[[Path], str]], tuple[Said, str]]
    """Takes an empty folder and what writes the model before and after; returns a word and a line."""
    quick: str
    seconds: float
    """Of a live try, as in `Cell`."""
    stored: bool = False
    """Whether the two are measured at different times: a change must be 8 % to stand out."""


def _by_exit_code(done: tuple[int, str]) -> tuple[Said, str]:
    code, output = done
    verdict = _BY_EXIT_CODE.get(code, "error")
    return verdict, last_line(
        output, "passes", "fails", "undecided", "worse", "better", "no difference", "modeldyno:"
    )


def _baseline(folder: Path, model: str, *words: str) -> None:
    code, output = modeldyno(folder, "profile", model, "--processes", "5", *words)
    if code:
        raise RuntimeError(f"the baseline ended with {code}: {last_line(output)}")


def _tag(folder: Path, before: Callable[[Path], str], after: Callable[[Path], str]) -> tuple[Said, str]:
    _baseline(folder, before(folder), "--save-as-baseline", "main")
    return _by_exit_code(modeldyno(folder, "profile", after(folder), "--baseline", "@main"))


def _json(folder: Path, before: Callable[[Path], str], after: Callable[[Path], str]) -> tuple[Said, str]:
    _baseline(folder, before(folder), "--json", "baseline.json")
    return _by_exit_code(modeldyno(folder, "profile", after(folder), "--baseline", "baseline.json"))


def _store(folder: Path, before: Callable[[Path], str], after: Callable[[Path], str]) -> tuple[Said, str]:
    _baseline(folder, before(folder), "--json", "baseline.json")
    name = read_document(folder / "baseline.json")["id"]
    (folder / "baseline.json").unlink()
    return _by_exit_code(modeldyno(folder, "profile", after(folder), "--baseline", name))


def _checkout(folder: Path, before: Callable[[Path], str], after: Callable[[Path], str]) -> tuple[Said, str]:
    old, new = folder / "main", folder / "branch"
    old.mkdir()
    code, output = modeldyno(
        old, "profile", before(old), "--processes", "5", "--json", "../baseline.json", store=folder
    )
    if code:
        raise RuntimeError(f"the baseline ended with {code}: {last_line(output)}")
    new.mkdir()
    return _by_exit_code(
        modeldyno(new, "profile", after(new), "--baseline", "../baseline.json", store=folder)
    )


def _directory(folder: Path, before: Callable[[Path], str], after: Callable[[Path], str]) -> tuple[Said, str]:
    before(folder / "base")
    return _by_exit_code(
        modeldyno(folder, "profile", after(folder), "--baseline", "./base", "--budget", "3m")
    )


def _job_file(folder: Path, before: Callable[[Path], str], after: Callable[[Path], str]) -> tuple[Said, str]:
    _baseline(folder, before(folder), "--json", "baseline.json")
    job = {"command": "profile", "model": after(folder), "baseline": "baseline.json"}
    (folder / "gate.yaml").write_text(json.dumps(job), encoding="utf-8")
    return _by_exit_code(modeldyno(folder, "profile", "gate.yaml"))


TEST = """
def test_speed(modeldyno_profile):
    modeldyno_profile({model!r})
"""


def _pytest(folder: Path, before: Callable[[Path], str], after: Callable[[Path], str]) -> tuple[Said, str]:
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    (folder / "test_speed.py").write_text(TEST.format(model=before(folder)), encoding="utf-8")
    words = ("python", "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:cov")
    code, output = commands.execute(folder, *words, "--modeldyno-update", "test_speed.py")
    if code:
        raise RuntimeError(f"the baseline ended with {code}: {last_line(output, 'Error')}")
    after(folder)
    code, output = commands.execute(folder, *words, "test_speed.py")
    line = last_line(output, "Undecided", "fails", "Error", "passed").strip("= ")
    if "UndecidedWarning" in output:
        return "undecided", line
    return ("not worse" if code == 0 else "worse" if " fails: " in output else "error"), line


def _action(folder: Path, before: Callable[[Path], str], after: Callable[[Path], str]) -> tuple[Said, str]:
    before(folder / "base")
    _, output, given = run_action(
        folder, model=after(folder), baseline="./base", budget="3m", install="", arguments="--no-store"
    )
    verdict, line = _by_exit_code((int(given.get("exit-code", 4)), output))
    return ("undecided" if "undecided counts as passed" in output else verdict), line


GATE = """
import modeldyno

report = modeldyno.gate({model!r}, "baseline.json", progress=False)
print(report)
raise SystemExit({{"held": 0, "broken": 1, "undecided": 5}}[report.verdict])
"""


def _gate(folder: Path, before: Callable[[Path], str], after: Callable[[Path], str]) -> tuple[Said, str]:
    _baseline(folder, before(folder), "--json", "baseline.json")
    return _by_exit_code(python(folder, GATE.format(model=after(folder))))


REGRESSIONS = """
from modeldyno.compat import ModelProfiler, detect_regressions, load_baseline

baseline_results = load_baseline("baseline.json")
current_results = ModelProfiler({model!r}, processes=5).profile()
regressions = detect_regressions(baseline_results, current_results)
print(regressions)
raise SystemExit({{"held": 0, "broken": 1, "undecided": 5}}[regressions.verdict])
"""


def _detect(folder: Path, before: Callable[[Path], str], after: Callable[[Path], str]) -> tuple[Said, str]:
    _baseline(folder, before(folder), "--json", "baseline.json")
    return _by_exit_code(python(folder, REGRESSIONS.format(model=after(folder))))


def _check(folder: Path, before: Callable[[Path], str], after: Callable[[Path], str]) -> tuple[Said, str]:
    _baseline(folder, before(folder), "--json", "baseline.json")
    _baseline(folder, after(folder), "--json", "result.json")
    return _by_exit_code(modeldyno(folder, "check", "result.json", "--baseline", "baseline.json"))


def _compare(folder: Path, before: Callable[[Path], str], after: Callable[[Path], str]) -> tuple[Said, str]:
    models = [within(place, write(folder / place)) for place, write in (("main", before), ("branch", after))]
    return _by_exit_code(modeldyno(folder, "compare", *models, "--no-why", "--fail-on", "worse"))


def _files(folder: Path, before: Callable[[Path], str], after: Callable[[Path], str]) -> tuple[Said, str]:
    _baseline(folder, before(folder), "--json", "before.json")
    _baseline(folder, after(folder), "--json", "after.json")
    words = ("compare", "before.json", "after.json", "--fail-on", "worse")
    return _by_exit_code(modeldyno(folder, *words))


_GATE_TEST = "tests/proofs/test_doors.py::test_a_change_is_judged_at_each_door"
CHANGE_DOORS = (
    ChangeDoor(
        key="tag",
        command="modeldyno profile MODEL --processes 5 --save-as-baseline main; "
        "modeldyno profile MODEL --baseline @main",
        judge=_tag,
        stored=True,
        quick=_GATE_TEST,
        seconds=60.0,
    ),
    ChangeDoor(
        key="json",
        command="modeldyno profile MODEL --processes 5 --json baseline.json; "
        "modeldyno profile MODEL --baseline baseline.json",
        judge=_json,
        stored=True,
        quick=_GATE_TEST,
        seconds=60.0,
    ),
    ChangeDoor(
        key="store",
        command="modeldyno profile MODEL --processes 5; modeldyno profile MODEL --baseline ID",
        judge=_store,
        stored=True,
        quick=_GATE_TEST,
        seconds=60.0,
    ),
    ChangeDoor(
        key="checkout",
        command="modeldyno profile MODEL --processes 5 --json ../baseline.json; "
        "cd ../branch; modeldyno profile MODEL --baseline ../baseline.json",
        judge=_checkout,
        stored=True,
        quick=_GATE_TEST,
        seconds=60.0,
    ),
    ChangeDoor(
        key="directory",
        command="modeldyno profile MODEL --baseline ./base --budget 3m",
        judge=_directory,
        quick=_GATE_TEST,
        seconds=90.0,
    ),
    ChangeDoor(
        key="job file",
        command="modeldyno profile gate.yaml",
        judge=_job_file,
        stored=True,
        quick=_GATE_TEST,
        seconds=60.0,
    ),
    ChangeDoor(
        key="pytest",
        command="pytest --modeldyno-update; pytest",
        judge=_pytest,
        stored=True,
        quick=_GATE_TEST,
        seconds=70.0,
    ),
    ChangeDoor(
        key="action",
        command="uses: OWNER/modeldyno@main (model: MODEL, baseline: ./base, budget: 3m)",
        judge=_action,
        quick="tests/test_action.py::test_another_checkout_is_the_baseline",
        seconds=90.0,
    ),
    ChangeDoor(
        key="gate()",
        command='modeldyno.gate(MODEL, "baseline.json")',
        judge=_gate,
        stored=True,
        quick=_GATE_TEST,
        seconds=60.0,
    ),
    ChangeDoor(
        key="detect_regressions",
        command="detect_regressions(baseline, ModelProfiler(MODEL, processes=5).profile())",
        judge=_detect,
        stored=True,
        quick=_GATE_TEST,
        seconds=60.0,
    ),
    ChangeDoor(
        key="check",
        command="modeldyno check result.json --baseline baseline.json",
        judge=_check,
        stored=True,
        quick=_GATE_TEST,
        seconds=60.0,
    ),
    ChangeDoor(
        key="compare",
        command="modeldyno compare MODEL MODEL --fail-on worse",
        judge=_compare,
        quick=_GATE_TEST,
        seconds=60.0,
    ),
    ChangeDoor(
        key="files",
        command="modeldyno compare before.json after.json --fail-on worse",
        judge=_files,
        stored=True,
        quick=_GATE_TEST,
        seconds=60.0,
    ),
)
