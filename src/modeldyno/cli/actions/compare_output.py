"""Stores, writes and prints a comparison, for the commands that make one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from modeldyno.cli.actions.printing import ignore_broken_pipe, print_blocks
from modeldyno.codec import comparison as codec_comparison
from modeldyno.profiling.run import JudgedResult
from modeldyno.views import ViewOptions
from modeldyno.views.comparison import blocks as comparison_blocks

if TYPE_CHECKING:
    from modeldyno.cli.actions.output_options import OutputTargets
    from modeldyno.core.comparison.comparison import Comparison


def store_comparison(comparison: Comparison, targets: OutputTargets) -> None:
    """Store the Results of both sides, and the comparison."""
    for result in comparison.results:
        targets.store_only(JudgedResult(result=result))
    targets.store_conclusion(comparison)


def report_comparison(
    comparison: Comparison, targets: OutputTargets, *, everything: bool, quiet: bool, kept: bool
) -> None:
    """Write and print a comparison.

    Args:
        comparison: the comparison.
        targets: where its document and its report go.
        everything: also show what is equal in both.
        quiet: print only the verdict.
        kept: whether it is in the store.
    """
    problem = targets.write_both(comparison, codec_comparison.encode(comparison))
    if not targets.silent:
        with ignore_broken_pipe():
            blocks = comparison_blocks.blocks(comparison, ViewOptions(verbose=everything))
            print_blocks(*(blocks[:1] if quiet else blocks))
            if kept and not quiet:
                click.echo(
                    f"Stored as {comparison.id}; for a report: "
                    f"modeldyno report {comparison.id[:6]} -o compared.html"
                )
            targets.told(problem)
    if problem is not None:
        raise problem
