"""How much our timing adds to a bare loop of the same compiled Keras function, in alternating rounds.

Both call one ``tf.function`` with tensors that are on the device, and end when the outputs are in the host's
memory. The ratio of the medians of each round is printed as the median over the rounds, with the smallest and
the largest; the goal is 1.02 at most, and the status is 1 above it.

    python bench/keras_overhead.py [--rounds 45]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from modeldyno import plugins
from modeldyno.core.metrics.measurement import Distribution, Measurement
from modeldyno.core.metrics.measurement_plan import Plan
from modeldyno.interfaces.probe import Subject

if TYPE_CHECKING:
    from collections.abc import Callable

GOAL = 1.02


def bare(function: Any, tensor: Any, name: str) -> Callable[[int], float]:
    """The least that a timed loop can do."""

    def median(n: int) -> float:
        times = []
        for _ in range(n):
            begin = time.perf_counter_ns()
            function(**{name: tensor}).numpy()
            times.append(time.perf_counter_ns() - begin)
        return statistics.median(times) * 1e-9

    return median


def ours(model: Any, session: Any, call: Callable[[], Any]) -> Callable[[int], float]:
    """What ``modeldyno profile`` reports: the latency probe on the backend's prepared call."""
    subject = Subject(model=model, session=session, calls=(call,))

    def median(n: int) -> float:
        plan = Plan(min_runs=n, max_runs=n, min_time=0.0, precision=0.9)
        found = next(iter(plugins.probe("latency").measure(subject, plan)))
        assert isinstance(found, Measurement)
        assert isinstance(found.value, Distribution)
        return found.value.statistic("p50")

    return median


def measure(name: str, network: Any, seconds: float, rounds: int) -> float:
    """Alternate both loops; print and return the median of the ratios."""
    objects = plugins.objects()
    ref = objects.offer(network)
    model = plugins.resolve("loader", ref.scheme).load(ref, seed=0, trust=False)
    (spec,) = model.inputs
    array = np.random.default_rng(0).random((1, *network.input_shape[1:]), np.float32)
    with plugins.backend("tensorflow").open(model, {}) as session:
        own = ours(model, session, session.prepare({spec.name: array}))
        loop = bare(session._function, tf.constant(array), spec.name)  # noqa: SLF001 - the same function
        loop(20)
        n = max(10, round(seconds / loop(20)))
        ratios = []
        for number in range(rounds):
            order = (loop, own) if number % 2 == 0 else (own, loop)
            found = {each: each(n) for each in order}
            ratios.append(found[own] / found[loop])
    objects.withdraw(ref)
    middle = statistics.median(ratios)
    print(
        f"{name:12} {n:5} calls a loop, {rounds} rounds, bare {found[loop] * 1e3:8.3f} ms; "
        f"ratio {middle:.3f} ({min(ratios):.3f} to {max(ratios):.3f})",
        flush=True,
    )
    return middle


def main() -> int:
    """Print a row for each network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=45)
    parser.add_argument("--seconds", type=float, default=0.3, help="of each loop")
    options = parser.parse_args()
    layers = keras.layers
    small = keras.Sequential([keras.Input((64,)), layers.Dense(64, activation="relu"), layers.Dense(10)])
    networks = {"two layers": small, "MobileNetV2": keras.applications.MobileNetV2(weights=None)}
    worst = max(measure(name, each, options.seconds, options.rounds) for name, each in networks.items())
    print(f"the worst is {worst:.3f}, the goal {GOAL}")
    return int(worst > GOAL)


if __name__ == "__main__":
    sys.exit(main())
