"""``modeldyno.load``: load-test a model behind a server."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.api.error_wording import reword_errors
from modeldyno.api.profile import as_tuple, result_or_raise, split_plan, store_if
from modeldyno.core.load.endpoint_url import HEADERS_VARIABLE
from modeldyno.core.spec.load_spec import Arrivals, Load, parse_rate
from modeldyno.core.spec.probe_options import Observation
from modeldyno.errors import RequestError
from modeldyno.profiling.request import Request, server_for
from modeldyno.profiling.run import run_request
from modeldyno.progress import showing_progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from modeldyno.core.metrics.measurement_plan import Plan
    from modeldyno.core.result.result import Event, Result
    from modeldyno.core.spec.input_spec import InputSpec
    from modeldyno.core.spec.knob import KnobValue


@reword_errors
def load(  # noqa: PLR0913 - one function per command, one parameter per option
    model: str | Path,
    *,
    concurrency: int | None = None,
    rate: float | str | None = None,
    replay: str | Path | None = None,
    duration: float | None = None,
    requests: int | None = None,
    ramp: float = 0.0,
    request_timeout: float = 60.0,
    retries: int = 0,
    drivers: int = 1,
    backend: str | None = None,
    inputs: Sequence[str | InputSpec] = (),
    headers: Mapping[str, str] | None = None,
    records: str | Path | None = None,
    probes: Sequence[str] = (),
    require: str | Sequence[str] = (),
    percentiles: str | Sequence[str] = (),
    plan: Plan | None = None,
    name: str | None = None,
    trust: bool = False,
    store: bool = True,
    tags: str | Sequence[str] = (),
    progress: bool = True,
    watch: Callable[[Event], None] | None = None,
    **settings: KnobValue,
) -> Result:
    """Load-test a model behind a server, as ``modeldyno load`` does.

    Args:
        model: a path or reference as for `profile`, served during the measurement, or the URL of a running
            server.
        concurrency: number of concurrent requests in a closed loop, each sent when the previous one is
            answered; with a rate, the maximum concurrency.
        rate: requests per second in an open loop, independent of the server: a number, or text such as
            ``"100:poisson"`` or ``"100:burst=8"``.
        replay: a file of due times.
        duration: seconds of the steady window; if None, measure until the plan is met.
        requests: number of requests to measure after the warm-up.
        ramp: seconds of ramp-up to the full load.
        request_timeout: timeout of a request in seconds.
        retries: retries of a request that the server did not answer.
        drivers: number of processes that send.
        backend: what serves the model; ``"triton"`` by default.
        inputs: shapes, ranges or files, as ``--input`` takes them.
        headers: sent with every request; not stored in the Result.
        records: a file for every request: ``.csv``, ``.jsonl`` or ``.npz``.
        probes: what to measure; by default static analysis and the load.
        require: bounds, such as ``"latency.p99 <= 50ms"``.
        percentiles: percentiles to measure until certified, such as ``"p99"``.
        plan: time and precision of the measurement.
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
    reference = _check_reference(model)
    plan, settings = split_plan(plan, settings)
    request = Request(
        model=reference,
        backend=backend or server_for(reference),
        settings=settings,
        inputs=as_tuple(inputs, "inputs"),
        probes=tuple(probes),
        load=Load(
            **_arrivals(rate, replay),
            concurrency=concurrency,
            requests=requests,
            duration=duration,
            ramp=ramp,
            timeout=request_timeout,
            retries=retries,
            drivers=drivers,
        ),
        require=as_tuple(require, "require"),
        percentiles=as_tuple(percentiles, "percentiles"),
        plan=plan,
        observation=Observation(records=None if records is None else str(Path(records).absolute())),
        name=name,
        trust=trust,
    )
    with _headers_in_environment(headers or {}), showing_progress(watch, progress=progress) as on_event:
        outcome = run_request(request, watch=on_event)
    store_if(outcome.result, wanted=store, tags=tags)
    return result_or_raise(outcome)


def _check_reference(model: Any) -> str:
    if not isinstance(model, str | Path):
        raise RequestError(
            "A server needs a model by path, scheme:locator or URL; "
            f"a live {type(model).__name__} cannot be served."
        )
    return str(model)


@contextmanager
def _headers_in_environment(headers: Mapping[str, str]) -> Iterator[None]:
    """Pass headers to the sending process through the environment within the block."""
    before = os.environ.get(HEADERS_VARIABLE)
    if headers:
        os.environ[HEADERS_VARIABLE] = "\n".join(f"{key}: {value}" for key, value in headers.items())
    try:
        yield
    finally:
        os.environ.pop(HEADERS_VARIABLE, None)
        if before is not None:
            os.environ[HEADERS_VARIABLE] = before


def _arrivals(rate: float | str | None, replay: str | Path | None) -> dict[str, Any]:
    if rate is not None and replay is not None:
        raise RequestError("rate and replay both set when requests are due; give one of them.")
    if replay is not None:
        return {"arrivals": Arrivals.TRACE, "trace": str(Path(replay).absolute())}
    if rate is None:
        return {}
    number, kind, burst = parse_rate(str(rate))
    return {"arrivals": kind, "rate": number, "burst": burst}
