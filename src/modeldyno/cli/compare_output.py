"""What becomes of a comparison: where it is kept, how it is told. Shared by the commands that make one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from modeldyno import codec
from modeldyno.cli.printing import listened, print_blocks
from modeldyno.documents.write import write
from modeldyno.profiling.run import Outcome
from modeldyno.views.comparison import blocks as comparison_blocks

if TYPE_CHECKING:
    from modeldyno.cli.output_options import Places
    from modeldyno.core.comparison.comparison import Comparison


def keep(found: Comparison, places: Places) -> None:
    """Put the Results of both sides into the store, and what came of them."""
    for result in (found.baseline, *(each.candidate for each in found.contrasts)):
        places.store_only(Outcome(result=result))
    places.conclude(found, comparison_blocks.headline(found))


def tell(found: Comparison, places: Places, *, everything: bool, quiet: bool, kept: bool) -> None:
    """Write and print what came out.

    Args:
        found: the comparison.
        places: where its document and its report go.
        everything: whether what is the same in both is shown, too.
        quiet: whether the verdict alone is printed.
        kept: whether the store has it.
    """
    places.write(codec.encode_comparison(found))
    if places.report:
        write(found, Path(places.report))
    if places.silent:
        return
    with listened():
        blocks = comparison_blocks.contrasted(found, everything=everything)
        print_blocks(*(blocks[:1] if quiet else blocks))
        if kept and not quiet:
            click.echo(f"Kept as {found.id}; to draw it: modeldyno report {found.id[:6]} -o compared.html")
        places.told()
