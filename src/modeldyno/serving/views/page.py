"""Lay out load curves and capacity searches as a page: throughput and latency by load, latency breakdown."""

from __future__ import annotations

from math import ceil, isfinite, nan
from typing import TYPE_CHECKING

from modeldyno.base.metrics.constraints import Answer, Verdict, worst_verdict
from modeldyno.base.metrics.measurement import CLIENT_LIMITED, INTERRUPTED, SATURATED
from modeldyno.base.metrics.metric import fraction_of
from modeldyno.base.option_spelling import spell_for_command_line
from modeldyno.base.report.axes import ORDERS
from modeldyno.base.report.blocks import Block, Heading, Notice, Severity, Table, make_table, note
from modeldyno.base.report.charts import AxisScale, Plot, ReferenceLine, Series, Stack
from modeldyno.base.stats.statistics import certified_floor
from modeldyno.base.stats.units import RATE as PER_SECOND
from modeldyno.base.stats.units import SECONDS
from modeldyno.base.views.text import (
    count,
    estimate,
    estimate_with_half_width,
    exact_text,
    format_ends,
    format_rough_duration,
    join_nonempty,
    shorten_message,
)
from modeldyno.base.views.view_options import PLAIN, ViewOptions
from modeldyno.profiling.latency_breakdown import STAGES
from modeldyno.profiling.views.result.charts import draw_request_stages
from modeldyno.profiling.views.result.served import STAGE_NAMES
from modeldyno.serving.load.capacity import Capacity, open_load, relative_excess
from modeldyno.serving.load.capacity_steps import RATE, CapacitySearch, SearchEnd
from modeldyno.serving.load.client_error import FIRST_TOKEN, GAP, WITHIN_ERROR
from modeldyno.serving.load.sla_fit import judge_loads, limits_load

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from modeldyno.base.metrics.constraints import Constraint, Judgement
    from modeldyno.base.metrics.metric import Query
    from modeldyno.serving.load.load_curve import LadderBound, LoadCurve, LoadPoint

_LATENCIES, _TAILS = ("p50", "p95", "p99"), ("p50", "p99")
_LATENCY = "Latency by load"
"""Title of the chart that a terminal shows as well."""
_WIDE = 8.0
"""Ratio of the largest to the smallest load from which on their axis is logarithmic."""


def page(document: LoadCurve | Capacity, options: ViewOptions = PLAIN) -> Iterator[Block]:
    """Lay out a load curve or a capacity search as a page."""
    laid = list(blocks(document, options))
    yield from (block for block in laid if isinstance(block, Notice))
    yield Heading(title="Throughput and latency by load")
    yield from pictures(document)
    yield Heading(title="The numbers")
    yield from (block for block in laid if not isinstance(block, Notice | Plot))


def blocks(document: LoadCurve | Capacity, options: ViewOptions = PLAIN) -> Iterator[Block]:
    """Lay out a load curve or a capacity search for a terminal; no option applies."""
    del options
    return capacity_blocks(document) if isinstance(document, Capacity) else load_curve_blocks(document)


def pictures(document: LoadCurve | Capacity) -> Iterator[Plot | Stack]:
    """Draw throughput, latency and latency breakdown by load."""
    rungs = sorted((rung for rung in document.rungs if not rung.failure), key=lambda rung: rung.load)
    ladder = () if isinstance(document, Capacity) else document.judged
    bounds = document.search.bounds if isinstance(document, Capacity) else [one.constraint for one in ladder]
    x = AxisScale(
        label=document.knob, unit=PER_SECOND if document.knob == RATE else "", logarithmic_from=_WIDE
    )
    yield from _token_charts(document, rungs, x)
    rates = _line(rungs, "throughput", "request_rate", None)
    if rates.x and not _generates(rungs):
        yield Plot(
            title="Throughput by load",
            x=x,
            y=AxisScale(label="requests", unit=PER_SECOND),
            series=(rates,),
            rules=tuple(_reference_lines(document)),
            note="with 95 % intervals",
        )
    yield from _times_chart(
        rungs,
        x,
        bounds,
        "time_to_first_token",
        _TAILS,
        title="Time to the first token by load",
        label="first token",
    )  # fmt: skip
    yield from _times_chart(rungs, x, bounds, "latency", _LATENCIES, title=_LATENCY, label="latency")
    yield from _stages_chart(rungs, x.label)


def _token_charts(document: LoadCurve | Capacity, rungs: Sequence[LoadPoint], x: AxisScale) -> Iterator[Plot]:
    """Draw the tokens of all users against those of one, which is what more load trades, and by load."""
    points = [
        (one.value, every.value, *_ends(every), _at(document.knob, rung.load))
        for rung in rungs
        if (every := rung.find("token_rate")) is not None and every.value is not None
        if (one := rung.find("user_token_rate", "p50")) is not None and one.value is not None
    ]
    if len(points) > 1:
        yield Plot(
            title="Tokens of all users against those of one",
            x=AxisScale(label="tokens for each user, median", unit=PER_SECOND),
            y=AxisScale(label="tokens for all", unit=PER_SECOND),
            series=(Series.through("load", points, ("x", "y", "low", "high", "labels"), named=len(points)),),
            note="up is cheaper, right is smoother to read; a user's tokens are those after the first one",
        )
    tokens = _line(rungs, "token rate", "token_rate", None)
    if tokens.x:
        yield Plot(
            title="Tokens by load",
            x=x,
            y=AxisScale(label="tokens", unit=PER_SECOND),
            series=(tokens,),
            rules=tuple(_reference_lines(document)),
            note="generated tokens, as the server counts them, with 95 % intervals",
        )


def _times_chart(
    rungs: Sequence[LoadPoint],
    x: AxisScale,
    bounds: Sequence[Constraint],
    metric: str,
    percentiles: Sequence[str],
    *,
    title: str,
    label: str,
) -> Iterator[Plot]:
    """Yield the percentiles of a time by load, with its bounds; nothing where none was measured."""
    lines = [line for name in percentiles if (line := _line(rungs, name, metric, name)).x]
    if lines:
        yield Plot(
            title=title,
            x=x,
            y=AxisScale(label=label, unit=SECONDS, logarithmic_from=ORDERS),
            series=tuple(lines),
            rules=tuple(
                ReferenceLine(name=str(bound), at=bound.bound)
                for bound in bounds
                if bound.query.metric == metric and bound.at_most
            ),
            note="with 95 % intervals; percentiles with too few samples are not drawn"
            + ("; hollow: breaks a bound" if any(line.hollow for line in lines) else ""),
        )


def _line(rungs: Sequence[LoadPoint], name: str, metric: str, statistic: str | None) -> Series:
    drawn = [
        (rung, answer)
        for rung in rungs
        if (answer := rung.find(metric, statistic)) is not None and answer.value is not None
    ]
    points = ((rung.load, answer.value, *_ends(answer)) for rung, answer in drawn)
    broken = (at for at, (rung, answer) in enumerate(drawn) if _breaks(rung, answer.query))
    return Series.through(name, points, ("x", "y", "low", "high"), hollow=tuple(broken))


def _breaks(rung: LoadPoint, query: Query) -> bool:
    """Whether a load breaks a bound of this very metric and statistic."""
    return any(j.verdict is Verdict.BROKEN and j.constraint.query == query for j in rung.judgements)


def _ends(answer: Answer) -> tuple[float, float]:
    bounds = answer.bounds()
    return (bounds.low, bounds.high) if isfinite(bounds.low) and isfinite(bounds.high) else (nan, nan)


def _reference_lines(document: LoadCurve | Capacity) -> Iterator[ReferenceLine]:
    if isinstance(document, Capacity):
        if document.passed is not None:
            yield ReferenceLine(name="largest that passed", at=document.passed, vertical=True)
        if document.failed is not None:
            yield ReferenceLine(name="smallest that failed", at=document.failed, vertical=True)
    elif document.knee is not None:
        yield ReferenceLine(name="knee", at=document.knee.load, vertical=True)


def _stages_chart(rungs: Sequence[LoadPoint], knob: str) -> Iterator[Stack]:
    """Draw the breakdown of the mean service time by stage, with the unattributed rest."""
    stages_by_load: list[tuple[str, dict[str, float]]] = []
    for rung in rungs:
        parts = {
            STAGE_NAMES[metric]: answer.value
            for metric in STAGES
            if (answer := rung.find(metric) or rung.find(metric, "mean")) is not None and answer.value
        }
        total = rung.find("service_time", "mean")
        if parts and total is not None and total.value and total.value > sum(parts.values()):
            parts[STAGE_NAMES["network_time"]] = total.value - sum(parts.values())
        if parts:
            stages_by_load.append((f"{knob} {rung.load:g}", parts))
    yield from draw_request_stages(stages_by_load)


def headline(document: LoadCurve | Capacity) -> str:
    """Answer in one sentence: the knee of a curve, or the largest load that holds the bounds."""
    return describe_capacity(document) if isinstance(document, Capacity) else describe_load_curve(document)


def numbers(document: LoadCurve | Capacity) -> Table:
    """Tabulate every number of every load, in base units and unrounded."""
    return make_table(
        "Loads",
        (f"{document.knob}>", "query", "value>", "low>", "high>", "failure"),
        (row for rung in document.rungs for row in _rows(rung)),
    )


def _rows(rung: LoadPoint) -> Iterator[tuple[str, ...]]:
    for answer in rung.answers:
        bounds = answer.bounds()
        figures = map(exact_text, (answer.value, bounds.low, bounds.high))
        yield repr(rung.load), str(answer.query), *figures, ""
    if rung.failure:
        yield repr(rung.load), "", "", "", "", spell_for_command_line(rung.failure)


# --- texts and tables -------------------------------------------------------------------------------

_NONE = "—"
OWN_SERVER, OTHERS_SERVER = "a freshly started server", "another measurement"
"""What verifies the answer of a search; a server that is not ours cannot be restarted."""
_WHY = {
    OWN_SERVER: "servers differ from start to start, or this one changed",
    OTHERS_SERVER: "the server or its machine changed in the meantime",
}


# --- load curve ------------------------------------------------------------------------------------


def load_curve_blocks(curve: LoadCurve) -> Iterator[Block]:
    """Lay out a load curve: a sentence, the curve as a table, and the latency breakdown."""
    yield Notice(severity=Severity.VERDICT, text=describe_load_curve(curve))
    for bound in curve.judged:
        yield Notice(severity=Severity(bound.verdict), text=describe_bound(curve.knob, bound))
    rungs = curve.by_load
    marks = _marks(curve)
    bounded = any(rung.judgements for rung in rungs)
    shown = [answer for rung in rungs for name in _LATENCIES if (answer := rung.find("latency", name))]
    yield make_table(
        f"Throughput and latency under each load; {_explain_cells(shown)}",
        (_unit(curve.knob), "requests/s>", "p50>", "p95>", "p99>", *(["bounds"] if bounded else []), ""),
        (
            (
                _load(rung.load),
                _cell(rung.find("request_rate")),
                *(_cell(rung.find("latency", name)) for name in _LATENCIES),
                *([_verdicts(rung)] if bounded else []),
                marks.get(rung.load, ""),
            )
            for rung in rungs
        ),
    )
    yield from (chart for chart in pictures(curve) if chart.title == _LATENCY and len(rungs) > 1)
    yield from _token_table(curve.knob, rungs)
    yield from _breakdown_table(curve, rungs)
    yield from _failures(rungs)


def describe_load_curve(curve: LoadCurve) -> str:
    """Describe the knee and the highest throughput."""
    rungs = [rung for rung in curve.by_load if _plain(rung.find("request_rate")) != _NONE]
    if not rungs:
        return "No load was measured."
    best = max(rungs, key=_rate)
    tokens = best.find("token_rate")
    rate = _plain(best.find("request_rate")) if tokens is None else _tokens(_plain(tokens))
    knee = curve.knee
    at_knee = knee is not None and knee.load == best.load
    most = f"at most {rate}, under {_at(curve.knob, best.load)}"
    more = "" if at_knee else f"; {most}"
    if knee is None:
        return f"The curve has no knee up to {_at(curve.knob, rungs[-1].load)}: {most}."
    between = "" if knee.low == knee.high else f" (between {_load(knee.low)} and {_load(knee.high)})"
    chosen = next(rung for rung in rungs if rung.load == knee.load)
    if spoken := _tokens_clause(chosen):
        return f"The knee is at {_at(curve.knob, knee.load)}{between}, with {spoken}{more}."
    pace, time = _plain(chosen.find("request_rate")), _plain(chosen.find("latency", "p50"))
    median = "a median of too few answers to be certified" if time == _NONE else f"a median of {time}"
    return f"The knee is at {_at(curve.knob, knee.load)}{between}, with {pace} and {median}{more}."


def _tokens_clause(rung: LoadPoint) -> str:
    """Say what a language model did under a load: tokens in all and for each user, and the first one."""
    rate, user = _plain(rung.find("token_rate")), _plain(rung.find("user_token_rate", "p50"))
    first = _plain(rung.find("time_to_first_token", "p50"))
    if _NONE in (rate, user):
        return ""
    started = "" if first == _NONE else f", the first after {first} (median)"
    return f"{_tokens(rate)} in all and {_tokens(user)} for each user{started}"


def _tokens(rate: str) -> str:
    return rate.replace("/s", " tokens/s")


def describe_bound(knob: str, bound: LadderBound) -> str:
    """Say up to which load a bound holds, and at which it is broken or undecided, with the figures."""
    broken, undecided = (bound.of_verdict(verdict) for verdict in (Verdict.BROKEN, Verdict.UNDECIDED))
    held, name = bound.held, str(bound.constraint)
    if held is not None:
        every = "at every load, " if len(bound.of_verdict(Verdict.HELD)) == len(bound.loads) else ""
        parts = [f"{name} holds {every}up to {_at(knob, held[0].load)} ({_judged_figure(held[1])})"]
        parts += [_loads_of("broken", broken), _loads_of("undecided", undecided)]
    elif len(broken) == len(bound.loads):
        (rung, judgement), *more = broken
        whole = ", the smallest load," if more else ""
        parts = [f"{name} is broken at {_at(knob, rung.load)}{whole} ({_judged_figure(judgement)})"]
        parts += ["and at every larger one"] if more else []
        return " ".join(parts)
    elif len(undecided) == len(bound.loads):
        return f"{name} is undecided at every load ({_judged_figure(undecided[-1][1])})"
    else:
        parts = [f"{name} is {_loads_of('broken', broken, knob)}", _loads_of("undecided", undecided)]
    holding = [rung for rung, _ in bound.of_verdict(Verdict.HELD) if broken and rung.load > broken[0][0].load]
    parts += [f"yet it holds at {', '.join(_load(rung.load) for rung in holding)}"] if holding else []
    return "; ".join(filter(None, parts))


def _loads_of(verdict: str, judged: Sequence[tuple[LoadPoint, Judgement]], knob: str = "") -> str:
    """Name the loads of a verdict, the smallest with its figure."""
    if not judged:
        return ""
    (rung, judgement), *more = judged
    at = _at(knob, rung.load) if knob else _load(rung.load)
    others = "".join(f", {_load(other.load)}" for other, _ in more)
    return f"{verdict} at {at} ({_judged_figure(judgement)}){others}"


def _judged_figure(judgement: Judgement) -> str:
    """Format what a bound was judged by; of too few answers what bounds it."""
    text = _cell(judgement.answer) if judgement.answer.value is None else _plain(judgement.answer)
    return "not known" if text == _NONE else text


def _marks(curve: LoadCurve) -> dict[float, str]:
    """Return remarks on loads: knee, plateau, saturated, failed."""
    places = {"knee": curve.knee and curve.knee.load, "plateau": curve.plateau, "falling": curve.decline}
    marks = {rung.load: [word for word, load in places.items() if load == rung.load] for rung in curve.rungs}
    for rung in curve.rungs:
        marks[rung.load] += [code for code in (SATURATED, CLIENT_LIMITED, INTERRUPTED) if code in rung.doubts]
        marks[rung.load] += ["failed"] if rung.failure else []
    return {load: ", ".join(labels) for load, labels in marks.items()}


def _breakdown_table(curve: LoadCurve, rungs: Sequence[LoadPoint]) -> Iterator[Table]:
    """Tabulate the latency breakdown, errors and client CPU; metrics without a value have no column."""
    queries = {
        "samples/s": ("throughput", None),
        **({} if _generates(rungs) else {"goodput": ("goodput", None)}),
        "service p50": ("service_time", "p50"),
        "lag p99": ("send_lag", "p99"),
        "queue": ("queue_time", None),
        "compute": ("compute_time", None),
        "errors": ("error_rate", None),
        "client CPU": ("client_cpu", None),
        "client adds": (FIRST_TOKEN, "mean"),
        "to a gap": (GAP, "mean"),
        "CO2e/1,000": ("carbon", None),
        "cost/million": ("cost", None),
        "cost/million tokens": ("token_cost", None),
    }
    rows = [(_load(rung.load), *(_plain(rung.find(*query)) for query in queries.values())) for rung in rungs]
    reported = any(rung.find(metric) for rung in rungs for metric in ("queue_time", "compute_time"))
    source = "; queue and compute are means reported by the server" if reported else ""
    if not rows or any(set(cells) != {_NONE} for _, *cells in rows):
        yield make_table(
            f"Where the time goes{source}",
            (_unit(curve.knob), *(f"{title}>{'?' if rows else ''}" for title in queries)),
            rows,
        )


def _generates(rungs: Iterable[LoadPoint]) -> bool:
    """Whether a language model was loaded, whose tokens have a table of their own."""
    return any(rung.find("token_rate") or rung.find("time_to_first_token", "p50") for rung in rungs)


def _token_table(knob: str, rungs: Sequence[LoadPoint]) -> Iterator[Block]:
    """Tabulate the tokens of a language model by load; nothing for other models."""
    if not _generates(rungs):
        return
    queries = {
        "tokens/s": ("token_rate", None),
        "per user": ("user_token_rate", "p50"),
        "first p50": ("time_to_first_token", "p50"),
        "p99": ("time_to_first_token", "p99"),
        "per token": ("time_per_output_token", "p50"),
        "gap p99": ("inter_chunk_latency", "p99"),
        "goodput": ("goodput", None),
    }
    yield make_table(
        "Tokens, as the server counts them, and their times",
        (_unit(knob), *(f"{title}>?" for title in queries)),
        ((_load(rung.load), *(_short(rung.find(*query)) for query in queries.values())) for rung in rungs),
    )
    if small := [_load(rung.load) for rung in rungs if WITHIN_ERROR in rung.doubts]:
        yield note(
            f"At {knob} {', '.join(small)} a time of tokens is below twice what the client itself adds.",
            code=WITHIN_ERROR,
        )


def _verdicts(rung: LoadPoint) -> str:
    """Return the verdict on the worst bound and, of several, its query if it is not held."""
    if not rung.judgements:
        return ""
    worst = worst_verdict(rung.judgements)
    query = next(j.constraint.query for j in rung.judgements if j.verdict is worst)
    return f"{worst} {query}" if worst is not Verdict.HELD and len(rung.judgements) > 1 else worst


# --- capacity search -------------------------------------------------------------------------------


def capacity_blocks(capacity: Capacity) -> Iterator[Block]:
    """Lay out a capacity search: the answer, its verification, and every measurement in order."""
    yield Notice(severity=Severity.VERDICT, text=describe_capacity(capacity))
    yield from _verification(capacity)
    for judgement in capacity.unmet:
        text = f"{judgement.sentence()}: no load meets every bound"
        yield Notice(severity=Severity.BROKEN, text=text)
    yield _measurements(capacity)
    yield from _token_table(capacity.search.knob, capacity.rungs)
    yield note(_end_reason(capacity), code=str(capacity.end))
    yield from _what_it_takes(capacity)
    yield from _failures(capacity.rungs)


def describe_capacity(capacity: Capacity) -> str:
    """Answer in one sentence: the largest load that holds, what breaks first and by how much, the rates."""
    bounds = _bounds(capacity.search)
    knob, passed, failed = capacity.search.knob, capacity.passed, capacity.failed
    if passed is None:
        if failed is None:
            return f"No load was found that clearly holds or breaks {bounds}."
        several = len(_limits(capacity.search)) > 1
        least = f"{_at(knob, failed).capitalize()} breaks {_broken_bound(capacity, bounds)}"
        return f"{least}; no smaller load was found that holds {bounds if several else 'it'}."
    beyond_it = (
        f"and {_load(failed)} breaks {_broken_bound(capacity)}"
        if failed is not None
        else _why_no_failure(capacity)
    )
    return f"{_at(knob, passed).capitalize()} holds {bounds}, {beyond_it}{_rates_clause(capacity)}."


def _broken_bound(capacity: Capacity, it: str = "it") -> str:
    """Name the bound that is broken, and by how much; `it` is the only one."""
    if not capacity.broke:
        rung = next(rung for rung in capacity.rungs if rung.load == capacity.failed)
        return f"{it} ({shorten_message(rung.failure) or SATURATED})"
    first = capacity.broke[0]
    share = relative_excess(first)
    value = _plain(first.answer)
    excess = f"{share:.0%} beyond" if isfinite(share) else ""
    detail = join_nonempty("" if value == _NONE else value, excess)
    name = str(first.constraint) if len(_limits(capacity.search)) > 1 else it
    return f"{name} ({detail})" if detail else name


def _why_no_failure(capacity: Capacity) -> str:
    """Describe why no load broke the bounds."""
    return {
        SearchEnd.LARGEST: "the largest load allowed",
        SearchEnd.CLIENT: "and beyond it the client is the limit",
    }.get(capacity.end, "and no load was found that breaks it")


def _rates_clause(capacity: Capacity) -> str:
    best = capacity.best
    if best is None:
        return ""
    rate, good = _plain(best.find("request_rate")), _plain(best.find("goodput"))
    there = join_nonempty("" if rate == _NONE else rate, "" if good == _NONE else f"goodput {good}")
    return f"; there it delivers {there}" if there else ""


def _verification(capacity: Capacity) -> Iterator[Notice]:
    verdict, verifier = capacity.confirmed, OWN_SERVER if capacity.ours else OTHERS_SERVER
    if capacity.passed is None:
        return
    if verdict is None or capacity.verified is None:
        text = f"not verified by {verifier}: the best of several tends to look too good (selection bias)"
        yield Notice(severity=Severity.DOUBT, code="unverified", text=text)
        return
    outcome = {
        Verdict.HELD: f"{verifier} confirms it",
        Verdict.BROKEN: f"{verifier} broke it: {_WHY[verifier]}; do not rely on it",
        Verdict.UNDECIDED: f"{verifier} is undecided: {_why_undecided(capacity.verified.judgements)}",
    }[verdict]
    sentences = "; ".join(j.sentence() for j in capacity.verified.judgements) or capacity.verified.failure
    text = spell_for_command_line(f"{outcome} ({sentences})")
    yield Notice(severity=Severity(verdict), code="verified", text=text)


def _why_undecided(judgements: Sequence[Judgement]) -> str:
    """Describe why the verification is undecided."""
    if any(judgement.answer.value is None for judgement in judgements):
        return "too few answers to be sure; allow more time"
    return "too close to the bound to be sure"


def _measurements(capacity: Capacity) -> Table:
    """Tabulate the measurements; a verdict pools all of one load, at the confidence that the search needs."""
    limits_shown = _limits(capacity.search)
    verdicts = {
        point.load: point.verdict
        for point in judge_loads(
            capacity.rungs, z=capacity.search.required_z, rate=capacity.search.knob == RATE
        )
    }
    marks = {capacity.failed: "smallest that failed", capacity.passed: "largest that passed"}
    rows = tuple(
        (
            f"{number}",
            _load(rung.load),
            "" if rung.care == 1 else f"{rung.care:.3g}x",
            *(_cell(answers.get(bound)) for bound in limits_shown),
            _cell(rung.find("request_rate")),
            str(verdicts[rung.load]),
            marks.get(rung.load, ""),
        )
        for number, rung in enumerate(capacity.rungs, 1)
        for answers in [{j.constraint: j.answer for j in rung.judgements}]
    )
    titles = (f"{bound.query}>" for bound in limits_shown)
    shown = [j.answer for rung in capacity.rungs for j in rung.judgements if j.constraint in limits_shown]
    return make_table(
        f"The search for {_bounds(capacity.search)}; {_explain_cells(shown)}",
        (">", _unit(capacity.search.knob), "longer>", *titles, "requests/s>", "", ""),
        rows,
    )


def _end_reason(capacity: Capacity) -> str:
    measurements = count(len(capacity.rungs), "measurement")
    spec = capacity.search
    why = {
        SearchEnd.NEIGHBOURS: "no load lies between the largest that passed and the smallest that failed",
        SearchEnd.RESOLVED: f"the largest load that passed and the smallest that failed are within "
        f"{spec.resolution:.0%} of each other",
        SearchEnd.INDISTINCT: "no load in between could be decided, even measured "
        f"{spec.patience:g} times as long as planned",
        SearchEnd.MEASUREMENTS: "the limit on measurements was reached",
        SearchEnd.TIME: f"its time of {format_rough_duration(spec.max_time or 0.0)} was over (--max-time)",
        SearchEnd.LARGEST: f"{_load(spec.most)} is the largest load allowed",
        SearchEnd.SMALLEST: "there is no smaller load",
        SearchEnd.CLIENT: "the client, not the server, limits higher loads: give it more drivers or cores",
        SearchEnd.DISPUTED: "a larger load passed than one that failed, so the latency does not simply "
        "grow with the load; the answer covers both",
        SearchEnd.REFUSED: "the server rejects all requests as invalid, and would under any load",
        SearchEnd.JUDGED: "stored loads were judged, and nothing more was measured",
        SearchEnd.INTERRUPTED: "it was interrupted; a complete search gives a narrower answer",
    }[capacity.end]
    return f"ended after {measurements}: {why}"


_LONGEST = 3600.0
"""Seconds at one load beyond which more time is no advice."""
_SPARE, _STEP = 1.25, 5
"""What is advised, as a multiple of what it takes, and the seconds that it is rounded up to."""
_LOADS = 4
"""Loads of the longest kind that fit into the time of a search."""
_MINUTES = 120
"""Seconds from which on it is in minutes."""


def _typed(seconds: float) -> str:
    """Return a time as it is typed, rounded up."""
    return f"{ceil(seconds / 60)}m" if seconds >= _MINUTES else f"{_STEP * ceil(seconds / _STEP)}s"


def _what_it_takes(capacity: Capacity) -> Iterator[Notice]:
    """Say which bound leaves a search undecided, and the time that decides it."""
    left, job = open_load(capacity), capacity.job
    if left is None or job is None or capacity.end is SearchEnd.INTERRUPTED:
        return
    bound, answer = left.judgement.constraint, left.judgement.answer
    floor = certified_floor(fraction_of(bound.percentile or "") or 0.0)
    few = f"has {int(answer.size or 0):,} of the {floor:,} effective answers that certify it"
    why = few if answer.value is None else f"is too close to what was measured, {_cell(answer)}"
    duration = None if job.load is None else job.load.duration
    times, limit = _SPARE * max(1.0, left.times), capacity.search.max_time
    needed = times * left.point.care * (duration or job.plan.max_time)
    if needed > _LONGEST:
        advice = "an hour a load would not decide it: give a bound that is farther away"
    elif duration is not None:
        advice = f"give each load --duration {_typed(needed)}"
    else:
        advice = f"give the search --max-time {_typed(_LOADS * needed if limit is None else times * limit)}"
    text = f"at {_at(capacity.search.knob, left.point.load)}, {bound} {why}; {advice}"
    yield note(text, code="undecided")


def _limits(spec: CapacitySearch) -> list[Constraint]:
    return [bound for bound in spec.bounds if limits_load(bound)]


def _bounds(spec: CapacitySearch) -> str:
    return " and ".join(map(str, _limits(spec)))


# --- cells -----------------------------------------------------------------------------------------


def _failures(rungs: Sequence[LoadPoint]) -> Iterator[Notice]:
    for rung in rungs:
        if rung.failure:
            text = f"under {_load(rung.load)}: {shorten_message(rung.failure)}"
            yield Notice(severity=Severity.FAILURE, text=text)


def _cell(measured: Answer | None) -> str:
    """Format a value with half of its interval in percent; of an uncertified one only what bounds it."""
    if measured is None:
        return _NONE
    bounds, unit = measured.bounds(), measured.query.unit
    if measured.value is None:
        return format_ends(bounds.low, bounds.high, unit) or _NONE
    return estimate_with_half_width(measured.value, measured.interval, unit)


def _short(measured: Answer | None) -> str:
    """Format a value with the digits that its interval justifies; of an uncertified one what bounds it."""
    return _cell(measured) if measured is None or measured.value is None else _plain(measured)


def _explain_cells(shown: Iterable[Answer]) -> str:
    """Say what stands beside a value, and what a cell without a value means."""
    uncertified = any(answer.value is None and answer.interval is not None for answer in shown)
    return f"± is half of the 95 % interval{'; a range or >: of too few answers' if uncertified else ''}"


def _plain(measured: Answer | None) -> str:
    """Format a value with the digits that its interval justifies."""
    if measured is None or measured.value is None:
        return _NONE
    return estimate(measured.value, measured.interval, measured.query.unit)[0]


def _rate(rung: LoadPoint) -> float:
    rate = rung.find("request_rate")
    return (rate.value or 0.0) if rate is not None else 0.0


def _load(load: float) -> str:
    return f"{load:,.0f}" if load == round(load) else f"{load:,.4g}"


def _at(knob: str, load: float) -> str:
    return f"{knob} {_load(load)}{'/s' if knob == RATE else ''}"


def _unit(knob: str) -> str:
    return "concurrency>" if knob != RATE else "rate/s>"
