"""Fields in messages, as the command line and as Python spell them."""

from __future__ import annotations

import ast
import re
from inspect import isfunction, signature, unwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest

import modeldyno
from modeldyno import registry, serving, sweeps
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.option_spelling import FIELDS, FUNCTIONS, KNOBS, spell_for_command_line, spell_for_python
from modeldyno.base.options import LOAD, PLAN
from modeldyno.cli import COMMANDS, cli
from modeldyno.profiling.api.error_wording import keywords_of
from modeldyno.profiling.api.settings import Knobs, ServedKnobs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SOURCE = Path(modeldyno.__file__ or "").parent
NAMED = re.compile(r"`([a-z_]+)(?:=|`)")
OTHER_WORDS = {
    "inspect": "a function of Python", "load": "a function of a module", "matrix": "a key of a file of jobs",
    "jobs": "a key of a file of jobs", "next": "a key of an answer of the dashboard",
}  # fmt: skip
"""Words in backticks that are no fields, and what they are."""
FILLED_IN = {"max_regression", "measurements", "most", "smallest"}
"""Fields that functions put into a message, as the options of a load and of a plan are."""


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
        ("holds with `find_load`", "holds with --find-load", "holds with find_load()"),
        ("`certain=95%` or more", "--until 95% or more", "certain='95%' or more"),
        ("`batch_size=4` is", "--set batch_size=4 is", "batch_size=4 is"),
        ("run `modeldyno inspect`", "run `modeldyno inspect`", "run `modeldyno inspect`"),
        ("the `threads` of `axis=1`", "the `threads` of `axis=1`", "the `threads` of `axis=1`"),
    ],
)  # fmt: skip
def test_a_field_is_spelled_for_its_reader(text: str, option: str, argument: str) -> None:
    """As an option or as an argument; what is spelled is not changed again, nor are other words."""
    assert spell_for_command_line(text) == option
    assert spell_for_python(text) == argument
    assert spell_for_command_line(argument) == argument


def test_each_field_that_a_message_names_is_spelled() -> None:
    """No message has a field that would be shown in backticks, and no field is in no message."""
    named = set().union(
        *(
            NAMED.findall(text)
            for path in SOURCE.rglob("*.py")
            if path.relative_to(SOURCE).parts[0] not in {"cli", "testing"}
            for text in texts(path)
        )
    )

    assert named - FIELDS - KNOBS == set(OTHER_WORDS)
    assert (FIELDS | KNOBS) - named - {row.name for row in (*PLAN, *LOAD)} == FILLED_IN


def texts(path: Path) -> Iterator[str]:
    """Every text of a module but the docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    explaining = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in explaining:
            yield node.value


def test_each_field_is_an_option_and_an_argument() -> None:
    """What a message advises can be typed: at the command line, and in Python."""
    context = cli.make_context("modeldyno", [], resilient_parsing=True)
    options = {word for name in COMMANDS for word in options_of(cli.get_command(context, name), context)}
    functions: list[Callable[..., Any]] = [
        function
        for home in (modeldyno, modeldyno.servers, modeldyno.store, registry, serving, sweeps)
        for name in home.__all__
        if isfunction(function := getattr(home, name))
    ]
    arguments = {name for function in (*functions, Plan) for name in signature(function).parameters}
    arguments |= {name for function in functions for name in keywords_of(unwrap(function))}

    assert {spell_for_command_line(f"`{field}`") for field in FIELDS} - options == set()
    assert FIELDS - arguments - FUNCTIONS == set()
    assert {function.__name__ for function in functions} >= FUNCTIONS
    assert Knobs.__annotations__.keys() | ServedKnobs.__annotations__.keys() >= KNOBS


def options_of(command: click.Command | None, context: click.Context) -> set[str]:
    """The options of a command and of those below it."""
    assert command is not None
    words = {word for parameter in command.params for word in parameter.opts}
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            words |= options_of(command.get_command(context, name), context)
    return words
