"""``modeldyno load``."""

from __future__ import annotations

import click

from modeldyno.cli import options as cli_options
from modeldyno.cli.declare import declare
from modeldyno.cli.output_options import RESULT_OUTPUT


@declare("load")
@click.argument("model", required=False)
@click.option("--backend", help="What serves the model: triton by default; not needed for a URL.")
@cli_options.KNOBS
@cli_options.INPUTS
@click.option(
    "--concurrency", "-c", metavar="N|N,N,...|N:M",
    help="Closed loop: number of concurrent requests; several (1,2,4, 1..4 or 1:64) measure a load curve. "
    "With --rate: maximum concurrency.",
)  # fmt: skip
@click.option(
    "--rate",
    metavar="R[,R,...][:KIND]",
    help="Open loop, a second: 100, 100:poisson, 100:burst=8, 100:gamma=0.5 requests or 5:sequences; several "
    "(10,20,40) measure a load curve. -c limits concurrency.",
)
@cli_options.REPLAY
@cli_options.load_options(with_defaults=True)
@click.option(
    "--find-load",
    is_flag=True,
    help="Find the largest load that holds every bound of --require; --max-time is then that of all loads.",
)
@click.option("--most", type=float, help="Largest load that the search tries; 1024 by default.")
@click.option(
    "--measurements",
    type=click.IntRange(1),
    help="Maximum number of loads that the search measures; 10 by default.",
)
@click.option("--resume", metavar="ID", help="Continue a stored load curve or search.")
@click.option("--force", is_flag=True, help="Resume even if the model or the machine has changed.")
@click.option("--rerank", metavar="ID", help="Judge stored loads by another --require, without measuring.")
@click.option(
    "--demand", help="Compute the number of replicas for this request rate within the bounds: 1000/s."
)
@click.option("--price", help="Price of a replica, such as 1.20/h or '876 EUR/month': compute the costs.")
@cli_options.CARBON
@click.option(
    "--header",
    "headers",
    multiple=True,
    help="'Name: value'; environment variables ($VARIABLE) are expanded.",
)
@click.option("--records", type=click.Path(dir_okay=False), help="Write every request: .csv .jsonl .npz")
@cli_options.repeatable("--probe", "probes_", "PROBE,...", "By default static,load.")
@cli_options.require_option()
@cli_options.plan_options()
@cli_options.BESIDE
@cli_options.NAME
@cli_options.TRUST
@RESULT_OUTPUT
@click.option("-v", "--verbose", is_flag=True, help="Print every measurement.")
def command() -> None:
    """Load-test MODEL behind a server: latency, throughput, and where a request spends its time.

    MODEL is what `modeldyno profile` takes, served during the measurement, or the URL of a running server:
    http://host:8000#model.
    """
