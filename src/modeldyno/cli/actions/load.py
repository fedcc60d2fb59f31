"""What ``modeldyno load`` does."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from modeldyno.cli.actions import options as cli_options
from modeldyno.cli.actions.output_options import OutputTargets
from modeldyno.cli.actions.printing import ignore_broken_pipe, print_costs
from modeldyno.cli.actions.profile import print_outcome
from modeldyno.cli.actions.progress import Progress
from modeldyno.codec import series as codec_series
from modeldyno.core.load.capacity import Capacity
from modeldyno.core.load.endpoint_url import HEADERS_VARIABLE, parse_headers
from modeldyno.core.load.load_curve import parse_ladder
from modeldyno.core.metrics.constraints import Verdict
from modeldyno.core.report.blocks import Notice, Severity
from modeldyno.core.spec.load_spec import Arrivals, Load, parse_rate
from modeldyno.core.spec.probe_options import Observation
from modeldyno.documents.write import check_format, write
from modeldyno.errors import RequestError
from modeldyno.loadtest.replicas import CostAnswer, CostOptions
from modeldyno.options import LOAD
from modeldyno.profiling import request
from modeldyno.profiling.run import BROKEN, FAILED, INTERRUPTED, OK, UNDECIDED, JudgedResult, run_request
from modeldyno.views.load import page as load_page
from modeldyno.views.text import count, format_rough_duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.core.load.capacity_spec import CapacitySearch
    from modeldyno.core.load.load_curve import LoadCurve
    from modeldyno.core.report.blocks import Block

_VARIABLE = re.compile(r"\$(?:(\w+)|\{([^}]*)\})", re.ASCII)


def run(ctx: click.Context, options: dict[str, Any]) -> None:
    """Load-test a model at one load or several, and report it; exit with the code."""
    targets = OutputTargets.of(options)
    planned = CostOptions.parse(options["demand"], options["price"])
    steps = _parse_concurrency(options["concurrency"])
    model_request = _request(options, steps[0] if steps else None)
    if len(steps) > 1 and options["find_load"]:
        raise RequestError(
            "Several values of --concurrency and --find-load exclude each other; give one of them."
        )
    planned.check(options["require"], several=len(steps) > 1 or options["find_load"])
    if len(steps) > 1 or options["find_load"]:
        if targets.report:
            check_format(Path(targets.report))
        if options["records"]:
            raise RequestError("--records holds the requests of one load; drop it, or measure one load.")
        ctx.exit(_measure_several(model_request, steps, targets, planned, options))
    with Progress(quiet=options["quiet"]) as progress:
        outcome = run_request(model_request, watch=progress.watch)
    provided = planned.of_result(outcome.result, model_request.constraints())
    problem = replace(targets, derived=provided.derived()).keep(outcome)
    print_outcome(outcome, targets, options)
    if not (targets.silent or options["quiet"]):
        print_costs(provided)
    if problem is not None:
        raise problem
    ctx.exit(outcome.exit_code)


def _measure_several(
    model_request: request.Request,
    steps: tuple[int, ...],
    targets: OutputTargets,
    planned: CostOptions,
    options: dict[str, Any],
) -> int:
    """Measure several loads, and store each before the next; return the exit code."""
    from modeldyno.loadtest import series as loads  # noqa: PLC0415 - one load needs none of it

    latest: Any = None
    codes = [OK]
    if not (targets.silent or options["quiet"]):
        click.echo(_describe_duration(options, model_request, len(steps)))
    with Progress(quiet=options["quiet"]) as progress:
        series: Iterator[tuple[JudgedResult, Any]] = (
            loads.search_capacity(model_request, _search(options, model_request), watch=progress.watch)
            if options["find_load"]
            else loads.run_load_ladder(
                model_request, steps, all_of_them=":" not in options["concurrency"], watch=progress.watch
            )
        )
        for outcome, document in series:
            targets.store_only(outcome)
            latest = document if document is not None else latest
            codes.append(outcome.exit_code)
    exit_code = codes[-1]
    if latest is None:
        click.echo("No measurement was completed.")
        return exit_code
    closed = model_request.load is None or model_request.load.closed
    _report_series(latest, planned.of_several(latest, closed=closed), targets, quiet=options["quiet"])
    if exit_code == INTERRUPTED or not isinstance(latest, Capacity):
        return exit_code
    if set(codes[1:]) == {FAILED}:  # nothing was measured, so no bound is broken
        return FAILED
    return {Verdict.HELD: OK, Verdict.BROKEN: BROKEN, Verdict.UNDECIDED: UNDECIDED}[latest.verdict]


def _describe_duration(options: dict[str, Any], model_request: request.Request, steps: int) -> str:
    """Estimate how long several loads take: a search measures longer while a bound is undecided."""
    if not options["find_load"]:
        loads, longest = count(steps, "load"), format_rough_duration(model_request.plan.max_time * steps)
        return f"At most {loads}, about {longest}; --max-time shortens it."
    search = _search(options, model_request)
    loads = count(search.measurements, "load")
    longest = format_rough_duration(model_request.plan.max_time * search.measurements * search.patience)
    return f"At most {loads}, about {longest}; --measurements and --max-time shorten it."


def _report_series(
    series: LoadCurve | Capacity, provided: CostAnswer, targets: OutputTargets, *, quiet: bool
) -> None:
    """Store, write and print a load series, with replicas and costs."""
    targets.store_conclusion(series, load_page.brief(series))
    targets.write(codec_series.encode(series, **provided.derived()))
    if targets.report:
        write(series, Path(targets.report))
    if targets.silent:
        return
    with ignore_broken_pipe():
        from modeldyno.cli.actions.printing import print_blocks  # noqa: PLC0415 - only printing needs rich

        blocks = [*load_page.lines(series), *provided.blocks()]
        print_blocks(*(filter(_is_verdict, blocks) if quiet else blocks))
        if targets.store and not quiet:
            click.echo(f"Stored as {series.id}; for a report: modeldyno report {series.id[:6]} -o loads.html")
        targets.told()


def _is_verdict(block: Block) -> bool:
    """Check whether a block states the verdict or the reason for the exit code."""
    deciding = {Severity.VERDICT, Severity.BROKEN, Severity.UNDECIDED}
    return isinstance(block, Notice) and block.severity in deciding


def _search(options: dict[str, Any], model_request: request.Request) -> CapacitySearch:
    from modeldyno.loadtest.series import capacity_search  # noqa: PLC0415 - one load needs none of it

    return capacity_search(model_request, most=options["most"], measurements=options["measurements"])


def _parse_concurrency(text: str | None) -> tuple[int, ...]:
    """Parse one concurrency, or several."""
    return parse_ladder(text) if text else ()


def _request(options: dict[str, Any], concurrency: int | None) -> request.Request:
    if options["headers"]:
        _pass_headers(options["headers"])
    return request.Request(
        model=options["model"],
        backend=options["backend"] or request.server_for(options["model"]),
        settings=request.parse_settings(options["settings"]),
        inputs=options["inputs"],
        probes=cli_options.split_names(options["probes_"]),
        load=_load(options, concurrency),
        require=options["require"],
        percentiles=options["percentiles"],
        plan=cli_options.plan_from_options(options),
        observation=Observation(records=options["records"] and str(Path(options["records"]).absolute())),
        name=options["name"],
        trust=options["trust"],
        beside=options["beside"],
    )


def _load(options: dict[str, Any], concurrency: int | None) -> Load:
    schedules = {"--rate": options["rate"], "--replay": options["replay"]}
    if all(schedules.values()):
        raise RequestError("--rate and --replay both set when requests are due; give one of them.")
    arrivals, rate, burst = Arrivals.CLOSED, None, 1
    if options["rate"]:
        rate, arrivals, burst = parse_rate(options["rate"])
    if options["replay"]:
        arrivals = Arrivals.TRACE
    return Load(
        arrivals=arrivals,
        concurrency=concurrency,
        rate=rate,
        burst=burst,
        trace=options["replay"] and str(Path(options["replay"]).absolute()),
        **{row.field: options[row.name] for row in LOAD},
    )


def _pass_headers(headers: tuple[str, ...]) -> None:
    """Pass headers to the sending process through the environment, so that no document holds them."""
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
    os.environ[HEADERS_VARIABLE] = "\n".join(lines)
