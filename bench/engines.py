"""all-MiniLM-L6-v2 on Triton, TorchServe and MLServer: do they answer alike, and how fast is each?

Every server gets the same ONNX file and the same tokens; its answers are held against a run of the same file
in this process. Then each is put under the same load, in turns.

    modeldyno engine install triton      (and torchserve, mlserver)
    python bench/engines.py [--concurrency 4] [--seconds 10] [--rounds 3] [--only triton]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
from minilm import batch, directory, export

import modeldyno
from modeldyno import Plan
from modeldyno.base import plugins
from modeldyno.base.job.knob import configure
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.engine.interfaces.session import RequestSession
from modeldyno.serving.loadgen.driver_pool import send_once

if TYPE_CHECKING:
    from modeldyno.models.interface import Feed

ENGINES = ("triton", "torchserve", "mlserver")
TOLERANCE = 1e-4
SAMPLES = 2


def difference(engine: str, path: Path, feeds: list[Feed], expected: list[Feed]) -> float:
    """Give the largest difference between a server's answers and those of this process."""
    model = plugins.loader("onnx").load(ModelRef(scheme="onnx", locator=str(path)), seed=0, trust=False)
    backend = plugins.backend(engine)
    config = configure(backend.knobs, {"batch_size": SAMPLES})
    worst = 0.0
    with backend.open(model, config) as session:
        assert isinstance(session, RequestSession)
        target = session.target(feeds)
        for number, outputs in enumerate(expected):
            answers = session.arrays(send_once(target, number))
            for name, values in outputs.items():
                worst = max(worst, float(np.abs(answers[name].reshape(values.shape) - values).max()))
    return worst


def local(path: Path, feeds: list[Feed]) -> list[Feed]:
    """Run the file here."""
    model = plugins.loader("onnx").load(ModelRef(scheme="onnx", locator=str(path)), seed=0, trust=False)
    backend = plugins.backend("onnxruntime")
    with backend.open(model, configure(backend.knobs, {})) as session:
        return [session.arrays(session.prepare(feed)()) for feed in feeds]  # type: ignore[union-attr]


def main() -> None:
    """Compare the servers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=list(ENGINES))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "minilm.onnx"
        example = batch(directory(), 8)
        export(directory(), path, example)
        rows = {name: values.numpy() for name, values in example.items()}
        data = Path(folder) / "text.npz"
        np.savez(data, **rows)
        feeds = [{name: v[i : i + SAMPLES] for name, v in rows.items()} for i in range(0, 8, SAMPLES)]
        expected = local(path, feeds)
        for engine in options.only:
            worst = difference(engine, path, feeds, expected)
            print(f"{engine:11} differs by {worst:.1e} at most (bound {TOLERANCE:.0e})", flush=True)
        print("\nengine       requests/s   samples/s   median       p99          queue      compute    rest")
        results_by_engine: dict[str, list[modeldyno.Result]] = {engine: [] for engine in options.only}
        for _ in range(options.rounds):
            for engine, results in results_by_engine.items():
                results.append(
                    modeldyno.load(
                        path,
                        backend=engine,
                        inputs=[str(data)],
                        batch_size=SAMPLES,
                        concurrency=options.concurrency,
                        duration=options.seconds,
                        probes=["load"],
                        plan=Plan(max_time=3 * options.seconds),
                    )
                )
        for engine, results in results_by_engine.items():
            print(line(engine, results), flush=True)


def line(engine: str, results: list[modeldyno.Result]) -> str:
    """Give the medians of the rounds."""

    def of(query: str) -> float:
        values = [result[query] for result in results if result.find(query.partition(".")[0])]
        finite = [value for value in values if value is not None]
        return median(finite) if finite else float("nan")

    times = ("latency.p50.raw", "latency.p99.raw", "queue_time", "compute_time", "network_time")
    times_text = "".join(f"{1e3 * of(query):9.2f} ms" for query in times)
    return f"{engine:11} {of('request_rate'):11.1f} {of('throughput'):11.1f}{times_text}"


if __name__ == "__main__":
    main()
