"""``modeldyno inspect``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from modeldyno import views
from modeldyno.cli import compare_output, quantity_callback
from modeldyno.cli import options as cli_options
from modeldyno.cli.help_pages import HelpCommand
from modeldyno.cli.output_options import (
    OutputTargets,
    limit_options,
    requested_optimizer,
    result_output_options,
    verdict_line,
)
from modeldyno.cli.printing import ignore_broken_pipe, module_view_options, print_blocks, print_result
from modeldyno.cli.progress import Progress
from modeldyno.comparison.run import build_comparison
from modeldyno.core.comparison.build import CompareOptions
from modeldyno.core.metrics.measurement_plan import Plan
from modeldyno.core.spec.static_options import OPTIMIZERS, Mode
from modeldyno.errors import RequestError
from modeldyno.profiling import request
from modeldyno.profiling.run import INTERRUPTED, run_request

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from modeldyno.profiling.run import JudgedResult

_SIZES = re.compile(r"\w+=[\d.,]+")
"""A further word of ``--vary``; not a file name."""


class _Command(HelpCommand):
    """Accepts ``--vary batch=1..256 seq=128,512`` without quotation marks."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, list(_repeat_vary(args)))


def _repeat_vary(words: Iterable[str]) -> Iterator[str]:
    """Repeat ``--vary`` before each further word that belongs to it."""
    belonging = 0
    for word in words:
        if belonging and _SIZES.fullmatch(word):
            if belonging > 1:
                yield "--vary"
            belonging += 1
        else:
            belonging = 1 if word == "--vary" else 2 if word.startswith("--vary=") else 0
        yield word


@click.command(name="inspect", cls=_Command)
@click.argument("model")
@click.option(
    "--mode", type=click.Choice([str(mode) for mode in Mode]), default=str(Mode.INFERENCE), show_default=True,
    help="Analyse one call, or a training step.",
)  # fmt: skip
@click.option(
    "--optimizer", type=click.Choice(OPTIMIZERS), default="adamw", show_default=True,
    help="Optimizer whose state and step count in training.",
)  # fmt: skip
@click.option(
    "--vary", multiple=True, metavar="DIM=SIZES",
    help="Also compute costs at other sizes: batch=1..256 (doubling) seq=128,512.",
)  # fmt: skip
@click.option("--input", "inputs", multiple=True, metavar="INPUT", help="name=8x128:int64, or a file.")
@cli_options.knob_options
@click.option(
    "--device", "devices", multiple=True, metavar="NAME", help="Estimate lower time bounds on this device."
)
@click.option(
    "--memory",
    metavar="SIZE",
    callback=quantity_callback("B"),
    help="Find the largest batch that fits: 24GiB.",
)
@module_view_options
@click.option("--compare", "other", metavar="OTHER", help="Compare with another model.")
@cli_options.side_inputs_option("--baseline-input", "first model")
@cli_options.side_inputs_option("--candidate-input", "other model")
@click.option("--table", is_flag=True, help="Print the five-row table of model-compression reports.")
@click.option("--name", help="Name of the model in results.")
@click.option(
    "--trust",
    is_flag=True,
    allow_from_autoenv=False,
    help="Load files that run code when loaded (in the child process).",
)
@limit_options
@result_output_options
@click.option(
    "-v", "--verbose", is_flag=True, help="Print every operator, and the numbers of the whole model."
)
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Count what MODEL costs without running it: parameters, MACs, memory, by module and operator.

    MODEL is a path (model.onnx, a directory with config.json and safetensors) or scheme:locator, such as
    torch:file.py:factory or hf-config:DIR. The values of the weights are not needed.

    With --compare, a comparison is stored, and written by --json and -o, as by modeldyno compare.
    """
    options["optimizer"] = requested_optimizer(ctx)
    own_inputs = [options["baseline_input"], options["candidate_input"]]
    if any(own_inputs) and options["other"] is None:
        raise RequestError(
            "--baseline-input and --candidate-input need two models; name the second one with --compare."
        )
    requests = [_request(options, options["model"], options["name"], own_inputs[0])]
    if options["other"] is not None:
        requests.append(_request(options, options["other"], None, own_inputs[1]))
    targets = OutputTargets.of(options)
    for model_request in requests:
        model_request.job()  # find a mistake in the second before analysing the first
    with Progress(quiet=options["quiet"]) as progress:
        outcomes = list(_measure_all(requests, progress))
    code = max(outcome.exit_code for outcome in outcomes)
    if len(outcomes) > 1 and not options["table"]:
        comparison_result = build_comparison([outcome.result for outcome in outcomes], CompareOptions())
        compare_output.store_comparison(comparison_result, targets)
        compare_output.report_comparison(
            comparison_result,
            targets,
            everything=options["verbose"],
            quiet=options["quiet"],
            kept=targets.store,
        )
        ctx.exit(code)
    problem = targets.keep(*outcomes)
    with ignore_broken_pipe():
        _print_outcomes(outcomes, targets, options)
    if problem is not None:
        raise problem
    ctx.exit(code)


def _request(
    options: dict[str, Any], model: str, name: str | None, own_inputs: tuple[str, ...]
) -> request.Request:
    return request.Request(
        model=model,
        settings=request.parse_settings(options["settings"]),
        inputs=(*options["inputs"], *own_inputs),
        probes=("static",),
        plan=Plan(timeout=options["timeout"], memory_limit=options["memory_limit"]),
        inspection=request.make_inspection(
            mode=options["mode"],
            optimizer=options["optimizer"],
            vary=options["vary"],
            devices=options["devices"],
            memory=options["memory"],
        ),
        name=name,
        trust=options["trust"],
    )


def _measure_all(requests: Iterable[request.Request], progress: Progress) -> Iterator[JudgedResult]:
    for model_request in requests:
        outcome = run_request(model_request, watch=progress.watch)
        yield outcome
        if outcome.exit_code == INTERRUPTED:
            return


def _print_outcomes(
    outcomes: Sequence[JudgedResult], targets: OutputTargets, options: dict[str, Any]
) -> None:
    """Print the verdict, the requested table, or the whole report."""
    results = [outcome.result for outcome in outcomes]
    if targets.silent:
        return
    if options["quiet"]:
        click.echo("\n".join(map(verdict_line, outcomes)))
        return
    if options["table"]:
        print_blocks(views.summary(results))
    else:
        view_options = views.ViewOptions(
            depth=options["depth"],
            sort=options["sort"],
            filter=options["filter"],
            verbose=options["verbose"],
        )
        print_result(results[0], look=view_options, verbose=options["verbose"])
    targets.told()
