"""How much our timing adds to a bare loop of the same compiled Keras function, in turns of five calls.

Both call one ``tf.function`` with tensors that are on the device, and end when the outputs are in the host's
memory; ours are the calls that the backend prepares, in the loop of the latency probe. Turns are short, so
that other work on the machine disturbs both alike. The ratio of the medians is printed, and those of a
tenth of the turns each; the goal is 1.02 at most, and the status is 1 above it.

    python bench/keras_overhead.py [--seconds 20]
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

from modeldyno.base import plugins
from modeldyno.engine.probes.timing_loop import time_each_call

if TYPE_CHECKING:
    from collections.abc import Callable

GOAL = 1.02
TURN, TENTHS = 5, 10


def bare(function: Any, tensor: Any, name: str) -> Callable[[int], list[float]]:
    """The least that a timed loop can do."""

    def times(n: int) -> list[float]:
        seconds = []
        for _ in range(n):
            begin = time.perf_counter_ns()
            function(**{name: tensor}).numpy()
            seconds.append((time.perf_counter_ns() - begin) * 1e-9)
        return seconds

    return times


def measure(name: str, network: Any, seconds: float) -> float:
    """Alternate both loops; print and return the ratio of the medians."""
    objects = plugins.objects()
    ref = objects.offer(network)
    model = plugins.resolve("loader", ref.scheme).load(ref, seed=0, trust=False)
    (spec,) = model.inputs
    array = np.random.default_rng(0).random((1, *network.input_shape[1:]), np.float32)
    with plugins.backend("tensorflow").open(model, {}) as session:
        own = time_each_call((session.prepare({spec.name: array}),))
        loop = bare(session._function, tf.constant(array), spec.name)
        own(20), loop(20)
        both: dict[Callable[[int], Any], list[list[float]]] = {loop: [], own: []}
        end = time.monotonic() + seconds
        while time.monotonic() < end or len(both[own]) < TENTHS:
            for each in (loop, own) if len(both[own]) % 2 == 0 else (own, loop):
                both[each].append([float(sample) for sample in each(TURN)])
    objects.withdraw(ref)
    plain, ours = both[loop], both[own]
    ratio = middle(ours) / middle(plain)
    parts = [middle(ours[k::TENTHS]) / middle(plain[k::TENTHS]) for k in range(TENTHS)]
    print(
        f"{name:12} {TURN * len(ours):6} calls of each, bare {middle(plain) * 1e3:8.3f} ms; "
        f"ratio {ratio:.3f} ({min(parts):.3f} to {max(parts):.3f})",
        flush=True,
    )
    return ratio


def middle(turns: list[list[float]]) -> float:
    """Return the median of all calls."""
    return statistics.median(sample for turn in turns for sample in turn)


def main() -> int:
    """Print a row for each network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="for each network")
    options = parser.parse_args()
    layers = keras.layers
    small = keras.Sequential([keras.Input((64,)), layers.Dense(64, activation="relu"), layers.Dense(10)])
    networks = {"two layers": small, "MobileNetV2": keras.applications.MobileNetV2(weights=None)}
    worst = max(measure(name, each, options.seconds) for name, each in networks.items())
    print(f"the worst is {worst:.3f}, the goal {GOAL}")
    return int(worst > GOAL)


if __name__ == "__main__":
    sys.exit(main())
