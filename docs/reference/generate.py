"""Writes the pages of this folder that are tables of the code: ``python docs/reference/generate.py``.

A test compares the pages with what this gives.
"""

from __future__ import annotations

from pathlib import Path

import click

from modeldyno.cli import COMMANDS, cli
from modeldyno.core.doubt import CODES
from modeldyno.core.metric import METRICS

HERE = Path(__file__).parent
_UNITS = {"": "count", "1": "fraction"}


def metrics() -> str:
    """The table of metrics."""
    rows = [
        f"| `{m.name}` | {_UNITS.get(m.unit, m.unit)} | {m.better} | {m.sentence} |" for m in METRICS.values()
    ]
    return "\n".join(
        ["# Metrics", "", "| metric | base unit | better | meaning |", "|---|---|---|---|", *rows, ""]
    )


def doubts() -> str:
    """The table of doubts."""
    rows = [f"| `{code}` | {sentence} |" for code, sentence in CODES.items()]
    return "\n".join(["# Doubts", "", "| code | meaning |", "|---|---|", *rows, ""])


def command_line() -> str:
    """The help of every command."""
    context = click.Context(cli, info_name="modeldyno", terminal_width=88, **cli.context_settings)
    pages = [cli.get_help(context)]
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        pages.append(command.get_help(click.Context(command, context, info_name=name, terminal_width=88)))
    blocks = [f"```text\n{page}\n```\n" for page in pages]
    lead = (
        "Defaults come from `modeldyno.toml` (a table per command, `[profile]`, in this directory\n"
        "or one above), from the environment (`MODELDYNO_PROFILE_MAX_TIME=5s`), and from flags; the\n"
        "later wins.\n"
    )
    return "\n".join(["# Command line", "", lead, *blocks])


PAGES = {"metrics.md": metrics, "doubts.md": doubts, "command-line.md": command_line}


def main() -> None:
    """Write the pages."""
    for name, page in PAGES.items():
        (HERE / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
