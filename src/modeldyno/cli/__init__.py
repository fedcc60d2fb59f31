"""The command line: one file a command, imported when it is called for."""

from __future__ import annotations

import errno
import sys
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = {
    "inspect": "Say what a model costs, without running it: parameters, MACs, memory.",
    "profile": "Measure a model in a process: latency, throughput, memory.",
    "load": "Put a model behind a server under load: latency, throughput, the largest load that holds.",
    "sweep": "Find the configuration that is best within bounds, and say how sure that is.",
    "compare": "Say whether a model is better or worse than another, how surely, and why.",
    "advise": "Try what may make a model faster, and say what helped and what it cost.",
    "run": "Run a script, and say where its marked functions spend time and memory.",
    "check": "Judge a result by bounds and by a baseline: the gate of a pipeline.",
    "comment": "Put the verdict of a gate on the pull or merge request of a pipeline.",
    "doctor": "Say how often a gate would be wrong on this machine, what it sees, and what to change.",
    "export": "Put a result or a study into MLflow, TensorBoard, W&B, Perfetto or Prometheus.",
    "import": "Read what AIPerf, GuideLLM, perf_analyzer or vLLM's bench has measured.",
    "show": "Show a saved result, or one number of it.",
    "report": "Write results, studies, comparisons as HTML, PDF, Markdown, CSV or JSON.",
    "trend": "Show how a metric of a model went over the stored results, and where it stepped.",
    "list": "List the results in the store, and the studies of sweeps.",
    "tag": "Give a stored result a name.",
    "rm": "Remove results from the store.",
    "engine": "Install serving engines, each into an environment of its own.",
    "plugins": "List loaders, backends and their knobs, probes, reporters.",
    "schema": "Print the JSON Schema of a result, or of a file for sweep.",
    "help": "Show how a command is used.",
}
"""Command to its sentence; the table spares ``--help`` from importing the commands."""

_FILES = {"list": "list_", "import": "import_"}
"""Where a command's file is not named for it: ``list`` would hide the built-in, ``import`` is a keyword."""
_EXPLICIT = ("--trust",)
"""Options that no file and no environment may set: what runs code is said each time."""
_MEASURING = frozenset({"profile", "load", "sweep", "compare", "advise", "doctor"})
_INTERRUPTED, _TERMINATED = 130, 143
_FAILED = 4
"""Of what is a mistake of ours, or cannot be written as the disk is full."""


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        del ctx
        if name not in COMMANDS:
            return None
        from importlib import import_module  # noqa: PLC0415 - dear at start-up

        command = import_module(f"modeldyno.cli.{_FILES.get(name, name)}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from modeldyno.errors import RequestError, UnknownName  # noqa: PLC0415 - only a mistake needs it

            if args[0] in _NO_COMMANDS:
                raise RequestError(f"There is no command '{args[0]}'; {_NO_COMMANDS[args[0]]}.")
            raise UnknownName.among("command", args[0], COMMANDS)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _version(ctx: click.Context, _parameter: click.Parameter, asked: bool) -> None:
    if not asked or ctx.resilient_parsing:
        return
    import platform  # noqa: PLC0415 - only --version needs it
    from importlib import metadata  # noqa: PLC0415

    click.echo(f"modeldyno {metadata.version('modeldyno')} (Python {platform.python_version()})")
    for package in ("numpy", "onnxruntime", "onnx", "torch", "transformers"):
        try:
            click.echo(f"  {package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            click.echo(f"  {package} not installed")
    ctx.exit()


@click.group(
    cls=_Commands,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "auto_envvar_prefix": "MODELDYNO",
        "max_content_width": 100,
    },
    epilog="Start with: modeldyno profile model.onnx. For completion in bash: "
    'eval "$(_MODELDYNO_COMPLETE=bash_source modeldyno)"',
)
@click.option(
    "-V",
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_version,
    help="Versions that matter.",
)
@click.option(
    "--debug", is_flag=True, expose_value=False, help="Show the traceback of an error; may stand anywhere."
)
@click.pass_context
def cli(ctx: click.Context) -> None:
    """A dynamometer for machine-learning models.

    What they cost, how fast they are, and how far to trust each number.
    """
    from modeldyno.cli.config_file import defaults  # noqa: PLC0415 - --help does not read the file

    command = ctx.command.get_command(ctx, ctx.invoked_subcommand or "")  # type: ignore[attr-defined]
    if command is not None:
        options = {
            flag.lstrip("-").replace("-", "_"): parameter.name
            for parameter in command.params
            for flag in parameter.opts
            if flag.startswith("--") and flag not in _EXPLICIT
        }
        ctx.default_map = {command.name: defaults(command.name, options, tuple(COMMANDS))}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and leave with its exit code; the only place that prints an error."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    ours = _ours(given)
    debug = "--debug" in given[:ours]
    words = [word for word in given[:ours] if word != "--debug"] + given[ours:]
    try:
        code = _carried_out(words)
    except Exception as error:  # noqa: BLE001 - whatever it is, a user gets one sentence
        if debug:
            import traceback  # noqa: PLC0415 - only --debug needs it

            traceback.print_exc()
        code = _told(error, words)
    except KeyboardInterrupt:
        code = _interrupted(_INTERRUPTED)
    sys.exit(code if isinstance(code, int) else 0)


def _carried_out(words: Sequence[str]) -> Any:
    """Run a command; one that measures takes SIGTERM for Ctrl-C, and leaves with that signal's exit code."""
    if next((word for word in words if not word.startswith("-")), "") not in _MEASURING:
        return cli.main(words, prog_name="modeldyno", standalone_mode=False)
    from modeldyno.runtime.interrupts import (  # noqa: PLC0415 - only measuring needs it
        terminable,
        told_to_end,
    )

    with terminable():
        try:
            code = cli.main(words, prog_name="modeldyno", standalone_mode=False)
        except (KeyboardInterrupt, click.Abort):
            if told_to_end():
                return _interrupted(_TERMINATED)
            raise
        return _TERMINATED if code == _INTERRUPTED and told_to_end() else code


def _interrupted(code: int) -> int:
    click.echo("modeldyno: interrupted.", err=True)
    return code


def _ours(words: Sequence[str]) -> int:
    """Count the words that are ours: all of them, but for what follows ``run``, as a script has its own."""
    command = next((place for place, word in enumerate(words) if not word.startswith("-")), len(words))
    return command if words[command : command + 1] == ["run"] else len(words)


def _told(error: Exception, words: Sequence[str] = ()) -> int:
    """Say what went wrong in one sentence, and give the exit code."""
    from modeldyno.errors import ModelDynoError  # noqa: PLC0415 - only an error needs it

    match error:
        case ModelDynoError():
            text, code = str(error), error.exit_code
        case click.exceptions.NoArgsIsHelpError():
            error.show()
            return 0
        case click.Abort():
            text, code = "interrupted.", _INTERRUPTED
        case click.NoSuchOption() if instead := _instead(error.option_name, words):
            text, code = f"There is no option {error.option_name}; {instead}.", error.exit_code
        case click.UsageError() if stray := _stray(error.message, words):
            text, code = stray, error.exit_code
        case click.UsageError():
            where = error.ctx.command_path if error.ctx else "modeldyno"
            text, code = f"{error.format_message()} See: {where} --help", error.exit_code
        case click.ClickException():
            text, code = error.format_message(), error.exit_code
        case BrokenPipeError():
            nobody_listens()
            return 0
        case OSError(errno=errno.ENOSPC):
            where = " to standard output" if _unprintable() else ""
            text, code = f"Cannot write{where}: {error.strerror}.", _FAILED
        case _:
            text = (
                f"{type(error).__name__}: {error} - this is a mistake of ModelDyno's; "
                "run it again with --debug and report what it prints."
            )
            code = _FAILED
    from modeldyno.core.report.blocks import clean  # noqa: PLC0415 - only an error needs it

    click.echo(f"modeldyno: {clean(' '.join(text.split()))}", err=True)
    return code


_NO_COMMANDS = {
    "monitor": "modeldyno load URL measures a server, and modeldyno profile MODEL watches memory and devices",
    "analyze": "modeldyno inspect MODEL says what it costs, and modeldyno profile MODEL how fast it is",
    "benchmark": "modeldyno profile MODEL measures one, and modeldyno compare A B two",
    "diff": "modeldyno compare A B compares two models or results",
}
"""Commands of other tools, and what does that here."""
_NO_OPTIONS = {
    "--model-repository": "modeldyno sweep DIRECTORY#MODEL takes a model of a repository",
    "--profile-models": "modeldyno sweep DIRECTORY#MODEL takes a model of a repository",
    "--triton-launch-mode": "modeldyno sweep --set launch=local says how Triton is started",
    "--output-model-repository-path": "modeldyno sweep --export-configs DIR writes the best configurations",
    "--override-output-model-repository": "with --export-configs DIR, --overwrite writes into any directory",
    "--config-file": "modeldyno sweep SWEEP.yaml reads one, as modeldyno schema sweep describes it",
    "-f": "modeldyno sweep SWEEP.yaml reads a file, as modeldyno schema sweep describes it",
    "--report-model-configs": "modeldyno show STUDY shows a sweep, and -o FILE.html writes it as a report",
    "--export-path": "-o FILE.html writes a report",
    "--request-rate": "modeldyno load URL --rate 50 sends so many requests a second",
    "--request-rate-range": "modeldyno load URL --rate 50 sends so many requests a second",
    "--concurrency-range": "modeldyno load URL --concurrency 4 keeps so many requests open",
}
"""Likewise, options."""


def _stray(message: str, words: Sequence[str]) -> str:
    """Say which option to repeat before a word that stands behind its value; empty of any other mistake."""
    if not message.startswith("Got unexpected extra argument"):
        return ""
    word = message.partition("(")[2].removesuffix(")").partition(" ")[0]
    before = list(words)[: words.index(word)] if word in words else []
    option = next((each.partition("=")[0] for each in reversed(before) if each.startswith("--")), "")
    return (
        f"'{word}' belongs to no option; if it is another {option}, write {option} {word}." if option else ""
    )


def _instead(option: str, words: Sequence[str]) -> str:
    """Say what to write instead of an option of another tool or of a knob; empty of any other."""
    if option in _NO_OPTIONS:
        return _NO_OPTIONS[option]
    from modeldyno import plugins  # noqa: PLC0415 - only a mistake needs it

    name = option.lstrip("-").replace("-", "_")
    aliases: dict[str, str] = {}
    for backend in plugins.names("backend"):
        for knob in plugins.knobs(backend):
            aliases |= dict.fromkeys((knob.name, *knob.aliases), knob.name)
    if name not in aliases:
        return ""
    value = next((after for word, after in pairwise(words) if word == option), "VALUE")
    value = next((word.partition("=")[2] for word in words if word.startswith(f"{option}=")), value)
    return f"it is a knob: --set {aliases[name]}={value}"


def _unprintable() -> bool:
    """Say whether nothing can be printed, such as into a file on a full disk; then nothing more is."""
    try:
        sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError:
        nobody_listens()
        return True
    return False


def nobody_listens() -> None:
    """Write to nowhere once the reader of our output has gone, as in ``modeldyno list | head``."""
    import os  # noqa: PLC0415 - rarely needed

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def quantity(unit: str, *, bound: bool = False, zero: bool = False, below: float = float("inf")) -> Any:
    """Give a click callback that reads an option with a unit, such as ``30s`` or ``2GiB``.

    Args:
        unit: the base unit of the number.
        bound: whether something is held to it, so that a time needs its unit.
        zero: whether it may be nothing.
        below: what it must be less than.
    """

    def read(_ctx: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
        from modeldyno.core.stats.units import (  # noqa: PLC0415 - --help needs no units
            BYTES,
            format_quantity,
            parse_bound,
            parse_quantity,
        )
        from modeldyno.errors import RequestError  # noqa: PLC0415

        if value is None:
            return None
        try:
            number = (parse_bound if bound else parse_quantity)(str(value), unit)
        except RequestError as error:
            raise RequestError(f"{parameter.opts[0]}: {error}") from None
        if not (0 < number < below or (zero and number == 0)):
            least = "0 or more" if zero else "more than 0"
            most = f", and less than {format_quantity(below, unit, None)}" if below < float("inf") else ""
            raise RequestError(f"{parameter.opts[0]} {value}: it must be {least}{most}.")
        return int(number) if unit == BYTES else number

    return read
