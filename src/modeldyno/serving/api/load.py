"""Load-test a model behind a server: one load, a load curve, or the largest load within bounds."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from modeldyno.base.errors import RequestError, RunFailed
from modeldyno.base.job.cancellation import parse_cancellation
from modeldyno.base.job.load_spec import Arrivals, Load, parse_rate, parse_rates, parse_sequence
from modeldyno.base.job.probe_options import ProbeOptions
from modeldyno.base.job.think_time import parse_think_time
from modeldyno.base.options import LOAD
from modeldyno.base.progress import showing_progress
from modeldyno.base.result.cost import Price
from modeldyno.base.stats.units import plain_number, read_time
from modeldyno.engine.trace.carbon import Emission
from modeldyno.profiling.api.error_wording import reference_of, reword_errors
from modeldyno.profiling.api.options import (
    PriceKeywords,
    PriceOptions,
    RunKeywords,
    RunOptions,
    StoreKeywords,
    StoreOptions,
    take,
)
from modeldyno.profiling.api.profile import (
    as_tuple,
    result_or_raise,
    split_plan,
    store_conclusion_if,
    store_if,
)
from modeldyno.profiling.api.settings import PlannedKnobs
from modeldyno.profiling.request import Request, server_for
from modeldyno.profiling.resolve_model import resolve_model
from modeldyno.profiling.run import run_request
from modeldyno.serving.load.capacity import Capacity
from modeldyno.serving.load.capacity_steps import RATE
from modeldyno.serving.load.load_curve import LoadCurve, ends_at_plateau, parse_ladder, single_concurrency
from modeldyno.serving.loadtest.live_loads import show_loads
from modeldyno.serving.loadtest.resume import (
    check_changes,
    find_series,
    rerank_series,
    resume_curve,
    resume_search,
)
from modeldyno.serving.loadtest.series import begin_curve, begin_search, headers_in_environment, measure_loads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from modeldyno.base.job.input_spec import InputSpec
    from modeldyno.base.metrics.measurement_plan import Plan
    from modeldyno.base.result.result import Event, Result
    from modeldyno.serving.api.serve import Server
    from modeldyno.serving.load.series_steps import AnySeries

_LOADS = "1:64"
"""Concurrencies of a load curve by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendOptions:
    """How requests are sent; when they are due, each function asks in its own way."""

    duration: float | str | None = None
    requests: int | None = None
    ramp: float = 0.0
    request_timeout: float | str = 60.0
    retries: int = 0
    drivers: int = 1
    calibration: float | str = 1.0
    sequence: int | str | tuple[int, int] | None = None
    think_time: float | str | None = None
    prefill_concurrency: int | None = None
    cancel: str | None = None
    headers: Mapping[str, str] | None = None


class LoadKeywords(PlannedKnobs, PriceKeywords, RunKeywords, StoreKeywords, total=False):
    """Keywords of loads: fields of `SendOptions`, of a plan, and the server's knobs."""

    duration: float | str | None
    requests: int | None
    ramp: float
    request_timeout: float | str
    retries: int
    drivers: int
    calibration: float | str
    sequence: int | str | tuple[int, int] | None
    think_time: float | str | None
    prefill_concurrency: int | None
    cancel: str | None
    headers: Mapping[str, str] | None


_GROUPS = (SendOptions, PriceOptions, RunOptions, StoreOptions)
"""Groups of options of every load."""


@reword_errors
def load(
    model: str | Path | Server,
    *,
    concurrency: int | None = None,
    rate: float | str | None = None,
    replay: str | Path | None = None,
    replay_speed: float | None = None,
    replay_window: float | str | None = None,
    backend: str | None = None,
    inputs: Sequence[str | InputSpec] = (),
    records: str | Path | None = None,
    probes: Sequence[str] = (),
    require: str | Sequence[str] = (),
    plan: Plan | None = None,
    beside: str | Sequence[str] = (),
    name: str | None = None,
    **settings: Unpack[LoadKeywords],
) -> Result:
    """Load-test a model behind a server, as ``modeldyno load`` does.

    Args:
        model: a path or reference as for `profile`, served during the measurement, or a running server: its
            URL or name, or what `serve` returned.
        concurrency: number of concurrent requests in a closed loop, each sent when the previous one is
            answered; with a rate, the maximum concurrency.
        rate: requests per second in an open loop, independent of the server: a number, or text such as
            ``"100:poisson"`` or ``"100:burst=8"``; ``"5:sequences"`` are sequences per second.
        replay: a file of due times; of a language model with a tokenizer also of the lengths of requests.
        replay_speed: how many times as fast as recorded to replay; once if None.
        replay_window: the seconds of the trace to replay, or text such as ``"10m"``; all if None.
        duration: the steady window, in seconds or as text such as ``"10s"``; if None, measure until the plan
            is met.
        requests: number of requests to measure after the warm-up.
        ramp: seconds of ramp-up to the full load.
        request_timeout: timeout of a request, in seconds or as text.
        retries: retries of a request that was refused, rejected (429, 503), or lost before any answer.
        drivers: number of processes that send.
        calibration: time after a load of streamed answers to measure the client's own error in their times,
            in seconds or as text; 0 leaves it out.
        sequence: requests of each sequence of a stateful model, or turns of each chat: ``20``, ``"10..30"``,
            or ``"data"`` for the streams of the data; with a rate, `concurrency` of them are open at once.
        think_time: pause of a sequence between an answer and when its next request is due: seconds,
            ``"2s"``, ``"2s~0.5s"`` (normal), ``"2s~x1.5"`` (log-normal) or ``"1s..3s"`` (uniform).
        prefill_concurrency: most requests at once whose streamed answers have not begun; further ones wait,
            and their latency includes the wait.
        cancel: share of the requests that the client gives up, and how long after sending: ``"5%:0.5s"``.
        backend: what serves the model; ``"triton"`` by default.
        inputs: shapes, ranges or files, as ``--input`` takes them.
        headers: sent with every request; not stored in the Result.
        records: a file for every request: ``.csv``, ``.jsonl`` or ``.npz``.
        carbon: intensity of the grid, such as ``"400g/kWh"``: the metric ``carbon`` are the grams of CO2
            equivalent of 1,000 inferences, where the power of the server can be read.
        power: power to assume for `carbon` where none can be read, such as ``"65W"``.
        price: price of the machine, such as ``"1.20/h"``: the metric ``cost`` is that of a million
            inferences, and ``token_cost`` that of a million tokens.
        probes: what to measure; by default static analysis and the load.
        require: bounds, such as ``"latency.p99 <= 50ms"``.
        percentiles: percentiles to measure until certified, such as ``"p99"``.
        plan: time and precision of the measurement.
        beside: other models on the same server at the same time, such as ``"b.onnx concurrency=4"``.
        name: name of the model in the results.
        trust: allow files that run code when loaded (in the child process).
        store: keep the Result in the store; if the store cannot be written, it warns.
        tags: names by which `read` and the command line find it again.
        progress: show progress on standard error after two seconds, in a terminal or a notebook.
        watch: called with every event while it runs.
        settings: the server's knobs, such as ``instances=2``, and fields of `plan`, such as ``max_time=5``
            (seconds).

    Returns:
        The Result; ``result["latency.p99"]`` is in seconds, ``result["request_rate"]`` per second.

    Raises:
        RequestError: the request is invalid; nothing was measured.
        MissingExtra: the server is not installed.
        BoundBroken: a bound of `require` is broken; the Result is the exception's ``result``.
    """
    arguments = _all_arguments(locals())
    request = _request(arguments)
    with show_loads(enabled=arguments["store"]) as live:
        with _headers_and_progress(arguments) as on_event:
            outcome = run_request(request, watch=live.follow(on_event))
        store_if(outcome.result, condition=arguments["store"], tags=arguments["tags"])
        live.end(outcome.result)
    return result_or_raise(outcome)


@reword_errors
def load_curve(
    model: str | Path | Server | None = None,
    *,
    concurrency: str | Sequence[int] | None = None,
    rate: float | str | Sequence[float] | None = None,
    backend: str | None = None,
    inputs: Sequence[str | InputSpec] = (),
    probes: Sequence[str] = (),
    require: str | Sequence[str] = (),
    plan: Plan | None = None,
    beside: str | Sequence[str] = (),
    name: str | None = None,
    resume: str | Path | LoadCurve | None = None,
    force: bool = False,
    **settings: Unpack[LoadKeywords],
) -> LoadCurve:
    """Measure one concurrency or rate after another on one server, as ``modeldyno load -c 1,2,4`` does.

    Args:
        model: a path or reference as for `profile`, served during the measurement, or a running server: its
            URL or name, or what `serve` returned.
        concurrency: rising numbers of concurrent requests, ``(1, 2, 4)`` or ``"1,2,4"``, or ``"1:64"`` to
            double from 1 to 64 until more load brings no more throughput; ``"1:64"`` if None. With rates a
            single number, the maximum concurrency.
        rate: rising rates of an open loop instead, ``(10, 20, 40)`` or ``"10,20,40:poisson"``.
        duration: the steady window of each load, in seconds or as text such as ``"10s"``; if None, measure
            until the plan is met.
        requests: number of requests to measure at each load, after the warm-up.
        ramp: seconds of ramp-up to the full load.
        request_timeout: timeout of a request, in seconds or as text.
        retries: retries of a request that was refused, rejected (429, 503), or lost before any answer.
        drivers: number of processes that send.
        calibration: time after a load of streamed answers to measure the client's own error in their times,
            in seconds or as text; 0 leaves it out.
        sequence: requests of each sequence of a stateful model, or turns of each chat: ``20``, ``"10..30"``,
            or ``"data"`` for the streams of the data; with a rate, `concurrency` of them are open at once.
        think_time: pause of a sequence between an answer and when its next request is due: seconds,
            ``"2s"``, ``"2s~0.5s"`` (normal), ``"2s~x1.5"`` (log-normal) or ``"1s..3s"`` (uniform).
        prefill_concurrency: most requests at once whose streamed answers have not begun; further ones wait,
            and their latency includes the wait.
        cancel: share of the requests that the client gives up, and how long after sending: ``"5%:0.5s"``.
        backend: what serves the model; ``"triton"`` by default.
        inputs: shapes, ranges or files, as ``--input`` takes them.
        headers: sent with every request; not stored in the Results.
        probes: what to measure; by default static analysis and the load.
        require: bounds, which are judged at each load, such as ``"latency.p99 <= 50ms"``.
        percentiles: percentiles to measure until certified, such as ``"p99"``.
        plan: time and precision of each measurement.
        beside: other models on the same server at the same time, such as ``"b.onnx concurrency=4"``.
        carbon: intensity of the grid, such as ``"400g/kWh"``, for the metric ``carbon`` of each load.
        power: power to assume for `carbon` where none can be read, such as ``"65W"``.
        price: price of the machine, such as ``"1.20/h"``: the metric ``cost`` is that of a million
            inferences, and ``token_cost`` that of a million tokens.
        name: name of the model in the results.
        trust: allow files that run code when loaded (in the child process).
        resume: continue a load curve: its id in the store, a file, or a LoadCurve. Only `concurrency`, of
            which missing loads are measured, and `require` can change; with other bounds it continues as a
            new load curve that has all loads of the first.
        force: resume even if the model or the machine has changed.
        store: keep the Result of each load, and the LoadCurve so far, in the store before the next.
        tags: names by which `read` and the command line find the Results again.
        progress: show progress on standard error after two seconds, in a terminal or a notebook.
        watch: called with every event while it runs.
        settings: the server's knobs, such as ``instances=2``, and fields of `plan`, such as ``max_time=5``
            (seconds).

    Returns:
        The LoadCurve: ``.rungs`` has a measurement for each load, ``.knee`` the one beyond which more load
        mainly adds waiting. After an interruption (Ctrl-C), the curve so far.

    Raises:
        RequestError: the request is invalid; nothing was measured.
        MissingExtra: the server is not installed.
        RunFailed: it was interrupted before anything was measured.
    """
    arguments = _all_arguments(locals())
    text = (
        concurrency
        if concurrency is None or isinstance(concurrency, str)
        else ",".join(map(str, concurrency))
    )
    if resume is not None:
        stored = _series_to_resume(load_curve, arguments, resume, search=False)
        curve = resume_curve(stored, concurrency=text, require=as_tuple(require, "require"))
    elif rate is not None:
        texts = parse_rates(_rates_text(rate))
        limit = None if text is None else single_concurrency(text)
        request = _request({**arguments, "rate": texts[0], "concurrency": limit})
        curve = begin_curve(request, [parse_rate(each)["rate"] for each in texts], knob=RATE)
    else:
        loads = parse_ladder(text or _LOADS)
        request = _request({**arguments, "concurrency": loads[0]})
        curve = begin_curve(request, loads, until_plateau=ends_at_plateau(text or _LOADS))
    return _measure(curve, arguments)


@reword_errors
def find_load(
    model: str | Path | Server | None = None,
    *,
    most: float | None = None,
    measurements: int | None = None,
    concurrency: int | None = None,
    rate: float | str | None = None,
    backend: str | None = None,
    inputs: Sequence[str | InputSpec] = (),
    probes: Sequence[str] = (),
    require: str | Sequence[str] = (),
    plan: Plan | None = None,
    beside: str | Sequence[str] = (),
    name: str | None = None,
    resume: str | Path | LoadCurve | Capacity | None = None,
    force: bool = False,
    **settings: Unpack[LoadKeywords],
) -> Capacity:
    """Find the largest load that holds every bound, as ``modeldyno load --find-load`` does.

    Args:
        model: a path or reference as for `profile`, served during the measurement, or a running server: its
            URL or name, or what `serve` returned.
        most: the largest load to try; 1024 by default, or 1024 times the rate.
        measurements: maximum number of loads to measure; 10 by default.
        concurrency: the concurrency to begin with; with a rate, the maximum concurrency.
        rate: search the rate of an open loop from here: requests per second, or text such as
            ``"100:poisson"``; by default the concurrency is searched.
        duration: the steady window of each load, in seconds or as text such as ``"10s"``; if None, measure
            until the plan is met.
        requests: number of requests to measure at each load, after the warm-up.
        ramp: seconds of ramp-up to the full load.
        request_timeout: timeout of a request, in seconds or as text.
        retries: retries of a request that was refused, rejected (429, 503), or lost before any answer.
        drivers: number of processes that send.
        calibration: time after a load of streamed answers to measure the client's own error in their times,
            in seconds or as text; 0 leaves it out.
        sequence: requests of each sequence of a stateful model, or turns of each chat: ``20``, ``"10..30"``,
            or ``"data"`` for the streams of the data; with a rate, `concurrency` of them are open at once.
        think_time: pause of a sequence between an answer and when its next request is due: seconds,
            ``"2s"``, ``"2s~0.5s"`` (normal), ``"2s~x1.5"`` (log-normal) or ``"1s..3s"`` (uniform).
        prefill_concurrency: most requests at once whose streamed answers have not begun; further ones wait,
            and their latency includes the wait.
        cancel: share of the requests that the client gives up, and how long after sending: ``"5%:0.5s"``.
        backend: what serves the model; ``"triton"`` by default.
        inputs: shapes, ranges or files, as ``--input`` takes them.
        headers: sent with every request; not stored in the Results.
        probes: what to measure; by default static analysis and the load.
        require: the bounds to hold, such as ``"latency.p99 <= 50ms"``; at least one.
        percentiles: percentiles to measure until certified, such as ``"p99"``.
        plan: time and precision of each measurement.
        beside: other models on the same server at the same time, such as ``"b.onnx concurrency=4"``.
        carbon: intensity of the grid, such as ``"400g/kWh"``, for the metric ``carbon`` of each load.
        power: power to assume for `carbon` where none can be read, such as ``"65W"``.
        price: price of the machine, such as ``"1.20/h"``: the metric ``cost`` is that of a million
            inferences, and ``token_cost`` that of a million tokens.
        name: name of the model in the results.
        trust: allow files that run code when loaded (in the child process).
        resume: continue a search, or begin one with the loads of a load curve: its id in the store, a file,
            or the document. Only `most`, `measurements`, `max_time` and `require` can change; with other
            bounds it continues as a new search, which judges the measured loads again.
        force: resume even if the model or the machine has changed.
        store: keep the Result of each load, and the Capacity so far, in the store before the next.
        tags: names by which `read` and the command line find the Results again.
        progress: show progress on standard error after two seconds, in a terminal or a notebook.
        watch: called with every event while it runs.
        settings: the server's knobs, such as ``instances=2``, and fields of `plan`; ``max_time=120`` are the
            seconds of the whole search.

    Returns:
        The Capacity: ``.passed`` is the largest load that holds, ``.failed`` the smallest that does not (None
        for none), ``.verdict`` whether a load holds, ``.verified`` its repetition on a fresh server. After
        an interruption (Ctrl-C), the answer so far.

    Raises:
        RequestError: the request is invalid, or has no bound; nothing was measured.
        MissingExtra: the server is not installed.
        RunFailed: it was interrupted before anything was measured.
    """
    arguments = _all_arguments(locals())
    if resume is not None:
        stored = _series_to_resume(find_load, arguments, resume, search=True)
        bounds = as_tuple(require, "require")
        knobs = arguments["settings"]
        max_time = split_plan(None, knobs)[0].max_time if "max_time" in knobs else None
        search = resume_search(
            stored, most=most, measurements=measurements, max_time=max_time, require=bounds
        )
    else:
        search = begin_search(_request(arguments), most=most, measurements=measurements)
    return _measure(search, arguments)


@reword_errors
def rerank_load(series: str | Path | LoadCurve | Capacity, require: str | Sequence[str] = ()) -> Capacity:
    """Judge the loads of a series by other bounds without measuring, as ``modeldyno load --rerank`` does.

    Args:
        series: a load curve or a search, a file of one, or its id in the store.
        require: bounds, such as ``"latency.p99 <= 80ms"``; if empty, those it was measured for.

    Returns:
        What a search with these bounds would answer from the measured loads. It is not stored;
        ``find_load(resume=..., require=...)`` goes on from there.

    Raises:
        RequestError: there is no such series, no bound, or no load that measured its metric.
    """
    return rerank_series(_find_series(series), as_tuple(require, "require"))


def _all_arguments(local: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a function by name, with those of the groups; ``settings`` are the rest."""
    settings = dict(local["settings"])
    groups: list[Any] = [take(group, settings) for group in _GROUPS]
    named = {each.name: getattr(group, each.name) for group in groups for each in fields(group)}
    return {**local, **named, "settings": settings}


def _measure(series: AnySeries, arguments: Mapping[str, Any]) -> AnySeries:
    """Measure a series to its end, storing each Result with the series before the next."""
    stores, tags = arguments["store"], arguments["tags"]
    if series.rungs:
        store_conclusion_if(series, condition=stores)
    with _headers_and_progress(arguments) as on_event, show_loads(enabled=stores) as live:
        emission, watch = Emission.parse(arguments["carbon"], arguments["power"]), live.follow(on_event)
        for outcome, latest in measure_loads(
            series, watch=watch, force=arguments["force"], emission=emission, price=_price(arguments)
        ):
            store_if(outcome.result, condition=stores, tags=tags)
            live.end(outcome.result)
            store_conclusion_if(latest, condition=stores)
            series = latest
    if not series.rungs:
        raise RunFailed("No measurement was completed.")
    return series


def _price(arguments: Mapping[str, Any]) -> Price | None:
    return None if arguments["price"] is None else Price.parse(arguments["price"])


def _series_to_resume(
    function: Callable[..., Any], arguments: Mapping[str, Any], resume: Any, *, search: bool
) -> LoadCurve | Capacity:
    """Return the series to resume, after refusing arguments that cannot change it."""
    defaults = {name: p.default for name, p in signature(function).parameters.items()}
    defaults |= {each.name: each.default for each in fields(SendOptions)}
    changed = [n for n, default in defaults.items() if n not in _OF_THE_RUN and arguments[n] != default]
    check_changes({name: f"{name}=" for name in (*changed, *arguments["settings"])}, search=search)
    return _find_series(resume)


_OF_THE_RUN = {"resume", "force", "headers", "settings"}
"""Arguments that change nothing about a series."""


def _find_series(series: str | Path | LoadCurve | Capacity) -> LoadCurve | Capacity:
    return series if isinstance(series, LoadCurve | Capacity) else find_series(str(series))


@contextmanager
def _headers_and_progress(arguments: Mapping[str, Any]) -> Iterator[Callable[[Event], None]]:
    """Send the headers and show progress within the block, as the arguments of a function say."""
    headers = [f"{name}: {value}" for name, value in (arguments["headers"] or {}).items()]
    with (
        headers_in_environment(headers),
        showing_progress(arguments["watch"], progress=arguments["progress"]) as on_event,
    ):
        yield on_event


_TIMES = {"duration", "request_timeout", "replay_window", "calibration"}
"""Arguments that are times, also as text."""


def _rates_text(rates: float | str | Sequence[float]) -> str:
    """Return rates as text."""
    if isinstance(rates, str):
        return rates
    return ",".join(map(plain_number, (rates,) if isinstance(rates, int | float) else rates))


def _read_if_time(name: str, value: Any) -> Any:
    """Return the argument, a time that is text in seconds."""
    return read_time(value, name) if name in _TIMES and isinstance(value, str) else value


def _request(arguments: Mapping[str, Any]) -> Request:
    """Build the Request from the arguments of one of the three functions."""
    if arguments["model"] is None:
        raise RequestError("A series of loads needs a model, or resume= with the id of a stored one.")
    model = resolve_model(reference_of(arguments["model"]))
    plan, knobs = split_plan(arguments["plan"], arguments["settings"])
    if arguments["plan"] is None and "max_time" not in arguments["settings"]:
        plan = replace(plan, may_extend=True)
    load = Load(
        **_arrivals(arguments.get("rate"), arguments.get("replay")),
        concurrency=arguments["concurrency"],
        speed=1.0 if arguments.get("replay_speed") is None else arguments["replay_speed"],
        window=_read_if_time("replay_window", arguments.get("replay_window")),
        **{row.field: _read_if_time(row.name, arguments[row.name]) for row in LOAD}
        | {
            "sequence": parse_sequence(arguments["sequence"]),
            "think_time": parse_think_time(arguments["think_time"]),
            "cancel": parse_cancellation(arguments["cancel"]),
        },
    )
    records = arguments.get("records")
    return Request(
        model=model,
        backend=arguments["backend"] or server_for(model),
        settings=knobs,
        inputs=as_tuple(arguments["inputs"], "inputs"),
        probes=tuple(arguments["probes"]),
        load=load,
        require=as_tuple(arguments["require"], "require"),
        plan=plan,
        observation=ProbeOptions(records=None if records is None else str(Path(records).absolute())),
        name=arguments["name"],
        trust=arguments["trust"],
        beside=as_tuple(arguments["beside"], "beside"),
        emission=Emission.parse(arguments["carbon"], arguments["power"]),
        price=_price(arguments),
    )


def _arrivals(rate: float | str | None, replay: str | Path | None) -> dict[str, Any]:
    if rate is not None and replay is not None:
        raise RequestError("rate and replay both set when requests are due; give one of them.")
    if replay is not None:
        return {"arrivals": Arrivals.TRACE, "trace": str(Path(replay).absolute())}
    if rate is None:
        return {}
    return parse_rate(str(rate))
