"""What ``modeldyno reconcile`` does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from modeldyno.base import codec
from modeldyno.cli.actions.output_options import OutputTargets
from modeldyno.cli.actions.printing import ignore_broken_pipe, print_blocks
from modeldyno.exchange.import_ import reconcile
from modeldyno.exchange.views.reconciliation import blocks, headline
from modeldyno.stores.lookup import find

if TYPE_CHECKING:
    from modeldyno.exchange.reconciliation import Reconciliation


def run(**options: Any) -> None:
    """Print where each file differs from the result, and why."""
    ours = find(options["result"])
    targets = OutputTargets(json=options["json_path"], store=False)
    reconciliations = [each for path in options["files"] for each in reconcile(ours, path, options["tool"])]
    document = {"kind": "reconciliation", "result": ours.id, "reconciliations": reconciliations}
    targets.write(codec.encode_document(document))
    if not targets.silent:
        with ignore_broken_pipe():
            for each in reconciliations:
                _print(each, quiet=options["quiet"])
            targets.print_saved()


def _print(reconciliation: Reconciliation, *, quiet: bool) -> None:
    if quiet:
        click.echo(headline(reconciliation))
    else:
        print_blocks(*blocks(reconciliation))
