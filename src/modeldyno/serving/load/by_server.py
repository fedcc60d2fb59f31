"""Several servers of one model: what each answered and how fast, which their common figures hide."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Distribution, observed_number
from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.base.stats.units import SECONDS, format_quantity
from modeldyno.serving.load.answer_groups import answered_requests, group_times

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.base.metrics.measurement import Measurement
    from modeldyno.engine.interfaces.request_target import Target
    from modeldyno.serving.load.steady_window import SteadyWindow

SERVER = "server="
"""Before the address of a server, in its scope."""
_MUCH = 1.1
"""How many times slower than another a server is that is worth a word."""
_MUCH_FAILED = 0.01
"""The same of the share of requests that failed, as a difference."""


def server_names(target: Target) -> tuple[str, ...]:
    """Return the addresses of a target's servers, with the path where several are behind one address."""
    names = [f"{server.host}:{server.port}" for server in target.servers]
    paths = [_path(server.start.encode("latin-1") or server.messages[0]) for server in target.servers]
    return tuple(
        name + (path if names.count(name) > 1 else "") for name, path in zip(names, paths, strict=True)
    )


def _path(message: bytes) -> str:
    """Return the path of an HTTP request; of gRPC, which has none there, no server shares an address."""
    return message.split(b" ", 2)[1].decode("latin-1") if message.count(b" ") > 1 else ""


def server_measurements(window: SteadyWindow, names: Sequence[str], why: str) -> Iterator[Measurement]:
    """Yield of each server how many requests it had, how many failed, and the times of its answers.

    Args:
        window: the steady window of a load on several servers.
        names: their addresses.
        why: why the latency is void; empty if it is not.
    """
    answered = answered_requests(window)
    for number, name in enumerate(names):
        count = failed = 0
        for part in window.due().parts():
            settled = (part.server == number) & (part.outcome != RequestOutcome.CANCELLED)
            count, failed = count + int(settled.sum()), failed + int((settled & part.failed).sum())
        scope = f"{SERVER}{name}"
        yield observed_number("requests", count, scope=scope)
        if count:
            yield observed_number("error_rate", failed / count, scope=scope)
        yield from group_times(window, answered.chosen(answered.server == number), scope, why)


def server_doubts(measured: Sequence[Measurement]) -> Iterator[Doubt]:
    """Doubt common figures of servers of which one fails more, or is slower, than another.

    Args:
        measured: what `server_measurements` yielded.
    """
    shares = {m.scope: m.value for m in measured if m.metric == "error_rate" and isinstance(m.value, float)}
    if shares:
        worst, best = (choose(shares, key=lambda scope: shares[scope]) for choose in (max, min))
        if shares[worst] - shares[best] >= _MUCH_FAILED:
            yield _differ(
                f"{_name(worst)} failed in {shares[worst]:.1%} of its requests, {_name(best)} in "
                f"{shares[best]:.1%}"
            )
            return
    for metric, word in _TIMES.items():
        medians = {
            m.scope: (interval, m.value.statistic("p50"))
            for m in measured
            if m.metric == metric and isinstance(m.value, Distribution) and not m.value.void
            if (interval := m.value.interval("p50")) is not None
        }
        if not medians:
            continue
        slow, quick = (choose(medians, key=lambda scope: medians[scope][1]) for choose in (max, min))
        if medians[slow][0].low > _MUCH * medians[quick][0].high:
            times = [format_quantity(medians[scope][1], SECONDS, 2) for scope in (slow, quick)]
            yield _differ(f"{word} of {_name(slow)} takes {times[0]} (median), of {_name(quick)} {times[1]}")
            return


_TIMES = {"time_to_first_token": "the first token", "latency": "an answer"}
"""Times that are compared, in this order."""


def _name(scope: str) -> str:
    return scope.removeprefix(SERVER)


def _differ(seen: str) -> Doubt:
    return Doubt(
        code="servers-differ",
        seen=f"{seen}: the figures of the whole load describe none of them",
        advice="read the figures by server, and find out what that server lacks",
    )
