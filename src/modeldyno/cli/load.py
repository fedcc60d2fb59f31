"""``modeldyno load``."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from modeldyno.cli import options as cli_options
from modeldyno.cli import quantity
from modeldyno.cli.help_pages import Command
from modeldyno.cli.output_options import Places, keeping_options, limit_options
from modeldyno.cli.printing import listened
from modeldyno.cli.profile import tell
from modeldyno.cli.progress import Progress
from modeldyno.cli.replica_options import Planned, Provided
from modeldyno.codec import series as codec_series
from modeldyno.core.load.capacity import Capacity
from modeldyno.core.load.capacity_spec import RATE, Search
from modeldyno.core.load.endpoint_url import HEADERS_VARIABLE, parse_headers
from modeldyno.core.load.load_curve import parse_ladder
from modeldyno.core.metrics.constraints import Verdict
from modeldyno.core.report.blocks import Notice, Severity
from modeldyno.core.spec.load_spec import Arrivals, Load, parse_rate
from modeldyno.core.spec.probe_options import Observation
from modeldyno.documents.write import check, write
from modeldyno.errors import RequestError
from modeldyno.profiling import request
from modeldyno.profiling.run import BROKEN, FAILED, INTERRUPTED, OK, UNDECIDED, Outcome, measure
from modeldyno.views.load import page as load_page
from modeldyno.views.text import count, lasting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.core.load.load_curve import Ladder
    from modeldyno.core.report.blocks import Block

_VARIABLE = re.compile(r"\$(?:(\w+)|\{([^}]*)\})", re.ASCII)


@click.command(name="load", cls=Command)
@click.argument("model")
@click.option("--backend", help="What serves the model: triton by default; a URL is served already.")
@cli_options.knob_options
@cli_options.INPUTS
@click.option(
    "--concurrency", "-c", metavar="N|N,N,...|N:M",
    help="Closed loop: so many requests at once; several (1,2,4 or 1:64) make a ladder. "
    "With --rate: at most so many at once.",
)  # fmt: skip
@click.option(
    "--rate",
    metavar="R[:KIND]",
    help="Open loop: 100, 100:poisson, 100:burst=8 (requests/s). With -c: at most so many at once.",
)
@click.option("--replay", metavar="FILE", type=click.Path(dir_okay=False), help="Due times from a file.")
@click.option("--duration", callback=quantity("s"), help="Length of the steady window, such as 30s.")
@click.option("--requests", type=click.IntRange(1), help="Requests to measure, after the warm-up.")
@click.option(
    "--ramp", default="0s", callback=quantity("s", zero=True), help="Grow to the full load over so long."
)
@click.option(
    "--request-timeout", default="60s", show_default=True, callback=quantity("s"),
    help="When a request is given up.",
)  # fmt: skip
@click.option(
    "--retries",
    default=0,
    show_default=True,
    type=click.IntRange(0),
    help="Send again what the server did not answer.",
)
@click.option("--drivers", default=1, show_default=True, type=click.IntRange(1), help="Processes that send.")
@click.option(
    "--find-load", is_flag=True, help="Search the largest load that holds every bound of --require."
)
@click.option("--most", type=float, help="Largest load that the search tries; 1024 by default.")
@click.option(
    "--measurements", type=click.IntRange(1), help="Most loads that the search measures; 10 by default."
)
@click.option("--demand", help="Say how many replicas so many requests take within the bounds: 1000/s.")
@click.option("--price", help="Of a replica, such as 1.20/h or '876 EUR/month': say what it costs.")
@click.option("--header", "headers", multiple=True, help="'Name: value'; $VARIABLE stands for its value.")
@click.option("--records", type=click.Path(dir_okay=False), help="Write every request: .csv .jsonl .npz")
@click.option("--probe", "probes_", multiple=True, metavar="PROBE,...", help="By default static,load.")
@cli_options.bounds()
@cli_options.PERCENTILES
@cli_options.plan_options
@limit_options
@cli_options.BESIDE
@cli_options.NAME
@cli_options.TRUST
@keeping_options
@click.option("-v", "--verbose", is_flag=True, help="Print every measurement of the whole.")
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Put MODEL, behind a server, under load: latency, throughput, and where a request spends its time.

    MODEL is what `modeldyno profile` takes, served for the while, or the URL of a server that runs
    already: http://host:8000#model.
    """
    places = Places.of(options)
    planned = Planned.of(options)
    steps = _steps(options["concurrency"])
    asked = _request(options, steps[0] if steps else None)
    if len(steps) > 1 and options["find_load"]:
        raise RequestError("A ladder of --concurrency and --find-load exclude each other; give one of them.")
    planned.check(options["require"], several=len(steps) > 1 or options["find_load"])
    if len(steps) > 1 or options["find_load"]:
        if places.report:
            check(Path(places.report))
        if options["records"]:
            raise RequestError("--records holds the requests of one load; leave it out, or ask for one load.")
        ctx.exit(_several(asked, steps, places, planned, options))
    with Progress(quiet=options["quiet"]) as progress:
        outcome = measure(asked, watch=progress.watch)
    provided = planned.of_result(outcome.result, asked.constraints())
    problem = replace(places, derived=provided.derived()).keep(outcome)
    tell(outcome, places, options)
    if not (places.silent or options["quiet"]):
        provided.tell()
    if problem is not None:
        raise problem
    ctx.exit(outcome.exit_code)


def _several(
    asked: request.Request,
    steps: tuple[int, ...],
    places: Places,
    planned: Planned,
    options: dict[str, Any],
) -> int:
    """Measure several loads; each is in the store before the next begins."""
    from modeldyno.loadtest import series as loads  # noqa: PLC0415 - one load needs none of it

    found: Any = None
    codes = [OK]
    if not (places.silent or options["quiet"]):
        click.echo(_foretold(options, asked, len(steps)))
    with Progress(quiet=options["quiet"]) as progress:
        series: Iterator[tuple[Outcome, Any]] = (
            loads.search(asked, _search(options, asked), watch=progress.watch)
            if options["find_load"]
            else loads.climb(
                asked, steps, all_of_them=":" not in options["concurrency"], watch=progress.watch
            )
        )
        for outcome, document in series:
            places.store_only(outcome)
            found = document if document is not None else found
            codes.append(outcome.exit_code)
    exit_code = codes[-1]
    if found is None:
        click.echo("Nothing was measured to its end.")
        return exit_code
    closed = asked.load is None or asked.load.closed
    _tell_several(found, planned.of_several(found, closed=closed), places, quiet=options["quiet"])
    if exit_code == INTERRUPTED or not isinstance(found, Capacity):
        return exit_code
    if set(codes[1:]) == {FAILED}:  # nothing was ever measured, so that no bound was broken either
        return FAILED
    return {Verdict.HELD: OK, Verdict.BROKEN: BROKEN, Verdict.UNDECIDED: UNDECIDED}[found.verdict]


def _foretold(options: dict[str, Any], asked: request.Request, steps: int) -> str:
    """Say how long several loads may take: a search looks for longer at a load whose bound stays open."""
    if not options["find_load"]:
        loads, most = count(steps, "load"), lasting(asked.plan.max_time * steps)
        return f"At most {loads}, about {most}; --max-time shortens it."
    search = _search(options, asked)
    loads = count(search.measurements, "load")
    most = lasting(asked.plan.max_time * search.measurements * search.patience)
    return f"At most {loads}, about {most}; --measurements and --max-time shorten it."


def _tell_several(found: Ladder | Capacity, provided: Provided, places: Places, *, quiet: bool) -> None:
    """Keep the document and tell it, with what a demand takes."""
    places.conclude(found, load_page.brief(found))
    places.write(codec_series.encode(found, **provided.derived()))
    if places.report:
        write(found, Path(places.report))
    if places.silent:
        return
    with listened():
        from modeldyno.cli.printing import print_blocks  # noqa: PLC0415 - rich is for what is drawn

        blocks = [*load_page.lines(found), *provided.blocks()]
        print_blocks(*(filter(_decides, blocks) if quiet else blocks))
        if places.store and not quiet:
            click.echo(f"Kept as {found.id}; to draw it: modeldyno report {found.id[:6]} -o loads.html")
        places.told()


def _decides(block: Block) -> bool:
    """Say whether it is the answer, or what the exit code is owed to."""
    deciding = {Severity.VERDICT, Severity.BROKEN, Severity.UNDECIDED}
    return isinstance(block, Notice) and block.severity in deciding


def _search(options: dict[str, Any], asked: request.Request) -> Search:
    bounds = asked.constraints()
    if not bounds:
        raise RequestError("--find-load needs a bound to hold, such as --require 'latency.p99 <= 50ms'.")
    rate = options["rate"] and parse_rate(options["rate"])[0]
    given = {"most": options["most"], "measurements": options["measurements"]}
    chosen = {name: value for name, value in given.items() if value is not None}
    if rate:
        return Search(bounds=bounds, knob=RATE, start=rate, **{"most": 1024 * rate, **chosen})
    return Search(bounds=bounds, start=float(asked.load.concurrency or 1) if asked.load else 1.0, **chosen)


def _steps(text: str | None) -> tuple[int, ...]:
    """Read one concurrency, or a ladder of them."""
    return parse_ladder(text) if text else ()


def _request(options: dict[str, Any], concurrency: int | None) -> request.Request:
    if options["headers"]:
        _keep_secret(options["headers"])
    return request.Request(
        model=options["model"],
        backend=options["backend"] or request.server_for(options["model"]),
        settings=request.settings(options["settings"]),
        inputs=options["inputs"],
        probes=cli_options.probes(options["probes_"]),
        load=_load(options, concurrency),
        require=options["require"],
        percentiles=options["percentiles"],
        plan=cli_options.plan_of(options),
        observation=Observation(records=options["records"] and str(Path(options["records"]).absolute())),
        name=options["name"],
        trust=options["trust"],
        beside=options["beside"],
    )


def _load(options: dict[str, Any], concurrency: int | None) -> Load:
    given = {"--rate": options["rate"], "--replay": options["replay"]}
    if all(given.values()):
        raise RequestError("--rate and --replay both say when requests are due; give one of them.")
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
        requests=options["requests"],
        duration=options["duration"],
        ramp=options["ramp"],
        timeout=options["request_timeout"],
        retries=options["retries"],
        drivers=options["drivers"],
    )


def _keep_secret(headers: tuple[str, ...]) -> None:
    """Put headers where the process that sends finds them, and no document does."""
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
