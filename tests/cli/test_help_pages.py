from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

import click
import pytest

from modeldyno.base import plugins
from modeldyno.cli import COMMANDS, cli
from modeldyno.cli.help_pages import EXAMPLES, FIRST, GROUPS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import CommandResult


def flags_of(name: str) -> set[str]:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    return {flag for parameter in command.params for flag in parameter.opts if flag.startswith("--")}


@pytest.mark.parametrize("name", FIRST)
def test_the_first_twelve_options_are_shown(name: str, modeldyno: Callable[..., CommandResult]) -> None:
    """Help fits on two screens, and says how to see all options."""
    help_text = modeldyno(name, "--help").out

    assert len(FIRST[name]) == 12
    assert set(FIRST[name]) <= flags_of(name)
    assert all(flag in help_text for flag in FIRST[name])
    assert f"modeldyno {name} --help-all" in help_text
    assert "--min-warmup" not in help_text
    assert len(help_text.splitlines()) < 60


@pytest.mark.parametrize("name", FIRST)
def test_all_options_are_shown_in_groups(name: str, modeldyno: Callable[..., CommandResult]) -> None:
    """All options are shown, each in a group, except those of help itself."""
    result = modeldyno(name, "--help-all")
    grouped = {flag for _, flags in GROUPS for flag in flags}
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    longs = {
        next(f for f in p.opts if f.startswith("--")) for p in command.params if isinstance(p, click.Option)
    }

    assert result.code == 0
    assert all(flag in result.out for flag in longs)
    assert longs - grouped == {"--help-all"}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_of_a_command_are_understood(name: str, modeldyno: Callable[..., CommandResult]) -> None:
    """Each example is of its command, and click can parse it; --help shows both."""
    help_text = modeldyno(name, "--help").out
    for line in EXAMPLES[name]:
        program, first, *arguments = shlex.split(line)
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        assert (program, first) == ("modeldyno", name)
        assert line in help_text
        command.make_context(name, arguments, **cli.context_settings)
    assert set(EXAMPLES) <= set(COMMANDS)


def test_the_help_of_probe_names_the_probes(modeldyno: Callable[..., CommandResult]) -> None:
    """The help lists the values."""
    help_text = " ".join(modeldyno("profile", "--help").out.split())

    assert all(name in help_text for name in plugins.names("probe"))


def test_a_shell_completes_commands_and_options(
    modeldyno: Callable[..., CommandResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the reference says: through click's variable for bash."""
    monkeypatch.setenv("_MODELDYNO_COMPLETE", "bash_complete")
    for typed, place, completed in (
        ("modeldyno prof", "1", "plain,profile\n"),
        ("modeldyno profile --max-t", "2", "plain,--max-time\n"),
    ):
        monkeypatch.setenv("COMP_WORDS", typed)
        monkeypatch.setenv("COMP_CWORD", place)
        assert modeldyno().out == completed


def test_the_value_of_an_option_has_a_word_of_ours() -> None:
    """``--max-time TIME``, not ``--max-time TEXT``: the types of click say nothing to a reader."""
    context = click.Context(cli)
    commands = [command for name in COMMANDS if (command := cli.get_command(context, name)) is not None]
    inner = [
        each for command in commands if isinstance(command, click.Group) for each in command.commands.values()
    ]

    for command in (*commands, *inner):
        text = command.get_help(click.Context(command, info_name=command.name))
        assert not re.search(r"^  -.*--\S+ (TEXT|INTEGER|FLOAT)\b", text, re.MULTILINE), command.name


@pytest.mark.parametrize("group", ["registry", "engine"])
def test_a_list_of_commands_has_whole_sentences(group: str, modeldyno: Callable[..., CommandResult]) -> None:
    """No summary of a command within a group is cut short."""
    _, _, commands = modeldyno(group, "--help").out.partition("Commands:")

    assert commands
    assert "..." not in commands
