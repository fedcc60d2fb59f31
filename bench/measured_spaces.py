"""Measure whole spaces, and keep what was seen: the ground on which strategies are compared.

Every point is measured, several times over, the passes in different orders; a server stays open while only
the load changes. What comes of it lies in bench/measured_spaces/NAME.json, where passes that were made before
count; bench/search.py searches there. Throughput is to be largest: free, and within a tight and a wide bound
of latency. These lie as far as can be from what the best points gave: noise should not decide which holds.

    modeldyno engine install triton
    python bench/measured_spaces.py [triton-minilm triton-cnn onnxruntime-minilm torch-cnn] [--passes 2]
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import tempfile
import time
import warnings
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np
from minilm import batch, directory, export
from tests.support.recorded_surfaces import clearest_bound

from modeldyno.base.errors import ModelDynoError
from modeldyno.base.job.load_spec import Load
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.metrics.queries import trial_answers
from modeldyno.engine.runtime.child_process import subprocess_executor
from modeldyno.engine.runtime.warm_worker import warm_executor
from modeldyno.profiling.request import Request
from modeldyno.sweeps.study.search_space import Axis, Space, parse_axis
from modeldyno.sweeps.study.study import LOADS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from modeldyno.base.result.result import Result
    from modeldyno.sweeps.study.search_space import Point

HERE = Path(__file__).parent / "measured_spaces"
CNN = '''
"""A small network for images of 32 x 32."""
import torch
from torch import nn


class Net(nn.Module):
    """Four convolutions, 0.4 M parameters."""

    def __init__(self):
        super().__init__()
        widths, layers = (3, 32, 64, 128, 256), []
        for before, after in zip(widths, widths[1:]):
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after)]
            layers += [nn.ReLU(), nn.MaxPool2d(2)]
        self.body, self.head = nn.Sequential(*layers), nn.Linear(widths[-1] * 4, 10)

    def forward(self, pixels):
        return self.head(self.body(pixels).flatten(1))


def make():
    torch.manual_seed(0)
    return Net().eval()
'''


@dataclass(frozen=True, slots=True, kw_only=True)
class Surface:
    """What is measured, and what is asked of it."""

    model: str
    backend: str
    inputs: tuple[str, ...]
    axes: tuple[str, ...]
    default: dict[str, Any]
    settings: dict[str, Any] = field(default_factory=dict)
    """What is the same everywhere."""
    bounded: str
    """The statistic of latency that is bounded."""
    plan: Plan
    load: Load | None = None


BOUNDS, TRIED = ((0.15, 0.5), (0.5, 0.85)), 24
"""Quantiles of all points between which a tight and a wide bound lie, and how many places are looked at."""
SERVED = Plan(max_time=4.0, min_time=1.0)
CALLED = Plan(max_time=2.0, min_time=0.7)
SURFACES = {
    "triton-minilm": Surface(
        model="minilm",
        backend="triton",
        inputs=("input_ids=1x32", "attention_mask=1x32"),
        axes=(
            "instances=1,2", "max_batch=1,4,8,16", "queue_delay=0,5000 if max_batch=4,8,16",
            "concurrency=1,2,4,8,16,32",
        ),
        default={"instances": 1, "max_batch": 1, "concurrency": 1},
        bounded="latency.p99",
        settings={"threads": 1},
        plan=SERVED,
        load=Load(duration=1.5),
    ),
    "triton-cnn": Surface(
        model="cnn",
        backend="triton",
        inputs=("1x3x32x32",),
        axes=(
            "instances=1,2", "max_batch=1,4,8,16", "queue_delay=0,2000 if max_batch=4,8,16",
            "concurrency=1,2,4,8,16,32",
        ),
        default={"instances": 1, "max_batch": 1, "concurrency": 1},
        bounded="latency.p99",
        settings={"threads": 1},
        plan=SERVED,
        load=Load(duration=1.5),
    ),
    "onnxruntime-minilm": Surface(
        model="minilm",
        backend="onnxruntime",
        inputs=("input_ids=batchx32", "attention_mask=batchx32"),
        axes=(
            "threads=1,2", "batch_size=1,2,4,8,16,32",
            "graph_optimization=disable,basic,extended,all",
        ),
        default={"threads": 1, "batch_size": 1, "graph_optimization": "all"},
        bounded="latency.p95",
        plan=CALLED,
    ),
    "torch-cnn": Surface(
        model="cnn.py",
        backend="torch",
        inputs=("batchx3x32x32",),
        axes=("threads=1,2", "batch_size=1,2,4,8,16,32", "compile=off,default", "precision=fp32,bf16"),
        default={"threads": 1, "batch_size": 1, "compile": "off", "precision": "fp32"},
        bounded="latency.p95",
        plan=CALLED,
    ),
}  # fmt: skip


def cnn(folder: Path) -> Path:
    """Write the small network for images as an ONNX file."""
    import torch  # after the arguments were read

    scope: dict[str, Any] = {}
    exec(CNN, scope)
    path = folder / "cnn.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            scope["make"](), (), path, kwargs={"pixels": torch.zeros(2, 3, 32, 32)},
            dynamo=True, dynamic_shapes={"pixels": {0: torch.export.Dim("batch")}}, verbose=False,
        )  # fmt: skip
    return path


def models(folder: Path) -> dict[str, str]:
    """Write the models; give the references by their short names."""
    source = folder / "cnn.py"
    source.write_text(CNN)
    export(directory(), folder / "minilm.onnx", batch(directory(), 8))
    named = {"minilm": str(folder / "minilm.onnx"), "cnn": str(cnn(folder))}
    return {**named, "cnn.py": f"torch:{source}:make"}


def known_values(result: Result) -> dict[str, float]:
    """Give what is known; the plain quantile of a percentile that is no claim."""
    values = {}
    for answer in trial_answers(result.measurements):
        value = answer.value
        if value is None and answer.query.statistic:
            value = result[f"{answer.query.metric}.{answer.query.statistic}.raw"]
        if value is not None and not answer.query.scope:
            values[str(answer.query)] = float(f"{value:.6g}")
    return values


def measure_points(
    surface: Surface, model: str, space: Space, draw: random.Random
) -> Iterator[tuple[Point, Any]]:
    """Measure every point once: configurations in a random order, the loads of one rising."""
    groups: dict[tuple[Any, ...], list[Point]] = {}
    for point in space.points():
        groups.setdefault(tuple((k, v) for k, v in point.items() if k not in LOADS), []).append(point)
    order = list(groups)
    draw.shuffle(order)
    for configuration in order:
        settings = {**surface.settings, **dict(configuration)}
        if surface.backend == "triton":
            settings["dynamic_batching"] = settings["max_batch"] > 1
        request = Request(
            model=model, backend=surface.backend, settings=settings, inputs=surface.inputs,
            probes=("load",) if surface.load else ("latency", "throughput"), load=surface.load,
            plan=surface.plan,
        )  # fmt: skip
        with ExitStack() as stack:
            execute = stack.enter_context(warm_executor() if surface.load else subprocess_executor())
            for point in groups[configuration]:
                try:
                    job = request.job()
                    if surface.load:
                        job = replace(job, load=replace(surface.load, concurrency=int(point["concurrency"])))
                    result = execute(job, watch=lambda _event: None)
                except ModelDynoError as error:
                    yield point, str(error)
                    continue
                yield point, result.failures[0].message if result.failures else known_values(result)


def goals(rows: Iterable[dict[str, Any]], bounded: str) -> list[dict[str, Any]]:
    """Ask for throughput alone, and within a tight and a wide bound."""
    runs_of_rows = [row["runs"] for row in rows if row["runs"]]
    score, latency = (
        np.log([np.mean([run[name] for run in runs]) for runs in runs_of_rows])
        for name in ("throughput", bounded)
    )
    listed: list[dict[str, Any]] = [{"maximize": "throughput", "require": []}]
    for low, high in BOUNDS:
        bounds = np.quantile(latency, np.linspace(low, high, TRIED))
        bound = 1e3 * math.exp(clearest_bound(latency, score, bounds))
        listed.append({"maximize": "throughput", "require": [f"{bounded} <= {bound:.3g}ms"]})
    return listed


def record(name: str, surface: Surface, model: str, passes: int) -> None:
    """Measure a surface, and write it after each pass; those in the file count."""
    axes: tuple[Axis, ...] = tuple(map(parse_axis, surface.axes))
    space = Space(axes=axes)
    path = HERE / f"{name}.json"
    before = json.loads(path.read_text())["points"] if path.is_file() else []
    kept = {json.dumps(row["point"]): row for row in before}
    rows: dict[str, dict[str, Any]] = {
        word: kept.get(word, {"point": point, "runs": [], "failure": ""})
        for point in space.points()
        for word in (json.dumps(point),)
    }
    done = max(len(row["runs"]) for row in rows.values())
    for number in range(done, passes):
        begin = time.perf_counter()
        for point, outcome in measure_points(surface, model, space, random.Random(number)):
            row = rows[json.dumps(point)]
            if isinstance(outcome, dict):
                row["runs"].append(outcome)
            else:
                row["failure"] = outcome
            print(
                f"{name} {point}: {outcome if isinstance(outcome, str) else outcome.get('throughput')}",
                flush=True,
            )
        write(path, surface, axes, list(rows.values()))
        print(f"{name}: pass {number + 1} took {time.perf_counter() - begin:.0f} s", flush=True)
    write(path, surface, axes, list(rows.values()))


def write(path: Path, surface: Surface, axes: Sequence[Axis], rows: Sequence[dict[str, Any]]) -> None:
    """Write what is known, a point a line."""
    path.parent.mkdir(exist_ok=True)
    document = {
        "name": path.stem,
        "axes": [
            {
                "name": a.name,
                "values": a.values,
                **({"where": a.where, "equals": a.equals} if a.where else {}),
            }
            for a in axes
        ],
        "loads": [a.name for a in axes if a.name in LOADS],
        "default": surface.default,
        "goals": goals(rows, surface.bounded),
    }
    lines = ",\n".join(map(json.dumps, rows))
    path.write_text(f'{json.dumps(document)[:-1]}, "points": [\n{lines}\n]}}\n')


def main() -> None:
    """Record surfaces."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=list(SURFACES), choices=[*SURFACES, []])
    parser.add_argument("--passes", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        references = models(Path(folder))
        for name in options.names:
            surface = SURFACES[name]
            record(name, surface, references[surface.model], options.passes)


if __name__ == "__main__":
    main()
