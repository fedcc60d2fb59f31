"""What ``modeldyno convert`` does."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from modeldyno.base.codec import plain
from modeldyno.base.progress import Progress
from modeldyno.base.result.result import Progressed
from modeldyno.cli.actions.options import split_list
from modeldyno.cli.actions.output_options import OutputTargets
from modeldyno.conversion.request import ConversionRequest
from modeldyno.conversion.run import convert
from modeldyno.conversion.views.blocks import blocks, headline
from modeldyno.profiling.run import BROKEN, OK
from modeldyno.profiling.views import ViewOptions


def run(**options: Any) -> int:
    """Convert a model and report each form; return the exit code."""
    targets = replace(OutputTargets.of_document(options["json_path"]), store=not options["no_store"])
    lists = {name: split_list(options[name]) for name in ("to", "evaluate")}
    values = {field.name: options[field.name] for field in fields(ConversionRequest) if field.name in options}
    request = ConversionRequest(**{**values, **lists})
    with Progress(quiet=options["quiet"]) as progress:

        def tell(recipe: str, stage: str) -> None:
            progress.watch(Progressed(stage=f"{recipe}: {stage}" if recipe else stage))

        conversion = convert(request, watch=tell)
    targets.store_conclusion(conversion)
    targets.write(plain.encode(conversion))
    targets.print_report(
        blocks(conversion, ViewOptions(verbose=options["verbose"])),
        headline(conversion) if options["quiet"] else "",
    )
    return OK if conversion.usable else BROKEN
