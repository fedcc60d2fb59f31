"""What ``modeldyno load`` does."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from modeldyno.base.errors import RequestError
from modeldyno.base.job.load_spec import Arrivals, Load, parse_rate, parse_rates
from modeldyno.base.job.probe_options import ProbeOptions
from modeldyno.base.kinds import kind_of
from modeldyno.base.metrics.constraints import Verdict
from modeldyno.base.options import LOAD
from modeldyno.base.progress import Progress
from modeldyno.base.report.blocks import Notice, Severity
from modeldyno.base.stats.units import SECONDS, format_quantity
from modeldyno.base.views.text import count, format_rough_duration
from modeldyno.cli.actions import options as cli_options
from modeldyno.cli.actions.output_options import OutputTargets, report_hint
from modeldyno.cli.actions.printing import print_blocks
from modeldyno.cli.actions.profile import print_outcome
from modeldyno.engine.trace.carbon import Emission
from modeldyno.profiling import request
from modeldyno.profiling.resolve_model import resolve_model
from modeldyno.profiling.run import BROKEN, FAILED, INTERRUPTED, OK, UNDECIDED, run_request
from modeldyno.serving.load.capacity import Capacity
from modeldyno.serving.load.capacity_steps import RATE, SearchEnd
from modeldyno.serving.load.endpoint_url import parse_headers
from modeldyno.serving.load.load_curve import LoadCurve, ends_at_plateau, parse_ladder, single_concurrency
from modeldyno.serving.load.open_bounds import LONGEST, is_on_times
from modeldyno.serving.load.series_steps import missing_loads, next_load
from modeldyno.serving.loadtest import series as loads
from modeldyno.serving.loadtest.live_loads import show_loads
from modeldyno.serving.loadtest.replicas import CostAnswer, CostOptions
from modeldyno.serving.views import page as load_page

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from modeldyno.base.report.blocks import Block

_VARIABLE = re.compile(r"\$(?:(\w+)|\{([^}]*)\})", re.ASCII)


def run(**options: Any) -> int:
    """Load-test a model at one load or several, and report it; return the exit code."""
    ctx = click.get_current_context()
    targets = OutputTargets.of(options)
    planned = CostOptions.parse(options["demand"], options["price"])
    ctx.with_resource(loads.headers_in_environment(_read_headers(options["headers"])))
    if options["resume"] is not None or options["rerank"] is not None:
        return _go_on(ctx, targets, planned, options)
    if options["model"] is None:
        raise RequestError("A load needs a MODEL; see modeldyno load --help.")
    rates = parse_rates(options["rate"]) if options["rate"] else ()
    steps = parse_ladder(options["concurrency"]) if options["concurrency"] else ()
    several = len(steps) > 1 or len(rates) > 1
    model_request = _request(options | {"rate": rates[0] if rates else None}, steps[0] if steps else None)
    if several and options["find_load"]:
        what = "--concurrency" if len(steps) > 1 else "--rate"
        raise RequestError(f"Several values of {what} and --find-load exclude each other; give one of them.")
    planned.check(options["require"], several=several or options["find_load"])
    if several or options["find_load"]:
        targets.check_formats()
        if options["records"]:
            raise RequestError("--records holds the requests of one load; drop it, or measure one load.")
        limits = {name: options[name] for name in ("most", "measurements")}
        series: LoadCurve | Capacity = (
            loads.begin_search(model_request, **limits)
            if options["find_load"]
            else _begin_curve(model_request, steps, rates, options["concurrency"])
        )
        return _measure_series(series, targets, planned, options)
    with show_loads(enabled=targets.store) as live:
        with Progress(quiet=options["quiet"]) as progress:
            resolved = model_request.resolve()
            outcome = run_request(resolved, watch=live.follow(progress.watch))
        provided = planned.of_result(outcome.result, resolved.constraints)
        problem = replace(targets, derived=provided.derived()).keep(outcome)
        live.end(outcome.result)
    print_outcome(outcome, targets, options, problem)
    if not (targets.silent or options["quiet"]):
        print_blocks(*provided.blocks())
    if problem is not None:
        raise problem
    return outcome.exit_code


def _begin_curve(
    model_request: request.Request, steps: Sequence[int], rates: Sequence[str], concurrency: str | None
) -> LoadCurve:
    """Return the curve of several rates, or else of several concurrencies."""
    if len(rates) > 1:
        if concurrency is not None:
            single_concurrency(concurrency)
        return loads.begin_curve(model_request, [parse_rate(each)["rate"] for each in rates], knob=RATE)
    return loads.begin_curve(model_request, steps, until_plateau=ends_at_plateau(str(concurrency)))


# --- several loads ---------------------------------------------------------------------------------

_OF_THE_RUN = {
    "resume", "rerank", "find_load", "force", "headers", "demand", "price", "carbon", "power",
    "tags", "json_path", "output", "no_store", "quiet", "verbose",
}  # fmt: skip
"""Options that change nothing about a series."""


_SEARCH_VALUES = ("concurrency", "most", "measurements", "max_time")
"""Options that change how a stored series goes on."""


def _go_on(
    ctx: click.Context, targets: OutputTargets, planned: CostOptions, options: Mapping[str, Any]
) -> int:
    """Resume or rerank a stored series; return the exit code. Only options that were typed count."""
    from modeldyno.serving.loadtest import resume  # one load needs none of it

    if options["resume"] is not None and options["rerank"] is not None:
        raise RequestError("--resume and --rerank exclude each other; give one of them.")
    if options["model"] is not None:
        raise RequestError(f"A stored series of loads has its model; drop {options['model']}.")
    targets.check_formats()
    flags = {str(parameter.name): parameter.opts[0] for parameter in ctx.command.params}
    typed = [name for name in flags if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    search_values = {name: options[name] for name in _SEARCH_VALUES if name in typed}
    require = options["require"] if "require" in typed else ()
    changes = {name: flags[name] for name in typed if name not in _OF_THE_RUN}
    if options["rerank"] is not None:
        resume.check_rerank(changes)
        stored = resume.find_series(options["rerank"])
        return _rerank(resume.rerank_series(stored, require), stored, targets, planned, options)
    if not targets.store:
        raise RequestError("--resume continues a series in the store; drop --no-store.")
    stored = resume.find_series(options["resume"])
    search = options["find_load"] or isinstance(stored, Capacity)
    resume.check_changes(changes, search=search)
    series: LoadCurve | Capacity = (
        resume.resume_search(stored, require=require, **search_values)
        if search
        else resume.resume_curve(stored, require=require, **search_values)
    )
    if series.rungs:
        targets.store_conclusion(series)
    return _measure_series(series, targets, planned, options)


def _rerank(
    answer: Capacity, stored: LoadCurve | Capacity, targets: OutputTargets, planned: CostOptions,
    options: Mapping[str, Any],
) -> int:  # fmt: skip
    """Report what the loads of a stored series say about other bounds; return the exit code."""
    _report_series(answer, planned.of_several(answer), replace(targets, store=False), quiet=options["quiet"])
    if stored.job is not None and not (targets.silent or options["quiet"]):
        find = "" if isinstance(stored, Capacity) else " --find-load"
        bounds = "".join(f" --require {shlex.quote(str(bound))}" for bound in answer.search.bounds)
        click.echo(f"To go on from there: modeldyno load --resume {stored.id[:6]}{find}{bounds}")
    return _exit_code(answer)


def _measure_series(
    series: LoadCurve | Capacity, targets: OutputTargets, planned: CostOptions, options: Mapping[str, Any]
) -> int:
    """Measure the loads of a new or resumed series, and store each before the next; return the exit code."""
    begun, emission = series, Emission.parse(options["carbon"], options["power"])
    if next_load(series) is not None and not (targets.silent or options["quiet"]):
        click.echo(_describe_duration(series))
    with Progress(quiet=options["quiet"]) as progress, show_loads(enabled=targets.store) as live:
        for outcome, latest in loads.measure_loads(
            series,
            watch=live.follow(progress.watch),
            force=options["force"],
            emission=emission,
            price=planned.price,
        ):
            targets.store_only(outcome)
            live.end(outcome.result)
            targets.store_conclusion(latest)
            series = latest
    if not series.rungs:
        click.echo("No measurement was completed.")
        return OK
    _report_series(series, planned.of_several(series), targets, quiet=options["quiet"])
    code = _exit_code(series)
    if not (targets.silent or options["quiet"]):
        if code == INTERRUPTED and targets.store:
            click.echo(f"Interrupted; to continue: modeldyno load --resume {series.id[:6]}")
        elif series is begun:
            click.echo(f"Nothing more was measured: {_explain_end(series)}.")
    return code


def _exit_code(series: LoadCurve | Capacity) -> int:
    """Return the exit code: that of the verdict on the bounds."""
    if isinstance(series, LoadCurve):
        last = series.rungs[-1]
        failed = bool(last.failure)
    else:
        last = series.verified or series.rungs[-1]
        failed = all(rung.failure for rung in series.rungs)  # nothing was measured, so no bound is broken
    if last.interrupted:
        return INTERRUPTED
    if failed:
        return FAILED
    return {Verdict.HELD: OK, Verdict.BROKEN: BROKEN, Verdict.UNDECIDED: UNDECIDED}[series.verdict]


def _describe_duration(series: LoadCurve | Capacity) -> str:
    """Estimate how long the loads take: a search measures longer while a bound is undecided."""
    assert series.job is not None
    seconds, load = loads.seconds_of_load(series), series.job.load
    if isinstance(series, LoadCurve):
        option = "--max-time" if load is None or load.duration is None else "--duration"
        number, most, shorten = len(missing_loads(series)), 1.0, f"{option} shortens"
    else:
        number = max(1, series.search.measurements - len(series.rungs))
        if series.search.max_time is not None:
            within = format_rough_duration(series.search.max_time)
            return f"At most {count(number, 'load')} and a verification, within about {within} (--max-time)."
        most, shorten = series.search.patience, "--max-time limits"
    longest = format_rough_duration(seconds * number * most)
    several = f" of {format_quantity(seconds * most, SECONDS, None)} each" if number > 1 else ""
    in_all = " in all" if number > 1 else ""
    if isinstance(series, LoadCurve) and series.job.plan.may_extend and (load is None or not load.duration):
        if load is not None and load.requests is not None:
            return (
                f"{count(number, 'load')} of {count(load.requests, 'request')} each, however long they take."
            )
        longer = (
            f"up to {format_rough_duration(LONGEST)} each while a bound is open"
            if any(map(is_on_times, series.bounds))
            else "longer where an answer takes seconds"
        )
        return f"{count(number, 'load')}, about {longest}{in_all}, {longer} (--max-time)."
    return f"At most {count(number, 'load')}{several}, about {longest}{in_all}; {shorten} it."


def _explain_end(series: LoadCurve | Capacity) -> str:
    """Explain why a resumed series measured nothing."""
    if isinstance(series, Capacity):
        if series.end is not SearchEnd.MEASUREMENTS:
            return "the search had ended"
        limit = count(series.search.measurements, "measurement")
        return f"the limit of {limit} is reached; raise it with --measurements"
    if missing_loads(series):
        listed = ",".join(f"{load:g}" for load in missing_loads(series))
        return f"more load brought no more throughput; to measure it anyway: -c {listed}"
    others = "" if series.knob == RATE else "; give others with --concurrency"
    return f"every load that was asked for is measured{others}"


def _report_series(
    series: LoadCurve | Capacity, provided: CostAnswer, targets: OutputTargets, *, quiet: bool
) -> None:
    """Write and print a load series, with replicas and costs."""
    problem = targets.write_both(series, kind_of(series).encode(series, **provided.derived()))
    blocks = chain(load_page.blocks(series), provided.blocks())
    hints = [report_hint(series, "loads.html")] if targets.store and not quiet else []
    targets.print_report(filter(_is_verdict, blocks) if quiet else blocks, hints=hints, problem=problem)


def _is_verdict(block: Block) -> bool:
    """Check whether a block states the verdict or the reason for the exit code."""
    deciding = {Severity.VERDICT, Severity.BROKEN, Severity.UNDECIDED}
    return isinstance(block, Notice) and block.severity in deciding


def _request(options: Mapping[str, Any], concurrency: int | None) -> request.Request:
    typed = click.get_current_context().get_parameter_source("max_time")
    model = resolve_model(options["model"])
    options = {**options, "model": model, "may_extend": typed is ParameterSource.DEFAULT}
    return cli_options.request_from_options(
        options,
        backend=options["backend"] or request.server_for(model),
        probes=cli_options.split_names(options["probes_"]),
        load=_load(options, concurrency),
        plan=cli_options.plan_from_options(options),
        observation=ProbeOptions(records=options["records"] and str(Path(options["records"]).absolute())),
        emission=Emission.parse(options["carbon"], options["power"]),
        price=CostOptions.parse(None, options["price"]).price,
    )


def _load(options: Mapping[str, Any], concurrency: int | None) -> Load:
    schedules = {"--rate": options["rate"], "--replay": options["replay"]}
    if all(schedules.values()):
        raise RequestError("--rate and --replay both set when requests are due; give one of them.")
    schedule: dict[str, Any] = parse_rate(options["rate"]) if options["rate"] else {}
    if options["replay"]:
        schedule = {"arrivals": Arrivals.TRACE}
    return Load(
        **schedule,
        speed=options["replay_speed"] or 1.0,
        window=options["replay_window"],
        concurrency=concurrency,
        trace=options["replay"] and str(Path(options["replay"]).absolute()),
        **{row.field: options[row.name] for row in LOAD},
    )


def _read_headers(headers: tuple[str, ...]) -> list[str]:
    """Return the headers with their environment variables replaced.

    Raises:
        RequestError: a variable is not set, or a header is not ``Name: value``.
    """
    for header in headers:
        names = ["".join(match) for match in _VARIABLE.findall(header)]
        if not os.environ.keys() >= set(names):
            name = header.partition(":")[0].strip()
            raise RequestError(f"--header '{name}' names an environment variable that is not set.")
    lines = [os.path.expandvars(header) for header in headers]
    try:
        parse_headers("\n".join(lines))
    except RequestError:
        raise RequestError("--header takes 'Name: value', such as 'Authorization: Bearer $TOKEN'.") from None
    return lines
