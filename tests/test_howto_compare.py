"""What the page on comparing claims."""

from __future__ import annotations

import ast
import inspect
import re
import shlex
from pathlib import Path

import pytest

import modeldyno
from modeldyno.base.result.output_agreement import CLOSE
from modeldyno.base.stats.schedule import RoundSchedule
from modeldyno.cli import cli
from modeldyno.cli import compare as module
from modeldyno.cli import inspect as analysing
from modeldyno.comparison.change.build import parse_smallest_effects
from modeldyno.comparison.change.comparison import SMALLEST_EFFECT, CandidateComparison, ChangeVerdict
from modeldyno.comparison.change.default_metrics import SMALLEST
from modeldyno.testing.sample_results import a_result

PAGE = (Path(__file__).parent.parent / "docs" / "howto" / "compare.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\$ modeldyno compare (.*)$", PAGE, re.MULTILINE)
PYTHON = "".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_is_understood(line: str) -> None:
    """Its words are those of the command."""
    context = module.command.make_context("compare", shlex.split(line), **cli.context_settings)

    assert context.params["baseline"]


def test_every_option_that_is_named_is_one() -> None:
    """But for one of profile, and those of inspect."""
    flags = {flag for parameter in module.command.params for flag in parameter.opts}

    assert len(COMMANDS) >= 6
    assert set(re.findall(r"--[a-z][a-z-]+", PAGE)) - flags == {"--outputs", "--compare", "--table"}
    assert "--compare" in {flag for parameter in analysing.command.params for flag in parameter.opts}


def test_the_numbers_are_those_of_the_code() -> None:
    """Rounds, and what matters."""
    assert RoundSchedule(side_count=2).interim_rounds == (5, 10, 20)
    assert SMALLEST_EFFECT == 0.03
    loading, answers = ("load_time", "first_call"), ("accuracy", "top_5", "f1")
    assert {
        "process_memory": 0.05,
        **dict.fromkeys(loading, 0.25),
        **dict.fromkeys(answers, 0.005),
    } == SMALLEST
    assert parse_smallest_effects(("latency=1%",))["latency"] == 0.01
    assert CLOSE == 0.01


def test_the_python_is_that_of_the_api() -> None:
    """Names and arguments exist."""
    calls = {
        node.func.attr: {keyword.arg for keyword in node.keywords}
        for node in ast.walk(ast.parse(PYTHON))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }

    assert calls["compare"] <= set(inspect.signature(modeldyno.compare).parameters)
    assert callable(modeldyno.save_comparison)
    assert list(CandidateComparison(candidate=a_result(), changes=()).of(ChangeVerdict.WORSE)) == []
