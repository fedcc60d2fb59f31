"""``modeldyno load``."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from modeldyno import request
from modeldyno.cli import quantity
from modeldyno.cli.keeping import Places, keeping_options, limit_options
from modeldyno.cli.profile import plan_options, probes, tell
from modeldyno.cli.progress import Progress
from modeldyno.core.address import HEADERS_VARIABLE, parse_headers
from modeldyno.core.load import Arrivals, Load, parse_rate
from modeldyno.core.observation import Observation
from modeldyno.core.plan import Plan
from modeldyno.errors import RequestError
from modeldyno.measure import measure

_PLAN = {field.name for field in fields(Plan)}


@click.command(name="load")
@click.argument("model")
@click.option("--backend", help="What serves the model: triton by default; a URL is served already.")
@click.option(
    "--set", "settings", multiple=True, metavar="KNOB=VALUE", help="Set a knob, such as instances=2."
)
@click.option(
    "--input", "inputs", multiple=True, metavar="INPUT",
    help="name=8x128:int64:0..30521, or a file: .npz .jsonl .txt",
)  # fmt: skip
@click.option("--concurrency", "-c", type=int, help="Closed loop: so many requests at once; 1 by default.")
@click.option("--rate", metavar="R[:KIND]", help="Open loop: 100, 100:poisson, 100:burst=8 (requests/s).")
@click.option("--replay", metavar="FILE", type=click.Path(dir_okay=False), help="Due times from a file.")
@click.option("--duration", callback=quantity("s"), help="Length of the steady window, such as 30s.")
@click.option("--requests", type=int, help="Requests to measure, after the warm-up.")
@click.option("--ramp", default="0s", callback=quantity("s"), help="Grow to the full load over so long.")
@click.option(
    "--request-timeout", default="60s", show_default=True, callback=quantity("s"),
    help="When a request is given up.",
)  # fmt: skip
@click.option("--retries", default=0, show_default=True, help="Send again what the server did not answer.")
@click.option("--drivers", default=1, show_default=True, help="Processes that send.")
@click.option("--header", "headers", multiple=True, help="'Name: value'; $VARIABLE stands for its value.")
@click.option("--records", type=click.Path(dir_okay=False), help="Write every request: .csv .jsonl .npz")
@click.option("--probe", "probes_", multiple=True, metavar="PROBE,...", help="By default static,load.")
@click.option(
    "--require", "--sla", "--threshold", "--subject-to", "require", multiple=True, metavar="BOUND",
    help="Such as 'latency.p99 <= 50ms'; exit 1 when broken, 5 when undecided.",
)  # fmt: skip
@click.option(
    "--percentile", "percentiles", multiple=True, help="Measure until it is certified, such as p99."
)
@plan_options
@limit_options
@click.option("--name", help="What to call the model.")
@click.option("--trust", is_flag=True, allow_from_autoenv=False, help="Load files that run code when loaded.")
@keeping_options
@click.option("-v", "--verbose", is_flag=True, help="Print every measurement of the whole.")
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Put MODEL, behind a server, under load: latency, throughput, and where a request spends its time.

    MODEL is what `modeldyno profile` takes, served for the while, or the URL of a server that runs
    already: http://host:8000#model.
    """
    asked = _request(options)
    places = Places.of(options)
    with Progress(quiet=options["quiet"]) as progress:
        outcome = measure(asked, watch=progress.watch)
    problem = places.keep(outcome)
    tell(outcome, places, options)
    if problem is not None:
        raise problem
    ctx.exit(outcome.exit_code)


def _request(options: dict[str, Any]) -> request.Request:
    try:
        plan = Plan(**{name: options[name] for name in _PLAN & options.keys() if options[name] is not None})
    except ValueError as error:
        raise RequestError(f"{error}.") from None
    if options["headers"]:
        _keep_secret(options["headers"])
    return request.Request(
        model=options["model"],
        backend=options["backend"] or request.server_for(options["model"]),
        settings=request.settings(options["settings"]),
        inputs=options["inputs"],
        probes=probes(options["probes_"]),
        load=_load(options),
        require=options["require"],
        percentiles=options["percentiles"],
        plan=plan,
        observation=Observation(records=options["records"] and str(Path(options["records"]).absolute())),
        name=options["name"],
        trust=options["trust"],
    )


def _load(options: dict[str, Any]) -> Load:
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
        concurrency=options["concurrency"],
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
    lines = [os.path.expandvars(header) for header in headers]
    try:
        parse_headers("\n".join(lines))
    except RequestError:
        raise RequestError("--header takes 'Name: value', such as 'Authorization: Bearer $TOKEN'.") from None
    os.environ[HEADERS_VARIABLE] = "\n".join(lines)
