"""``modeldyno optimize``."""

from __future__ import annotations

import click

from modeldyno.cli import options as cli_options
from modeldyno.cli.declare import declare
from modeldyno.cli.output_options import NO_STORE, QUIET


@declare("optimize")
@click.argument("model")
@click.option(
    "--to", default="all", show_default=True, metavar="FORM,...",
    help="Forms to try: onnx, torchscript, exported, openvino, savedmodel, tflite, tensorrt.",
)  # fmt: skip
@click.option("--int8", is_flag=True, help="Also with int8 weights, where a form has that.")
@click.option("--fp16", is_flag=True, help="Also in half precision, where a form has that.")
@cli_options.repeatable(
    "--prefer", "prefer", "METRIC|FORM",
    "Repeatable, in order: latency.p50 (default), 'throughput if latency.p99 <= 10ms', openvino.",
)  # fmt: skip
@click.option("-b", "--batch-size", type=click.IntRange(1), help="Samples of each call that is measured.")
@cli_options.INPUTS
@click.option("--data", metavar="FILE", help="Real samples to compare with: .npz .npy .jsonl")
@cli_options.TOLERANCE
@cli_options.VERIFY
@cli_options.time_option("--max-time", "3m", "Time limit of the measurement; a form has 10m to be made.")
@click.option("-o", "--output", metavar="FILE.zip", help="The package; by default NAME-optimized.zip.")
@cli_options.NAME
@cli_options.TRUST
@NO_STORE
@QUIET
def command() -> None:
    """Convert MODEL, measure what is still the model, and package its best form.

    Each form is judged as by `convert`, then all of them and MODEL are measured in turns. The first --prefer
    that can be met decides; MODEL stays where no form is surely better. Exit code 1: none can be met.
    """
