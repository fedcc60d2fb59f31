"""``modeldyno compare``."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from modeldyno.cli import compare_output, quantity
from modeldyno.cli import options as cli_options
from modeldyno.cli.help_pages import Command
from modeldyno.cli.output_options import Places, keeping_options, limit_options, optimizer
from modeldyno.cli.progress import Progress
from modeldyno.comparison.explain import carried_out
from modeldyno.comparison.operands import sides
from modeldyno.comparison.run import comparison, failed
from modeldyno.core.comparison.build import Question, smallest_effects
from modeldyno.core.comparison.comparison import Outcome
from modeldyno.core.comparison.schedule import FEWEST_ROUNDS, MOST_ROUNDS, Turns
from modeldyno.core.result.result import Result
from modeldyno.core.spec.static_options import OPTIMIZERS, Mode
from modeldyno.documents.write import check
from modeldyno.errors import RequestError, RunFailed
from modeldyno.profiling import request
from modeldyno.profiling.run import BROKEN, FAILED, INTERRUPTED, OK, UNDECIDED
from modeldyno.runtime.session import campaign
from modeldyno.views.text import lasting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.core.comparison.comparison import Comparison
    from modeldyno.core.spec.job import Job
    from modeldyno.core.spec.knob import KnobValue


def side_options(command: cli_options.Command) -> cli_options.Command:
    """Add the options that say what to measure, and those in which the sides are unlike."""
    knob = "KNOB=VALUE"
    return cli_options.together(
        click.option("--backend", help="What runs the models; see `modeldyno plugins`."),
        cli_options.knob_options,
        click.option(
            "--baseline-set", multiple=True, metavar=knob, help="Likewise, of the baseline alone."
        ),
        click.option(
            "--candidate-set", multiple=True, metavar=knob, help="Likewise, of the candidates alone."
        ),
        cli_options.INPUTS,
        cli_options.own_inputs("--baseline-input", "baseline"),
        cli_options.own_inputs("--candidate-input", "candidates"),
        click.option(
            "--probe", "probes", multiple=True, metavar="PROBE,...",
            help="What to measure; by default as profile does.",
        ),
        click.option(
            "--mode", default="inference", show_default=True, type=click.Choice([str(mode) for mode in Mode]),
            help="Calls, or training steps.",
        ),
        click.option(
            "--optimizer", default="adamw", show_default=True, type=click.Choice(OPTIMIZERS),
            help="For --mode train.",
        ),
    )(command)  # fmt: skip


def verdict_options(command: cli_options.Command) -> cli_options.Command:
    """Add the options that say what is judged, and by what."""
    return cli_options.together(
        click.option(
            "--metric", "metrics", multiple=True, metavar="METRIC,...",
            help="What to judge, such as latency.p99,throughput; by default the time of a call, and memory.",
        ),
        click.option(
            "--smallest", multiple=True, metavar="[METRIC=]SIZE",
            help="Smallest change that matters, such as 5% or latency=5%; 3% unless told.",
        ),
        click.option("--force", is_flag=True, help="Compare though the hardware is not the same."),
        click.option(
            "--fail-on", type=click.Choice(["worse"]), help="Exit 1 when worse, and 5 when undecided."
        ),
    )(command)  # fmt: skip


def round_options(command: cli_options.Command) -> cli_options.Command:
    """Add the options of the rounds in which models are run."""
    return cli_options.together(
        click.option("--run", is_flag=True, help="Run the jobs of stored results anew, in turns."),
        click.option(
            "--min-rounds", default=FEWEST_ROUNDS, show_default=True, type=click.IntRange(1),
            help="Rounds before the first look; a round has a fresh process of each.",
        ),
        click.option(
            "--max-rounds", default=MOST_ROUNDS, show_default=True, type=click.IntRange(1),
            help="Most rounds, while a verdict is undecided.",
        ),
        click.option(
            "--max-time", default="10m", show_default=True, callback=quantity("s"),
            help="Longest that all may take, looking for causes included; one round is made in any case.",
        ),
        click.option(
            "--run-time", default="5s", show_default=True, callback=quantity("s"),
            help="Longest measuring per probe and process.",
        ),
        click.option("--block", is_flag=True, help="All runs of one side before the next, not in turns."),
        click.option("--no-why", is_flag=True, help="Do not look at outputs, layers and operators."),
    )(command)  # fmt: skip


@click.command(name="compare", cls=Command)
@click.argument("baseline")
@click.argument("candidate")
@click.argument("more", nargs=-1)
@side_options
@verdict_options
@round_options
@cli_options.PERCENTILES
@cli_options.care_options(min_time="0.5s", precision="2%")
@cli_options.place_options
@limit_options
@cli_options.TRUST
@click.option("--all", "everything", is_flag=True, help="Show what is the same in both, too.")
@keeping_options
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Say whether CANDIDATE is better or worse than BASELINE, by how much, how surely, and why.

    Both are models, which are run in turns until that is decided; or results that were measured: files,
    stored ids, tags, studies (which stand for their winners). Of several candidates, each is compared with
    BASELINE.
    """
    question = Question(
        metrics=cli_options.probes(options["metrics"]),
        smallest=smallest_effects(options["smallest"]),
        force=options["force"],
        why=not options["no_why"],
    )
    cli_options.check_order(options, "min_rounds", "max_rounds")
    compared = sides(_requests(ctx, options), run=options["run"])
    places = _places(options)
    turns = Turns(
        sides=len(compared),
        first=min(options["min_rounds"], options["max_rounds"]),
        most=options["max_rounds"],
        max_time=options["max_time"],
        block=options["block"],
    )
    stored = [side for side in compared if isinstance(side, Result)]
    if stored:
        found, interrupted = comparison(stored, question), False
    else:
        jobs = [side for side in compared if not isinstance(side, Result)]
        found, interrupted = _run(jobs, turns, question, options)
        compare_output.keep(found, places)
    kept = places.store and not stored
    compare_output.tell(found, places, everything=options["everything"], quiet=options["quiet"], kept=kept)
    ctx.exit(INTERRUPTED if interrupted else exit_code(found, options["fail_on"]))


def _requests(ctx: click.Context, options: dict[str, Any]) -> list[request.Request]:
    """Give the same request for each side, but for the model and the knobs that are its own."""
    plan = {**options, "max_time": options["run_time"]}
    shared = request.Request(
        model="",
        backend=options["backend"],
        settings={},
        inputs=options["inputs"],
        probes=cli_options.probes(options["probes"]),
        percentiles=options["percentiles"],
        plan=cli_options.plan_of(plan),
        inspection=request.inspection(mode=options["mode"], optimizer=optimizer(ctx), modules=False),
        trust=options["trust"],
    )
    both = request.settings(options["settings"])
    own = [request.settings(options[name]) for name in ("baseline_set", "candidate_set")]
    fed = [options[name] for name in ("baseline_input", "candidate_input")]
    words = (options["baseline"], options["candidate"], *options["more"])
    return [
        replace(
            shared,
            model=word,
            settings=_over(both, own[min(place, 1)]),
            inputs=(*options["inputs"], *fed[min(place, 1)]),
        )
        for place, word in enumerate(words)
    ]


def _over(both: dict[str, KnobValue], own: dict[str, KnobValue]) -> dict[str, KnobValue]:
    if twice := both.keys() & own.keys():
        raise RequestError(f"{min(twice)} is set for both sides and for one of them; leave one away.")
    return {**both, **own}


def _places(options: dict[str, Any]) -> Places:
    """Find before measuring, not after, what cannot be kept or written."""
    places = Places.of(options)
    if places.report:
        check(Path(places.report))
    return places


def _run(
    jobs: Sequence[Job], turns: Turns, question: Question, options: dict[str, Any]
) -> tuple[Comparison, bool]:
    """Run the models in turns; give what came of it, and whether it was interrupted."""
    with Progress(quiet=options["quiet"]) as progress, campaign(progress.watch) as bench:
        rounds = f"{turns.first} to {turns.most}" if turns.first < turns.most else f"{turns.most}"
        longest = lasting(turns.max_time or inf)
        progress.announce(
            f"Comparing in {rounds} rounds of {len(jobs)} fresh processes, within {longest} (--max-time)."
        )
        found = carried_out(jobs, turns, question, bench)
    interrupted = bool(bench.interrupted())
    if found is None:
        raise KeyboardInterrupt if interrupted else RunFailed("No round was made.")
    return found, interrupted


def exit_code(found: Comparison, fail_on: str | None) -> int:
    """Give what a script is told; a comparison informs, unless it is asked to fail."""
    if failed(found):
        return FAILED
    outcomes = {each.outcome for each in found.contrasts}
    if fail_on is None:
        return OK
    if Outcome.WORSE in outcomes:
        return BROKEN
    return UNDECIDED if Outcome.UNDECIDED in outcomes else OK
