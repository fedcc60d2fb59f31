"""Twenty pairs of models with one planted change each: is the right layer named first?

Each pair is compared as `modeldyno compare` does: in turns, in fresh processes, with a second look at what
has moved. What counts is the first part of the cause by layers (of memory: by places). With --quick there are
no rounds and no verdict: both are watched inside this process, in turns, and what differs most is named.

    python bench/planted_changes.py [--quick] [--only wider,copies] [--rounds 3] [--least 18]

Networks of another size or with other weights are had by CAUSE_WIDTH and CAUSE_SEED in the environment.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from time import monotonic

import modeldyno
from modeldyno.base.job.static_options import StaticOptions
from modeldyno.base.metrics.metric import Query
from modeldyno.base.result.result import Result, merge
from modeldyno.comparison.change.causes import find_causes
from modeldyno.comparison.change.comparison import Cause, Change, ChangeVerdict
from modeldyno.engine.runtime.engine import run
from modeldyno.profiling.request import Request

sys.path.insert(0, str(Path(__file__).parent))
from planted_change_models import ONNX, PAIRS, Pair, write  # beside this file

MODELS = Path(__file__).parent / "planted_change_models.py"
PLAN = modeldyno.Plan(max_time=1.0, min_time=0.2, precision=0.05)


Found = tuple[tuple[Change, ...], tuple[Cause, ...]]
"""What has moved, and what by."""


def compare_pair(pair: Pair, models: list[str], rounds: int) -> Found:
    """Compare both as the command does; nothing is explained that has not surely moved."""
    # Memory within a call is seen in the second look alone: rounds are not decided by it.
    judged = {"latency": ("latency.p50",), "weight_bytes": ("weight_bytes",)}.get(pair.metric, ())
    comparison = modeldyno.compare(
        *models, metrics=judged, min_rounds=rounds, max_rounds=4 * rounds, plan=PLAN, threads=1
    )
    return comparison.contrasts[0].changes, comparison.contrasts[0].causes


def watch_pair(pair: Pair, models: list[str]) -> Found:
    """Watch both in this process, in turns, and explain the difference, whether it is sure or not."""
    probes = ("latency", "layers", *(() if pair in ONNX else ("memory",)))
    jobs = [Request(model=side, settings={"threads": 1}, probes=probes, plan=PLAN).job() for side in models]
    runs: tuple[list[Result], ...] = ([], [])
    for side in (0, 1, 1, 0):
        runs[side].append(run(replace(jobs[side], inspection=StaticOptions(modules=True))))
    before, after = map(merge, runs)
    query = Query.parse("latency.p25.raw" if pair.metric == "latency" else pair.metric)
    values = [result.ask(query).value for result in (before, after)]
    moved = Change(
        query=query,
        baseline=values[0],
        candidate=values[1],
        difference=None,
        interval=None,
        outcome=ChangeVerdict.WORSE,
    )
    return (moved,), find_causes(before, after, (moved,))


def first_cause(pair: Pair, changes_and_causes: Found) -> tuple[str, str, str]:
    """Give the path that is named first, how much of the change it is, and the rest."""
    changes, explained = changes_and_causes
    for cause in explained:
        if cause.query.metric == pair.metric and cause.by in {"layers", "places"} and cause.total:
            first = cause.parts[0]
            return first.scope, f"{first.difference / cause.total:.0%}", f"{cause.rest / cause.total:.0%}"
    for change in changes:
        span = change.interval
        if change.query.metric == pair.metric and change.difference is not None and span is not None:
            moved = f"{change.difference:+.0%} ({span.low:+.0%} to {span.high:+.0%})"
            return f"({change.query} {change.outcome}: {moved}, {change.why})", "", ""
    return f"({pair.metric} has no causes)", "", ""


def right(pair: Pair, path: str) -> bool:
    """Say whether a path is what was changed; of ONNX, a node of it will do."""
    return any(path == where or (pair in ONNX and path.startswith(f"{where}.")) for where in pair.where)


def main() -> None:
    """Compare every pair, and print the table."""
    parser = argparse.ArgumentParser(description="planted changes, and what is named as their cause")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--least", type=int, default=18)
    options = parser.parse_args()
    only = set(filter(None, options.only.split(",")))
    pairs = [pair for pair in (*PAIRS, *ONNX) if not only or pair.name in only]
    hits, begun = 0, monotonic()
    print(f"{'pair':<14} {'planted':<50} {'named first':<22} {'of it':>6} {'rest':>6}")
    with tempfile.TemporaryDirectory() as folder:
        for pair in pairs:
            models = (
                [str(path) for path in write(pair, Path(folder))]
                if pair in ONNX
                else [f"torch:{MODELS}:{pair.name}_{side}" for side in ("before", "after")]
            )
            changes_and_causes = (
                watch_pair(pair, models) if options.quick else compare_pair(pair, models, options.rounds)
            )
            path, part, rest = first_cause(pair, changes_and_causes)
            hit = right(pair, path)
            hits += hit
            verdict = "" if hit else "WRONG"
            print(f"{pair.name:<14} {pair.change:<50} {path:<22} {part:>6} {rest:>6} {verdict}", flush=True)
    print(f"{hits} of {len(pairs)} named right, in {monotonic() - begun:.0f} s")
    sys.exit(not only and hits < options.least)


if __name__ == "__main__":
    main()
