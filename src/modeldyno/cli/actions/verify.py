"""What ``modeldyno verify`` does."""

from __future__ import annotations

from modeldyno.base import codec
from modeldyno.cli.actions.output_options import OutputTargets
from modeldyno.exchange.verify import verify
from modeldyno.exchange.views.recomputation import blocks, headline
from modeldyno.profiling.run import BROKEN, OK


def run(document: str, json_path: str | None, quiet: bool) -> int:
    """Recompute a document and say whether it holds; return the exit code."""
    targets = OutputTargets(json=json_path, store=False)
    recomputation = verify(document)
    targets.write(codec.encode_document(recomputation))
    targets.print_report(blocks(recomputation), headline(recomputation) if quiet else "")
    return OK if recomputation.holds else BROKEN
