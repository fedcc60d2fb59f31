"""What ``modeldyno trend`` does."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from typing import TYPE_CHECKING, Any

import click

from modeldyno.base import codec
from modeldyno.base.errors import RequestError, RunFailed
from modeldyno.cli.actions.output_options import OutputTargets
from modeldyno.cli.actions.printing import ignore_broken_pipe, print_blocks
from modeldyno.comparison.history import trend_of
from modeldyno.comparison.views.trend import blocks, headline
from modeldyno.profiling import request
from modeldyno.profiling.run import BROKEN, OK

if TYPE_CHECKING:
    from modeldyno.comparison.change.trend import Trend


def run(**options: Any) -> int:
    """Show the history of a metric, and run the hook; return the exit code."""
    if not 0 < options["smallest"] < 1:
        raise RequestError("--smallest takes a fraction below 100%, such as 3%.")
    hook = _split_command(options["hook"])
    targets = OutputTargets(json=options["json_path"], reports=options["reports"], store=False)
    targets.check_formats()
    history = trend_of(
        options["model"],
        metric=options["metric"],
        backend=options["backend"],
        settings=request.parse_settings(options["settings"]),
        limit=options["limit"],
        smallest=options["smallest"],
    )
    document = codec.encode_document(history)
    problem = targets.write_both(history, document)
    if not targets.silent:
        with ignore_broken_pipe():
            if options["quiet"]:
                click.echo(headline(history))
            else:
                print_blocks(*blocks(history))
            targets.print_saved(problem)
    if history.regressions and hook:
        _run_hook(hook, document, history)
    if problem is not None:
        raise problem
    return BROKEN if history.regressions and options["fail_on_regression"] else OK


def _split_command(text: str | None) -> list[str]:
    """Split a command into words as a shell does, without running a shell."""
    try:
        return shlex.split(text or "")
    except ValueError as error:
        raise RequestError(f"--exec '{text}' is not a valid command: {error}.") from None


def _run_hook(hook: list[str], document: bytes, history: Trend) -> None:
    """Run the hook; its output goes to standard error, to keep standard output for the document."""
    variables = {"MODELDYNO_TREND_MODEL": history.name, "MODELDYNO_TREND": headline(history)}
    with tempfile.TemporaryFile() as words:  # no pipe, which what a hook leaves running could fill
        words.write(document)
        words.seek(0)
        try:
            process = subprocess.run(hook, stdin=words, env=os.environ | variables, stdout=2, check=False)
        except OSError as error:
            raise RequestError(f"--exec cannot run {hook[0]}: {error.strerror}.") from None
    if process.returncode:
        raise RunFailed(f"The --exec command {hook[0]} failed with exit code {process.returncode}.")
