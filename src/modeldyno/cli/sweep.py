"""``modeldyno sweep``."""

from __future__ import annotations

import click

from modeldyno.cli import defaults, quantity_callback
from modeldyno.cli import options as cli_options
from modeldyno.cli.declare import declare, load_action
from modeldyno.cli.output_options import RESULT_OUTPUT


def _check_certainty(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None:
        load_action("sweep.check_certainty")(value)
    return value


@declare("sweep")
@click.argument("model", required=False, metavar="[MODEL|SWEEP.yaml]")
@cli_options.repeatable(
    "--also", "also", "MODEL",
    "Another model, swept after MODEL with the same options; all are ranked together.",
)  # fmt: skip
@click.option("--backend", help="What runs or serves the model; see `modeldyno plugins`.")
@cli_options.KNOBS
@cli_options.repeatable(
    "--space", "spaces", "KNOB=VALUES",
    "Knob to vary; repeatable: batch_size=1,2,4, threads=1..4, concurrency=1..64*2, 'a=1,2 if b=true'.",
)  # fmt: skip
@cli_options.INPUTS
# the goal
@cli_options.repeatable(
    "--objective", "objectives", "METRIC[:WEIGHT]",
    "Metric to improve, in its own direction; throughput by default.",
)  # fmt: skip
@cli_options.repeatable(
    "--maximize", "maximize", "METRIC[:WEIGHT]", "Metric to maximize; throughput by default."
)
@cli_options.repeatable(
    "--minimize", "minimize", "METRIC[:WEIGHT]", "Metric to minimize, such as latency.p99."
)
@cli_options.require_option("Such as 'latency.p99 <= 50ms'; exit 1 if nothing holds it, 5 if undecided.")
@click.option(
    "--mode", type=click.Choice(defaults.SERVER_MODES), help="Preset: maximum throughput of a server."
)
@click.option(
    "--latency-budget",
    callback=quantity_callback("s", bound=True),
    help="Such as 10ms; same as --require 'latency.p99 <= 10ms'.",
)
@click.option(
    "--min-throughput",
    callback=quantity_callback("1/s", zero=True),
    help="Such as 500; same as --require 'throughput >= 500/s'.",
)
@click.option(
    "--rank",
    type=click.Choice(defaults.RANKS),
    help="Rank configurations at their best load, or every load separately.",
)
@click.option("--price", help="Price of this machine, such as 1.20/h, for --objective cost and its column.")
# the search and its budget
@click.option("--strategy", help="Search strategy: quick (the default), grid, ladder or optuna.")
@click.option(
    "--max-time", callback=quantity_callback("s"), help="Time limit of the whole sweep, such as 10m."
)
@click.option(
    "--max-trials",
    type=click.IntRange(1),
    help="Maximum number of measurements, including verification.",
)
@click.option(
    "--until",
    metavar="'certain >= S'",
    callback=_check_certainty,
    help="Required confidence that the answer is the best or within 5% of it; 95% by default.",
)
@click.option(
    "--curves",
    type=click.IntRange(1),
    metavar="N",
    help="After the search, measure the best N configurations at all loads.",
)
@click.option(
    "--bisect",
    type=click.IntRange(1),
    metavar="N",
    help="Measure up to N loads between one that holds the bounds and one that breaks them.",
)
@click.option("--dry-run", is_flag=True, help="Print the plan without measuring.")
# a stored study
@click.option(
    "--resume", is_flag=False, flag_value="", metavar="[ID]",
    help="Continue a study; the newest by default.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Resume even if the model or the machine has changed.")
@click.option(
    "--reuse", callback=quantity_callback("s"), metavar="AGE",
    help="Take the same measurements of other studies, up to AGE old: 24h.",
)  # fmt: skip
@click.option("--rerank", metavar="ID", help="Rank a stored study by other goals, without measuring.")
@click.option(
    "--export-configs", metavar="DIR", type=click.Path(file_okay=False),
    help="Write config.pbtxt of the best configurations and of the default.",
)  # fmt: skip
@click.option("--overwrite", is_flag=True, help="Allow exporting into a directory that is not empty.")
@click.option(
    "--top", default=5, show_default=True, type=click.IntRange(1),
    help="Configurations to show, and to export.",
)  # fmt: skip
@click.option(
    "--top-models", default=3, show_default=True, type=click.IntRange(1),
    help="Of several models: configurations to show over all of them.",
)  # fmt: skip
@click.option(
    "--from-model-analyzer", metavar="FILE", type=click.Path(dir_okay=False),
    help="Print the sweep file that a configuration of Model Analyzer means.",
)  # fmt: skip
# a fixed load
@click.option(
    "--concurrency",
    "-c",
    type=click.IntRange(1),
    help="Concurrent requests, not varied; with --rate: at most.",
)
@click.option(
    "--rate",
    metavar="R[:KIND]",
    help="Open loop at a fixed rate: 100, 100:poisson; -c limits concurrency.",
)
@cli_options.REPLAY
@cli_options.load_options(with_defaults=False)
@cli_options.repeatable("--probe", "probes", "PROBE,...", "What to measure; by default what the goal needs.")
@cli_options.FUNCTIONS
@cli_options.EVALUATION
@cli_options.TOLERANCE
@cli_options.VERIFY
@cli_options.time_option("--trial-time", "10s", "Maximum measuring time of a trial.")
@cli_options.plan_options("max_time", "processes", "percentiles")
@cli_options.BESIDE
@cli_options.NAME
@cli_options.TRUST
@RESULT_OUTPUT
def command() -> None:
    """Find the best configuration of MODEL within bounds, and report how sure that is.

    Give the axes and the goal as options, in a YAML file (`modeldyno schema sweep`), or both: options
    override the file. Without --space, the usual knobs are varied.
    """
