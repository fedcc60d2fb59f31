"""A recorded pool of runs of unchanged models, on which a gate shows how often it cries wolf.

``record`` runs three real models in fresh processes, in turns, as the gate would run them, and keeps the
numbers of each process. It may be stopped and started again.

    python bench/gate.py record [--runs 200] [--pool bench/pools/gate.json]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.core.measurement import Distribution
from modeldyno.core.plan import Plan
from modeldyno.executors.isolated import isolated
from modeldyno.request import Request

if TYPE_CHECKING:
    from modeldyno.core.job import Job
    from modeldyno.core.result import Result

ROOT = Path(__file__).parent.parent
POOL = ROOT / "bench" / "pools" / "gate.json"
PLAN = Plan(min_time=0.5, max_time=1.0)
"""Measuring of one process: short, as what starts differ by is more than what longer measuring would tell."""
BATCH = 8
KEPT = ("p5", "p10", "p25", "p50", "p75", "p90", "p95", "mean", "min")
"""Statistics of a distribution that are kept of each process."""


def models(scratch: Path) -> dict[str, Request]:
    """Name the three models; what has to be exported first goes to a directory."""
    digits = ROOT / "examples" / "digits"
    text, graph = scratch / "text.npz", scratch / "minilm.onnx"
    if not graph.is_file():
        _export(graph, text)
    asked: dict[str, tuple[str, tuple[str, ...], dict[str, int]]] = {
        "digits": (str(digits / "digits.onnx"), (str(digits / "test.npz"),), {"batch_size": 32}),
        "minilm": (str(graph), (str(text),), {"batch_size": BATCH}),
        "resnet18": (f"torch:{ROOT / 'bench' / 'models.py'}:resnet18", (), {}),
    }
    return {
        name: Request(
            model=model, inputs=inputs, settings=settings, probes=("latency",), plan=PLAN, name=name
        )
        for name, (model, inputs, settings) in asked.items()
    }


def _export(graph: Path, text: Path) -> None:
    """Export MiniLM beside a few lines of text."""
    import numpy as np  # noqa: PLC0415 - only once
    from minilm import batch, directory, export  # noqa: PLC0415 - torch is for what has to be exported

    example = batch(directory(), BATCH)
    unfinished = graph.with_suffix(".part.onnx")
    export(directory(), unfinished, example)
    np.savez(text, **{name: value.numpy() for name, value in example.items()})
    unfinished.rename(graph)


# --- record ------------------------------------------------------------------------------------------


def record(pool: Path, runs: int, scratch: Path) -> None:
    """Run every model so many times, in turns; what is in the pool already counts."""
    kept = json.loads(pool.read_text()) if pool.is_file() else {"environment": {}, "runs": []}
    jobs = {name: asked.job() for name, asked in models(scratch).items()}
    counts = {name: sum(run["model"] == name for run in kept["runs"]) for name in jobs}
    session = max((run["session"] for run in kept["runs"]), default=-1) + 1
    begun = time.monotonic()
    with isolated() as execute:
        while min(counts.values()) < runs:
            for name, job in jobs.items():
                if counts[name] >= runs:
                    continue
                started = time.monotonic()
                result = execute(job, watch=lambda _event: None)
                if result.failures or any(doubt.code == "interrupted" for doubt in result.doubts):
                    print(f"{name}: {result.failures or 'interrupted'}; start me again to go on")
                    _write(pool, kept)
                    return
                counts[name] += 1
                kept["runs"].append({
                    "model": name,
                    "session": session,
                    "at": round(started - begun, 2),
                    "took": round(time.monotonic() - started, 3),
                    **_numbers(result),
                })  # fmt: skip
            kept["environment"] = _environment(result, job)
            _write(pool, kept)
            done, whole = sum(counts.values()), runs * len(jobs)
            print(f"{done} of {whole} runs, {time.monotonic() - begun:.0f} s", flush=True)


def _numbers(result: Result) -> dict[str, Any]:
    """Give the numbers of a process, rounded to six digits: of the whole model, by query."""
    found: dict[str, Any] = {}
    for measurement in result.measurements:
        if measurement.scope:
            continue
        value = measurement.value
        if not isinstance(value, Distribution):
            found[measurement.metric] = _short(value)
        elif measurement.metric == "latency":
            found |= {f"latency.{name}": _short(value.statistic(name)) for name in KEPT}
            found |= {"latency.n": len(value), "latency.n_eff": _short(value.effective_size("p50"))}
        else:
            found[f"{measurement.metric}.max"] = _short(value.statistic("max"))
    return found | {"doubts": sorted({doubt.code for doubt in result.doubts})}


def _short(number: float) -> float:
    return float(f"{number:.6g}")


def _environment(result: Result, job: Job) -> dict[str, Any]:
    """Say where and how, without what is particular to one run."""
    return {
        "recorded": datetime.now(UTC).isoformat(timespec="seconds"),
        "hardware": result.environment.hardware,
        "software": result.environment.software,
        "plan": {"min_time": job.plan.min_time, "max_time": job.plan.max_time},
    }


def _write(pool: Path, kept: dict[str, Any]) -> None:
    """Write one line a run, whole or not at all."""
    lines = ",\n".join(json.dumps(run) for run in kept["runs"])
    text = f'{{"environment": {json.dumps(kept["environment"])},\n"runs": [\n{lines}\n]}}\n'
    unfinished = pool.with_suffix(".part")
    unfinished.write_text(text)
    unfinished.replace(pool)


def main() -> None:
    """Record a pool."""
    parser = argparse.ArgumentParser(description="false alarms and power of the gate")
    parser.add_argument("what", choices=("record",))
    parser.add_argument("--pool", type=Path, default=POOL)
    parser.add_argument("--runs", type=int, default=200, help="of each model")
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()) / "modeldyno-gate")
    options = parser.parse_args()
    options.scratch.mkdir(parents=True, exist_ok=True)
    options.pool.parent.mkdir(parents=True, exist_ok=True)
    record(options.pool, options.runs, options.scratch)


if __name__ == "__main__":
    main()
