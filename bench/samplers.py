"""What watching costs: the median latency with all samplers on, over that with none, in fresh processes.

Each round makes two runs, one after the other in an order that alternates, each in a process of its own.
Where this machine has no NVIDIA driver, the sampler of devices watches a card that is made up, by the fake of
NVML that the tests have: its side process reads and writes as it would, and no driver is asked.

    python bench/samplers.py [--rounds 30]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.job.job import Job
from modeldyno.base.job.knob import configure
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.plugins import backend
from modeldyno.engine.runtime import engine as runtime_engine
from modeldyno.engine.samplers import device

ROOT = Path(__file__).parent.parent
BOUND = 1.01
CARD = {
    "name": "made up", "uuid": "GPU-1", "parts": [], "used": 3 << 30, "utilization": 50, "watts": 100.0,
    "counted_watts": 100.0, "clocks": {"1": 1000, "2": 1000}, "temperature": 50, "reasons": 0,
    "processes": [["parent", 1 << 30]],
}  # fmt: skip


def one_run(*, watched: bool, root: Path, threads: int) -> None:
    """Measure in this process, and print what a parent wants to know of it."""
    if not watched:
        runtime_engine.start_samplers = lambda *_, **__: []
    if device.start.__kwdefaults__ is not None and not device.is_anything_to_watch(Path("/"), os.environ):
        device.start.__kwdefaults__["root"] = root
    knobs = {"batch_size": 32, "threads": threads}
    job = Job(
        model=ModelRef(scheme="onnx", locator=str(ROOT / "examples/digits/digits.onnx")),
        backend="onnxruntime",
        inputs=(InputSpec(name="image", shape=(32, 1, 8, 8), dtype="float32"),),
        config=configure(backend("onnxruntime").knobs, knobs),
        probes=("latency",),
        plan=Plan(min_time=2.0, max_time=4.0),
    )
    result = runtime_engine.run(job)
    metrics = sorted({m.metric for m in result.measurements})
    print(json.dumps({"median": result.ask("latency.p50.raw").value, "metrics": metrics}))


def fresh(way: str, root: Path, threads: int) -> tuple[float, list[str]]:
    """Make one run in a process of its own."""
    environment = {
        **os.environ,
        "FAKE_NVML": json.dumps([CARD]),
        "PYTHONPATH": str(ROOT / "tests/engine/samplers/fakes"),
    }
    command = [sys.executable, __file__, "--only", way, "--root", str(root), "--threads", str(threads)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    figures = json.loads(done.stdout.splitlines()[-1])
    return figures["median"], figures["metrics"]


def main() -> None:
    """Alternate the two, and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", choices=("on", "off"), help=argparse.SUPPRESS)
    parser.add_argument("--root", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        one_run(watched=options.only == "on", root=options.root, threads=options.threads)
        return
    ratios: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "dev/nvidiactl").mkdir(parents=True)
        for number in range(options.rounds):
            order = ("on", "off") if number % 2 == 0 else ("off", "on")
            figures = {way: fresh(way, root, options.threads) for way in order}
            ratios.append(figures["on"][0] / figures["off"][0])
    extra = sorted(set(figures["on"][1]) - set(figures["off"][1]))
    middle = statistics.median(ratios)
    quartiles = statistics.quantiles(ratios, n=4)
    print(f"digits, batch 32, {options.threads} thread(s): {options.rounds} rounds of fresh processes")
    print(f"  median off {figures['off'][0] * 1e6:.1f} us, on {figures['on'][0] * 1e6:.1f} us (last round)")
    print(f"  on / off  x {middle:.4f}  (quartiles {quartiles[0]:.4f} to {quartiles[2]:.4f}; bound {BOUND})")
    print(f"  watched: {', '.join(extra)}")


if __name__ == "__main__":
    main()
