"""What ``modeldyno convert`` does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from modeldyno import codec
from modeldyno.cli.actions.output_options import OutputTargets
from modeldyno.cli.actions.printing import ignore_broken_pipe, print_blocks
from modeldyno.cli.actions.progress import Progress
from modeldyno.codec.conversion import encode
from modeldyno.conversion import ConversionRequest, convert
from modeldyno.core.result.result import Progressed
from modeldyno.profiling.run import BROKEN, OK
from modeldyno.views import ViewOptions
from modeldyno.views.conversion.blocks import blocks, headline

if TYPE_CHECKING:
    from modeldyno.core.agreement.conversion import Conversion


def run(ctx: click.Context, options: dict[str, Any]) -> None:
    """Convert a model and report each form; exit with the code."""
    targets = OutputTargets(json=options["json_path"], store=not options["no_store"])
    if targets.json and not targets.silent:
        codec.check_directory(Path(targets.json))
    request = ConversionRequest(
        model=options["model"],
        to=tuple(part.strip() for part in options["to"].split(",") if part.strip()),
        int8=options["int8"],
        fp16=options["fp16"],
        output=options["output"],
        opset=options["opset"],
        inputs=options["inputs"],
        data=options["data"],
        evaluate=tuple(name.strip() for name in (options["evaluate"] or "").split(",") if name.strip()),
        timeout=options["timeout"],
        tolerance=options["tolerance"],
        seed=options["seed"],
        name=options["name"],
        trust=options["trust"],
    )
    with Progress(quiet=options["quiet"]) as progress:

        def tell(recipe: str, stage: str) -> None:
            progress.watch(Progressed(stage=f"{recipe}: {stage}" if recipe else stage))

        conversion = convert(request, watch=tell)
    targets.store_conclusion(conversion)
    targets.write(encode(conversion))
    if not targets.silent:
        with ignore_broken_pipe():
            _print(conversion, options)
            targets.print_saved()
    ctx.exit(OK if conversion.usable else BROKEN)


def _print(conversion: Conversion, options: dict[str, Any]) -> None:
    if options["quiet"]:
        click.echo(headline(conversion))
        return
    print_blocks(*blocks(conversion, ViewOptions(verbose=options["verbose"])))
