"""Our sweep beside NVIDIA's Model Analyzer in quick mode: the same model, Triton, machine and space.

Both look for the largest throughput of a small network under a bound on its p99 latency, over instances, the
largest batch and the concurrency. Printed are the wall time and the measurements of each, and what each
found; then both winners and the default are measured again, in turns, each time on a server of its own, by
both load generators, and the ratio of the winners is told with its 95 % interval.

    modeldyno engine install triton
    python -m venv MA && MA/bin/pip install triton-model-analyzer==1.58.0
    python bench/model_analyzer.py MA/bin/model-analyzer [--model cnn] [--require 'latency.p99 <= 20ms']
"""

from __future__ import annotations

import argparse
import compileall
import csv
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from measured_spaces import cnn
from perf_analyzer import perf_analyzer

import modeldyno
from modeldyno import Plan
from modeldyno.base import plugins
from modeldyno.base.job.knob import configure
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.base.metrics.constraints import Constraint
from modeldyno.base.stats.student_t import upper_tail_quantile
from modeldyno.serving.servers import triton

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

WIDTH = 256
INSTANCES, BATCHES, CONCURRENCIES = (1, 5), (1, 2, 4, 8, 16, 32, 64, 128), (1, 1024)
PATIENCE = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a tool found, and what that took."""

    tool: str
    seconds: float
    measurements: int
    settings: dict[str, Any]
    """Of our own names, the concurrency among them."""
    throughput: float
    p99: float
    sure: dict[str, Any] | None = None
    """Settings that surely hold the bound, where those above may not."""


def mlp(folder: Path) -> Path:
    """Write a network of three layers."""
    draw = np.random.default_rng(0)
    sizes = (WIDTH, 512, 512, 10)
    nodes, weights = [], []
    for place, (before, after) in enumerate(pairwise(sizes)):
        weights.append(
            onnx.numpy_helper.from_array(
                draw.normal(size=(before, after)).astype(np.float32) / 16, f"w{place}"
            )
        )
        nodes.append(onnx.helper.make_node("MatMul", [f"v{place}", f"w{place}"], [f"m{place}"]))
        nodes.append(onnx.helper.make_node("Relu", [f"m{place}"], [f"v{place + 1}"]))
    ends = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", size])
        for name, size in (("v0", WIDTH), ("v3", 10))
    ]
    graph = onnx.helper.make_graph(nodes, "mlp", ends[:1], ends[1:], weights)
    opsets = [onnx.helper.make_opsetid("", 17)]
    path = folder / "mlp.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


MODELS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "mlp": (mlp, f"1x{WIDTH}"),
    "cnn": (cnn, "1x3x32x32"),
}
"""What writes a model, and the shape of a request."""


def script(path: Path, environment: dict[str, str], command: list[str]) -> Path:
    """Write a program that starts another with words more, and in an environment of its own."""
    settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in environment.items())
    path.write_text(f'#!/bin/sh\nexec env {settings} {shlex.join(command)} "$@"\n')
    path.chmod(0o755)
    return path


def shape(model: Path) -> str:
    """Give the shape of a request."""
    return MODELS[model.stem][1]


def repository(model: Path, folder: Path) -> Path:
    """Have our backend write the model's repository, and copy it."""
    loaded = plugins.loader("onnx").load(ModelRef(scheme="onnx", locator=str(model)), seed=0, trust=False)
    backend = plugins.backend("triton")
    with backend.open(loaded, configure(backend.knobs, {"max_batch": 128})) as session:
        source = Path(session.server.folder) / "repository"  # type: ignore[union-attr]
        subprocess.run(["cp", "-rL", str(source), str(folder)], check=True)
    return folder / "repository"


Tool = tuple[Path, dict[str, str]]
"""A program, and its environment."""


def their_generator(folder: Path) -> Tool:
    """Fetch perf_analyzer."""
    places = map(Path, triton.find_tritonserver("").environment["LD_LIBRARY_PATH"].split(":"))
    return perf_analyzer(folder, next(place for place in places if place.suffix == ".libs"))


def theirs(analyzer: str, model: Path, folder: Path, bound: float | None, tool: Tool) -> Found:
    """Run Model Analyzer in quick mode."""
    program = triton.find_tritonserver("")
    binary, environment = tool
    server = script(
        folder / "tritonserver",
        dict(program.environment),
        [program.path, f"--backend-directory={program.backends}",
         *(f"--{part}-address=127.0.0.1" for part in ("http", "grpc", "metrics"))],
    )  # fmt: skip
    client = script(
        folder / "perf", {"LD_LIBRARY_PATH": environment["LD_LIBRARY_PATH"]}, [str(binary.absolute())]
    )
    source = repository(model, folder)
    [name] = [place.name for place in source.iterdir()]
    settings = {
        "model_repository": str(source),
        "output_model_repository_path": str(folder / "variants"),
        "override_output_model_repository": True,
        "checkpoint_directory": str(folder / "checkpoints"),
        "export_path": str(folder),
        "triton_launch_mode": "local",
        "triton_server_path": str(server),
        "perf_analyzer_path": str(client),
        "run_config_search_mode": "quick",
        "run_config_search_max_instance_count": INSTANCES[1],
        "run_config_search_max_model_batch_size": BATCHES[-1],
        "run_config_search_max_concurrency": CONCURRENCIES[1],
        "client_protocol": "grpc",
        "skip_detailed_reports": True,
        "profile_models": {
            name: {
                "objectives": ["perf_throughput"],
                **({"constraints": {"perf_latency_p99": {"max": round(1e3 * bound)}}} if bound else {}),
            }
        },
    }
    config = folder / "analyzer.json"  # JSON is YAML
    config.write_text(json.dumps(settings))
    begin = time.perf_counter()
    done = subprocess.run(
        [analyzer, "profile", "-f", str(config)],
        capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=folder,
        env={**{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
             "PATH": f"{Path(analyzer).resolve().parent}:{os.environ['PATH']}"},
    )  # fmt: skip
    seconds = time.perf_counter() - begin
    print(f"Model Analyzer took {seconds:.0f} s", flush=True)
    (Path(tempfile.gettempdir()) / "model_analyzer.log").write_text(done.stdout + done.stderr)
    tables = list((folder / "results").glob("metrics-model-inference.csv"))
    if not tables:
        csv_files = [str(path.relative_to(folder)) for path in folder.rglob("*.csv")]
        raise SystemExit(
            f"Model Analyzer gave no table, of {csv_files}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        )
    with tables[0].open() as file:
        rows = list(csv.DictReader(file))
    held = [row for row in rows if row["Satisfies Constraints"] == "Yes"] or rows
    best = max(held, key=lambda row: float(row["Throughput (infer/sec)"]))
    return Found(
        tool="Model Analyzer",
        seconds=seconds,
        measurements=len(rows),
        settings={
            "instances": int(re.sub(r"\D.*", "", best["Instance Group"].split(":")[0]) or 1),
            "max_batch": int(best["Max Batch Size"]),
            "dynamic_batching": True,
            "concurrency": int(best["Concurrency"]),
        },
        throughput=float(best["Throughput (infer/sec)"]),
        p99=float(best["p99 Latency (ms)"]) / 1e3,
    )


def ours(model: Path, folder: Path, require: list[str]) -> tuple[Found, float]:
    """Run our sweep; give what it found, and the seconds until it had its candidate."""
    path = folder / "study.json"
    command = [
        sys.executable, "-m", "modeldyno", "sweep", str(model), "--backend", "triton", "--no-store",
        "--set", "protocol=grpc", "--input", shape(model), "--maximize", "throughput",
        "--space", f"instances={INSTANCES[0]}..{INSTANCES[1]}",
        "--space", f"max_batch={','.join(map(str, BATCHES))}",
        "--space", f"concurrency={CONCURRENCIES[0]}..{CONCURRENCIES[1]}*2",
        "--set", "dynamic_batching=true", "--json", str(path),
        *(word for bound in require for word in ("--require", bound)),
    ]  # fmt: skip
    begin = time.perf_counter()
    subprocess.run(command, check=False)
    seconds = time.perf_counter() - begin
    study = json.loads(path.read_text())
    trials = [trial for trial in study["trials"] if trial["state"] != "skipped"]
    verified = sum(trial["seconds"] for trial in trials if trial["stage"] == "verify")
    best, safe = study["ranking"]["best"], study["ranking"]["safe"]
    if best is None:
        raise SystemExit("modeldyno found no configuration that holds the bound")
    judged = [judgement["answer"]["value"] for judgement in best["judgements"]]
    return (
        Found(
            tool="modeldyno",
            seconds=seconds,
            measurements=len(trials),
            settings={"dynamic_batching": True, **best["point"]},
            throughput=best["objectives"][0]["value"],
            p99=judged[0] or float("nan"),
            sure={"dynamic_batching": True, **safe["point"]} if safe else None,
        ),
        seconds - verified,
    )


def measure_by_modeldyno(model: Path, settings: dict[str, Any], seconds: float) -> tuple[float, float]:
    """Measure a configuration by our load generator: throughput and p99."""
    chosen = {name: value for name, value in settings.items() if name != "concurrency"}
    result = modeldyno.load(
        model, backend="triton", protocol="grpc", inputs=[shape(model)], concurrency=settings["concurrency"],
        duration=seconds, probes=["load"], plan=Plan(max_time=3 * seconds), **chosen,
    )  # fmt: skip
    return result["throughput"] or 0.0, result["latency.p99.raw"] or float("nan")


def measure_by_perf_analyzer(
    model: Path, settings: dict[str, Any], seconds: float, tool: Tool
) -> tuple[float, float]:
    """Measure it by perf_analyzer: throughput and p99 of three windows; NaN where it gives none in time.

    Whether the windows agree is not asked, which they often do not: how rounds differ tells the error.
    """
    chosen = {name: value for name, value in settings.items() if name != "concurrency"}
    loaded = plugins.loader("onnx").load(ModelRef(scheme="onnx", locator=str(model)), seed=0, trust=False)
    backend = plugins.backend("triton")
    with backend.open(loaded, configure(backend.knobs, chosen)) as session:
        at = session.server.ports["grpc"]  # type: ignore[union-attr]
        command = [
            str(tool[0].absolute()), "-m", model.stem, "-u", f"127.0.0.1:{at}", "-i", "grpc",
            "--concurrency-range", str(settings["concurrency"]), "--measurement-interval",
            str(int(1000 * seconds / 3)), "--stability-percentage", "999",
        ]  # fmt: skip
        try:
            output = subprocess.run(
                command, env=tool[1], capture_output=True, text=True, timeout=60, check=False
            ).stdout
        except subprocess.TimeoutExpired:
            return float("nan"), float("nan")
    rate = re.search(r"Throughput: ([\d.]+) infer/sec", output)
    p99 = re.search(r"p99 latency: (\d+) usec", output)
    return (float(rate[1]), 1e-6 * float(p99[1])) if rate and p99 else (float("nan"), float("nan"))


def ratio(one: NDArray[np.float64], other: NDArray[np.float64]) -> str:
    """Say the geometric mean of the ratios within the rounds, and its 95 % interval."""
    logs = np.log(one / other)
    logs = logs[np.isfinite(logs)]
    if len(logs) < 2:
        return f"not told, by {len(logs)} rounds"
    half = upper_tail_quantile(0.025, len(logs) - 1) * logs.std(ddof=1) / len(logs) ** 0.5
    low, middle, high = np.exp(logs.mean() + np.array([-half, 0, half]))
    return f"{middle:.2f} ({low:.2f} to {high:.2f}, {len(logs)} rounds)"


def main() -> None:
    """Compare the two."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("analyzer")
    parser.add_argument("--require", default="latency.p99 <= 20ms")
    parser.add_argument("--model", choices=MODELS, default="mlp")
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=("ours", "theirs"))
    options = parser.parse_args()
    bound = Constraint.parse(options.require).bound
    # An installer does this, and did it for Model Analyzer.
    compileall.compile_dir(str(Path(modeldyno.__file__).parent), quiet=1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = MODELS[options.model][0](folder)
        tool = their_generator(folder)
        answers: list[Found] = []
        if options.only != "theirs":
            mine, candidate = ours(model, folder, [options.require])
            print(f"modeldyno had its candidate after {candidate:.0f} s", flush=True)
            answers.append(mine)
        if options.only != "ours":
            answers.append(theirs(options.analyzer, model, folder, bound, tool))
        for each in answers:
            print(
                f"{each.tool:15} {each.seconds:6.0f} s, {each.measurements:3} measurements: {each.settings} "
                f"{each.throughput:,.0f}/s at p99 {1e3 * each.p99:.1f} ms",
                flush=True,
            )
        default = {"instances": 1, "max_batch": BATCHES[-1], "dynamic_batching": True, "concurrency": 64}
        sure = {f"{each.tool}, sure": each.sure for each in answers if each.sure is not None}
        winners = {**{each.tool: each.settings for each in answers}, **sure, "default": default}
        generators: dict[str, Callable[[dict[str, Any]], tuple[float, float]]] = {
            "modeldyno load": lambda settings: measure_by_modeldyno(model, settings, options.seconds),
            "perf_analyzer": lambda settings: measure_by_perf_analyzer(
                model, settings, options.seconds, tool
            ),
        }
        figures_by_winner: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for number in range(options.rounds):
            for who, settings in list(winners.items())[:: -1 if number % 2 else 1]:
                for what, measure in generators.items():
                    figures_by_winner.setdefault((who, what), []).append(measure(settings))
        for (who, what), figures in figures_by_winner.items():
            rate, p99 = np.nanmedian(np.array(figures), axis=0)
            print(f"{who:15} by {what:14} {rate:8,.0f}/s at p99 {1e3 * p99:6.1f} ms", flush=True)
        for what in generators if len(answers) > 1 else ():
            one, other = (np.array(figures_by_winner[each.tool, what])[:, 0] for each in answers)
            print(f"modeldyno / Model Analyzer by {what}: {ratio(one, other)}", flush=True)


if __name__ == "__main__":
    main()
