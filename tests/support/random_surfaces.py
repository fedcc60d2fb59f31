"""Random synthetic surfaces: a server on two cores, and a model within a process.

Searches are tuned on them, so that the recorded surfaces remain for validation.
"""

from __future__ import annotations

import math
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from tests.support.recorded_surfaces import Surface, clearest_bound

from modeldyno.base.metrics.metric import Query
from modeldyno.sweeps.study.search_space import Axis, Point, Space, key
from modeldyno.testing.sample_studies import make_goal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from modeldyno.sweeps.study.goal import Goal

NAMES = ("throughput", "latency.mean", "latency.p50", "latency.p99", "process_memory.max")
CORES = 2


def random_server(seed: int) -> Surface:
    """Return a server with instances, batching and a queue delay in a closed loop; odd seeds are small."""
    source = np.random.default_rng([seed, 1])
    if seed % 2:
        axes = (
            Axis(name="instances", values=(1, 2)),
            Axis(name="max_batch", values=(1, 4, 8, 16)),
            Axis(name="queue_delay", values=(0.0, 0.005), where="max_batch", equals=(4, 8, 16)),
            Axis(name="concurrency", values=(1, 2, 4, 8, 16, 32)),
        )
        default: Point = {"instances": 1, "max_batch": 1, "concurrency": 1}
    else:
        axes = (
            Axis(name="instances", values=tuple(range(1, int(source.integers(3, 6))))),
            Axis(name="max_batch", values=tuple(2**n for n in range(int(source.integers(3, 6))))),
            Axis(name="queue_delay", values=(0.0, 0.0005, 0.002, 0.005)[: int(source.integers(2, 5))]),
            Axis(name="concurrency", values=tuple(2**n for n in range(int(source.integers(5, 8))))),
        )
        default = {"instances": 1, "max_batch": 1, "queue_delay": 0.0}
    return _surface(f"served {seed}", Space(axes=axes), default, _server(source), source)


def _server(source: np.random.Generator) -> Callable[[Point], list[float]]:
    """Return a function from a server's configuration to its throughput, latencies and memory."""
    call, sample = 10 ** source.uniform(-3.5, -2), 10 ** source.uniform(-3.7, -2)
    handling, wire = 10 ** source.uniform(-4.5, -3.3), 10 ** source.uniform(-4, -3.2)
    threads, crowding = int(source.integers(1, 3)), source.uniform(0, 0.15)
    tail, weight, each = source.uniform(0.15, 0.6), source.uniform(5e7, 4e8), source.uniform(1e6, 2e7)

    def evaluate(point: Point) -> list[float]:
        instances, batch = float(point["instances"]), float(point["max_batch"])
        delay, slots = float(point.get("queue_delay", 0.0)), float(point["concurrency"])
        rate = 1.0
        for _ in range(80):
            queued = min(batch, max(1.0, slots / (instances + 0.5)))
            gathered = min(batch, 1 + rate * delay / instances, max(1.0, slots / instances))
            formed = max(queued, gathered) if batch > 1 else 1.0
            waits = (
                min(delay, (batch - formed) / max(rate, 1e-9) + 0.5 * delay) if 1 < batch > formed else 0.0
            )
            active = min(instances, slots / formed)
            load = (active * threads + rate * handling) / CORES
            slow = max(1.0, load) * (1 + crowding * max(0.0, instances * threads / CORES - 1))
            service = (call + sample * formed) * slow / (1 if threads == 1 else 1.7)
            alone, most = slots / (service + waits + wire), active * formed / service
            rate = 0.5 * rate + 0.5 * (alone**-6 + most**-6) ** (-1 / 6)
        mean = slots / rate
        busy = min(1.0, rate * service / (instances * formed))
        stretch = (
            1.08 + tail * busy + 0.1 * max(0.0, instances * threads / CORES - 1) + min(0.5, waits / mean)
        )
        memory = weight * (0.3 + instances) + each * batch * instances
        return [rate, mean, mean * (1 - 0.1 * tail), mean * stretch, memory]

    return evaluate


def random_threaded_runtime(seed: int) -> Surface:
    """Return a runtime within a process: threads, batch size, and graph optimization."""
    source = np.random.default_rng([seed, 2])
    axes = (
        Axis(name="threads", values=tuple(range(1, int(source.integers(3, 6))))),
        Axis(name="batch_size", values=tuple(2**n for n in range(int(source.integers(5, 9))))),
        Axis(name="graph_optimization", values=("disable", "basic", "extended", "all")),
    )
    default: Point = {"threads": 1, "batch_size": 1, "graph_optimization": "all"}
    return _surface(f"threaded {seed}", Space(axes=axes), default, _runtime(source, axes, 0.1), source)


def random_compiled_runtime(seed: int) -> Surface:
    """Return a framework within a process: batch size, threads, compilation and precision."""
    source = np.random.default_rng([seed, 3])
    axes = (
        Axis(name="threads", values=(1, 2)),
        Axis(name="batch_size", values=tuple(2**n for n in range(int(source.integers(5, 8))))),
        Axis(name="compile", values=("off", "default")),
        Axis(name="precision", values=("fp32", "bf16", "int8")[: int(source.integers(2, 4))]),
    )
    default: Point = {"threads": 1, "batch_size": 1, "compile": "off", "precision": "fp32"}
    return _surface(f"compiled {seed}", Space(axes=axes), default, _runtime(source, axes, 0.5), source)


def _runtime(
    source: np.random.Generator, axes: Sequence[Axis], sizes: float
) -> Callable[[Point], list[float]]:
    """Return a function from a configuration to its values: each choice affects call and sample time."""
    call, sample = 10 ** source.uniform(-4, -2), 10 ** source.uniform(-4.5, -2)
    categories = [(axis.name, value) for axis in axes if not axis.ordered for value in axis.values]
    on_call = {word: source.normal(0, sizes) for word in categories}
    on_sample = {word: source.normal(0, sizes) for word in categories}
    pairs = {pair: source.normal(0, sizes / 4) for pair in product(categories, categories)}
    serial, crowding = source.uniform(0.02, 0.4), source.uniform(0, 0.3)
    cache, spill = source.uniform(1, 7), source.uniform(0, 0.6)
    weight, each = source.uniform(3e7, 3e8), source.uniform(1e5, 1e7)

    def evaluate(point: Point) -> list[float]:
        batch = float(point["batch_size"])
        threads = float(point.get("threads", 1))
        chosen = [(name, value) for name, value in point.items() if (name, value) in on_call]
        both = sum(pairs[a, b] for a in chosen for b in chosen if a[0] < b[0])
        used = min(threads, CORES)
        speed = used / (1 + serial * (used - 1)) / (1 + crowding * max(0.0, threads - CORES))
        spilt = 1 + spill / (1 + math.exp(2 * (cache - math.log2(batch))))
        fixed = (
            call
            * math.exp(sum(on_call[word] for word in chosen) + both)
            * (1 + 0.1 * crowding * (threads - 1))
        )
        moving = sample * batch * math.exp(sum(on_sample[word] for word in chosen) + both) / speed * spilt
        mean = fixed + moving
        memory = weight + each * batch * math.exp(0.2 * sum(on_sample[word] for word in chosen))
        return [batch / mean, mean, mean * 0.99, mean * (1.05 + 0.15 * crowding * threads), memory]

    return evaluate


FAMILIES: dict[str, Callable[[int], Surface]] = {
    "served": random_server,
    "threaded": random_threaded_runtime,
    "compiled": random_compiled_runtime,
}


def _surface(
    name: str,
    space: Space,
    default: Point,
    evaluate: Callable[[Point], list[float]],
    source: np.random.Generator,
) -> Surface:
    """Build a surface from a function, with random deviations of points and of measurements."""
    rough = source.uniform(0.005, 0.03)
    means = {}
    for point in space.points():
        stray, tail = source.normal(0, rough), source.normal(0, 2 * rough)
        means[key(point)] = np.log(evaluate(point)) + np.array([stray, -stray, -stray, tail - stray, 0.0])
    rate, latency = source.uniform(0.02, 0.06), source.uniform(0.05, 0.15)
    noise = np.zeros((5, 5))
    noise[:4, 0] = (rate, -rate, -rate, -rate)
    noise[1, 1], noise[2, 2], noise[3, 3], noise[4, 4] = 0.002, 0.005, latency, 0.01
    return Surface(
        name=name,
        space=space,
        default=default,
        goals=_goals(np.array(list(means.values())), source),
        queries=tuple(map(Query.parse, NAMES)),
        means=means,
        failures={},
        noise=noise,
    )


def _goals(rows: np.ndarray, source: np.random.Generator) -> tuple[Goal, ...]:
    """Return goals: throughput alone, under one and two bounds, and latency under a minimum rate."""
    latency = _clear_bound(rows, rows[:, 0], 3, 1, source)
    memory = _clear_bound(rows, rows[:, 0], 4, 1, source)
    rate = _clear_bound(rows, -rows[:, 3], 0, -1, source)
    return (
        make_goal(maximize="throughput"),
        make_goal(maximize="throughput", require=[f"latency.p99 <= {latency}s"]),
        make_goal(
            maximize="throughput", require=[f"latency.p99 <= {latency}s", f"process_memory.max <= {memory}"]
        ),
        make_goal(minimize="latency.p99", require=[f"throughput >= {rate}"]),
    )


def _clear_bound(
    rows: np.ndarray, score: np.ndarray, metric: int, sign: int, source: np.random.Generator
) -> float:
    """Return a bound that noise cannot affect."""
    bounds = np.quantile(rows[:, metric], source.uniform(0.15, 0.85, 12))
    return float(np.exp(clearest_bound(sign * rows[:, metric], score, sign * bounds) * sign))
