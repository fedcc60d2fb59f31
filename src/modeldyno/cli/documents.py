"""The commands on documents that are there already: in the store or in files."""

from __future__ import annotations

from pathlib import Path

import click

from modeldyno.cli import defaults, gate_options, quantity_callback
from modeldyno.cli import options as cli_options
from modeldyno.cli.declare import declare
from modeldyno.cli.output_options import JSON, MODULE_VIEW, QUIET, REPORTS, RESULT_OUTPUT


@declare("check", cls=gate_options.BoundsCommand)
@click.argument("result")
@cli_options.require_option()
@gate_options.GATE
@QUIET
def check_command() -> None:
    """Check RESULT without measuring: exit 0 if it passes, 1 if it fails, 5 if that is undecided.

    RESULT is a JSON file, or an id (or prefix, or tag) of the store. RESULT and its baseline were measured at
    different times, so only a change larger than the drift of a machine fails the gate; a smaller one is
    undecided. To decide it, run modeldyno profile --baseline, which measures both in turns.
    """


@declare("comment")
@click.argument("file", type=click.Path(dir_okay=False, exists=True))
def comment_command() -> None:
    """Post FILE, written by --markdown of check or profile, on the pull or merge request of this pipeline.

    It replaces the comment of an earlier run. It needs GITHUB_TOKEN or GITLAB_TOKEN; give the token to this
    step only, which runs no model.
    """


@declare("export")
@click.argument("document")
@click.option(
    "--to", "places", multiple=True, required=True, metavar="TOOL:TARGET",
    help="mlflow:URI|DIR, tensorboard:DIR, wandb:DIR, perfetto:FILE or prometheus:FILE; repeatable.",
)  # fmt: skip
def export_command() -> None:
    """Export DOCUMENT (a JSON file, or a stored id, tag or study) to other tools.

    Percentiles that the samples do not certify are exported under names with .raw, or left out.
    """


@declare("import", "import_.run")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--from",
    "tool",
    metavar="TOOL",
    help="Its tool: aiperf, guidellm, loadgen, perf_analyzer, vllm.",
)
@cli_options.require_option()
@RESULT_OUTPUT
def import_command() -> None:
    """Import measurements of another load generator, and store them as results.

    FILE was written by AIPerf, GuideLLM, MLPerf LoadGen, perf_analyzer or vLLM's bench; which one is detected
    from its content. Where its metrics are defined differently, the result has a doubt.
    """


@declare("reconcile")
@click.argument("result")
@click.argument("files", type=click.Path(path_type=Path), nargs=-1, required=True, metavar="FILE...")
@click.option("--from", "tool", metavar="TOOL", help="Tool that wrote the files; else it is recognised.")
@JSON
@QUIET
def reconcile_command() -> None:
    """Say why other load generators report other times than RESULT, of one server under the same load.

    Each FILE was written by one that `modeldyno import` reads. The difference of each figure is split into
    the percentile rule, the warm-up, the moment from which time counts, and what is left.
    """


@declare("verify")
@click.argument("document")
@JSON
@QUIET
def verify_command() -> None:
    """Recompute every figure, verdict and doubt of DOCUMENT from its samples: exit 0 if it holds, else 1.

    DOCUMENT is a JSON file, or an id (or prefix, or tag) of the store: a result, a study, a comparison, a
    load series. What it keeps without samples cannot be recomputed, and is named. Its digest says whether it
    was changed after it was written.
    """


@declare("show")
@click.argument("result")
@click.option(
    "--get",
    "query",
    metavar="QUERY",
    help="One number in base units: latency.p99, latency.p99.ci, throughput.",
)
@cli_options.repeatable(
    "--require", "require", "BOUND", "Judge the result: exit 1 if broken, 5 if undecided."
)
@click.option(
    "--baseline", metavar="RESULT", help="Show how the memory at the peak changed since this result."
)
@click.option("--findings", "as_findings", is_flag=True, help="Show the findings, with advice.")
@click.option(
    "--demand", help="For a load: number of replicas for this request rate within --require: 1000/s."
)
@click.option(
    "--price", help="Price of a replica, such as 1.20/h or '876 EUR/month': show what the work costs."
)
@cli_options.CARBON
@cli_options.repeatable(
    "--configuration", "configurations", "NAME,...",
    "For a study: these configurations under each of their loads.",
)  # fmt: skip
@click.option(
    "--job", "as_job", is_flag=True, help="Print the YAML file that measures it again: --job > job.yaml."
)
@click.option("--json", "as_json", is_flag=True, help="Print the JSON document.")
@MODULE_VIEW
@click.option("-v", "--verbose", is_flag=True, help="Print everything: all figures, tables and advice.")
def show_command() -> None:
    """Show RESULT: a JSON file, or an id (or prefix, or tag) of the store.

    It also shows a study, a comparison, a load curve, a conversion or the answer of --find-load.
    """


@declare("report")
@click.argument("documents", nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    "reports",
    required=True,
    multiple=True,
    metavar="FILE",
    help=".html .pdf .md, only the numbers: .csv .json, or one chart: .svg .png",
)
@click.option("--chart", metavar="TITLE", help="The chart of a .svg or .png, by its title or a part of it.")
@cli_options.require_option("Bounds to judge the result by; shown with their verdicts.")
@cli_options.repeatable(
    "--configuration", "configurations", "NAME,...",
    "Of a study: only these configurations, in detail: text_3, 3 or default.",
)  # fmt: skip
@cli_options.repeatable(
    "--plot", "plots", "x=QUERY,y=QUERY",
    "Of a study: a chart of your own, such as x=latency.p99,y=throughput; x=concurrency.",
)  # fmt: skip
@click.option(
    "--pictures",
    metavar="DIR",
    type=click.Path(file_okay=False),
    help="Write every chart of the document into DIR as .svg and .png, too.",
)
@cli_options.repeatable(
    "--fields", "fields", "NAME,...",
    "Columns of a .csv, in this order: model, concurrency, throughput, ...",
)  # fmt: skip
def report_command() -> None:
    """Write DOCUMENTS as a report, in the format of FILE's suffix; several go into one file.

    A document is a JSON file, the id or tag of a stored result, the name of a study, or the id of a
    comparison, a load curve, a search for the largest load or a conversion.
    """


@declare("list", "list_.run")
@click.option("--name", help="Only models of this name.")
@click.option("--tag", help="Only results with this tag.")
@click.option(
    "--where",
    metavar="CONDITIONS",
    help="Only results that match, such as 'latency.p99 < 20ms and batch_size = 8 and not failed'.",
)
@cli_options.LIST_LIMIT
def list_command() -> None:
    """List stored results, studies, comparisons, load series and conversions, newest first."""


@declare("tag")
@click.argument("result")
@click.argument("tags", nargs=-1, required=True)
@click.option("--remove", is_flag=True, help="Remove the tags.")
def tag_command() -> None:
    """Add one or more TAGS to the stored RESULT (an id or its prefix)."""


@declare("rm")
@click.argument("results", nargs=-1, required=True)
def rm_command() -> None:
    """Remove RESULTS (ids or prefixes) and their artifacts from the store; with a study, also its trials.

    A tag must belong to one result. Removing a comparison or a load series keeps its results.
    """


@declare("prune")
@click.option(
    "--before", required=True, metavar="TIME", help="Older ones: '90 days ago', or 2026-09-01 in UTC."
)
@click.option(
    "--keep",
    type=click.IntRange(0),
    default=defaults.KEPT_OF_NAME,
    show_default=True,
    help="Newest ones that stay of each name and backend.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be removed, and remove nothing.")
def prune_command() -> None:
    """Remove old results, comparisons, loads and explanations that nothing refers to.

    What has a tag, is a baseline, belongs to a study, is a figure of a registered model or is attached to one
    stays. The file of the store shrinks.
    """


@declare("trend")
@click.argument("model")
@click.option("--metric", metavar="QUERY", help="Such as latency.p99; by default the typical latency.")
@click.option("--backend", help="Only results of this backend.")
@cli_options.KNOBS
@click.option(
    "--limit",
    type=click.IntRange(1, defaults.LONGEST_TREND),
    default=defaults.LONGEST_TREND,
    show_default=True,
    help="Number of newest results to use.",
)
@click.option(
    "--smallest",
    default="3%",
    show_default=True,
    callback=quantity_callback("1"),
    help="Smallest change that matters.",
)
@click.option("--fail-on-regression", is_flag=True, help="Exit 1 if a regression persists.")
@click.option(
    "--exec",
    "hook",
    metavar="COMMAND",
    help="Run COMMAND on a regression, with the JSON document on its standard input.",
)
@JSON
@REPORTS
@QUIET
def trend_command() -> None:
    """Show the history of a metric of MODEL over the stored results: its levels and the steps between them.

    MODEL is a name of `modeldyno list`. A step that coincides with a change of the environment is not counted
    as a regression of the model.
    """


_SCHEMAS = tuple(dict.fromkeys((*defaults.SCHEMAS, *defaults.JOB_COMMANDS)))


@declare("schema")
@click.argument(
    "document", type=click.Choice(_SCHEMAS), default="result", metavar="[result|sweep|job|COMMAND]"
)
def schema_command() -> None:
    """Print a JSON Schema: of a result, a sweep file, a file of jobs, or a job of a COMMAND."""
