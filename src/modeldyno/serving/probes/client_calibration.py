"""Measures the client's own error after a load of streamed answers, if there is time."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.base import plugins
from modeldyno.base.errors import ModelDynoError
from modeldyno.base.stats import statistics
from modeldyno.serving.load import client_error
from modeldyno.serving.load.request_log import FirstPieces, sample_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from modeldyno.base.job.load_spec import Load
    from modeldyno.base.metrics.doubt import Doubt
    from modeldyno.base.metrics.measurement import Distribution, Measurement
    from modeldyno.base.metrics.measurement_plan import Plan
    from modeldyno.engine.interfaces.request_target import Reply, Target
    from modeldyno.serving.load.steady_window import SteadyWindow
    from modeldyno.serving.loadgen.calibration import PlaybackServer
    from modeldyno.serving.loadgen.event_stream import TextStart

_STARTING = 0.5
"""Seconds that a calibration takes beside the playing."""
_REPORTING = 0.5
"""Seconds that the figures of a load take to compute."""
_SHORTEST = 0.2
"""Seconds of playing below which a calibration is left out."""
_MOST_SPARED = 0.25
"""Share of the time limit that a load may leave to its calibration."""
_SAMPLE = 100_000
"""Requests from which the tokens of a usual answer are known."""


def sparing_time(plan: Plan, load: Load, target: Target | None) -> Plan:
    """Return the plan of a load whose limit leaves time for its calibration, if it is to have one.

    A load of a given duration leaves time anyway, and one that may be extended may take more.
    """
    if target is None or not target.stream or not load.calibration:
        return plan
    spared = min(load.calibration + _STARTING + _REPORTING, _MOST_SPARED * plan.max_time)
    if plan.may_extend or load.duration is not None or spared < _STARTING + _REPORTING + _SHORTEST:
        return plan
    return replace(plan, max_time=plan.max_time - spared, min_time=min(plan.min_time, plan.max_time - spared))


@contextmanager
def standing_by(targets: Sequence[Target | None], load: Load) -> Iterator[PlaybackServer | None]:
    """Start what a calibration needs, so that it is ready when the figures of the load are computed.

    None if there is to be no calibration: answers were not streamed, it is not wished for, or several models
    were under load at once, which one client at a time would not show.
    """
    first, *others = targets
    if first is None or not first.stream or not load.calibration or others:
        yield None
        return
    from modeldyno.serving.loadgen import calibration, driver_process  # only streams need it

    with ExitStack() as stack:
        server = None
        with suppress(OSError):
            stack.enter_context(driver_process.starting_ahead(load.processes))
            server = stack.enter_context(calibration.playback_server())
        yield server


def calibrate(
    server: PlaybackServer,
    window: SteadyWindow,
    protocol: str,
    replies: Sequence[Reply],
    times: Mapping[str, Distribution],
    *,
    left: float,
    interrupted: Callable[[], bool],
) -> Iterator[Measurement | Doubt]:
    """Yield the client's own error, and doubts of figures that it is too large for.

    Args:
        server: plays a moment of the load again.
        window: of the load.
        protocol: name of the client that read its answers.
        replies: some of them.
        times: what was measured, by metric.
        left: seconds that are left for it.
        interrupted: whether to stop at once.
    """
    from modeldyno.serving.loadgen import calibration  # only streams need it

    seconds = min(window.load.calibration, left - _STARTING)
    if seconds < _SHORTEST or (score := client_error.make_score(window, seconds)) is None:
        return
    form = calibration.form_of(replies, _text_start(protocol))
    try:
        error = calibration.calibrate(
            server,
            score,
            form,
            protocol=protocol,
            drivers=window.load.processes,
            limit=left,
            interrupted=interrupted,
        )
    except (ModelDynoError, OSError, ValueError) as problem:
        yield client_error.uncalibrated(str(problem).rstrip("."))
        return
    if error is None:
        return
    if not error.gap.size and not error.first_token.size:
        yield client_error.uncalibrated("the time was up while its processes started")
    else:
        yield from client_error.measurements(error)
        yield from client_error.doubts(times, error, _usual_tokens(window))


def _text_start(protocol: str) -> TextStart | None:
    """Return by what a protocol's client knows a piece; None: whatever has data."""
    with suppress(ModelDynoError):
        return getattr(plugins.client(protocol), "text_start", None)
    return None


def _usual_tokens(window: SteadyWindow) -> float:
    """Return the tokens of a usual answer; 0 if none are known."""
    tokens = sample_records(FirstPieces(records=window.done()), _SAMPLE).tokens
    known = tokens[tokens > 0]
    return statistics.quantile(known, 0.5) if known.size else 0.0
