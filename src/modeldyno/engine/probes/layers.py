"""The probe ``layers``: the time of a call, module by module.

Plain and watched calls alternate, so that disturbances of the machine affect both. The plain ones decide when
to stop.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, cast

from modeldyno.base import plugins
from modeldyno.base.clock import perf_counter, perf_counter_ns
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Measurement, observed_number
from modeldyno.base.metrics.stop_rule import measure_until_stable
from modeldyno.base.result.trace_data import TraceReport
from modeldyno.engine.interfaces.probe import Pass
from modeldyno.engine.interfaces.session import HasLayers
from modeldyno.engine.probes import static, timing_loop
from modeldyno.engine.trace import layer_times
from modeldyno.engine.trace.layer_times import attribute_module_times
from modeldyno.models.flops.registry import formulas
from modeldyno.models.static import fused_nodes
from modeldyno.models.static.totals import AnalysedGraph

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from modeldyno.base.metrics.measurement import Distribution
    from modeldyno.base.metrics.measurement_plan import Plan
    from modeldyno.base.stats.statistics import Samples
    from modeldyno.engine.interfaces.probe import ProbeContext
    from modeldyno.engine.trace.layer_times import Attribution, TimedModule

needs = HasLayers
pass_ = Pass.SECOND

MOST = 100
"""Watched calls at most: enough for the median of each module, few enough for a result of some megabytes."""
SCOPE = "layers"
"""Scope of the metrics that tell how far to trust this pass."""


def measure(subject: ProbeContext, plan: Plan) -> Iterator[Measurement | Doubt | TraceReport]:
    """Time the modules in a pass of its own, and subtract the overhead of timing."""
    session = cast("HasLayers", subject.session)
    all_layers = not subject.observation.layers
    with session.layers(subject.feeds[0], subject.observation.named) as watched:
        draw = interleave_calls(watched.plain or subject.calls[0], watched.call)
        begin = perf_counter()
        draw(1)
        paced = measure_until_stable(
            draw,
            plan=_limit_plan(plan, perf_counter() - begin),
            clock=perf_counter,
            interrupted=subject.interrupted,
            watch=timing_loop.progress_reporter(subject, SCOPE),
        )
        calls = watched.spans(1 + paced.warmup_runs)
    plain = [float(seconds) for seconds in paced.samples[: len(calls)]]
    if not calls:
        yield _PROFILE_FULL
        return
    attribution = attribute_module_times(calls, plain, watched.overhead, containers=all_layers)
    yield TraceReport(layers=tuple(part.layer for part in attribution.parts))
    layers = [(part.layer.path, part.layer.kind) for part in attribution.parts if part.layer.path]
    if unmatched := subject.observation.unmatched(layers):
        yield Doubt(
            code="no-such-layer",
            seen=f"no module has {' or '.join(unmatched)} in its path or class",
            advice="name parts of existing paths or classes; without `layers` all modules are timed",
        )
    node_costs = _node_costs(subject, watched.origins())
    yield from (
        Measurement(metric=metric, value=value, scope=path)
        for path, costs in node_costs.items()
        for metric, value in costs.items()
    )
    flops = _known_flops(subject) | {path: costs["flops"] for path, costs in node_costs.items()}
    times = timing_loop.distribution(paced)
    counted = replace(times, clock_resolution=max(times.clock_resolution, watched.tick))
    yield from _measurements(attribution, counted, flops)
    yield from watched.doubts
    yield from layer_times.attribution_doubts(attribution, plain, everything=all_layers)


def interleave_calls(plain: Callable[[], object], watched: Callable[[], object]) -> Callable[[int], Samples]:
    """Return a function that makes n plain and n watched calls in alternation and returns the plain seconds.

    The order within a pair changes from pair to pair.
    """
    import numpy as np  # slow to import

    pairs = 0

    def pair() -> float:
        nonlocal pairs
        pairs += 1
        if pairs % 2:
            watched()
        begin = perf_counter_ns()
        plain()
        seconds = (perf_counter_ns() - begin) * 1e-9
        if not pairs % 2:
            watched()
        return seconds

    return lambda n: np.fromiter((pair() for _ in range(n)), float, n)


def _limit_plan(plan: Plan, pair: float) -> Plan:
    """Limit the plan to the calls that are kept and a similar warm-up; `pair` is the time of two calls.

    Percentiles are certified for the latency only.
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


_PROFILE_FULL = Doubt(
    code="unseen-layers",
    seen="the watched calls were not recorded: the runtime's profile was full before",
    advice="shorten the pass with `max_time`",
)


def _measurements(
    attribution: Attribution, template: Distribution, flops: dict[str, float]
) -> Iterator[Measurement]:
    yield observed_number("pass_overhead", attribution.overhead, scope=SCOPE)
    yield observed_number("unattributed", attribution.unattributed, scope=SCOPE)
    for part in attribution.parts:
        yield from _part_measurements(part, template, flops.get(part.layer.path, 0.0))


def _part_measurements(part: TimedModule, template: Distribution, flops: float) -> Iterator[Measurement]:
    """Yield the metrics of a module; the latency of the root module is that of the timed pass."""
    path = part.layer.path
    yield Measurement(metric="self_time", value=_with_samples(template, part.own), scope=path)
    if not path:
        return
    yield Measurement(metric="latency", value=_with_samples(template, part.times), scope=path)
    if part.output_bytes:
        yield Measurement(metric="output_bytes", value=part.output_bytes, scope=path)
    seconds = median(part.times)
    if flops and seconds and layer_times.is_resolved(seconds, template.clock_resolution):
        yield observed_number("achieved_flops", flops / seconds, scope=path)


def _with_samples(template: Distribution, samples: tuple[float, ...]) -> Distribution:
    """Return the distribution of other samples of the same pass."""
    return replace(template, runs=type(template).of(samples).runs)


def _node_costs(subject: ProbeContext, origins: Mapping[str, Sequence[str]]) -> dict[str, dict[str, float]]:
    """Return the costs of nodes that are not modules, if static analysis has counted the whole model."""
    graph, flops = subject.model.graph, _known_flops(subject)
    if not origins or graph is None or "" not in flops:
        return {}
    try:
        analysed = AnalysedGraph.of(static.tracer(subject, graph)({}), formulas(plugins.formulas()))
    except Exception:  # noqa: BLE001 - the analysis reports its failure itself; the times are valid
        return {}
    nodes = fused_nodes.sum_costs_by_node(
        origins, fused_nodes.sum_costs_by_name(analysed.graph, analysed.counts)
    )
    return {path: costs for path, costs in nodes.items() if path not in flops}


def _known_flops(subject: ProbeContext) -> dict[str, float]:
    """Return the FLOPs of each module that static analysis has found."""
    return {
        m.scope: m.value for m in subject.known if m.metric == "flops" and isinstance(m.value, int | float)
    }
