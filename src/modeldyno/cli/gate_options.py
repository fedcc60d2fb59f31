"""What the commands that gate have in common: what is judged, and where the verdict is written."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from modeldyno import codec, plugins
from modeldyno.cli import options as cli_options
from modeldyno.cli import quantity
from modeldyno.cli.help_pages import Command
from modeldyno.cli.printing import listened, print_blocks, write_report
from modeldyno.comparison.calibrate import kept_calibration, told_calibration
from modeldyno.comparison.gate import BRANCH
from modeldyno.core.comparison.build import Question
from modeldyno.core.comparison.default_metrics import ALL, SMALLEST
from modeldyno.core.metrics.constraints import Verdict
from modeldyno.core.metrics.metric import METRICS, Better, Query
from modeldyno.core.stats.units import BYTES, FRACTION, parse_quantity
from modeldyno.errors import RequestError
from modeldyno.profiling.run import BROKEN, FAILED, OK, UNDECIDED
from modeldyno.views.comparison import ci_formats, gate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from modeldyno.cli.output_options import Places
    from modeldyno.core.comparison.gate_report import Checked
    from modeldyno.core.spec.job import Job
    from modeldyno.profiling.run import Outcome

CODES = {Verdict.HELD: OK, Verdict.BROKEN: BROKEN, Verdict.UNDECIDED: UNDECIDED}
_SUMMARY = "GITHUB_STEP_SUMMARY"


def gate_options(command: cli_options.Command) -> cli_options.Command:
    """Add the options that say what a candidate is held against, and what counts as worse."""
    return cli_options.together(
        click.option(
            "--baseline", metavar="RESULT",
            help="Hold it against this result: a file, an id, a tag, or @branch.",
        ),
        click.option(
            "--max-regression", "regressions", multiple=True, metavar="[METRIC=]SIZE",
            help="How much worse it may get, such as 5% or latency=10%; 3% unless told.",
        ),
        click.option(
            "--metric", "metrics", multiple=True, metavar="METRIC,...",
            help="What may not get worse; by default the time of a call, and memory.",
        ),
        click.option("--force", is_flag=True, help="Judge though hardware or inputs are not the same."),
        click.option("--junit", metavar="FILE", help="Write the verdict as JUnit XML."),
        click.option("--sarif", metavar="FILE", help="Write what did not hold as SARIF."),
        click.option("--markdown", metavar="FILE", help="Write a comment for a pull request."),
        click.option("--github", is_flag=True, help="Annotate for GitHub Actions; write the job summary."),
    )(command)  # fmt: skip


class Bounded(Command):
    """A command whose options of bounds take several words: ``--require 'a <= 1' 'b >= 2'``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Repeat the flag before each further word that is a bound."""
        return super().parse_args(ctx, spelled_out(args))


def spelled_out(words: Sequence[str]) -> list[str]:
    """Repeat the flag of bounds before each further word that is one."""
    given: list[str] = []
    flag = ""
    for word in words:
        if word.startswith("--"):
            flag = word if word in BOUND_FLAGS else ""
        elif flag and given[-1] != flag:
            if _is_bound(word):
                given.append(flag)
            else:
                flag = ""
        given.append(word)
    return given


BOUND_FLAGS = ("--require", "--sla", "--threshold", "--subject-to")
_SHORT = re.compile(r"(?P<query>[a-z][a-z0-9_]*(?:\.[a-z0-9.]+)?):(?P<bound>\d.*)")
_AMOUNT = re.compile(r"\d+(\.\d+)?\s*[A-Za-z%]*(/s)?")
"""A number with a unit, which is no name of a file."""
_COUNTED = re.compile(r"\s*(samples|requests|tokens|items|images)(?=/)")


def _is_bound(word: str) -> bool:
    """Tell a bound, of any metric, from a MODEL that stands behind bounds."""
    short = _SHORT.fullmatch(word)
    if short is None:
        return bool(re.search("[<>]", word))
    return short["query"].partition(".")[0] in METRICS or _AMOUNT.fullmatch(short["bound"]) is not None


def bounds(texts: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Read bounds in their short form, too: ``latency:100ms`` is ``latency.p95 <= 100ms``.

    Returns:
        the bounds as they are written in full, and a sentence for each that was read so.

    Raises:
        RequestError: the metric is better neither way.
    """
    found, notes = [], []
    for text in texts:
        short = _SHORT.fullmatch(text.strip())
        if short is None or re.search("[<>]", text):
            found.append(text)
            continue
        query = Query.parse(short["query"])
        row = METRICS[query.metric]
        if row.better is Better.NEITHER:
            raise RequestError(f"'{text}': {query.metric} is better neither way; write <= or >=.")
        if row.spread and query.statistic is None:
            query = replace(query, statistic="max" if row.unit == BYTES else "p95")
        sign = "<=" if row.better is Better.LOWER else ">="
        found.append(f"{query} {sign} {_COUNTED.sub('', short['bound'])}")
        notes.append(f"{text} is taken as {found[-1]}")
    return tuple(found), tuple(notes)


_BESIDE = {"metrics": "--metric", "regressions": "--max-regression"}
"""Options that mean something beside a baseline alone."""


def check_baseline(ctx: click.Context) -> None:
    """Refuse what was typed and would be ignored, as there is no baseline.

    Raises:
        RequestError: it names what may not get worse, and nothing that it is compared with.
    """
    for name, flag in _BESIDE.items():
        if ctx.params["baseline"] is None and ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise RequestError(
                f"{flag} is about what may not get worse than a baseline; name one with --baseline."
            )


def question(options: Mapping[str, Any]) -> Question:
    """Read what is asked."""
    return Question(
        metrics=cli_options.probes(options["metrics"]),
        smallest=regressions(options["regressions"]),
        force=options["force"],
    )


def regressions(texts: tuple[str, ...]) -> Mapping[str, float]:
    """Read ``5%``, or ``latency=5%`` for one metric.

    Raises:
        RequestError: it is no fraction between 0 and 1, or of no metric.
    """
    given: dict[str, float] = {}
    for text in texts:
        name, separator, size = text.rpartition("=")
        value = parse_quantity(size, FRACTION)
        if not 0 < value < 1:
            why = "is no part of a whole" if value else "cannot be told apart from noise"
            raise RequestError(f"--max-regression '{text}' {why}; write 5%, or latency=5%.")
        given[str(Query.parse(name)) if separator else ALL] = value
    return given if ALL in given else {**SMALLEST, **given}


def check_places(options: Mapping[str, Any]) -> None:
    """Find before measuring, not after, that a verdict could not be written.

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


def write(found: Checked, options: Mapping[str, Any]) -> None:
    """Write the verdict wherever it was asked for."""
    formats: dict[str, Callable[[Checked], str]] = {
        "junit": ci_formats.junit,
        "sarif": ci_formats.sarif,
        "markdown": comment,
    }
    for flag, render in formats.items():
        if options[flag]:
            codec.write(Path(options[flag]), render(found).encode())
    if options["github"]:
        with listened():
            click.echo(ci_formats.github(found), nl=False)
        summary = os.environ.get(_SUMMARY)
        if summary:
            with Path(summary).open("a", encoding="utf-8") as stream:
                stream.write(comment(found))


def comment(found: Checked) -> str:
    """Write a comment that a later run finds and replaces by its first line."""
    body = plugins.resolve("reporter", "markdown").lay_out(gate.comment(found), title=found.result.name)
    return f"{gate.mark(found)}\n{body}"


def tell(found: Checked, *, quiet: bool) -> None:
    """Print the verdict."""
    with listened():
        if quiet:
            click.echo(gate.sentence(found))
        else:
            print_blocks(*gate.blocks(found))


def exit_code(found: Checked) -> int:
    """Give what a script is told."""
    return FAILED if found.result.failures else CODES[found.verdict]


def with_judgements(found: Checked, outcome: Outcome) -> Checked:
    """Add the bounds that were asked for, too, and what is to be doubted of them."""
    return replace(found, result=outcome.result, judgements=outcome.judgements)


# --- of profile alone --------------------------------------------------------------------------------


def live_options(command: cli_options.Command) -> cli_options.Command:
    """Add the options of a gate that measures."""
    return cli_options.together(
        click.option(
            "--budget", default="10m", show_default=True, callback=quantity("s"),
            help="With --baseline: no further round begins after it; --max-time is 5s then.",
        ),
        click.option(
            "--save-as-baseline", "branch", metavar="BRANCH",
            help="Keep the result, if it holds, as the baseline @BRANCH.",
        ),
    )(command)  # fmt: skip


def one_model(options: Mapping[str, Any]) -> str:
    """Give the model, which is an argument or an option."""
    given = [model for model in (options["model"], options["model_path"]) if model]
    if len(given) != 1:
        wrong = (
            "MODEL and --model-path both name a model; give one of them."
            if given
            else "No MODEL is named; write modeldyno profile model.onnx."
        )
        raise click.UsageError(wrong)
    return str(given[0])


def tags(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Give the tag of a baseline that is to be kept for a branch."""
    branch = options["branch"]
    if not branch:
        return ()
    if options["no_store"]:
        raise RequestError("A baseline is kept in the store; drop --no-store, or save it with --json.")
    return (branch if branch.startswith(BRANCH) else BRANCH + branch,)


def no_baseline(places: Places) -> Places:
    """Keep a result that does not hold, but not as a baseline."""
    return replace(places, tags=tuple(tag for tag in places.tags if not tag.startswith(BRANCH)))


def names_of(job: Job) -> tuple[str, ...]:
    """Give what a model may be called that has no name of its own, before it is loaded."""
    path, _, attribute = job.model.locator.rpartition(":")
    module = Path(path).stem if path.endswith(".py") else path.rpartition(".")[2]
    whole = Path(job.model.locator)
    return (f"{module}.{attribute}", attribute, whole.stem, whole.name)


def known(found: Checked) -> tuple[str, ...]:
    """Say how often a gate is wrong on this machine, and what it sees, where that was measured."""
    with plugins.store() as store:
        kept = kept_calibration(store, found.result)
    if kept is None:
        return ("how often a gate is wrong on this machine is not known; modeldyno doctor measures it",)
    return (told_calibration(kept),)


def write_folder(outcome: Outcome, options: Mapping[str, Any]) -> None:
    """Write the document and its reports into the directory that was asked for."""
    if not options["output_dir"]:
        return
    folder = Path(options["output_dir"])
    codec.write(folder / "result.json", codec.encode(outcome.result))
    for name in ("report.html", "report.md"):
        write_report(outcome.result, folder / name, outcome.judgements)
