"""The GitHub Action: its steps, run here with the inputs as environment; and the snippets of the page."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from modeldyno.cli.profile import command

ROOT = Path(__file__).parent.parent
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
PAGE = (ROOT / "docs" / "howto" / "gate-in-ci.md").read_text(encoding="utf-8")
MODEL = "call:modeldyno.testing.specimen:network"
QUICK = "--max-time=0.5s\n--min-time=0.1s\n--no-store\n--probe=latency"


def run(folder: Path, **inputs: str) -> tuple[int, str, dict[str, str]]:
    """Carry out the steps as a runner does; give the exit code, what was printed, and the outputs."""
    given = {name: spec.get("default", "") for name, spec in ACTION["inputs"].items()} | inputs
    outputs, said = folder / "outputs.txt", ""
    outputs.touch()
    for step in ACTION["runs"]["steps"]:
        own = {name: _rendered(text, given) for name, text in step.get("env", {}).items()}
        environment = (
            os.environ
            | own
            | {
                "GITHUB_OUTPUT": str(outputs),
                "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
                "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            }
        )
        words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        said += done.stdout + done.stderr
        if done.returncode:
            break
    pairs = (line.partition("=") for line in outputs.read_text(encoding="utf-8").splitlines())
    return done.returncode, said, {name: value for name, _, value in pairs}


def _rendered(text: str, given: dict[str, Any]) -> str:
    return re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: str(given[found[1]]), text)


def test_no_script_holds_an_input() -> None:
    """Inputs come by the environment, where they are no code; each that is used exists."""
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step["run"]
        for text in step["env"].values():
            name = re.fullmatch(r"\$\{\{ inputs\.([\w-]+) \}\}", text)
            assert name is not None
            assert name[1] in ACTION["inputs"]


def test_the_steps_measure_and_write_the_reports(tmp_path: Path) -> None:
    """A model within its bounds passes; every report is there, and the outputs name them."""
    bounds = "latency.max <= 100s\n\nlatency.min <= 100s"
    code, said, outputs = run(tmp_path, model=MODEL, install="", arguments=QUICK, require=bounds)
    assert code == 0, said
    assert outputs == {"exit-code": "0", "comment": "modeldyno-reports/comment.md"}
    reports = tmp_path / "modeldyno-reports"
    assert {path.name for path in reports.iterdir()} == {
        "result.json",
        "junit.xml",
        "results.sarif",
        "comment.md",
    }
    assert json.loads((reports / "results.sarif").read_text())["version"] == "2.1.0"
    assert (tmp_path / "summary.md").read_text() == (reports / "comment.md").read_text()


def test_a_broken_bound_fails_the_job(tmp_path: Path) -> None:
    """With an annotation that says which."""
    bound = "latency.max <= 1ns"
    code, said, outputs = run(tmp_path, model=MODEL, install="", arguments=QUICK, require=bound)
    assert (code, outputs["exit-code"]) == (1, "1")
    assert "title=specimen.network%3A latency.max <= 1 ns" in said


@pytest.mark.parametrize("model", ['x"; touch pwned; "', "$(touch pwned)", "--trust", "`touch pwned`.onnx"])
def test_an_input_is_no_code(tmp_path: Path, model: str) -> None:
    """Whatever a model is called, it is the name of a model."""
    code, said, _ = run(tmp_path, model=model, install="", arguments=QUICK)
    assert code == 2, said
    assert not (tmp_path / "pwned").exists()


def test_the_snippets_of_the_page_are_right() -> None:
    """The inputs that the page gives exist, and the job for GitLab names options that exist."""
    snippets = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
    (step,), job = snippets[0], snippets[1]["model-gate"]
    assert set(step["with"]) <= set(ACTION["inputs"])
    known = {flag for parameter in command.params for flag in parameter.opts}
    used = set(re.findall(r"--[a-z-]+", " ".join(job["script"])))
    assert used
    assert used <= known
    assert job["allow_failure"]["exit_codes"] == 5
