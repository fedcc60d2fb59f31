"""Scripts with planted causes, marked in the lines that have one, and their twins without any.

``modeldyno run --ops`` names each cause with file, line and kind, and says nothing of the twins.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

FOLDER = Path(__file__).parent / "planted"
SCRIPTS = ("training", "service", "preparation")
LEAST_NAMED = 18


def planted(path: Path) -> set[tuple[str, str]]:
    """Return the line and the kind of each cause that a script says it has."""
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    marks = ((number, re.search(r"# planted: (\S+)", line)) for number, line in lines)
    return {(f"{path.name}:{number}", mark[1]) for number, mark in marks if mark}


def named(path: Path, folder: Path) -> set[tuple[str, str]]:
    """Run a script, and return the line and the kind of each finding."""
    document = folder / f"{path.stem}.json"
    subprocess.run(
        [sys.executable, "-m", "modeldyno", "run", "--ops", "--json", document, path],
        check=True,
        capture_output=True,
        timeout=600,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    wastes = json.loads(document.read_text(encoding="utf-8"))["activity"]["wastes"]
    return {(waste["line"], waste["kind"]) for waste in wastes or ()}


@pytest.mark.slow
@pytest.mark.timeout(3600)  # on a busy machine
def test_planted_causes_are_named_and_nothing_else(tmp_path: Path) -> None:
    """At least 18 of the 20, and no line that has none."""
    causes = {name: planted(FOLDER / f"{name}.py") for name in SCRIPTS}
    findings = {name: named(FOLDER / f"{name}.py", tmp_path) for name in SCRIPTS}
    missed = {cause for name in SCRIPTS for cause in causes[name] - findings[name]}
    wrong = {finding for name in SCRIPTS for finding in findings[name] - causes[name]}

    total = sum(map(len, causes.values()))
    assert total == 20
    assert total - len(missed) >= LEAST_NAMED, missed
    assert not wrong


@pytest.mark.slow
@pytest.mark.timeout(3600)  # on a busy machine
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_clean_script_gets_no_finding(name: str, tmp_path: Path) -> None:
    """The twin of the same work."""
    assert named(FOLDER / f"{name}_clean.py", tmp_path) == set()
