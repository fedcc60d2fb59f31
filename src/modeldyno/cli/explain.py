"""``modeldyno explain``."""

from __future__ import annotations

import click

from modeldyno.cli import defaults, quantity_callback
from modeldyno.cli import options as cli_options
from modeldyno.cli.declare import declare
from modeldyno.cli.output_options import RESULT_OUTPUT


@declare("explain")
@click.argument("model")
@click.argument("candidate", required=False)
@click.option("--baseline", metavar="ID|FILE", help="Explain what changed from this result or explanation.")
@click.option("--backend", help="What serves MODEL, such as triton; without it only the call is explained.")
@cli_options.KNOBS
@cli_options.INPUTS
@click.option(
    "--concurrency", "-c", type=click.IntRange(1),
    help="Load: number of concurrent requests in a closed loop; "
    f"{defaults.EXPLAIN_CONCURRENCY} by default. With --rate: maximum concurrency.",
)  # fmt: skip
@click.option(
    "--rate", metavar="R[:KIND]", help="Load: an open loop of so many requests per second, 100:poisson."
)
@click.option(
    "--statistic", type=click.Choice(defaults.EXPLAINED),
    help="What is explained; by default the median of calls, and the mean of requests, as servers tell it.",
)  # fmt: skip
@click.option(
    "--rounds", type=click.IntRange(1), default=defaults.EXPLAIN_ROUNDS, show_default=True,
    help="Rounds in which everything is measured once.",
)  # fmt: skip
@click.option(
    "--max-time", default=defaults.EXPLAIN_TIME, show_default=True, callback=quantity_callback("s"),
    help="Time limit of the command; what does not fit into it is left out.",
)  # fmt: skip
@cli_options.NAME
@cli_options.TRUST
@RESULT_OUTPUT
@click.option("-v", "--verbose", is_flag=True, help="Print how each hop was measured, and each doubt.")
def command() -> None:
    """Explain the latency of MODEL: from the bound of the hardware to a request under load, hop by hop.

    MODEL is what `modeldyno profile` takes, or the URL of a running server. Or MODEL is a result that was
    measured before: it is explained, or with a CANDIDATE what changed from it to that.
    """
