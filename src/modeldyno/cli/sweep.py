"""``modeldyno sweep``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from modeldyno.cli import options as cli_options
from modeldyno.cli import quantity_callback
from modeldyno.cli.help_pages import HelpCommand
from modeldyno.cli.output_options import limit_options, result_output_options
from modeldyno.errors import RequestError
from modeldyno.sweeps.schema import AIMS, GOALS, KEYS
from modeldyno.sweeps.yaml_file import SUFFIXES, SweepConfig, Tree, read_sweep_file

if TYPE_CHECKING:
    from collections.abc import Iterable

_SAME_NAME = ("backend", "name", "strategy", *GOALS)
"""Options that have the same name in a sweep file."""
_SECTIONS = {
    "plan": {
        "trial_time": "max_time", "min_time": "min_time", "min_runs": "min_runs", "max_runs": "max_runs",
        "min_warmup": "min_warmup", "target": "target", "precision": "precision", "seed": "seed",
        "pin": "pin", "timeout": "timeout", "memory_limit": "memory_limit",
    },
    "budget": {"max_time": "max_time", "max_trials": "max_trials", "until": "certain"},
    "load": {
        "concurrency": "concurrency", "rate": "rate", "duration": "duration", "requests": "requests",
        "ramp": "ramp", "request_timeout": "timeout", "retries": "retries", "drivers": "drivers",
    },
}  # fmt: skip
"""Options that have another name in a sweep file: section, option, name in the section."""


def goal_options(command: cli_options.Command) -> cli_options.Command:
    """Add the options of the goal."""
    aim = "METRIC[:WEIGHT]"
    return cli_options.combine_options(
        click.option(
            "--objective",
            "objectives",
            multiple=True,
            metavar=aim,
            help="Metric to improve, in its own direction; throughput by default.",
        ),
        click.option(
            "--maximize", multiple=True, metavar=aim, help="Metric to maximize; throughput by default."
        ),
        click.option(
            "--minimize", multiple=True, metavar=aim, help="Metric to minimize, such as latency.p99."
        ),
        cli_options.require_option(
            "Such as 'latency.p99 <= 50ms'; exit 1 if nothing holds it, 5 if undecided."
        ),
        click.option(
            "--mode", type=click.Choice(KEYS["mode"]["enum"]), help="Preset: maximum throughput of a server."
        ),
        click.option(
            "--latency-budget",
            callback=quantity_callback("s", bound=True),
            help="Such as 10ms; same as --require 'latency.p99 <= 10ms'.",
        ),
        click.option(
            "--min-throughput",
            callback=quantity_callback("1/s", zero=True),
            help="Such as 500; same as --require 'throughput >= 500/s'.",
        ),
        click.option(
            "--rank",
            type=click.Choice(KEYS["rank"]["enum"]),
            help="Rank configurations at their best load, or every load separately.",
        ),
    )(command)


def _check_certainty(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    from modeldyno.sweeps.value_parsers import CERTAIN, parse_certainty  # noqa: PLC0415 - --help needs none of it

    if value is not None and not 0 < parse_certainty(value) < 1:
        raise RequestError(f"--until '{value}': it must be {CERTAIN}.")
    return value


def budget_options(command: cli_options.Command) -> cli_options.Command:
    """Add the options of the search strategy and its budget."""
    return cli_options.combine_options(
        click.option("--strategy", help="Search strategy: quick (the default), grid, ladder or optuna."),
        click.option(
            "--max-time", callback=quantity_callback("s"), help="Time limit of the whole sweep, such as 10m."
        ),
        click.option(
            "--max-trials",
            type=click.IntRange(1),
            help="Maximum number of measurements, including verification.",
        ),
        click.option(
            "--until",
            metavar="'certain >= S'",
            callback=_check_certainty,
            help="Required confidence in the best configuration; 95% by default.",
        ),
        click.option("--dry-run", is_flag=True, help="Print the plan without measuring."),
    )(command)


def stored_options(command: cli_options.Command) -> cli_options.Command:
    """Add the options that work on a stored study."""
    return cli_options.combine_options(
        click.option(
            "--resume", is_flag=False, flag_value="", metavar="[ID]",
            help="Continue a study; the newest by default.",
        ),
        click.option(
            "--force", is_flag=True, help="Resume even if the model or the machine has changed."
        ),
        click.option(
            "--rerank", metavar="ID", help="Rank a stored study by other goals, without measuring."
        ),
        click.option(
            "--export-configs", metavar="DIR", type=click.Path(file_okay=False),
            help="Write config.pbtxt of the best configurations and of the default.",
        ),
        click.option("--overwrite", is_flag=True, help="Allow exporting into a directory that is not empty."),
        click.option(
            "--top", default=5, show_default=True, type=click.IntRange(1),
            help="Configurations to show, and to export.",
        ),
    )(command)  # fmt: skip


def load_options(command: cli_options.Command) -> cli_options.Command:
    """Add the options of a fixed load."""
    return cli_options.combine_options(
        click.option(
            "--concurrency",
            "-c",
            type=click.IntRange(1),
            help="Concurrent requests, not varied; with --rate: at most.",
        ),
        click.option(
            "--rate",
            metavar="R[:KIND]",
            help="Open loop at a fixed rate: 100, 100:poisson; -c limits concurrency.",
        ),
        click.option(
            "--duration", callback=quantity_callback("s"), help="Length of the steady window, such as 5s."
        ),
        click.option("--requests", type=click.IntRange(1), help="Requests to measure, after the warm-up."),
        click.option(
            "--ramp", callback=quantity_callback("s", zero=True), help="Ramp-up time to the full load."
        ),
        click.option(
            "--request-timeout", callback=quantity_callback("s"), help="Timeout of a request; 60s by default."
        ),
        click.option(
            "--retries", type=click.IntRange(0), help="Retries of a request that the server did not answer."
        ),
        click.option("--drivers", type=click.IntRange(1), help="Number of processes that send."),
    )(command)


@click.command(name="sweep", cls=HelpCommand)
@click.argument("model", required=False, metavar="[MODEL|SWEEP.yaml]")
@click.option("--backend", help="What runs or serves the model; see `modeldyno plugins`.")
@cli_options.knob_options
@click.option(
    "--space", "spaces", multiple=True, metavar="KNOB=VALUES",
    help="Knob to vary; repeatable: batch_size=1,2,4, threads=1..4, concurrency=1..64*2, 'a=1,2 if b=true'.",
)  # fmt: skip
@cli_options.INPUTS
@goal_options
@budget_options
@stored_options
@load_options
@click.option(
    "--probe",
    "probes",
    multiple=True,
    metavar="PROBE,...",
    help="What to measure; by default what the goal needs.",
)
@click.option(
    "--trial-time",
    default="10s",
    show_default=True,
    callback=quantity_callback("s"),
    help="Maximum measuring time of a trial.",
)
@cli_options.precision_options(min_time="1s", precision="2%")
@cli_options.seed_and_pin_options
@limit_options
@cli_options.BESIDE
@cli_options.NAME
@cli_options.TRUST
@result_output_options
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Find the best configuration of MODEL within bounds, and report how sure that is.

    Give the axes and the goal as options, in a YAML file (`modeldyno schema sweep`), or both: options
    override the file. Without --space, the usual knobs are varied.
    """
    from modeldyno.cli import sweep_actions  # noqa: PLC0415 - --help needs none of it

    exclusive = [name for name in ("resume", "rerank") if options[name] is not None]
    if len(exclusive) > 1 or (exclusive and options["dry_run"]):
        raise RequestError("--resume, --rerank and --dry-run exclude each other; give one of them.")
    if exclusive and options["model"] is not None:
        raise RequestError(
            f"--{exclusive[0]} uses a stored study, which has its model; drop {options['model']}."
        )
    typed = {name: value for name, value in options.items() if _is_typed(ctx, name)}
    if options["rerank"] is not None:  # modeldyno.toml only applies to new sweeps
        ctx.exit(sweep_actions.rerank(merge_config(ctx, typed), options))
    if options["resume"] is not None:
        ctx.exit(sweep_actions.resume(merge_config(ctx, typed), options))
    if options["model"] is None:
        raise RequestError("A sweep needs a MODEL or a file SWEEP.yaml; see modeldyno sweep --help.")
    ctx.exit(sweep_actions.begin(merge_config(ctx, options), options))


def merge_config(ctx: click.Context, options: dict[str, Any]) -> SweepConfig:
    """Merge the sweep file and the options: typed options override the file, defaults do not."""
    path = Path(options.get("model") or "")
    if path.suffix not in SUFFIXES:
        tree = _to_tree(options, (name for name, value in options.items() if _is_given(ctx, name, value)))
        return SweepConfig(tree={**({"model": options["model"]} if options.get("model") else {}), **tree})
    file = read_sweep_file(path)
    defaulted = (
        name for name, value in options.items() if _is_given(ctx, name, value) and not _is_typed(ctx, name)
    )
    typed = [name for name, value in options.items() if _is_given(ctx, name, value) and _is_typed(ctx, name)]
    tree = file.tree
    if AIMS.keys() & set(typed):  # a typed aim replaces those of the file
        tree = {name: value for name, value in tree.items() if name not in AIMS}
    merged = SweepConfig(tree=tree, lines=file.lines, origin=file.origin).over(
        SweepConfig(tree=_to_tree(options, defaulted))
    )
    return SweepConfig(tree=_to_tree(options, typed)).over(merged)


def _is_given(ctx: click.Context, name: str, value: Any) -> bool:
    """Check whether an option was given, rather than its default."""
    return value not in (None, ()) and ctx.get_parameter_source(name) is not ParameterSource.DEFAULT


def _is_typed(ctx: click.Context, name: str) -> bool:
    """Check whether an option was typed, rather than read from modeldyno.toml."""
    return ctx.get_parameter_source(name) is not ParameterSource.DEFAULT_MAP


def _to_tree(options: dict[str, Any], names: Iterable[str]) -> Tree:
    """Convert options to the tree of a sweep file."""
    values = {name: options[name] for name in names}
    tree: Tree = {name: _as_list(values[name]) for name in _SAME_NAME if name in values}
    for title, renamed in _SECTIONS.items():
        section = {file_name: values[name] for name, file_name in renamed.items() if name in values}
        tree |= {title: section} if section else {}
    tree |= {name: _as_list(values[option]) for option, name in _RENAMED.items() if option in values}
    if "settings" in values:
        tree["set"] = _parse_pairs("--set", values["settings"], "instances=2")
    if "spaces" in values:
        tree["space"] = _parse_pairs("--space", values["spaces"], "batch_size=1,2,4")
    return tree


_RENAMED = {"inputs": "input", "probes": "probe", "beside": "beside"}


def _as_list(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _parse_pairs(flag: str, texts: Iterable[str], example: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise RequestError(f"{flag} '{text}' is not knob=value, such as {example}.")
        if name.strip() in pairs:
            raise RequestError(f"{flag} gives {name.strip()} twice; give all its values at once.")
        pairs[name.strip()] = value
    return pairs
