"""How much our timing adds to a bare loop: the ratio of medians, in alternating rounds.

For each network, every round measures in turn a bare ``perf_counter_ns`` loop, the median that
ModelDyno's latency probe reports on the same prepared inputs, torch.utils.benchmark, and a loop as
optimum-benchmark writes it. The ratio of each to the bare loop of its round is printed as the median
over the rounds, with the smallest and the largest.

    python bench/overhead.py [--rounds 15]
"""

from __future__ import annotations

import argparse
import statistics
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch.utils import benchmark

from modeldyno.base import plugins
from modeldyno.base.job.model_ref import ModelIdentity
from modeldyno.base.metrics.measurement import Distribution, Measurement
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.engine.interfaces.probe import ProbeContext
from modeldyno.models.interface import Form, Model
from models import mlp, resnet18

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor, nn


def bare(net: nn.Module, x: Tensor) -> Callable[[int], float]:
    """The least that a timed loop can do."""

    def median(n: int) -> float:
        times = []
        with torch.inference_mode():
            for _ in range(n):
                begin = time.perf_counter_ns()
                net(x)
                times.append(time.perf_counter_ns() - begin)
        return statistics.median(times) * 1e-9

    return median


@contextmanager
def ours(net: nn.Module, x: Tensor) -> Iterator[Callable[[int], float]]:
    """What ``modeldyno profile`` reports: the latency probe on the torch backend's prepared call."""
    model = Model(
        identity=ModelIdentity(name="bench", digest="sha256:0", framework="torch"),
        form=Form.TORCH,
        value=net,
        inputs=(),
    )
    name = "input"
    with plugins.backend("torch").open(model, {"inference_mode": True}) as session:
        subject = ProbeContext(model=model, session=session, calls=(session.prepare({name: x.numpy()}),))

        def median(n: int) -> float:
            plan = Plan(min_runs=n, max_runs=n, min_time=0.0, precision=0.9)
            latency = next(iter(plugins.probe("latency").measure(subject, plan)))
            assert isinstance(latency, Measurement)
            assert isinstance(latency.value, Distribution)
            return latency.value.statistic("p50")

        yield median


def torch_timer(net: nn.Module, x: Tensor) -> Callable[[int], float]:
    """torch.utils.benchmark.Timer, with the threads that torch has."""
    stopwatch = benchmark.Timer("net(x)", globals={"net": net, "x": x}, num_threads=torch.get_num_threads())

    def median(n: int) -> float:
        with torch.inference_mode():
            return float(stopwatch.timeit(n).median)

    return median


def context_loop(net: nn.Module, x: Tensor) -> Callable[[int], float]:
    """A loop that enters a context manager around each call, as optimum-benchmark's tracker does."""
    times: list[float] = []

    @contextmanager
    def track() -> Iterator[None]:
        begin = time.perf_counter()
        yield
        times.append(time.perf_counter() - begin)

    def median(n: int) -> float:
        times.clear()
        with torch.inference_mode():
            for _ in range(n):
                with track():
                    net(x)
        return statistics.median(times)

    return median


def measure(name: str, made: tuple[nn.Module, Tensor], seconds: float, rounds: int) -> dict[str, list[float]]:
    """Alternate the loops; give the ratios of each to the bare loop of its round."""
    net, x = made
    with ours(net, x) as own:
        loops = {"bare": bare(net, x), "modeldyno": own, "torch.utils.benchmark": torch_timer(net, x)}
        loops["context-manager loop"] = context_loop(net, x)
        n = max(5, round(seconds / loops["bare"](20)))
        ratios: dict[str, list[float]] = {key: [] for key in loops if key != "bare"}
        for number in range(rounds):
            order = list(loops) if number % 2 == 0 else list(reversed(loops))
            seconds_per_call = {key: loops[key](n) for key in order}
            for key, values in ratios.items():
                values.append(seconds_per_call[key] / seconds_per_call["bare"])
    print(
        f"\n{name}: {n} calls a loop, {rounds} rounds, bare median {seconds_per_call['bare'] * 1e6:,.1f} us"
    )
    for key, values in ratios.items():
        print(f"  {key:<24} x {statistics.median(values):.4f}   ({min(values):.3f} to {max(values):.3f})")
    return ratios


def main() -> None:
    """Measure both networks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    measure("3-layer MLP, batch 1 (bound 1.02)", mlp(), 0.2, 3 * rounds)
    measure("ResNet-18-like, 1 x 3 x 224 x 224 (bound 1.005)", resnet18(), 1.0, rounds)


if __name__ == "__main__":
    main()
