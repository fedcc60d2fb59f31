"""``modeldyno compare``."""

from __future__ import annotations

import click

from modeldyno.cli import defaults
from modeldyno.cli import options as cli_options
from modeldyno.cli.declare import declare
from modeldyno.cli.output_options import RESULT_OUTPUT


@declare("compare")
@click.argument("baseline")
@click.argument("candidate")
@click.argument("more", nargs=-1)
# what is measured
@click.option("--backend", help="What runs the models; see `modeldyno plugins`.")
@cli_options.KNOBS
@cli_options.repeatable("--baseline-set", "baseline_set", "KNOB=VALUE", "Like --set, for the baseline only.")
@cli_options.repeatable(
    "--candidate-set", "candidate_set", "KNOB=VALUE", "Like --set, for the candidates only."
)
@cli_options.INPUTS
@cli_options.side_inputs_option("--baseline-input", "baseline")
@cli_options.side_inputs_option("--candidate-input", "candidates")
@cli_options.repeatable("--probe", "probes", "PROBE,...", "What to measure; by default the same as profile.")
@cli_options.FUNCTIONS
@cli_options.EVALUATION
@cli_options.TOLERANCE
@cli_options.VERIFY
@cli_options.MODE
# the verdict
@cli_options.repeatable(
    "--metric", "metrics", "METRIC,...",
    "Metrics to judge, such as latency.p99,throughput; by default latency and memory.",
)  # fmt: skip
@cli_options.repeatable(
    "--smallest", "smallest", "[METRIC=]SIZE",
    "Smallest change that matters, such as 5% or latency=5%; 3% by default.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Compare even if the hardware differs.")
@click.option("--fail-on", type=click.Choice(["worse"]), help="Exit 1 if worse, and 5 if undecided.")
# the rounds
@click.option(
    "--quick", is_flag=True,
    help="How many times slower or faster, within ten seconds: few rounds, short ones, no causes.",
)  # fmt: skip
@click.option("--run", is_flag=True, help="Measure the jobs of stored results again, in turns.")
@click.option(
    "--min-rounds", default=defaults.FEWEST_ROUNDS, show_default=True, type=click.IntRange(1),
    help="Rounds before the first verdict; a round runs a fresh process of each model.",
)  # fmt: skip
@click.option(
    "--max-rounds", default=defaults.MOST_ROUNDS, show_default=True, type=click.IntRange(1),
    help="Maximum rounds while a verdict is undecided.",
)  # fmt: skip
@cli_options.time_option(
    "--max-time", "10m", "Time limit of the command, loading and the search for causes included."
)
@cli_options.run_time_option("5s")
@click.option("--block", is_flag=True, help="Run one side after the other, not in turns.")
@click.option("--no-why", is_flag=True, help="Skip the comparison of outputs, layers and operators.")
@cli_options.plan_options("max_time", "processes", min_time="0.5s")
@cli_options.TRUST
@click.option("--all", "everything", is_flag=True, help="Also show what is equal in both.")
@RESULT_OUTPUT
def command() -> None:
    """Compare CANDIDATE with BASELINE: better or worse, by how much, how surely, and why.

    Both are models, which are run in turns until the verdict is decided, or measured results: files, stored
    ids, tags, or studies (which stand for their best configuration). With several candidates, each is
    compared with BASELINE.
    """
