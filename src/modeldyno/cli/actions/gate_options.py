"""What the options of a gate mean, and its output: for ``profile --baseline`` and ``check``."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from modeldyno.base import codec, plugins
from modeldyno.base.errors import RequestError
from modeldyno.base.metrics.constraints import Verdict
from modeldyno.base.metrics.metric import METRICS, Better, Query
from modeldyno.base.stats.units import BYTES
from modeldyno.cli.actions import options as cli_options
from modeldyno.cli.actions.printing import ignore_broken_pipe
from modeldyno.comparison.calibrate import describe_stored_calibration, find_calibration_run
from modeldyno.comparison.change.build import CompareOptions, parse_max_regressions
from modeldyno.comparison.change.gate_report import Undecided
from modeldyno.comparison.document import render_comment
from modeldyno.comparison.views import gate
from modeldyno.profiling.run import BROKEN, FAILED, OK, UNDECIDED
from modeldyno.reports.write import write
from modeldyno.stores.catalog import BRANCH

if TYPE_CHECKING:
    from collections.abc import Mapping

    from modeldyno.base.errors import ModelDynoError
    from modeldyno.cli.actions.output_options import OutputTargets
    from modeldyno.comparison.change.gate_report import GateReport
    from modeldyno.profiling.run import JudgedResult

CODES = {Verdict.HELD: OK, Verdict.BROKEN: BROKEN, Verdict.UNDECIDED: UNDECIDED}
_FORMATS = {"junit": gate.junit, "sarif": gate.sarif, "markdown": render_comment}
_SUMMARY = "GITHUB_STEP_SUMMARY"
_SHORT = re.compile(r"(?P<query>[a-z][a-z0-9_]*(?:\.[a-z0-9.]+)?):(?P<bound>\d.*)")
_AMOUNT = re.compile(r"\d+(\.\d+)?\s*[A-Za-z%]*(/s)?")
"""A number with a unit, which is not a file name."""
_COUNTED = re.compile(r"\s*(samples|requests|tokens|items|images)(?=/)")


def is_bound(word: str) -> bool:
    """Distinguish a bound from a MODEL argument that follows bounds."""
    short = _SHORT.fullmatch(word)
    if short is None:
        return bool(re.search("[<>]", word))
    return short["query"].partition(".")[0] in METRICS or _AMOUNT.fullmatch(short["bound"]) is not None


def expand_bounds(texts: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Expand bounds from their short form: ``latency:100ms`` is ``latency.p95 <= 100ms``.

    Returns:
        the bounds in full, and a note for each that was expanded.

    Raises:
        RequestError: the metric has no better direction.
    """
    full, notes = [], []
    for text in texts:
        short = _SHORT.fullmatch(text.strip())
        if short is None or re.search("[<>]", text):
            full.append(text)
            continue
        query = Query.parse(short["query"])
        row = METRICS[query.metric]
        if row.better is Better.NEITHER:
            raise RequestError(f"'{text}': {query.metric} has no better direction; write <= or >=.")
        if row.spread and query.statistic is None:
            query = replace(query, statistic="max" if row.unit == BYTES else "p95")
        sign = "<=" if row.better is Better.LOWER else ">="
        full.append(f"{query} {sign} {_COUNTED.sub('', short['bound'])}")
        notes.append(f"{text} is read as {full[-1]}")
    return tuple(full), tuple(notes)


_BASELINE_ONLY = {"metrics": "--metric", "regressions": "--max-regression"}
"""Options that only apply with a baseline."""


def check_baseline() -> None:
    """Refuse options that have no effect without a baseline.

    Raises:
        RequestError: such an option was given without --baseline.
    """
    ctx = click.get_current_context()
    for name, flag in _BASELINE_ONLY.items():
        if ctx.params["baseline"] is None and ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise RequestError(f"{flag} needs a baseline to compare with; name one with --baseline.")


def compare_options_from(options: Mapping[str, Any]) -> CompareOptions:
    """Build the comparison options from the command line."""
    return CompareOptions(
        metrics=cli_options.split_names(options["metrics"]),
        smallest=parse_max_regressions(options["regressions"]),
        force=options["force"],
    )


def check_output_paths(options: Mapping[str, Any]) -> None:
    """Check before measuring that the verdict files can be written.

    Raises:
        RequestError: a directory does not exist.
    """
    if options.get("output_dir"):
        try:
            Path(options["output_dir"]).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RequestError(f"Cannot make the directory {options['output_dir']}: {error}.") from None
    for flag in ("junit", "sarif", "markdown"):
        if options[flag]:
            codec.check_directory(Path(options[flag]))


def write_verdict(report: GateReport, options: Mapping[str, Any]) -> None:
    """Write the verdict to the files that were asked for."""
    for flag, render in _FORMATS.items():
        if options[flag]:
            codec.write(Path(options[flag]), render(report).encode())
    if options["github"]:
        with ignore_broken_pipe():
            click.echo(gate.github(report), nl=False)
        summary = os.environ.get(_SUMMARY)
        if summary:
            with Path(summary).open("a", encoding="utf-8") as stream:
                stream.write(render_comment(report))


def print_verdict(
    report: GateReport, targets: OutputTargets, *, quiet: bool, problem: ModelDynoError | None = None
) -> None:
    """Print the verdict; a problem with the targets is raised at the end."""
    targets.print_report(gate.blocks(report), gate.sentence(report) if quiet else "", problem=problem)


def exit_code(report: GateReport) -> int:
    """Return the exit code of a gate."""
    return FAILED if report.result.failures else CODES[report.outcome]


def undecided_from(options: Mapping[str, Any]) -> Undecided | None:
    """Return what an undecided verdict counts as."""
    return Undecided(options["undecided"]) if options["undecided"] else None


def selected_model(options: Mapping[str, Any]) -> str:
    """Return the model, given as the argument or as an option."""
    models = [model for model in (options["model"], options["model_path"]) if model]
    if len(models) != 1:
        message = (
            "MODEL and --model-path both name a model; give one of them."
            if models
            else "MODEL is missing; write modeldyno profile model.onnx."
        )
        raise click.UsageError(message)
    return str(models[0])


def baseline_tags(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the tag of the baseline to save for a branch, if any."""
    branch = options["branch"]
    if not branch:
        return ()
    if options["no_store"]:
        raise RequestError("A baseline is kept in the store; drop --no-store, or save it with --json.")
    return (branch if branch.startswith(BRANCH) else BRANCH + branch,)


def without_baseline_tags(targets: OutputTargets) -> OutputTargets:
    """Drop the baseline tags: a result that fails the gate is stored, but not as a baseline."""
    return replace(targets, tags=tuple(tag for tag in targets.tags if not tag.startswith(BRANCH)))


def error_rate_notes(report: GateReport) -> tuple[str, ...]:
    """Return a note on how often a gate errs on this machine and what it can detect."""
    with plugins.store() as store:
        stored = find_calibration_run(store, report.result)
    if stored is None:
        return ("how often a gate is wrong on this machine is not known; modeldyno doctor measures it",)
    return (describe_stored_calibration(stored),)


def write_output_dir(outcome: JudgedResult, options: Mapping[str, Any]) -> None:
    """Write the document and its reports into --output-dir."""
    if not options["output_dir"]:
        return
    folder = Path(options["output_dir"])
    codec.write(folder / "result.json", codec.encode(outcome.result))
    for name in ("report.html", "report.md"):
        write(outcome.result, folder / name, outcome.judgements)
