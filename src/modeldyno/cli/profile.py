"""``modeldyno profile``."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from modeldyno import request
from modeldyno.cli import quantity
from modeldyno.cli.keeping import Places, keeping_options, limit_options, optimizer, verdict
from modeldyno.cli.output import listened
from modeldyno.cli.progress import Progress
from modeldyno.core.inspection import OPTIMIZERS, Mode
from modeldyno.core.metric import canonical_statistic
from modeldyno.core.observation import Observation, tokens
from modeldyno.core.plan import Plan
from modeldyno.errors import RequestError
from modeldyno.measure import Outcome, measure

if TYPE_CHECKING:
    from collections.abc import Callable

_PLAN = {field.name: field.default for field in fields(Plan)}


def _cores(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> tuple[int, ...]:
    found: list[int] = []
    for part in (value or "").split(","):
        low, _, high = part.partition("-")
        try:
            found += range(int(low), int(high or low) + 1) if part else ()
        except ValueError:
            raise RequestError(f"--pin '{value}' is no list of cores; write 0,1 or 0-3.") from None
    return tuple(found)


def _statistic(_ctx: click.Context, _parameter: click.Parameter, value: str) -> str:
    return canonical_statistic(value)


def _option(flag: str, default: Any, sentence: str, **more: Any) -> Any:
    return click.option(flag, default=default, show_default=default is not None, help=sentence, **more)


def plan_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say how carefully to measure."""
    seconds, share = quantity("s"), quantity("1")
    options = (
        _option("--max-time", "20s", "Longest measuring per probe and process.", callback=seconds),
        _option("--min-time", "1s", "Shortest steady measuring.", callback=seconds),
        _option("--min-runs", _PLAN["min_runs"], "Fewest steady samples."),
        _option("--max-runs", _PLAN["max_runs"], "Most steady samples."),
        _option("--min-warmup", _PLAN["min_warmup"], "Fewest samples left out as warm-up."),
        _option(
            "--target", _PLAN["target"], "Statistic whose interval is to be narrow.", callback=_statistic
        ),
        _option("--precision", "2%", "Half-width of that interval.", callback=share),
        _option("--processes", 1, "Fresh processes: 1 for a look, 5 for a claim."),
        _option("--seed", 0, "Seed of random inputs and weights."),
        _option("--pin", None, "Cores to stay on, such as 0,1 or 0-3.", callback=_cores),
    )
    for option in reversed(options):
        command = option(command)
    return command


def probes(given: tuple[str, ...]) -> tuple[str, ...]:
    """Read names of probes, separated by commas."""
    return tuple(dict.fromkeys(name.strip() for each in given for name in each.split(",")))


@click.command(name="profile")
@click.argument("model")
@click.option("--backend", help="What runs the model; see `modeldyno plugins`.")
@click.option(
    "--set", "settings", multiple=True, metavar="KNOB=VALUE", help="Set a knob, such as batch_size=8."
)
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="INPUT",
    help="name=8x128:int64:0..30521, or a file: .npz .jsonl .txt",
)
@click.option(
    "--probe",
    "probes",
    multiple=True,
    metavar="PROBE,...",
    help="What to measure; by default static,latency,throughput.",
)
@click.option(
    "--mode", default="inference", show_default=True, type=click.Choice([str(mode) for mode in Mode]),
    help="Calls, or training steps.",
)  # fmt: skip
@click.option(
    "--optimizer", default="adamw", show_default=True, type=click.Choice(OPTIMIZERS), help="For --mode train."
)
@click.option("--layers", help="Only modules with these parts in their path or class: attention,mlp.")
@click.option("--prompt", default="128", show_default=True, help="Tokens to generate from: 32,128,512.")
@click.option("--generate", default="32", show_default=True, help="Tokens to generate: 32,128.")
@click.option("--trace", type=click.Path(dir_okay=False), help="Write a trace of a few calls for Perfetto.")
@click.option(
    "--require", "--sla", "--threshold", "--subject-to", "require", multiple=True, metavar="BOUND",
    help="Such as 'latency.p99 <= 50ms'; exit 1 when broken, 5 when undecided.",
)  # fmt: skip
@click.option(
    "--percentile", "percentiles", multiple=True, help="Measure until it is certified, such as p99."
)
@plan_options
@limit_options
@click.option("--name", help="What to call the model.")
@click.option(
    "--trust",
    is_flag=True,
    allow_from_autoenv=False,
    help="Load files that run code when loaded (in the child).",
)
@click.option("--inline", is_flag=True, help="Run inside this process, for a debugger.")
@keeping_options
@click.option("-v", "--verbose", is_flag=True, help="Print every measurement of the whole.")
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Measure MODEL in a process of its own: latency, throughput, memory, weights.

    MODEL is a path (model.onnx, a directory with config.json and safetensors) or scheme:locator, such as
    torch:file.py:factory, hf-config:DIR or call:package.module:function.
    """
    try:
        plan = Plan(
            **{name: options[name] for name in _PLAN if name in options and options[name] is not None}
        )
    except ValueError as error:
        raise RequestError(f"{error}.") from None
    asked = request.Request(
        model=options["model"],
        backend=options["backend"],
        settings=request.settings(options["settings"]),
        inputs=options["inputs"],
        probes=probes(options["probes"]),
        require=options["require"],
        percentiles=options["percentiles"],
        plan=plan,
        inspection=request.inspection(mode=options["mode"], optimizer=optimizer(ctx), modules=False),
        observation=Observation(
            layers=tuple(part.strip() for part in (options["layers"] or "").split(",") if part.strip()),
            prompts=tokens(options["prompt"], "--prompt"),
            generated=tokens(options["generate"], "--generate"),
            trace=options["trace"] and str(Path(options["trace"]).absolute()),
        ),
        name=options["name"],
        trust=options["trust"],
    )
    places = Places.of(options)
    with Progress(quiet=options["quiet"]) as progress:
        outcome = measure(asked, in_process=options["inline"], watch=progress.watch)
    problem = places.keep(outcome)
    tell(outcome, places, options)
    if problem is not None:
        raise problem
    ctx.exit(outcome.exit_code)


def tell(outcome: Outcome, places: Places, options: dict[str, Any]) -> None:
    """Print what came out, unless standard output holds the document alone."""
    if places.silent:
        return
    with listened():
        if options["quiet"]:
            click.echo(verdict(outcome))
            return
        from modeldyno.cli.output import draw  # noqa: PLC0415 - rich is for what is drawn

        draw(outcome.result, outcome.judgements, verbose=options["verbose"])
        places.told()
