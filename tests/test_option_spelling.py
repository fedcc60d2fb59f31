"""Fields in messages, as the command line and as Python spell them."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from inspect import signature, unwrap
from pathlib import Path

import pytest

import modeldyno
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.option_spelling import FIELDS, KNOBS, spell_for_command_line, spell_for_python
from modeldyno.cli import COMMANDS, cli
from modeldyno.profiling.api.error_wording import keywords_of

CORE = Path(import_module("modeldyno.base.job").__file__ or "").parents[1]
NAMED = re.compile(r"`([a-z_]+)(?:=|`)")
ONLY_OPTIONS = {"demand", "find_load"}
"""Fields that no function of the Python API has."""


@pytest.mark.parametrize(
    ("text", "option", "argument"),
    [
        ("more with `max_time`, or", "more with --max-time, or", "more with max_time=, or"),
        ("with `processes=5`", "with --processes 5", "with processes=5"),
        ("fewer (`threads=1`): they", "fewer (--set threads=1): they", "fewer (threads=1): they"),
        ("where `device=cuda` runs", "where --set device=cuda runs", "where device='cuda' runs"),
        ("as `inputs=x=1x3:int64`.", "as --input x=1x3:int64.", "as inputs='x=1x3:int64'."),
        ("`inputs` 'x' is empty", "--input 'x' is empty", "inputs= 'x' is empty"),
        ("or `headers`.", "or --header.", "or headers=."),
        ("inspect it with `mode=train`", "inspect it with --mode train", "inspect it with mode='train'"),
        ("`require=latency.p99 <= 5ms`", "--require 'latency.p99 <= 5ms'", "require='latency.p99 <= 5ms'"),
        ("add `force` to", "add --force to", "add force=True to"),
        ("run `modeldyno inspect`", "run `modeldyno inspect`", "run `modeldyno inspect`"),
        ("the `threads` of `axis=1`", "the `threads` of `axis=1`", "the `threads` of `axis=1`"),
    ],
)  # fmt: skip
def test_a_field_is_spelled_for_its_reader(text: str, option: str, argument: str) -> None:
    """As an option or as an argument; what is spelled is not changed again, nor are other words."""
    assert spell_for_command_line(text) == option
    assert spell_for_python(text) == argument
    assert spell_for_command_line(argument) == argument


def test_each_field_that_a_message_of_the_core_names_is_spelled() -> None:
    """No message has a field that would be shown in backticks."""
    named = set()
    for path in CORE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            statements = getattr(node, "body", [])
            for statement in statements if isinstance(statements, list) else []:
                if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                    statement.value.value = ""  # a docstring
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                named |= set(NAMED.findall(node.value))

    assert named - FIELDS - KNOBS == set()


def test_each_field_is_an_option_and_an_argument() -> None:
    """What a message advises can be typed."""
    context = cli.make_context("modeldyno", [], resilient_parsing=True)
    commands = [cli.get_command(context, name) for name in COMMANDS]
    options = {word for command in commands if command for p in command.params for word in p.opts}
    functions = (
        modeldyno.profile, modeldyno.inspect, modeldyno.load, modeldyno.sweep, modeldyno.compare,
        modeldyno.gate, modeldyno.ui, modeldyno.report, Plan,
    )  # fmt: skip
    arguments = {name for function in functions for name in signature(function).parameters}
    arguments |= {name for function in functions[:-1] for name in keywords_of(unwrap(function))}

    assert {spell_for_command_line(f"`{field}`") for field in FIELDS} - options == set()
    assert FIELDS - arguments == ONLY_OPTIONS
