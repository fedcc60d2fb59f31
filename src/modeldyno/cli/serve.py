"""``modeldyno serve``."""

from __future__ import annotations

import click

from modeldyno.cli import options as cli_options
from modeldyno.cli.declare import declare


@declare("serve")
@click.argument("model")
@click.option(
    "--backend", help="What serves the model: triton by default, torchserve, mlserver, openai, tensorflow."
)
@click.option("--device", help="Where the server runs the model: cpu, cuda, cuda:1.")
@click.option("--name", help="By which the server is found again; by default that of the model.")
@click.option("--ports", help="free (by default), conventional, or numbers, such as 8000,8001,8002.")
@cli_options.KNOBS
@cli_options.INPUTS
@cli_options.TRUST
@click.option("--detach", is_flag=True, help="Leave the server running; modeldyno servers stop ends it.")
def command() -> None:
    """Start a server for MODEL and leave it running, until Ctrl-C or modeldyno servers stop.

    It is started as modeldyno load MODEL starts one, and found by its name: modeldyno load NAME. However this
    command ends, the server ends with it, unless --detach was given.
    """
