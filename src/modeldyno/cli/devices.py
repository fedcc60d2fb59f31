"""``modeldyno devices``."""

from __future__ import annotations

import click

from modeldyno.cli import quantity_callback
from modeldyno.cli.declare import declare


@declare("devices")
@click.option(
    "--watch",
    "period",
    metavar="TIME",
    callback=quantity_callback("s", bound=True),
    help="Read them again after each TIME, such as 1s, until Ctrl-C.",
)
@click.option(
    "--json",
    "json_path",
    metavar="[PATH]",
    is_flag=False,
    flag_value="-",
    help="Print the JSON document, or save it.",
)
def command() -> None:
    """Show what the GPUs of this machine do now: use, memory, power, temperature, clocks, processes.

    All cards of the driver are shown, with the names that programs have for them, such as cuda:0. A dash is a
    figure that cannot be read.
    """
