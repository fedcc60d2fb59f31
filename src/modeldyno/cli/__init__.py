"""The command line: a command is imported only when it is run or its help is asked for.

The modules here declare the commands; ``modeldyno.cli.actions`` has what they do.
"""

from __future__ import annotations

import errno
import os
import sys
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from modeldyno.base.errors import (
    LINE,
    FaultyPlugin,
    FaultyPluginWarning,
    ModelDynoError,
    RequestError,
    UnknownName,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager
    from typing import TextIO
GROUPS = {
    "Measure": {
        "inspect": "Count parameters, MACs and memory of a model without running it.",
        "profile": "Measure a model in a process: latency, throughput, memory.",
        "explain": "Explain a latency hop by hop, down to the bound of the hardware.",
        "run": "Run a script with @profiled functions, or the jobs of a file.",
        "devices": "Show what the GPUs do now: use, memory, power, processes.",
    },
    "Serve": {
        "load": "Load-test a model behind a server; find the largest load.",
        "serve": "Start a server for a model and leave it running: a URL to load.",
        "servers": "List the servers that run, with what they use, or stop them.",
        "engine": "Install serving engines, each into its own environment.",
    },
    "Choose": {
        "sweep": "Find the best configuration within bounds, with its confidence.",
        "advise": "Try optimizations of a model; report what helped and its cost.",
        "convert": "Convert a model into other forms; judge each against it.",
        "optimize": "Package the fastest form of a model that is still the model.",
    },
    "Judge": {
        "compare": "Compare models: which is better, by how much, how surely, why.",
        "check": "Check a saved result against bounds and a baseline (CI gate).",
        "comment": "Post the verdict of a gate on a pull or merge request.",
        "doctor": "Measure how often a gate would be wrong on this machine.",
        "trend": "Show the history of a metric, and where it changed.",
        "verify": "Recompute every figure of a saved document.",
    },
    "Keep": {
        "list": "List stored results and studies.",
        "show": "Show a saved result, or one number of it.",
        "report": "Write documents as HTML, PDF, Markdown, CSV or JSON.",
        "tag": "Give a stored result a name.",
        "rm": "Remove results from the store.",
        "prune": "Remove old results that nothing refers to.",
        "export": "Export to MLflow, TensorBoard, W&B, Perfetto or Prometheus.",
        "import": "Import from AIPerf, GuideLLM, LoadGen, perf_analyzer or vLLM.",
        "reconcile": "Explain why another load generator reports other times.",
        "registry": "Manage registered models: convert, measure and query them.",
        "worker": "Run the tasks of the registry while this machine is idle.",
        "ui": "Open the dashboard: models, results, studies, tasks.",
    },
    "Installation": {
        "plugins": "List loaders, backends and their knobs, probes, reporters.",
        "schema": "Print the JSON Schema of a result or of a sweep file.",
        "help": "Show how a command is used.",
    },
}
"""Heading to its commands, each with its summary; with this table ``--help`` need not import them."""
COMMANDS = {name: summary for group in GROUPS.values() for name, summary in group.items()}
"""Command to its summary."""

_TOGETHER = {
    "documents": "check comment export import reconcile verify show report list tag rm prune trend schema",
    "machine": "devices serve servers engine plugins ui",
    "registry": "registry worker",
}
"""Modules that declare several commands; each of the others has a module of its own."""
_MEASURING = frozenset(
    {
        "profile",
        "load",
        "sweep",
        "compare",
        "advise",
        "doctor",
        "explain",
        "convert",
        "optimize",
        "worker",
        "registry",
    }
)
_HOLDING = _MEASURING - {"convert", "worker", "registry"}
"""Commands that hold the lock of the device from their beginning; a worker takes it for each measurement."""
_HELP = frozenset({"-h", "--help", "--help-all"})
_INTERRUPTED_CODE, _TERMINATED_CODE = 130, 143
_FAILURE_CODE = 4
_SHOWN_OF_NAME = 40
"""Exit code for a bug in ModelDyno, or for a full disk."""


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        del ctx
        if name not in COMMANDS:
            return None
        from importlib import import_module  # slow at start-up

        from modeldyno.cli.help_pages import complete_help  # the list of commands needs none

        together = next((module for module, names in _TOGETHER.items() if name in names.split()), None)
        module = import_module(f"modeldyno.cli.{together or name}")
        command = getattr(module, f"{name}_command" if together else "command")
        assert isinstance(command, click.Command)
        complete_help(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from modeldyno.cli import suggestions  # only on errors

            if instead := _suggest_for_model_analyzer(args) or suggestions.instead_of_command(args[0]):
                raise RequestError(instead)
            raise UnknownName.among("command", args[0], COMMANDS)
        name, command, arguments = super().resolve_command(ctx, args)
        if command is not None and name != "run":  # the words after `run FILE` are those of the script
            _check_values(command, arguments)
        if command is not None and any(".y" in word for word in arguments) and not _HELP & set(arguments):
            from modeldyno.cli import job_file  # only a file needs it

            if job_file.takes_job_files(command):
                arguments = job_file.expand_job_file(command, ctx, arguments)
        return name, command, arguments

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except RequestError as error:
            from modeldyno.cli import job_file  # only on errors

            job_file.locate_mistake(ctx, error)
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        width = max(map(len, COMMANDS))
        for heading, commands in GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), summary) for name, summary in commands.items()])


def _check_values(command: click.Command, arguments: Sequence[str]) -> None:
    """Refuse an option that would take the option after it for its value, as click does.

    Raises:
        RequestError: there is one.
    """
    taking = {
        flag: isinstance(parameter, click.Option) and _must_have_value(parameter)
        for parameter in command.params
        for flag in (*parameter.opts, *parameter.secondary_opts)
        if flag.startswith("-")
    }
    for option, after in pairwise(arguments):
        if option == "--":
            return
        if taking.get(option) and after.partition("=")[0] in taking:
            raise RequestError(f"{option} needs a value, before {after}.")


def _must_have_value(option: click.Option) -> bool:
    """Whether an option takes a value, and cannot stand without one as ``--resume`` can."""
    optional: bool = option._flag_needs_value  # noqa: SLF001 - there is no public way
    return not (option.is_flag or option.count or optional)


def _print_versions(ctx: click.Context, _parameter: click.Parameter, requested: bool) -> None:
    if not requested or ctx.resilient_parsing:
        return
    import platform  # only --version needs it
    from importlib import metadata

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
    callback=_print_versions,
    help="Show the versions of ModelDyno and its main dependencies.",
)
@click.option(
    "--debug", is_flag=True, expose_value=False, help="Show the traceback of an error; allowed anywhere."
)
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Profile machine-learning models: cost, speed, and how far to trust each number."""
    from modeldyno.cli.config_file import read_defaults  # --help does not read the file
    from modeldyno.cli.defaults import NEVER_IN_FILES

    command = ctx.command.get_command(ctx, ctx.invoked_subcommand or "")  # type: ignore[attr-defined]
    if command is not None:
        options = {
            flag.lstrip("-").replace("-", "_"): parameter.name
            for parameter in command.params
            for flag in parameter.opts
            if flag.startswith("--") and flag not in NEVER_IN_FILES
        }
        lists = frozenset(p.name for p in command.params if getattr(p, "multiple", False) or p.nargs != 1)
        ctx.default_map = {command.name: read_defaults(command.name, options, lists, tuple(COMMANDS))}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit with its code; the only place that prints errors."""
    if arguments is None:
        _read_names_as_utf8()
    _replace_closed_streams()
    typed = list(sys.argv[1:] if arguments is None else arguments)
    own_count = _own_word_count(typed)
    debug = "--debug" in typed[:own_count]
    command_arguments = [word for word in typed[:own_count] if word != "--debug"] + typed[own_count:]
    try:
        with _warning_in_a_line(), _debugging() if debug else nullcontext():
            code = run_command(command_arguments)
    except Exception as error:  # noqa: BLE001 - users get one sentence for any error
        if debug:
            import traceback  # only --debug needs it

            traceback.print_exc()
        code = print_error(error, command_arguments)
    except KeyboardInterrupt:
        code = _print_interrupted(_INTERRUPTED_CODE)
    sys.exit(code if isinstance(code, int) else 0)


def _read_names_as_utf8() -> None:
    """Start Python again in its UTF-8 mode where names are read in another encoding, as with LC_ALL=C.

    Python does so by itself, unless PYTHONUTF8=0 forbids it: then only files with ASCII names could be named.
    """
    is_ours = Path(sys.argv[0]).name in {"modeldyno", "__main__.py"}
    if is_ours and sys.getfilesystemencoding() != "utf-8" and os.environ.get("PYTHONUTF8") != "1":
        words = [sys.executable, "-X", "utf8", *sys.orig_argv[1:]]
        os.execve(sys.executable, words, os.environ | {"PYTHONUTF8": "1"})  # noqa: S606 - a list, no shell


def _is_working_directory_gone() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


@contextmanager
def _warning_in_a_line() -> Iterator[None]:
    """Print a warning about a plugin as a sentence, without the place in our code."""
    import warnings  # imported by Python itself

    show = warnings.showwarning

    def show_as_sentence(message: Any, category: Any, *place: Any, **stream: Any) -> None:
        if issubclass(category, FaultyPluginWarning):
            _echo_error(f"modeldyno: {message}")
        else:
            show(message, category, *place, **stream)

    warnings.showwarning = show_as_sentence
    try:
        yield
    finally:
        warnings.showwarning = show


def _replace_closed_streams() -> None:
    """Open the null device for closed standard streams: the next file would get their numbers, and output."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115 - for the whole run
            setattr(sys, name, stream)


def _debugging() -> AbstractContextManager[None]:
    """Let failures show whole tracebacks, in child processes as well."""
    from modeldyno.base.system.variables import DEBUG, variables_set  # only --debug needs it

    return variables_set({DEBUG: "1"})


def run_command(arguments: Sequence[str], made: list[Any] | None = None) -> Any:
    """Run a command; those that measure treat SIGTERM like Ctrl-C, and exit with that signal's code.

    Args:
        arguments: the command line without ``modeldyno``.
        made: the documents that the command makes are added to it.

    Returns:
        The exit code, perhaps None for 0.
    """
    command = next((word for word in arguments if not word.startswith("-")), "")
    if command not in _MEASURING or _HELP & set(arguments):
        return cli.main(arguments, prog_name="modeldyno", standalone_mode=False, obj=made)
    from modeldyno.engine.runtime.interrupts import (
        sigterm_as_interrupt,
        sigterm_received,
    )  # only measuring needs it

    with sigterm_as_interrupt(), _hold_device(command):
        try:
            code = cli.main(arguments, prog_name="modeldyno", standalone_mode=False, obj=made)
        except (KeyboardInterrupt, click.Abort):
            if sigterm_received():
                return _print_interrupted(_TERMINATED_CODE)
            raise
        return _TERMINATED_CODE if code == _INTERRUPTED_CODE and sigterm_received() else code


@contextmanager
def _hold_device(command: str) -> Iterator[None]:
    """Hold the lock of this machine's processor, so that a worker waits; wait for one that measures."""
    from modeldyno.engine.environment.device_lock import device_lock  # only measuring needs it

    with ExitStack() as stack:
        if command in _HOLDING:
            with suppress(OSError, RequestError):  # nowhere to put the lock: measure without it
                holder = stack.enter_context(device_lock("cpu", f"modeldyno {command}"))
                if holder is not None and holder.startswith(_WORKER):
                    click.echo(f"Waiting for {holder}, at most {_PATIENCE:.0f} s.", err=True)
                    stack.close()
                    lock = device_lock("cpu", f"modeldyno {command}", patience=_PATIENCE)
                    holder = stack.enter_context(lock)
                    if holder is not None and holder.startswith(_WORKER):
                        click.echo(f"{holder} still measures; the figures disturb each other.", err=True)
        yield


_WORKER = "modeldyno worker"
_PATIENCE = 30.0
"""Seconds that a command leaves to a worker which measures on this machine."""


def _print_interrupted(code: int) -> int:
    _echo_error("modeldyno: interrupted.")
    return code


def _own_word_count(arguments: Sequence[str]) -> int:
    """Count the words that are options of ModelDyno: those after ``run`` belong to the script."""
    command = next(
        (index for index, word in enumerate(arguments) if not word.startswith("-")), len(arguments)
    )
    return command if arguments[command : command + 1] == ["run"] else len(arguments)


def print_error(error: Exception, arguments: Sequence[str] = ()) -> int:
    """Print an error as one sentence; return the exit code."""
    match error:
        case ModelDynoError():
            text, code = _error_text(error), error.exit_code
        case click.exceptions.NoArgsIsHelpError():
            error.show()
            return 0
        case click.Abort():
            text, code = "interrupted.", _INTERRUPTED_CODE
        case click.UsageError():
            text, code = _usage_text(error, arguments), error.exit_code
        case click.ClickException():
            text, code = error.format_message(), error.exit_code
        case BrokenPipeError():
            silence_stdout()
            return 0
        case FileNotFoundError() if _is_working_directory_gone():
            text = "The working directory has been removed; change to another one, and run it again."
            code = RequestError.exit_code
        case _:
            text, code = _unforeseen_text(error)
    from modeldyno.base.report.blocks import clean  # only on errors

    kept = isinstance(error, RequestError | click.UsageError)  # others quote what they got
    lines = text.split(LINE) if kept else [text]
    _echo_error("modeldyno: " + "\n  ".join(clean(" ".join(line.split())) for line in lines))
    return code


def _unforeseen_text(error: Exception) -> tuple[str, int]:
    """Return a sentence about an error that no part of ours has raised on purpose, and the exit code."""
    match error:
        case OSError(errno=errno.ENOSPC):
            where = " to standard output" if _stdout_is_broken() else ""
            return f"Cannot write{where}: {error.strerror}.", _FAILURE_CODE
        case OSError(errno=errno.ENAMETOOLONG):
            name = str(error.filename)[:_SHOWN_OF_NAME]
            return f"The name '{name}...' is too long for a file.", RequestError.exit_code
    if plugins_fault := _blame_plugin(error):
        return plugins_fault, FaultyPlugin.exit_code
    bug = f"{type(error).__name__}: {error} - this is a bug in ModelDyno"
    return f"{bug}; run it again with --debug and report the output.", _FAILURE_CODE


def _blame_plugin(error: Exception) -> str:
    """Return a sentence about an error that a plugin of another package raised; empty if none did."""
    from modeldyno.base import plugins  # only on errors

    return plugins.blame(error)


def _error_text(error: ModelDynoError) -> str:
    """Return the message of an error; the fields that it names are options here."""
    from modeldyno.base.option_spelling import spell_for_command_line  # only on errors

    return spell_for_command_line(str(error))


def _suggest_for_model_analyzer(arguments: Sequence[str]) -> str:
    """Return what to type instead of a command line of Model Analyzer; empty if it is none."""
    from modeldyno.cli.actions.model_analyzer import suggest  # only on errors

    return suggest(arguments)


def _usage_text(error: click.UsageError, arguments: Sequence[str]) -> str:
    """Return the sentence about a line that click refuses."""
    from modeldyno.cli import suggestions  # only on errors

    instead = ""
    command = error.ctx.command if error.ctx else cli
    if isinstance(error, click.NoSuchOption):
        instead = _suggest_for_model_analyzer(arguments)
        instead = instead or suggestions.instead_of_option(error.option_name, arguments, command)
    elif isinstance(error, click.MissingParameter):
        instead = suggestions.explain_missing_argument(error.param.human_readable_name if error.param else "")
    elif isinstance(error, click.BadParameter):
        instead = suggestions.explain_bad_number(error)
    elif isinstance(error, click.BadOptionUsage):
        instead = suggestions.explain_missing_value(error.option_name, arguments, command)
    instead = instead or suggestions.explain_stray_word(error.message, arguments, command)
    where = error.ctx.command_path if error.ctx else "modeldyno"
    return instead or f"{error.format_message()} See: {where} --help"


def _stdout_is_broken() -> bool:
    """Check whether standard output cannot be written, as on a full disk; if so, silence it."""
    try:
        sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError:
        silence_stdout()
        return True
    return False


def silence_stdout() -> None:
    """Send further output to the null device once its reader is gone, as in ``modeldyno list | head``."""
    _silence(sys.stdout)


def _silence(stream: TextIO) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _echo_error(text: str) -> None:
    """Print a sentence on standard error, its first word red in a terminal, if that can be written at all."""
    first, space, rest = text.partition(" ")
    styled = first if os.environ.get("NO_COLOR") else click.style(first, fg="red", bold=True)
    try:
        click.echo(f"{styled}{space}{rest}", err=True)  # which leaves the style out of files and pipes
    except OSError:
        _silence(sys.stderr)


def quantity_callback(
    unit: str, *, bound: bool = False, zero: bool = False, below: float = float("inf")
) -> Any:
    """Return a click callback that parses an option with a unit, such as ``30s`` or ``2GiB``.

    Args:
        unit: the base unit of the number.
        bound: whether it is a bound, so that a time needs its unit.
        zero: whether 0 is allowed.
        below: exclusive upper limit.
    """

    def read(_ctx: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
        from modeldyno.base.stats.units import (  # --help needs no units
            BYTES,
            SECONDS,
            check_time_limit,
            format_quantity,
            parse_bound,
            parse_quantity,
        )

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
        if unit == SECONDS and not bound:
            check_time_limit(number, parameter.opts[0], zero=zero)
        return int(number) if unit == BYTES else number

    return read
