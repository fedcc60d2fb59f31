"""Our load generator beside NVIDIA's perf_analyzer: the same Triton, model and requests, in turns.

Prints for each protocol and concurrency the requests per second, the median latency and the processor time
of the client for a request, ours over theirs. The model gives back what it gets, so that the server does as
little as it can. perf_analyzer is given three tries: it gives up what it finds unstable, and was seen to
hang. A figure from whose time the hypervisor took more than 3 % is left out, and measured again.

    modeldyno engine install triton
    python bench/perf_analyzer.py [--seconds 5] [--rounds 3] [--drivers 1]

The binary comes out of the wheel tritonclient 2.51.0 for manylinux1, which runs where glibc is 2.36.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
import zipfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
import onnx
import stolen_time

from modeldyno.base import plugins
from modeldyno.base.job.knob import configure
from modeldyno.base.job.load_spec import Load
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.engine.interfaces.request_target import Endpoint, Target
from modeldyno.serving.loadgen.driver_pool import run_load_drivers

if TYPE_CHECKING:
    from collections.abc import Callable

WHEEL = "tritonclient==2.51.0"
WARM_UP = 1.0
TRIES, PATIENCE = 3, 45
SIZE = 16


@dataclass(frozen=True, slots=True)
class Figure:
    """Requests per second, median latency in seconds, processor seconds of the client a request."""

    rate: float
    latency: float
    cpu: float


def identity(folder: Path) -> Path:
    """Write a model that gives back its input."""
    shape = ["batch", SIZE]
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name in ("x", "y")]
    node = onnx.helper.make_node("Identity", ["x"], ["y"])
    graph = onnx.helper.make_graph([node], "identity", ends[:1], ends[1:])
    path = folder / "identity.onnx"
    opsets = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def perf_analyzer(folder: Path, libraries: Path) -> tuple[Path, dict[str, str]]:
    """Fetch the binary, and say where it finds what it needs: in Triton's own wheel."""
    pip = f"-m pip download --quiet --no-deps --only-binary=:all: --platform manylinux1_x86_64 {WHEEL} --dest"
    subprocess.run([sys.executable, *pip.split(), str(folder)], check=True)
    with zipfile.ZipFile(next(folder.glob("tritonclient*.whl"))) as wheel:
        inside = next(name for name in wheel.namelist() if name.endswith("bin/perf_analyzer"))
        binary = Path(wheel.extract(inside, folder))
    binary.chmod(0o755)
    for stem, name in (("libcudart", "libcudart.so.12"), ("libb64", "libb64.so.0d")):
        (folder / name).symlink_to(next(libraries.glob(f"{stem}*.so*")))
    return binary, {**os.environ, "LD_LIBRARY_PATH": str(folder)}


def theirs(
    command: list[str], environment: dict[str, str], concurrency: int, seconds: float
) -> Figure | None:
    """Run perf_analyzer; None where it does not answer."""
    arguments = [
        *command,
        "--concurrency-range",
        str(concurrency),
        "--measurement-interval",
        str(int(400 * seconds)),
    ]
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    try:
        output = subprocess.run(
            arguments, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
        ).stdout
    except subprocess.TimeoutExpired:
        return None
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    rate = re.search(r"Throughput: ([\d.]+) infer/sec", output)
    latency = re.search(r"p50 latency: (\d+) usec", output)
    if rate is None or latency is None:
        return None
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Figure(float(rate[1]), int(latency[1]) * 1e-6, cpu / wall / float(rate[1]))


def ours(target: Target, concurrency: int, seconds: float, drivers: int) -> Figure:
    """Put the same load on it."""
    parts = []
    with run_load_drivers(target, Load(concurrency=concurrency, drivers=drivers)) as driven:
        end = time.perf_counter() + WARM_UP
        while time.perf_counter() < end:
            driven.take(0.1)
        begin, before = time.monotonic_ns(), driven.usage()
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            parts.append(driven.take(0.25).records)
        after, ended = driven.usage(), time.monotonic_ns()
        parts.append(driven.stop(5).records)
    latencies = np.concatenate([(p.end - p.due)[(p.end >= begin) & (p.end < ended) & p.fine] for p in parts])
    cpu = sum(b.cpu - a.cpu for a, b in zip(before, after, strict=True))
    sent = sum(b.sent - a.sent for a, b in zip(before, after, strict=True))
    rate = len(latencies) / (ended - begin) * 1e9
    return Figure(rate, float(np.median(latencies)) * 1e-9, cpu / sent)


def main() -> None:
    """Measure every protocol and concurrency in turns."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--stability", type=int, default=10, help="per cent that perf_analyzer allows")
    parser.add_argument("--drivers", type=int, default=1)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--protocol", nargs="+", default=["http", "grpc"], choices=["http", "grpc"])
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        model = plugins.loader("onnx").load(
            ModelRef(scheme="onnx", locator=str(identity(folder))), seed=0, trust=False
        )
        backend = plugins.backend("triton")
        session = stack.enter_context(backend.open(model, configure(backend.knobs, {"instances": 1})))
        ports, name = session.server.ports, session.endpoint.model  # type: ignore[union-attr]
        from modeldyno.serving.servers import triton  # once there is one

        places = map(Path, triton.find_tritonserver("").environment["LD_LIBRARY_PATH"].split(":"))
        libraries = next(place for place in places if place.suffix == ".libs")
        binary, environment = perf_analyzer(folder, libraries)
        feeds = [{"x": np.random.default_rng(n).random((1, SIZE), dtype=np.float32)} for n in range(8)]
        print("protocol  concurrency   requests/s ours, theirs, ratio   median, ratio   CPU a request, ratio")
        for protocol in options.protocol:
            endpoint = Endpoint(host="127.0.0.1", port=ports[protocol], model=name, options={"binary": True})
            target = plugins.client("kserve-http" if protocol == "http" else "kserve-grpc").target(
                feeds, endpoint
            )
            command = [str(binary), "-m", name, "-i", protocol, "-u", f"127.0.0.1:{ports[protocol]}"]
            command += ["--percentile", "50", "--stability-percentage", str(options.stability)]
            for concurrency in options.concurrency:
                report(protocol, concurrency, target, command, environment, options)


def measure_undisturbed(measure: Callable[[], Figure | None]) -> tuple[Figure | None, bool]:
    """Measure, and say whether too much of the time was taken away."""
    before, begin = stolen_time.stolen_seconds(), time.monotonic()
    figure = measure()
    return figure, stolen_time.share(before, time.monotonic() - begin) > stolen_time.LIMIT


def report(
    protocol: str,
    concurrency: int,
    target: Target,
    command: list[str],
    environment: dict[str, str],
    options: argparse.Namespace,
) -> None:
    """Print a line: medians of the rounds."""
    own: list[Figure] = []
    peer: list[Figure] = []
    tries = left = 0
    while len(own) < options.rounds and left < 3 * options.rounds:
        stolen_time.settle()
        mine, taken = measure_undisturbed(lambda: ours(target, concurrency, options.seconds, options.drivers))
        them = None
        while not taken and them is None and tries < TRIES + options.rounds - 1:
            stolen_time.settle()
            them, taken = measure_undisturbed(
                lambda: theirs(command, environment, concurrency, options.seconds)
            )
            tries += not taken
        if taken:
            left += 1
            continue
        own += [mine] if mine else []
        peer += [them] if them else []
    line = f"{protocol:8}  {concurrency:11}"
    if not own:
        print(f"{line}   no moment without a neighbour", flush=True)
        return
    medians = [median(getattr(figure, name) for figure in own) for name in ("rate", "latency", "cpu")]
    if not peer:
        print(f"{line}   {medians[0]:8,.0f}   perf_analyzer gave nothing in {tries} tries", flush=True)
        return
    others = [median(getattr(figure, name) for figure in peer) for name in ("rate", "latency", "cpu")]
    rate, latency, cpu = (f"x{a / b:.2f}" for a, b in zip(medians, others, strict=True))
    print(
        f"{line}   {medians[0]:8,.0f} {others[0]:8,.0f}  {rate}   {1e6 * medians[1]:7,.0f} us  {latency}   "
        f"{1e6 * medians[2]:5.0f} us  {cpu}   ({len(peer)} of {tries} tries; {left} left out)",
        flush=True,
    )


if __name__ == "__main__":
    main()
