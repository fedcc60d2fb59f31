"""``modeldyno inspect``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from modeldyno.cli import defaults, quantity_callback
from modeldyno.cli import options as cli_options
from modeldyno.cli.declare import declare
from modeldyno.cli.help_pages import HelpCommand
from modeldyno.cli.output_options import MODULE_VIEW, RESULT_OUTPUT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


_SIZES = re.compile(r"\w+=[\d.,]+")
"""A further word of ``--vary``; not a file name."""


class _Command(HelpCommand):
    """Accepts ``--vary batch=1..256 seq=128,512`` without quotation marks."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, list(_repeat_vary(args)))


def _repeat_vary(arguments: Iterable[str]) -> Iterator[str]:
    """Repeat ``--vary`` before each further word that belongs to it."""
    belonging = 0
    for word in arguments:
        if belonging and _SIZES.fullmatch(word):
            if belonging > 1:
                yield "--vary"
            belonging += 1
        else:
            belonging = 1 if word == "--vary" else 2 if word.startswith("--vary=") else 0
        yield word


@declare("inspect", cls=_Command)
@click.argument("model")
@click.option(
    "--mode", type=click.Choice(defaults.MODES), default="inference", show_default=True,
    help="Analyse one call, or a training step.",
)  # fmt: skip
@click.option(
    "--optimizer", type=click.Choice(defaults.OPTIMIZERS), default="adamw", show_default=True,
    help="Optimizer whose state and step count in training.",
)  # fmt: skip
@cli_options.repeatable(
    "--vary", "vary", "DIM=SIZES", "Also compute costs at other sizes: batch=1..256 (doubling) seq=128,512."
)
@cli_options.repeatable("--input", "inputs", "INPUT", "name=8x128:int64, or a file.")
@cli_options.KNOBS
@cli_options.repeatable("--device", "devices", "NAME", "Estimate lower time bounds on this device.")
@click.option(
    "--memory",
    metavar="SIZE",
    callback=quantity_callback("B"),
    help="Find the largest batch that fits: 24GiB.",
)
@MODULE_VIEW
@click.option("--compare", "other", metavar="OTHER", help="Compare with another model.")
@cli_options.side_inputs_option("--baseline-input", "first model")
@cli_options.side_inputs_option("--candidate-input", "other model")
@click.option("--table", is_flag=True, help="Print the five-row table of model-compression reports.")
@cli_options.NAME
@cli_options.TRUST
@cli_options.time_option("--max-time", defaults.INSPECT_TIME, "Time limit of the command, loading included.")
@cli_options.CHILD_LIMITS
@RESULT_OUTPUT
@click.option(
    "-v", "--verbose", is_flag=True, help="Print every operator, and the numbers of the whole model."
)
def command() -> None:
    """Count what MODEL costs without running it: parameters, MACs, memory, by module and operator.

    MODEL is a path (model.onnx, a directory with config.json and safetensors) or scheme:locator, such as
    torch:file.py:factory or hf-config:DIR. The values of the weights are not needed.

    With --compare, a comparison is stored, and written by --json and -o, as by modeldyno compare.
    """
