"""A job file on the command line: its keys stand for the options of the command.

``modeldyno profile job.yaml --max-time 5s`` is the command with the options of the file, then those that were
typed, which override the file's: a knob of ``--set`` by its name, other options as a whole.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.cli.defaults import NEVER_IN_FILES
from modeldyno.profiling.job_file import is_job_address, read_job

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from modeldyno.base.yaml_file import FileConfig
    from modeldyno.profiling.job_file import FileJob

_NO_JOBS = frozenset({"sweep", "run", "help", "schema", "plugins"})
"""Commands that read such files by themselves, or have nothing to repeat."""
_JOB = "modeldyno.job"
_BATCH_SIZE = "batch_size"
_QUOTED = re.compile(r"'([^']{3,})'")


def takes_job_files(command: click.Command) -> bool:
    """Return whether a command can be written down as a job that this module reads."""
    return not isinstance(command, click.Group) and command.name not in _NO_JOBS


def expand_job_file(command: click.Command, ctx: click.Context, arguments: Sequence[str]) -> list[str]:
    """Replace the name of a job file among the arguments of a command by what the file holds.

    Args:
        command: the command.
        ctx: the context of its group, which remembers the file for `locate_mistake`.
        arguments: the command line after the command.

    Raises:
        RequestError: the file is wrong; it names the line.
    """
    if not any(map(is_job_address, arguments)):
        return list(arguments)
    typed: list[str] = getattr(command, "spread_flags", list)(arguments)
    scratch = click.Context(command, parent=ctx, resilient_parsing=True)
    try:
        values, further, _ = command.make_parser(scratch).parse_args(list(typed))
    except click.UsageError:  # it is told when the words are parsed in earnest
        return list(arguments)
    positional = [*_positional_words(command, values), *further]
    address = next(filter(is_job_address, positional), None)
    if address is None:
        return list(arguments)
    job = read_job(address, str(command.name))
    ctx.meta[_JOB] = job
    return _words_of_job(command, job, typed, values, address, positional)


def _positional_words(command: click.Command, values: Mapping[str, Any]) -> Iterable[str]:
    """Yield the arguments that a parser has read, those of several words, too."""
    for argument in command.params:
        value = values.get(str(argument.name)) if isinstance(argument, click.Argument) else None
        if isinstance(value, str | tuple):
            yield from (value,) if isinstance(value, str) else (word for word in value if word)


def locate_mistake(ctx: click.Context, error: RequestError) -> None:
    """Begin the message with the line of the job file that holds what the message quotes, if one does."""
    job: FileJob | None = ctx.meta.get(_JOB)
    if job is None or error.located:
        return
    config, message = job.options, str(error).partition("; did you mean")[0]
    texts = [*_texts(config.tree)]
    places = [place for place, text in texts if f"'{text}'" in message or f"'{place[-1]}'" in message]
    if not places:
        quoted = _QUOTED.findall(message)
        places = [place for place, text in texts if any(word in text for word in quoted)]
    if len({config.line(place) for place in places}) == 1:
        error.args, error.located = (f"{config.origin}, line {config.line(places[0])}: {error}",), True


def _texts(tree: Any, before: tuple[str, ...] = ()) -> Iterable[tuple[tuple[str, ...], str]]:
    if isinstance(tree, dict):
        for name, value in tree.items():
            yield from _texts(value, (*before, name))
    elif isinstance(tree, list):
        yield before, ",".join(map(str, tree))
        for index, value in enumerate(tree):
            yield from _texts(value, (*before, str(index)))
    else:
        yield before, str(tree)


# --- words from keys ---------------------------------------------------------------------------------


def _words_of_job(
    command: click.Command,
    job: FileJob,
    typed: Sequence[str],
    values: Mapping[str, Any],
    address: str,
    positional: Sequence[str],
) -> list[str]:
    config = job.options
    arguments = {str(p.name): p for p in command.params if isinstance(p, click.Argument)}
    options = {
        flag.lstrip("-").replace("-", "_"): option
        for option in command.params
        if isinstance(option, click.Option)
        for flag in option.opts
        if flag.startswith("--")
    }
    for key in config.tree:
        with config.at(key):
            if f"--{key}" in NEVER_IN_FILES:
                raise RequestError(f"a file cannot say {key}; allow it each time, by --{key}.")
            if key not in arguments and key not in options:
                raise UnknownName.among(f"option of {command.name}", key, (*arguments, *options))
    typed_knobs = {text.partition("=")[0] for text in values.get("settings", ())}
    typed_knobs |= {_BATCH_SIZE} if _BATCH_SIZE in values else set()
    command_line: list[str] = []
    for key, value in config.tree.items():
        option = options.get(key)
        if option is None or (key == _BATCH_SIZE and _BATCH_SIZE in typed_knobs):
            continue
        if option.name == "settings":
            command_line += _option_words(option, key, _without_knobs(value, typed_knobs), config)
        elif option.name not in values:
            command_line += _option_words(option, key, value, config)
    last = len(typed) - 1 - typed[::-1].index(address)
    command_line += (*typed[:last], *typed[last + 1 :])
    if len(positional) > 1:  # the arguments of the file are replaced by those that were typed
        return command_line
    named = [
        text
        for name in arguments
        if name in config.tree
        for text in _as_texts(name, config.tree[name], config)
    ]
    return [*command_line, *(("--",) if named and "--" not in typed else ()), *named]


def _option_words(option: click.Option, key: str, value: Any, config: FileConfig) -> list[str]:
    """Write a key of the file as options, and check that the command takes its value."""
    flag = next(text for text in option.opts if text.startswith("--"))
    if option.is_flag:
        with config.at(key):
            if str(value).lower() not in {"true", "false"}:
                raise RequestError(f"{key} is a switch; write true or false.")
        return [flag] if str(value).lower() == "true" else []
    texts = _as_texts(key, value, config)
    if not option.multiple and len(texts) > 1:
        texts = [",".join(texts)]
    scratch = click.Context(click.Command(None))
    for index, text in enumerate(texts):
        place = (key, str(index)) if isinstance(value, list) else (key,)
        with config.at(*place):
            try:
                option.process_value(scratch, (text,) if option.multiple else text)
            except click.BadParameter as error:
                raise RequestError(f"{key}: {error.message}") from error
    return [f"{flag}={text}" for text in texts]


def _as_texts(key: str, value: Any, config: FileConfig) -> list[str]:
    """Return a value as the texts of an option: a list has several, a mapping is ``name=value`` each."""
    with config.at(key):
        if isinstance(value, dict):
            return [f"{name}={_join_values(part, key)}" for name, part in value.items()]
        texts = [_join_values(part, key) for part in value] if isinstance(value, list) else [str(value)]
        if not all(texts) or not texts:
            raise RequestError(f"{key} has no value; give one, or leave the key out.")
    return texts


def _join_values(value: Any, key: str) -> str:
    parts = value if isinstance(value, list) else [value]
    if any(isinstance(part, dict | list) for part in parts):
        raise RequestError(f"{key} is nested too deeply for an option of the command line.")
    return ",".join(map(str, parts))


def _without_knobs(value: Any, names: set[str]) -> Any:
    """Leave out the knobs that were typed."""
    if isinstance(value, dict):
        return {name: part for name, part in value.items() if name not in names}
    texts = value if isinstance(value, list) else [value]
    return [text for text in texts if str(text).partition("=")[0] not in names]
