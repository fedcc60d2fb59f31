"""The probe ``layers``: where the time of a call goes, module by module.

Plain and watched calls are made in turns, so that what disturbs the machine disturbs both. The plain
ones decide when there are enough.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from time import perf_counter, perf_counter_ns
from typing import TYPE_CHECKING, cast

from modeldyno import plugins
from modeldyno.adapters.probes import static, timing_loop
from modeldyno.core.metrics.doubt import Doubt
from modeldyno.core.metrics.measurement import Measurement, observed
from modeldyno.core.metrics.stop_rule import pace
from modeldyno.core.result.trace_data import Activity
from modeldyno.core.static import fused_nodes
from modeldyno.core.static.analysis import Analysed
from modeldyno.core.static.flops.registry import formulas
from modeldyno.core.trace import layer_times
from modeldyno.core.trace.layer_times import attribute
from modeldyno.interfaces import HasLayers, Pass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from modeldyno.core.metrics.measurement import Distribution
    from modeldyno.core.metrics.measurement_plan import Plan
    from modeldyno.core.stats.statistics import Samples
    from modeldyno.core.trace.layer_times import Attribution, Part
    from modeldyno.interfaces import Subject

needs = HasLayers
pass_ = Pass.SECOND

MOST = 100
"""Watched calls: enough for the median of each module, and few enough for a document of some megabytes."""
SCOPE = "layers"
"""Of the numbers that tell how far to trust this pass."""


def measure(subject: Subject, plan: Plan) -> Iterator[Measurement | Doubt | Activity]:
    """Watch the modules in a pass of its own, and free their times of the cost of watching."""
    session = cast("HasLayers", subject.session)
    everything = not subject.observation.layers
    with session.layers(subject.feeds[0], subject.observation.named) as watched:
        turns = in_turns(watched.plain or subject.calls[0], watched.call)
        begin = perf_counter()
        turns(1)
        paced = pace(
            turns,
            plan=_within(plan, perf_counter() - begin),
            clock=perf_counter,
            interrupted=subject.interrupted,
            watch=timing_loop.reporting(subject, SCOPE),
        )
        calls = watched.spans(1 + paced.warmup_runs)
    plain = [float(seconds) for seconds in paced.samples[: len(calls)]]
    if not calls:
        yield _LOST
        return
    found = attribute(calls, plain, watched.toll, containers=everything)
    yield Activity(layers=tuple(part.layer for part in found.parts))
    layers = [(part.layer.path, part.layer.kind) for part in found.parts if part.layer.path]
    if unmatched := subject.observation.unmatched(layers):
        yield Doubt(
            code="no-such-layer",
            seen=f"no module has {' or '.join(unmatched)} in its path or its class",
            advice="name parts of paths or classes that the model has; without --layers all are watched",
        )
    nodes = _nodes(subject, watched.origins())
    yield from (
        Measurement(metric=metric, value=value, scope=path)
        for path, costs in nodes.items()
        for metric, value in costs.items()
    )
    flops = _known(subject) | {path: costs["flops"] for path, costs in nodes.items()}
    yield from _measurements(found, timing_loop.distribution(paced), flops)
    yield from watched.doubts
    yield from layer_times.doubts_of(found, plain, everything=everything)


def in_turns(plain: Callable[[], object], watched: Callable[[], object]) -> Callable[[int], Samples]:
    """Give a function that makes n plain and n watched calls in turns, and the seconds of the plain ones.

    Which of a pair comes first changes from pair to pair.
    """
    import numpy as np  # noqa: PLC0415 - dear at start-up

    made = 0

    def pair() -> float:
        nonlocal made
        made += 1
        if made % 2:
            watched()
        begin = perf_counter_ns()
        plain()
        seconds = (perf_counter_ns() - begin) * 1e-9
        if not made % 2:
            watched()
        return seconds

    return lambda n: np.fromiter((pair() for _ in range(n)), float, n)


def _within(plan: Plan, pair: float) -> Plan:
    """Ask for no more calls than are kept, and for a warm-up of about as many; `pair` is the time of two.

    Percentiles are certified of the latency alone.
    """
    runs = min(plan.max_runs, MOST)
    return replace(
        plan,
        min_runs=min(plan.min_runs, runs),
        max_runs=runs,
        min_warmup=min(plan.min_warmup, MOST),
        max_time=min(plan.max_time, 3 * MOST * pair),
        percentiles=(),
    )


_LOST = Doubt(
    code="unseen-layers",
    seen="nothing is left of the calls that were watched: the runtime's profile was full before",
    advice="give it less time with --max-time",
)


def _measurements(found: Attribution, how: Distribution, flops: dict[str, float]) -> Iterator[Measurement]:
    yield observed("pass_overhead", found.overhead, scope=SCOPE)
    yield observed("unattributed", found.unattributed, scope=SCOPE)
    for part in found.parts:
        yield from _part(part, how, flops.get(part.layer.path, 0.0))


def _part(part: Part, how: Distribution, flops: float) -> Iterator[Measurement]:
    """Give the numbers of a module; the latency of the whole is that of the timed pass."""
    path = part.layer.path
    yield Measurement(metric="self_time", value=_like(how, part.own), scope=path)
    if not path:
        return
    yield Measurement(metric="latency", value=_like(how, part.times), scope=path)
    if part.output_bytes:
        yield Measurement(metric="output_bytes", value=part.output_bytes, scope=path)
    if flops and (seconds := median(part.times)):
        yield observed("achieved_flops", flops / seconds, scope=path)


def _like(how: Distribution, samples: tuple[float, ...]) -> Distribution:
    """Give other samples of the same pass."""
    return replace(how, runs=type(how).of(samples).runs)


def _nodes(subject: Subject, found: Mapping[str, Sequence[str]]) -> dict[str, dict[str, float]]:
    """Give what nodes cost that are no modules, where an analysis has counted the whole."""
    graph, counted = subject.model.graph, _known(subject)
    if not found or graph is None or "" not in counted:
        return {}
    try:
        whole = Analysed.of(static.tracer(subject, graph)({}), formulas(plugins.formulas()))
    except Exception:  # noqa: BLE001 - the analysis told what it could not do; the times stand for themselves
        return {}
    nodes = fused_nodes.joined(found, fused_nodes.costs(whole.graph, whole.counts))
    return {path: costs for path, costs in nodes.items() if path not in counted}


def _known(subject: Subject) -> dict[str, float]:
    """Give the operations of each module, as far as an analysis has found them."""
    return {
        m.scope: m.value for m in subject.known if m.metric == "flops" and isinstance(m.value, int | float)
    }
