"""The page on several models of one server: what it writes can be said, and comes to what it says."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from modeldyno.base.yaml_file import parse_yaml_text
from modeldyno.cli import cli
from modeldyno.cli import load as load_command
from modeldyno.cli.actions.sweep import merge_config
from modeldyno.cli.sweep import command as sweep_command
from modeldyno.sweeps import build as words_of

if TYPE_CHECKING:
    from modeldyno.sweeps.study.study import Study

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "howto" / "load-several-models.md").read_text(encoding="utf-8")
LINES = re.findall(r"^\$ modeldyno (.*)$", PAGE.replace("\\\n", " "), re.MULTILINE)


@pytest.fixture(autouse=True)
def _models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the models that the page speaks of."""
    for name in ("encoder.onnx", "tagger.onnx"):
        shutil.copyfile(ROOT / "examples" / "digits" / "digits.onnx", tmp_path / name)
    monkeypatch.chdir(tmp_path)


def test_the_loads_of_the_page_are_known() -> None:
    """Each line of a load is one that the command takes."""
    loads = [shlex.split(line)[1:] for line in LINES if line.startswith("load ")]
    assert len(loads) == 3
    for arguments in loads:
        load_command.command.make_context("load", list(arguments), **cli.context_settings)


def test_the_sweeps_of_the_page_are_studies() -> None:
    """The line and the file lead to a space of both models, and the weights are those of the page."""
    (line,) = (line for line in LINES if line.startswith("sweep "))
    (weights,) = re.findall(r"^--maximize .*$", PAGE, re.MULTILINE)
    (file,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    arguments = [*shlex.split(line)[1:], *shlex.split(weights)]
    with sweep_command.make_context("sweep", arguments, **cli.context_settings) as context:
        typed = words_of.build_study(merge_config(context, context.params))[0]
    written = words_of.build_study(parse_yaml_text(file, "sweep.yaml"))[0]

    assert names(typed) == ["instances", "tagger.instances", "concurrency", "tagger.concurrency"]
    assert [str(bound) for bound in typed.goal.constraints] == [
        "latency.p99 <= 50 ms", "latency.p99@tagger <= 50 ms",
    ]  # fmt: skip
    assert names(written)[:2] == ["instances", "tagger.instances"]
    for study in (typed, written):
        assert [str(aim) for aim in study.goal.objectives] == [
            "maximize throughput:3", "maximize throughput@tagger",
        ]  # fmt: skip


def names(study: Study) -> list[str]:
    return [axis.name for axis in study.space.axes]
