"""What ``modeldyno verify`` does."""

from __future__ import annotations

from typing import Any

import click

from modeldyno import codec
from modeldyno.cli.actions.output_options import OutputTargets
from modeldyno.cli.actions.printing import ignore_broken_pipe, print_blocks
from modeldyno.documents.verify import verify
from modeldyno.profiling.run import BROKEN, OK
from modeldyno.views.recomputation import blocks, headline


def run(ctx: click.Context, options: dict[str, Any]) -> None:
    """Recompute a document and say whether it holds; exit with the code."""
    targets = OutputTargets(json=options["json_path"], store=False)
    recomputation = verify(options["document"])
    targets.write(codec.encode_document(recomputation))
    if not targets.silent:
        with ignore_broken_pipe():
            if options["quiet"]:
                click.echo(headline(recomputation))
            else:
                print_blocks(*blocks(recomputation))
            targets.print_saved()
    ctx.exit(OK if recomputation.holds else BROKEN)
