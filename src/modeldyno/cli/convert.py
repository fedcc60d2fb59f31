"""``modeldyno convert``."""

from __future__ import annotations

import click

from modeldyno.cli import options as cli_options
from modeldyno.cli.declare import declare
from modeldyno.cli.output_options import JSON, NO_STORE, QUIET


@declare("convert")
@click.argument("model")
@click.option(
    "--to",
    default="onnx",
    show_default=True,
    metavar="FORM,...",
    help="onnx, torchscript, exported, openvino, savedmodel, tflite, tensorrt; or all that can be made here.",
)
@click.option("--first", is_flag=True, help="Stop at the first form that is still the model.")
@click.option("--int8", is_flag=True, help="Also with int8 weights, where a form has that.")
@click.option("--fp16", is_flag=True, help="Also in half precision, where a form has that.")
@click.option("-o", "--output", metavar="DIR", help="Folder of the files; by default NAME-converted.")
@click.option("--opset", type=click.IntRange(min=7), help="Opset of ONNX; by default the exporter's own.")
@cli_options.INPUTS
@click.option("--data", metavar="FILE", help="Real samples to compare with: .npz .npy .jsonl")
@click.option(
    "--evaluate",
    metavar="NAME,...",
    help="Metrics of labelled samples, --data FILE[:LABELS], that int8 and fp16 must keep: accuracy,f1.",
)
@cli_options.time_option("--max-time", "10m", "Time that each form may take.", old="--timeout")
@cli_options.TOLERANCE
@cli_options.VERIFY
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of random weights and samples.")
@cli_options.NAME
@cli_options.TRUST
@JSON
@NO_STORE
@QUIET
@click.option("-v", "--verbose", is_flag=True, help="Print every output, and the logs of failures.")
def command() -> None:
    """Convert MODEL into other forms, and judge whether each is still the model.

    Every form is run beside MODEL on the same inputs. Exit code 1: one failed, or its outputs differ; such a
    file is kept as FILE.unchecked.
    """
