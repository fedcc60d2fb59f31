"""``modeldyno advise``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from modeldyno import codec
from modeldyno.cli import options as cli_options
from modeldyno.cli import quantity_callback
from modeldyno.cli.help_pages import HelpCommand
from modeldyno.cli.output_options import OutputTargets, limit_options
from modeldyno.cli.printing import ignore_broken_pipe, print_blocks
from modeldyno.cli.progress import Progress
from modeldyno.comparison.advise import TOLERANCE, AdviseOptions, advise
from modeldyno.core.metrics.metric import Query
from modeldyno.profiling import request
from modeldyno.profiling.run import INTERRUPTED, OK
from modeldyno.runtime.session import open_run_session
from modeldyno.views.advice.blocks import advice, sentence
from modeldyno.views.text import format_rough_duration

if TYPE_CHECKING:
    from modeldyno.core.advice.advice import Advice
    from modeldyno.core.spec.job import Job


@click.command(name="advise", cls=HelpCommand)
@click.argument("model")
@click.option("--backend", help="What runs the model; see `modeldyno plugins`.")
@cli_options.knob_options
@cli_options.INPUTS
@click.option(
    "--metric", default="throughput", show_default=True, help="What to improve: throughput, latency.p50."
)
@click.option(
    "--max-time",
    default="3m",
    show_default=True,
    callback=quantity_callback("s"),
    help="Time limit of the whole command; the model is run at least once.",
)
@click.option(
    "--run-time", default="2s", show_default=True, callback=quantity_callback("s"),
    help="Maximum measuring time per probe and process.",
)  # fmt: skip
@click.option(
    "--tolerance", default=f"{TOLERANCE:.0%}", show_default=True, callback=quantity_callback("1", zero=True),
    help="Largest accepted difference of the outputs, relative to the largest output.",
)  # fmt: skip
@click.option("--findings-only", is_flag=True, help="Try only what the findings suggest.")
@cli_options.precision_options(min_time="0.3s", precision="2%")
@cli_options.seed_and_pin_options
@limit_options
@cli_options.NAME
@cli_options.TRUST
@click.option("--json", "json_path", metavar="PATH|-", help="Save the JSON document, or print it.")
@click.option("-q", "--quiet", is_flag=True, help="Print the verdict only.")
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Try optimizations of MODEL and report what helped, how surely, and how the outputs change.

    The model is profiled first. Each setting that a finding suggests, and each usual one of its backend, is
    then measured in turns with the unchanged model, in fresh processes; those that help are combined and
    measured together.
    """
    advise_options = AdviseOptions(
        query=Query.parse(options["metric"]),
        max_time=options["max_time"],
        tolerance=options["tolerance"],
        space=not options["findings_only"],
    )
    model_request = request.Request(
        model=options["model"],
        backend=options["backend"],
        settings=request.parse_settings(options["settings"]),
        inputs=options["inputs"],
        plan=cli_options.plan_from_options({**options, "max_time": options["run_time"]}),
        name=options["name"],
        trust=options["trust"],
    )
    targets = OutputTargets(json=options["json_path"], store=False)
    result, interrupted = _run_advice(model_request.job(), advise_options, quiet=options["quiet"])
    targets.write(codec.encode_document(result))
    if not targets.silent:
        with ignore_broken_pipe():
            if options["quiet"]:
                click.echo(sentence(result))
            else:
                print_blocks(*advice(result))
            targets.told()
            if interrupted:
                click.echo("Interrupted; these are the measurements so far.")
    ctx.exit(INTERRUPTED if interrupted else OK)


def _run_advice(job: Job, advise_options: AdviseOptions, *, quiet: bool) -> tuple[Advice, bool]:
    """Return the final Advice, and whether it was interrupted."""
    result: Advice | None = None
    with Progress(quiet=quiet) as progress, open_run_session(progress.watch) as bench:
        progress.announce(
            f"Trying optimizations, within {format_rough_duration(advise_options.max_time)} (--max-time)."
        )
        for result in advise(job, advise_options, bench):  # noqa: B007 - the last one is final
            pass
    assert result is not None
    return result, bool(bench.interrupted())
