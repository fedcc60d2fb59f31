"""``modeldyno profile``."""

from __future__ import annotations

import click

from modeldyno.cli import gate_options
from modeldyno.cli import options as cli_options
from modeldyno.cli.declare import declare
from modeldyno.cli.output_options import RESULT_OUTPUT


@declare("profile", cls=gate_options.BoundsCommand)
@click.argument("model", required=False)
@click.option("--model-path", metavar="MODEL", help="MODEL as an option.")
@cli_options.BACKEND
@cli_options.KNOBS
@cli_options.INPUTS
@cli_options.repeatable(
    "--probe", "probes", "PROBE,...",
    "What to measure: static,latency,throughput (the default), stages, layers, ops, memory, generate, "
    "training, largest-batch, outputs, evaluation, load.",
)  # fmt: skip
@cli_options.MODE
@click.option("--layers", help="Only modules with one of these texts in path or class: attention,mlp.")
@click.option("--prompt", default="128", show_default=True, help="Prompt length in tokens: 32,128,512.")
@click.option("--generate", default="32", show_default=True, help="Tokens to generate: 32,128.")
@click.option("--trace", type=click.Path(dir_okay=False), help="Write a trace of a few calls for Perfetto.")
@click.option("--outputs", type=click.Path(dir_okay=False), help="Write the outputs of one call: .npz")
@cli_options.FUNCTIONS
@cli_options.EVALUATION
@click.option("--price", help="Price of this machine, such as 1.20/h or '876 EUR/month': compute the costs.")
@cli_options.CARBON
@cli_options.require_option()
@cli_options.plan_options()
@cli_options.BESIDE
@cli_options.NAME
@cli_options.TRUST
@click.option("--inline", is_flag=True, help="Run in this process, for a debugger.")
@gate_options.GATE
@cli_options.time_option(
    "--budget", "10m", "With --baseline: time limit of all rounds; --max-time then defaults to 5s."
)
@click.option(
    "--save-as-baseline", "branch", metavar="BRANCH",
    help="Store the result as the baseline @BRANCH if it passes.",
)  # fmt: skip
@RESULT_OUTPUT
@click.option("--output-dir", metavar="DIR", help="Write result.json, report.html and report.md there.")
@click.option("-v", "--verbose", is_flag=True, help="Print everything: all figures, tables and advice.")
def command() -> None:
    """Measure MODEL in its own process: latency, throughput, memory, weights.

    MODEL is a path (model.onnx, a directory with config.json and safetensors) or scheme:locator, such as
    torch:file.py:factory, hf-config:DIR or call:package.module:function.
    """
