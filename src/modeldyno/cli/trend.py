"""``modeldyno trend``."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from modeldyno import codec
from modeldyno.cli import options as cli_options
from modeldyno.cli import quantity
from modeldyno.cli.help_pages import Command
from modeldyno.cli.output_options import Places
from modeldyno.cli.printing import listened, print_blocks
from modeldyno.comparison.history import trend_of
from modeldyno.core.comparison.trend import LONGEST
from modeldyno.documents.write import check, write
from modeldyno.errors import RequestError, RunFailed
from modeldyno.profiling import request
from modeldyno.profiling.run import BROKEN, OK
from modeldyno.views.comparison.trend import sentence
from modeldyno.views.comparison.trend import trend as laid_out

if TYPE_CHECKING:
    from modeldyno.core.comparison.trend import Trend


@click.command(name="trend", cls=Command)
@click.argument("model")
@click.option("--metric", metavar="QUERY", help="Such as latency.p99; else the typical time of a call.")
@click.option("--backend", help="Only results of this one.")
@cli_options.knob_options
@click.option(
    "--limit", type=click.IntRange(1, LONGEST), default=LONGEST, show_default=True, help="The newest results."
)
@click.option(
    "--smallest", default="3%", show_default=True, callback=quantity("1"), help="Change that matters."
)
@click.option("--fail-on-regression", is_flag=True, help="Exit 1 where a step to the worse still stands.")
@click.option(
    "--exec", "hook", metavar="COMMAND", help="Run it where one stands, the document on its standard input."
)
@click.option("--json", "json_path", metavar="PATH|-", help="Save the document, or print it.")
@click.option("-o", "--output", metavar="FILE", help="Write it with its picture: .html .pdf .md .csv .json")
@click.option("-q", "--quiet", is_flag=True, help="Print the verdict only.")
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Show how a metric of MODEL went over the results in the store: its levels and the steps between them.

    MODEL is a name of `modeldyno list`. A step that comes with a change of the environment is not held
    against the model.
    """
    if not 0 < options["smallest"] < 1:
        raise RequestError("--smallest takes a part of a whole, such as 3%.")
    hook = _words(options["hook"])
    places = Places(json=options["json_path"], store=False)
    if options["output"]:
        check(Path(options["output"]))
    found = trend_of(
        options["model"],
        metric=options["metric"],
        backend=options["backend"],
        settings=request.settings(options["settings"]),
        limit=options["limit"],
        smallest=options["smallest"],
    )
    document = codec.encode_document(found)
    places.write(document)
    if options["output"]:
        write(found, Path(options["output"]))
    if not places.silent:
        with listened():
            _tell(found, quiet=options["quiet"])
            places.told()
    if found.regressions and hook:
        _call(hook, document, found)
    ctx.exit(BROKEN if found.regressions and options["fail_on_regression"] else OK)


def _tell(found: Trend, *, quiet: bool) -> None:
    if quiet:
        click.echo(sentence(found))
    else:
        print_blocks(*laid_out(found))


def _words(text: str | None) -> list[str]:
    """Split a command as a shell does, without being one."""
    try:
        return shlex.split(text or "")
    except ValueError as error:
        raise RequestError(f"--exec '{text}' is no command: {error}.") from None


def _call(hook: list[str], document: bytes, found: Trend) -> None:
    """Run the hook; what it says goes to standard error, where it spoils no document."""
    told = {"MODELDYNO_TREND_MODEL": found.name, "MODELDYNO_TREND": sentence(found)}
    try:
        done = subprocess.run(hook, input=document, env=os.environ | told, stdout=2, check=False)
    except OSError as error:
        raise RequestError(f"--exec cannot run {hook[0]}: {error.strerror}.") from None
    if done.returncode:
        raise RunFailed(f"The command of --exec, {hook[0]}, ended with exit code {done.returncode}.")
