"""``modeldyno compare``."""

from __future__ import annotations

from typing import Any

import click

from modeldyno.cli import actions, defaults, quantity_callback
from modeldyno.cli import options as cli_options
from modeldyno.cli.help_pages import HelpCommand
from modeldyno.cli.output_options import result_output_options


def side_options(command: cli_options.Command) -> cli_options.Command:
    """Add the options of what to measure, shared by both sides or for one of them."""
    knob = "KNOB=VALUE"
    return cli_options.combine_options(
        click.option("--backend", help="What runs the models; see `modeldyno plugins`."),
        cli_options.knob_options,
        click.option(
            "--baseline-set", multiple=True, metavar=knob, help="Like --set, for the baseline only."
        ),
        click.option(
            "--candidate-set", multiple=True, metavar=knob, help="Like --set, for the candidates only."
        ),
        cli_options.INPUTS,
        cli_options.side_inputs_option("--baseline-input", "baseline"),
        cli_options.side_inputs_option("--candidate-input", "candidates"),
        click.option(
            "--probe", "probes", multiple=True, metavar="PROBE,...",
            help="What to measure; by default the same as profile.",
        ),
        cli_options.function_options,
        cli_options.evaluation_options,
        cli_options.mode_options,
    )(command)  # fmt: skip


def verdict_options(command: cli_options.Command) -> cli_options.Command:
    """Add the options of the verdict: metrics, thresholds, exit code."""
    return cli_options.combine_options(
        click.option(
            "--metric", "metrics", multiple=True, metavar="METRIC,...",
            help="Metrics to judge, such as latency.p99,throughput; by default latency and memory.",
        ),
        click.option(
            "--smallest", multiple=True, metavar="[METRIC=]SIZE",
            help="Smallest change that matters, such as 5% or latency=5%; 3% by default.",
        ),
        click.option("--force", is_flag=True, help="Compare even if the hardware differs."),
        click.option(
            "--fail-on", type=click.Choice(["worse"]), help="Exit 1 if worse, and 5 if undecided."
        ),
    )(command)  # fmt: skip


def round_options(command: cli_options.Command) -> cli_options.Command:
    """Add the options of the measurement rounds."""
    return cli_options.combine_options(
        click.option("--run", is_flag=True, help="Measure the jobs of stored results again, in turns."),
        click.option(
            "--min-rounds", default=defaults.FEWEST_ROUNDS, show_default=True, type=click.IntRange(1),
            help="Rounds before the first verdict; a round runs a fresh process of each model.",
        ),
        click.option(
            "--max-rounds", default=defaults.MOST_ROUNDS, show_default=True, type=click.IntRange(1),
            help="Maximum rounds while a verdict is undecided.",
        ),
        click.option(
            "--max-time", default="10m", show_default=True, callback=quantity_callback("s"),
            help="Time limit of the command, loading and the search for causes included.",
        ),
        cli_options.run_time_option("5s"),
        click.option("--block", is_flag=True, help="Run one side after the other, not in turns."),
        click.option("--no-why", is_flag=True, help="Skip the comparison of outputs, layers and operators."),
    )(command)  # fmt: skip


@click.command(name="compare", cls=HelpCommand)
@click.argument("baseline")
@click.argument("candidate")
@click.argument("more", nargs=-1)
@side_options
@verdict_options
@round_options
@cli_options.plan_options("max_time", "processes", min_time="0.5s")
@cli_options.TRUST
@click.option("--all", "everything", is_flag=True, help="Also show what is equal in both.")
@result_output_options
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Compare CANDIDATE with BASELINE: better or worse, by how much, how surely, and why.

    Both are models, which are run in turns until the verdict is decided, or measured results: files, stored
    ids, tags, or studies (which stand for their best configuration). With several candidates, each is
    compared with BASELINE.
    """
    actions.compare.run(ctx, options)
