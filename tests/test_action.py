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
from tests.support.fake_forge import TOKEN, serve_forge

from modeldyno.cli.profile import command

ROOT = Path(__file__).parent.parent
PROGRAMS = Path(sys.executable).parent
"""Where the steps find ``modeldyno``."""
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
PAGE = (ROOT / "docs" / "howto" / "gate-in-ci.md").read_text(encoding="utf-8")
MODEL = "call:modeldyno.testing.known_latency:steady"
QUICK = "--max-time=0.5s\n--min-time=0.1s\n--precision=50%\n--no-store\n--probe=latency"


def run(folder: Path, **inputs: str) -> tuple[int, str, dict[str, str]]:
    """Carry out the steps as a runner does; give the exit code, what was printed, and the outputs."""
    values = {name: spec.get("default", "") for name, spec in ACTION["inputs"].items()} | inputs
    outputs, output = folder / "outputs.txt", ""
    outputs.touch()
    failed, context = 0, {f"inputs.{name}": value for name, value in values.items()}
    for step in ACTION["runs"]["steps"]:
        pairs = (line.partition("=") for line in outputs.read_text(encoding="utf-8").splitlines())
        context |= {f"steps.gate.outputs.{name}": value for name, _, value in pairs}
        if not _is_run(step.get("if", "success()"), context, failed=bool(failed)):
            continue
        own = {name: _rendered(text, context) for name, text in step.get("env", {}).items()}
        environment = (
            os.environ
            | own
            | {
                "GITHUB_OUTPUT": str(outputs),
                "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
                "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}",
            }
        )
        arguments = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        done = subprocess.run(
            arguments, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        output += done.stdout + done.stderr
        failed = failed or done.returncode
    pairs = (line.partition("=") for line in outputs.read_text(encoding="utf-8").splitlines())
    return failed, output, {name: value for name, _, value in pairs}


def test_what_is_installed_is_what_the_action_came_with(tmp_path: Path) -> None:
    """By default ModelDyno from the files of the action, as no index has it; other packages beside it."""
    (tmp_path / "python").write_text('#!/bin/sh\necho "$PWD: $@" >> "$SEEN"\n', encoding="utf-8")
    (tmp_path / "python").chmod(0o755)
    step = ACTION["runs"]["steps"][0]
    for install in (ACTION["inputs"]["install"]["default"], ". torch", ""):
        environment = os.environ | {
            "INSTALL": install,
            "GITHUB_ACTION_PATH": str(ROOT),
            "SEEN": str(tmp_path / "seen"),
            "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        }
        subprocess.run(["bash", "-c", step["run"]], cwd=tmp_path, env=environment, check=True)

    assert (tmp_path / "seen").read_text(encoding="utf-8").splitlines() == [
        f"{ROOT}: -m pip install --quiet -- .[onnx]",
        f"{ROOT}: -m pip install --quiet -- . torch",
    ]


def _rendered(text: str, context: dict[str, Any]) -> str:
    return re.sub(r"\$\{\{ ([\w.-]+) \}\}", lambda match: str(context[match[1]]), text)


def _is_run(condition: str, context: dict[str, Any], *, failed: bool) -> bool:
    """Read a condition of a step: ``always()``, or success, and names that are not empty."""
    parts = condition.removeprefix("${{").removesuffix("}}").strip().split(" && ")
    empty = [
        part for part in parts if part.endswith(" != ''") and not context.get(part.removesuffix(" != ''"))
    ]
    return not empty and ("always()" in parts or not failed)


def test_no_script_holds_an_input() -> None:
    """Inputs come by the environment, where they are no code; each that is used exists."""
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step["run"]
        for text in step["env"].values():
            name = re.fullmatch(r"\$\{\{ (inputs|steps\.gate\.outputs)\.([\w-]+) \}\}", text)
            assert name is not None
            assert name[2] in ACTION["inputs" if name[1] == "inputs" else "outputs"]


def test_a_gate_that_fails_annotates_and_comments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The annotation says which bound; the comment has the verdict; what runs the model has no token."""
    monkeypatch.setenv("GITHUB_REPOSITORY", "us/nets")
    inputs = {"model": MODEL, "install": "", "arguments": QUICK, "token": TOKEN, "pull-request": "7"}
    with serve_forge() as server:
        monkeypatch.setenv("GITHUB_API_URL", server.url)
        code, output, outputs = run(tmp_path, **inputs, require="latency.max <= 1ns")
        assert (code, outputs["exit-code"]) == (1, "1"), output
        mark, header = server.comments[0]["body"].splitlines()[:2]
    assert "title=known_latency.steady%3A latency.max <= 1 ns" in output
    assert mark == "<!-- modeldyno: known_latency.steady -->"
    assert header.startswith("**❌ known_latency.steady fails")
    gate = next(step for step in ACTION["runs"]["steps"] if step.get("id") == "gate")
    assert not any("token" in text for text in gate["env"].values())


def test_the_comment_is_kept_up_to_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later run replaces it; a forge that refuses it is warned of, and fails no gate."""
    (step,) = (step for step in ACTION["runs"]["steps"] if step["name"] == "Comment")
    path = tmp_path / "comment.md"
    monkeypatch.setenv("GITHUB_REPOSITORY", "us/nets")

    def commented(text: str, token: str) -> str:
        path.write_text(f"<!-- modeldyno: net -->\n{text}", encoding="utf-8")
        own = {"GITHUB_TOKEN": token, "PULL_REQUEST": "7", "COMMENT": str(path)}
        assert own.keys() == step["env"].keys()
        search = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        arguments = ["bash", "-c", step["run"]]
        environment = os.environ | own | {"PATH": search}
        done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    with serve_forge() as server:
        monkeypatch.setenv("GITHUB_API_URL", server.url)
        assert "posted the comment 1000" in commented("fails", TOKEN)
        assert "updated the comment 1000" in commented("holds", TOKEN)
        assert "::warning::The verdict could not be put" in commented("odd", "wrong")
        assert [each["body"] for each in server.comments] == ["<!-- modeldyno: net -->\nholds"]


@pytest.mark.slow
def test_the_job_for_gitlab_comments_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its steps, as the page gives them, measure and put the verdict on the merge request."""
    jobs = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[1])
    with serve_forge() as server:
        for name, value in {
            "CI_MERGE_REQUEST_IID": "3", "CI_PROJECT_ID": "12", "CI_API_V4_URL": server.url,
            "GITLAB_TOKEN": TOKEN, "MODEL": MODEL,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }.items():  # fmt: skip
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
        lines = [line for job in jobs.values() for line in job["script"] if not line.startswith("pip ")]
        gate, post = lines
        quick = " ".join((*QUICK.split(), "--require 'latency.max <= 100s'"))
        gate = f"{gate.replace('--baseline=baseline.json --max-regression=5%', '')} {quick}"
        for line in (gate, post, post):
            done = subprocess.run(["bash", "-c", line], cwd=tmp_path, check=False)
            assert done.returncode == 0
        assert [each["id"] for each in server.comments] == [1000]
        assert server.requests[-1] == ("PUT", "/projects/12/merge_requests/3/notes/1000")


def test_the_steps_measure_and_write_the_reports(tmp_path: Path) -> None:
    """A model within its bounds passes; every report is there, and the outputs name them."""
    bounds = "latency.max <= 100s\n\nlatency.min <= 100s"
    code, output, outputs = run(tmp_path, model=MODEL, install="", arguments=QUICK, require=bounds)
    assert code == 0, output
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


@pytest.mark.parametrize(
    ("seconds", "budget", "code"),
    [(0.006, "5s", "0"), pytest.param(0.018, "60s", "1", marks=pytest.mark.slow)],
)
def test_another_checkout_is_the_baseline(tmp_path: Path, seconds: float, budget: str, code: str) -> None:
    """It is measured in turns; what is the same there passes, and what is three times as slow fails."""
    text = "from modeldyno.testing.known_latency import KnownLatency\nwork = KnownLatency({})\n"
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "net.py").write_text(text.format(0.006), encoding="utf-8")
    (tmp_path / "net.py").write_text(text.format(seconds), encoding="utf-8")
    inputs = {"model": "call:net.py:work", "baseline": "./base", "install": "", "max-regression": "90%"}
    _, output, outputs = run(tmp_path, **inputs, arguments=f"{QUICK}\n--metric=latency", budget=budget)
    assert outputs["exit-code"] == code, output
    assert "run again in turns" in output


@pytest.mark.parametrize("model",
    [
        'x"; touch pwned; "', "--trust",
        *(pytest.param(model, marks=pytest.mark.slow) for model in ("$(touch pwned)", "`touch pwned`.onnx")),
    ],
)  # fmt: skip
def test_an_input_is_no_code(tmp_path: Path, model: str) -> None:
    """Whatever a model is called, it is the name of a model."""
    code, output, _ = run(tmp_path, model=model, install="", arguments=QUICK)
    assert code == 2, output
    assert not (tmp_path / "pwned").exists()


def test_the_snippets_of_the_page_are_right() -> None:
    """The inputs that the page gives exist, and the job for GitLab names options that exist."""
    snippets = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
    (*checkouts, step), job = snippets[0], snippets[1]["model-gate"]
    assert step["with"]["baseline"] == f"./{checkouts[-1]['with']['path']}"
    assert set(step["with"]) <= set(ACTION["inputs"])
    flags = {flag for parameter in command.params for flag in parameter.opts}
    used = set(re.findall(r"--[a-z-]+", " ".join(job["script"])))
    assert used
    assert used <= flags
    assert job["allow_failure"]["exit_codes"] == 5
