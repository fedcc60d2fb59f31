"""Options that the gating commands share: ``profile --baseline`` and ``check``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from modeldyno.cli.declare import load_action
from modeldyno.cli.help_pages import HelpCommand
from modeldyno.cli.options import combine_options, repeatable

if TYPE_CHECKING:
    from collections.abc import Sequence


GATE = combine_options(
    click.option(
        "--baseline", metavar="RESULT",
        help="Compare with this result: a file, an id, a tag, or @branch.",
    ),
    repeatable(
        "--max-regression", "regressions", "[METRIC=]SIZE",
        "Largest allowed regression, such as 5% or latency=10%; 3% by default.",
    ),
    repeatable(
        "--metric", "metrics", "METRIC,...", "Metrics that must not get worse; by default latency and memory."
    ),
    click.option("--force", is_flag=True, help="Judge even if hardware or inputs differ."),
    click.option(
        "--undecided", type=click.Choice(("pass", "fail")),
        help="What an undecided verdict counts as; by default neither: exit code 5.",
    ),
    click.option("--junit", metavar="FILE", help="Write the verdict as JUnit XML."),
    click.option("--sarif", metavar="FILE", help="Write the failed checks as SARIF."),
    click.option("--markdown", metavar="FILE", help="Write the verdict as a pull-request comment."),
    click.option("--github", is_flag=True, help="Write GitHub Actions annotations and the job summary."),
)  # fmt: skip
"""The baseline, the allowed regressions and the verdict files."""


class BoundsCommand(HelpCommand):
    """A command whose bound options take several words: ``--require 'a <= 1' 'b >= 2'``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Repeat the flag before each further word that is a bound."""
        return super().parse_args(ctx, self.spread_flags(args))

    def spread_flags(self, arguments: Sequence[str]) -> list[str]:
        """Return a command line in which each flag has one word."""
        return repeat_bound_flags(arguments)


def repeat_bound_flags(arguments: Sequence[str]) -> list[str]:
    """Repeat a bound flag before each further word that is a bound."""
    expanded: list[str] = []
    flag = ""
    for word in arguments:
        if word.startswith("--"):
            flag = word if word in BOUND_FLAGS else ""
        elif flag and expanded[-1] != flag:
            if load_action("gate_options.is_bound")(word):
                expanded.append(flag)
            else:
                flag = ""
        expanded.append(word)
    return expanded


BOUND_FLAGS = ("--require", "--sla", "--threshold", "--subject-to")
