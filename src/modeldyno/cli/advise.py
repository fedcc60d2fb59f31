"""``modeldyno advise``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from modeldyno import codec
from modeldyno.cli import options as cli_options
from modeldyno.cli import quantity
from modeldyno.cli.help_pages import Command
from modeldyno.cli.output_options import Places, limit_options
from modeldyno.cli.printing import listened, print_blocks
from modeldyno.cli.progress import Progress
from modeldyno.comparison.advise import TOLERANCE, Wish, advise
from modeldyno.core.metrics.metric import Query
from modeldyno.profiling import request
from modeldyno.profiling.run import INTERRUPTED, OK
from modeldyno.runtime.session import campaign
from modeldyno.views.advice.blocks import advice, sentence
from modeldyno.views.text import lasting

if TYPE_CHECKING:
    from modeldyno.core.advice.advice import Advice
    from modeldyno.core.spec.job import Job


@click.command(name="advise", cls=Command)
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
    callback=quantity("s"),
    help="For all of it; one run of the model is made in any case.",
)
@click.option(
    "--run-time", default="2s", show_default=True, callback=quantity("s"),
    help="Longest measuring per probe and process.",
)  # fmt: skip
@click.option(
    "--tolerance", default=f"{TOLERANCE:.0%}", show_default=True, callback=quantity("1", zero=True),
    help="Largest difference of outputs that is accepted, relative to the largest output.",
)  # fmt: skip
@click.option("--findings-only", is_flag=True, help="Try what was found only, and not each usual setting.")
@cli_options.care_options(min_time="0.3s", precision="2%")
@cli_options.place_options
@limit_options
@cli_options.NAME
@cli_options.TRUST
@click.option("--json", "json_path", metavar="PATH|-", help="Save the document, or print it.")
@click.option("-q", "--quiet", is_flag=True, help="Print the verdict only.")
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Try what may make MODEL faster, and say what helped, how surely, and what it does to the outputs.

    The model is looked at; each setting that a finding suggests, and each that is usual for its backend, is
    measured in turns with the model as it is, in fresh processes; what helped is combined and measured anew.
    """
    wish = Wish(
        query=Query.parse(options["metric"]),
        max_time=options["max_time"],
        tolerance=options["tolerance"],
        space=not options["findings_only"],
    )
    asked = request.Request(
        model=options["model"],
        backend=options["backend"],
        settings=request.settings(options["settings"]),
        inputs=options["inputs"],
        plan=cli_options.plan_of({**options, "max_time": options["run_time"]}),
        name=options["name"],
        trust=options["trust"],
    )
    places = Places(json=options["json_path"], store=False)
    found, interrupted = _carried_out(asked.job(), wish, quiet=options["quiet"])
    places.write(codec.encode_document(found))
    if not places.silent:
        with listened():
            if options["quiet"]:
                click.echo(sentence(found))
            else:
                print_blocks(*advice(found))
            places.told()
            if interrupted:
                click.echo("Interrupted: this is what was measured by then.")
    ctx.exit(INTERRUPTED if interrupted else OK)


def _carried_out(job: Job, wish: Wish, *, quiet: bool) -> tuple[Advice, bool]:
    """Try; give the last Advice, and whether it was interrupted."""
    found: Advice | None = None
    with Progress(quiet=quiet) as progress, campaign(progress.watch) as bench:
        progress.announce(f"Trying what may help, within {lasting(wish.max_time)} (--max-time).")
        for found in advise(job, wish, bench):  # noqa: B007 - the last one counts
            pass
    assert found is not None
    return found, bool(bench.interrupted())
