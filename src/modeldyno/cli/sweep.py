"""``modeldyno sweep``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from modeldyno.cli import options as cli_options
from modeldyno.cli import quantity
from modeldyno.cli.help_pages import Command
from modeldyno.cli.output_options import keeping_options, limit_options
from modeldyno.errors import RequestError
from modeldyno.sweeps.schema import AIMS, GOALS, KEYS
from modeldyno.sweeps.yaml_file import SUFFIXES, Tree, Words, read

if TYPE_CHECKING:
    from collections.abc import Iterable

_PLAIN = ("backend", "name", "strategy", *GOALS)
"""Options that stand in a file under their own names."""
_WITHIN = {
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
"""Options that stand in a file under another name: part of it, option, name there."""


def goal_options(command: cli_options.Command) -> cli_options.Command:
    """Add the options that say what to look for."""
    aim = "METRIC[:WEIGHT]"
    return cli_options.together(
        click.option(
            "--objective", "objectives", multiple=True, metavar=aim,
            help="throughput, unless told otherwise; the metric knows its direction."
        ),
        click.option(
            "--maximize", multiple=True, metavar=aim, help="What is to be large: throughput by default."
        ),
        click.option(
            "--minimize", multiple=True, metavar=aim, help="What is to be small, such as latency.p99."
        ),
        cli_options.bounds("Such as 'latency.p99 <= 50ms'; exit 1 when nothing holds it, 5 when undecided."),
        click.option(
            "--mode", type=click.Choice(KEYS["mode"]["enum"]), help="Maximise the throughput of a server."
        ),
        click.option(
            "--latency-budget", callback=quantity("s", bound=True),
            help="10ms: as --require 'latency.p99 <= 10ms'."
        ),
        click.option(
            "--min-throughput", callback=quantity("1/s", zero=True),
            help="500: as --require 'throughput >= 500/s'."
        ),
        click.option(
            "--rank", type=click.Choice(KEYS["rank"]["enum"]),
            help="Rank each configuration at its best load, or each load apart.",
        ),
    )(command)  # fmt: skip


def _certain(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    from modeldyno.sweeps.value_parsers import CERTAIN, certainty  # noqa: PLC0415 - --help needs none of it

    if value is not None and not 0 < certainty(value) < 1:
        raise RequestError(f"--until '{value}': it must be {CERTAIN}.")
    return value


def budget_options(command: cli_options.Command) -> cli_options.Command:
    """Add the options that say how to search, and when to end."""
    return cli_options.together(
        click.option("--strategy", help="quick (the default), grid, ladder or optuna."),
        click.option(
            "--max-time", callback=quantity("s"), help="Longest time of the sweep in all, such as 10m."
        ),
        click.option(
            "--max-trials", type=click.IntRange(1), help="Most measurements, those that verify included."
        ),
        click.option(
            "--until",
            metavar="'certain >= S'",
            callback=_certain,
            help="How sure to be of the best; else 95%.",
        ),
        click.option("--dry-run", is_flag=True, help="Print the plan, and measure nothing."),
    )(command)


def stored_options(command: cli_options.Command) -> cli_options.Command:
    """Add the options that begin with a study that is there."""
    return cli_options.together(
        click.option(
            "--resume", is_flag=False, flag_value="", metavar="[ID]",
            help="Go on with a study, or with the newest.",
        ),
        click.option(
            "--force", is_flag=True, help="Resume though the model or the machine has changed."
        ),
        click.option(
            "--rerank", metavar="ID", help="Rank a stored study by other goals; measures nothing."
        ),
        click.option(
            "--export-configs", metavar="DIR", type=click.Path(file_okay=False),
            help="Write config.pbtxt of the best, and of the default.",
        ),
        click.option("--overwrite", is_flag=True, help="Export into a directory that is not empty."),
        click.option(
            "--top", default=5, show_default=True, type=click.IntRange(1),
            help="Configurations to show, and to export.",
        ),
    )(command)  # fmt: skip


def load_options(command: cli_options.Command) -> cli_options.Command:
    """Add the options of a load, but for what is varied."""
    return cli_options.together(
        click.option(
            "--concurrency",
            "-c",
            type=click.IntRange(1),
            help="Requests at once, not varied; with --rate: at most.",
        ),
        click.option(
            "--rate", metavar="R[:KIND]", help="Open loop, rate not varied: 100, 100:poisson; -c bounds it."
        ),
        click.option("--duration", callback=quantity("s"), help="Length of the steady window, such as 5s."),
        click.option("--requests", type=click.IntRange(1), help="Requests to measure, after the warm-up."),
        click.option("--ramp", callback=quantity("s", zero=True), help="Grow to the full load over so long."),
        click.option("--request-timeout", callback=quantity("s"), help="When a request is given up; 60s."),
        click.option("--retries", type=click.IntRange(0), help="Send again what the server did not answer."),
        click.option("--drivers", type=click.IntRange(1), help="Processes that send."),
    )(command)


@click.command(name="sweep", cls=Command)
@click.argument("model", required=False, metavar="[MODEL|SWEEP.yaml]")
@click.option("--backend", help="What runs or serves the model; see `modeldyno plugins`.")
@cli_options.knob_options
@click.option(
    "--space", "spaces", multiple=True, metavar="KNOB=VALUES",
    help="Vary it; once for each: batch_size=1,2,4, threads=1..4, concurrency=1..64*2, 'a=1,2 if b=true'.",
)  # fmt: skip
@cli_options.INPUTS
@goal_options
@budget_options
@stored_options
@load_options
@click.option("--probe", "probes", multiple=True, metavar="PROBE,...", help="By default what the goal needs.")
@click.option(
    "--trial-time", default="10s", show_default=True, callback=quantity("s"), help="Longest look at a trial."
)
@cli_options.care_options(min_time="1s", precision="2%")
@cli_options.place_options
@limit_options
@cli_options.BESIDE
@cli_options.NAME
@cli_options.TRUST
@keeping_options
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Find the configuration of MODEL that is best within bounds, and say how sure that is.

    What to vary, and to what end, is told by options, by a file of YAML (`modeldyno schema sweep`), or
    by both: an option counts more than the file. Without --space, what usually matters is varied.
    """
    from modeldyno.cli import sweep_actions  # noqa: PLC0415 - --help needs none of it

    exclusive = [name for name in ("resume", "rerank") if options[name] is not None]
    if len(exclusive) > 1 or (exclusive and options["dry_run"]):
        raise RequestError("--resume, --rerank and --dry-run exclude each other; give one of them.")
    if exclusive and options["model"] is not None:
        raise RequestError(
            f"--{exclusive[0]} goes on with a stored study, which knows its model; "
            f"leave {options['model']} away."
        )
    typed = {name: value for name, value in options.items() if _typed(ctx, name)}
    if options["rerank"] is not None:  # what modeldyno.toml says is of sweeps that begin
        ctx.exit(sweep_actions.rerank(words(ctx, typed), options))
    if options["resume"] is not None:
        ctx.exit(sweep_actions.resume(words(ctx, typed), options))
    if options["model"] is None:
        raise RequestError("A sweep needs a MODEL, or a file SWEEP.yaml; see modeldyno sweep --help.")
    ctx.exit(sweep_actions.begin(words(ctx, options), options))


def words(ctx: click.Context, options: dict[str, Any]) -> Words:
    """Give what is told by a file and by options; of these, what was typed counts more than the file."""
    path = Path(options.get("model") or "")
    if path.suffix not in SUFFIXES:
        told = _tree(options, (name for name, value in options.items() if _given(ctx, name, value)))
        return Words(tree={**({"model": options["model"]} if options.get("model") else {}), **told})
    file = read(path)
    below = (name for name, value in options.items() if _given(ctx, name, value) and not _typed(ctx, name))
    above = [name for name, value in options.items() if _given(ctx, name, value) and _typed(ctx, name)]
    tree = file.tree
    if AIMS.keys() & set(above):  # a new aim is no further one
        tree = {name: value for name, value in tree.items() if name not in AIMS}
    found = Words(tree=tree, lines=file.lines, origin=file.origin).over(Words(tree=_tree(options, below)))
    return Words(tree=_tree(options, above)).over(found)


def _given(ctx: click.Context, name: str, value: Any) -> bool:
    """Say whether somebody gave an option, and not only its default."""
    return value not in (None, ()) and ctx.get_parameter_source(name) is not ParameterSource.DEFAULT


def _typed(ctx: click.Context, name: str) -> bool:
    """Say whether it was given for this call, and not by modeldyno.toml."""
    return ctx.get_parameter_source(name) is not ParameterSource.DEFAULT_MAP


def _tree(options: dict[str, Any], names: Iterable[str]) -> Tree:
    """Write options as a file has them."""
    given = {name: options[name] for name in names}
    tree: Tree = {name: _listed(given[name]) for name in _PLAIN if name in given}
    for part, parts in _WITHIN.items():
        found = {there: given[name] for name, there in parts.items() if name in given}
        tree |= {part: found} if found else {}
    tree |= {name: _listed(given[option]) for option, name in _SEVERAL.items() if option in given}
    if "settings" in given:
        tree["set"] = _pairs("--set", given["settings"], "instances=2")
    if "spaces" in given:
        tree["space"] = _pairs("--space", given["spaces"], "batch_size=1,2,4")
    return tree


_SEVERAL = {"inputs": "input", "probes": "probe", "beside": "beside"}


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _pairs(flag: str, given: Iterable[str], like: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise RequestError(f"{flag} '{text}' is not knob=value, such as {like}.")
        if name.strip() in found:
            raise RequestError(f"{flag} gives {name.strip()} twice; give all its values at once.")
        found[name.strip()] = value
    return found
