"""``modeldyno worker``."""

from __future__ import annotations

import click

from modeldyno.cli.declare import declare
from modeldyno.cli.options import repeatable


@declare("worker")
@click.option("--device", default="cpu", show_default=True, help="Device to measure on: cpu, or cuda:0.")
@click.option("--name", metavar="TEXT", help="Name of this target, if it is new.  [default: the host's]")
@click.option(
    "--ray", metavar="ADDRESS",
    help="Let the machines of a Ray cluster do it: ray://head:10001, head:6379, auto, or local.",
)  # fmt: skip
@click.option("--once", is_flag=True, help="End when nothing is left that can be done now.")
@click.option(
    "--idle-cpu", metavar="SHARE", default="2%", show_default=True,
    help="Share of the cores that others may use for the device to count as idle; 100%: whatever they use.",
)  # fmt: skip
@click.option(
    "--idle-utilization", metavar="SHARE", default="5%", show_default=True, help="The same of a GPU."
)
@click.option(
    "--idle-memory", metavar="BYTES", default="500MiB", show_default=True,
    help="Memory of a GPU that others may hold.",
)  # fmt: skip
@click.option(
    "--for", "idle_for", metavar="TIME", default="5s", show_default=True, help="How long it must be idle."
)
@repeatable(
    "--window", "windows", "BEGIN-END",
    "Work only at this time of day, such as 22:00-06:00; repeatable.  [default: always]",
)  # fmt: skip
@repeatable("--never-on", "never_on", "DEVICE", "Never use this device, such as gpu:0; repeatable.")
@repeatable(
    "--hook", "hooks", "NAME=COMMAND", "Command that registry webhook hook:NAME sends events to; repeatable."
)
@click.option(
    "--poll", metavar="TIME", default="2s", show_default=True, help="Time between two looks for a task."
)
def command() -> None:
    """Do what the registry has queued, while the device is idle, until Ctrl-C."""
