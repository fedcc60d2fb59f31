"""``modeldyno profile``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from modeldyno import request
from modeldyno.cli import asking
from modeldyno.cli.keeping import Places, keeping_options, limit_options, optimizer, verdict
from modeldyno.cli.output import listened
from modeldyno.cli.progress import Progress
from modeldyno.core.inspection import OPTIMIZERS, Mode
from modeldyno.core.observation import Observation, tokens
from modeldyno.measure import Outcome, measure


@click.command(name="profile")
@click.argument("model")
@click.option("--backend", help="What runs the model; see `modeldyno plugins`.")
@asking.KNOBS
@asking.INPUTS
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
@click.option("--outputs", type=click.Path(dir_okay=False), help="Write what one call returns: .npz")
@asking.bounds()
@asking.PERCENTILES
@asking.plan_options
@limit_options
@asking.NAME
@asking.TRUST
@click.option("--inline", is_flag=True, help="Run inside this process, for a debugger.")
@keeping_options
@click.option("-v", "--verbose", is_flag=True, help="Print every measurement of the whole.")
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Measure MODEL in a process of its own: latency, throughput, memory, weights.

    MODEL is a path (model.onnx, a directory with config.json and safetensors) or scheme:locator, such as
    torch:file.py:factory, hf-config:DIR or call:package.module:function.
    """
    asked = request.Request(
        model=options["model"],
        backend=options["backend"],
        settings=request.settings(options["settings"]),
        inputs=options["inputs"],
        probes=asking.probes(options["probes"]),
        require=options["require"],
        percentiles=options["percentiles"],
        plan=asking.plan_of(options),
        inspection=request.inspection(mode=options["mode"], optimizer=optimizer(ctx), modules=False),
        observation=Observation(
            layers=tuple(part.strip() for part in (options["layers"] or "").split(",") if part.strip()),
            prompts=tokens(options["prompt"], "--prompt"),
            generated=tokens(options["generate"], "--generate"),
            trace=options["trace"] and str(Path(options["trace"]).absolute()),
            outputs=options["outputs"] and str(Path(options["outputs"]).absolute()),
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
