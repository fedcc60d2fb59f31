"""How often the gate cries wolf, and what it can see: on a recorded pool of runs of unchanged models.

``record`` runs three real models, each beside itself in two fresh processes, slice by slice, as the gate
would run them, and keeps the numbers of each process. It may be stopped and started again; each session keeps
where it was made.

``judge`` lays contiguous stretches of the pool out as baseline and candidate, as a live gate meets them, and
lets the gate judge them, its confirmations and added rounds included: none of its alarms is right. Then a
slowdown is put into the candidate, of twice the smallest that the doctor says can be seen. Beside it, on the
same data, other rules that are in use.

``live`` runs that many gates of a model against itself, here and now; like ``record`` it goes on where it was
stopped, for a hundred take half an hour on a quiet machine and hours on a busy one.

    python bench/gate.py record [--runs 200] [--pool bench/gate_runs/gate.json]
    python bench/gate.py judge  [--comparisons 1000] [--budget 120]
    python bench/gate.py live   [--comparisons 100] [--model minilm] [--pool bench/gate_runs/live.json]
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import mannwhitneyu

from modeldyno.base.metrics.constraints import Verdict
from modeldyno.base.metrics.measurement import Distribution
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.metrics.metric import Query
from modeldyno.base.result.result import Result
from modeldyno.comparison.change.build import CompareOptions
from modeldyno.comparison.change.gate_calibration import calibrate, detection_rate, rehearse_gate
from modeldyno.comparison.change.gate_rule import GateRule, decide_gate
from modeldyno.comparison.gate import run_gate
from modeldyno.engine.runtime.session import open_run_session
from modeldyno.profiling.request import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from modeldyno.base.job.job import Job
    from modeldyno.comparison.change.gate_calibration import Numbers

    Numbers_ = Sequence[float]
ROOT = Path(__file__).parent.parent
POOL = ROOT / "bench" / "gate_runs" / "gate.json"
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
    definitions: dict[str, tuple[str, tuple[str, ...], dict[str, int]]] = {
        "digits": (str(digits / "digits.onnx"), (str(digits / "test.npz"),), {"batch_size": 32}),
        "minilm": (str(graph), (str(text),), {"batch_size": BATCH}),
        "resnet18": (f"torch:{ROOT / 'bench' / 'models.py'}:resnet18", (), {}),
    }
    return {
        name: Request(
            model=model, inputs=inputs, settings=settings, probes=("latency",), plan=PLAN, name=name
        )
        for name, (model, inputs, settings) in definitions.items()
    }


def _export(graph: Path, text: Path) -> None:
    """Export MiniLM beside a few lines of text."""
    import numpy as np  # only once
    from minilm import batch, directory, export  # torch is for what has to be exported

    example = batch(directory(), BATCH)
    unfinished = graph.with_suffix(".part.onnx")
    export(directory(), unfinished, example)
    np.savez(text, **{name: value.numpy() for name, value in example.items()})
    unfinished.rename(graph)


# --- record ------------------------------------------------------------------------------------------


def record(pool: Path, runs: int, scratch: Path) -> None:
    """Run every model so many times, in pairs; what is in the pool already counts."""
    kept, session = _begin(pool)
    jobs = {name: request.job() for name, request in models(scratch).items()}
    counts = {name: sum(run["model"] == name for run in kept["runs"]) for name in jobs}
    begun = time.monotonic()
    with open_run_session() as bench:
        while min(counts.values()) < runs:
            for name, job in jobs.items():
                if counts[name] >= runs:
                    continue
                started = time.monotonic()
                pair = bench.run_round([(name, job)] * 2)
                complete = [result for result in pair if isinstance(result, Result) and not result.failures]
                if bench.interrupted() or len(complete) < len(pair):
                    why = "interrupted" if bench.interrupted() else pair
                    print(f"{name}: {why}; start me again to go on")
                    _write(pool, kept)
                    return
                counts[name] += len(complete)
                took = (time.monotonic() - started) / len(complete)
                kept["runs"] += [
                    {
                        "model": name,
                        "session": session,
                        "at": round(started - begun, 2),
                        "took": round(took, 3),
                        **_numbers(result),
                    }
                    for result in complete
                ]
            kept["environments"][str(session)] = _environment(complete[0], job)
            _write(pool, kept)
            done, total = sum(counts.values()), runs * len(jobs)
            print(f"{done} of {total} runs, {time.monotonic() - begun:.0f} s", flush=True)


def _begin(pool: Path) -> tuple[dict[str, Any], int]:
    """Read what was kept, and number the session that adds to it."""
    kept = json.loads(pool.read_text()) if pool.is_file() else {"environments": {}, "runs": []}
    return kept, max((run["session"] for run in kept["runs"]), default=-1) + 1


def _numbers(result: Result) -> dict[str, Any]:
    """Give the numbers of a process, rounded to six digits: of the whole model, by query."""
    numbers: dict[str, Any] = {}
    for measurement in result.measurements:
        if measurement.scope:
            continue
        value = measurement.value
        if not isinstance(value, Distribution):
            numbers[measurement.metric] = _short(value)
        elif measurement.metric == "latency":
            numbers |= {f"latency.{name}": _short(value.statistic(name)) for name in KEPT}
            numbers |= {"latency.n": len(value), "latency.n_eff": _short(value.effective_size("p50"))}
        else:
            numbers[f"{measurement.metric}.max"] = _short(value.statistic("max"))
    return numbers | {"doubts": sorted({doubt.code for doubt in result.doubts})}


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
    pool.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(run) for run in kept["runs"])
    text = f'{{"environments": {json.dumps(kept["environments"])},\n"runs": [\n{lines}\n]}}\n'
    unfinished = pool.with_suffix(".part")
    unfinished.write_text(text)
    unfinished.replace(pool)


# --- judge -------------------------------------------------------------------------------------------


QUERIES = ("latency.p50", "process_memory.max")
SIDE = 10
"""Processes a side that the other rules are given."""


def stretches(numbers: Numbers, rounds: int, draws: int, source: np.random.Generator) -> Iterator[Numbers]:
    """Draw contiguous stretches of pairs; in every other one the sides of each pair change places."""
    length = min(map(len, numbers.values()))
    for number in range(draws):
        begin = 2 * int(source.integers(0, length // 2 - rounds + 1))
        places = [place ^ number % 2 for place in range(begin, begin + 2 * rounds)]
        yield {query: [values[place] for place in places] for query, values in numbers.items()}


def judge(pool: Path, comparisons: int, budget: float) -> None:
    """Print what the gate does, a model a line, and what other rules would do."""
    kept = json.loads(pool.read_text())
    names = sorted({run["model"] for run in kept["runs"]})
    source = np.random.default_rng(0)
    totals = {"alarms": 0, "comparisons": 0}
    bought: list[int] = []
    rivals: dict[str, list[int]] = {name: [0, 0] for name in RIVALS}
    for name in names:
        runs = [run for run in kept["runs"] if run["model"] == name]
        numbers = {Query.parse(text): [run[text] for run in runs] for text in QUERIES}
        took = statistics.median(run["took"] for run in runs)
        rounds = min(GateRule().most, int(budget / took / 2), len(runs) // 4)
        rule = GateRule().within(rounds)
        draws = list(stretches(numbers, rounds, -(-comparisons // len(names)), source))
        rulings = [decide_gate(rehearse_gate(drawn), rule) for drawn in draws]
        alarms = sum(ruling.verdict is Verdict.BROKEN for ruling in rulings)
        undecided = sum(ruling.verdict is Verdict.UNDECIDED for ruling in rulings)
        begins = range(0, len(runs) - 2 * rounds, rounds + rounds % 2)  # what ran together stays so
        smallest_effects = [_doctor(numbers, rule, rounds, begin) for begin in begins]
        smallest = statistics.median(each if each is not None else 1.0 for each in smallest_effects)
        strength = detection_rate(draws, rule, 2 * smallest, {})
        bought += [ruling.rounds for ruling in rulings]
        totals["alarms"] += alarms
        totals["comparisons"] += len(draws)
        spread = statistics.stdev(map(math.log, numbers[Query.parse("latency.p50")]))
        print(
            f"{name:<9} {len(runs)} runs of {took:.1f} s, spread {spread:.1%}: {alarms} alarms, {undecided} "
            f"undecided of {len(draws)}; within {rounds} rounds ({2 * rounds * took:.0f} s) the smallest "
            f"effect is {smallest:.1%}, twice it is found in {strength:.1%}; "
            f"median rounds {statistics.median(ruling.rounds for ruling in rulings):.0f}"
        )
        for rival, says in RIVALS.items():
            rivals[rival][0] += sum(_any_worse(drawn, says, 0.0) for drawn in draws)
            rivals[rival][1] += sum(_any_worse(drawn, says, 2 * smallest) for drawn in draws)
    print(
        f"\nthe gate: {totals['alarms']} alarms of {totals['comparisons']} comparisons of a model with "
        f"itself; median rounds bought {statistics.median(bought):.0f}"
    )
    for rival, (alarms, detected) in rivals.items():
        n = totals["comparisons"]
        print(f"{rival:<44} {alarms:>4} alarms of {n}, finds the same slowdowns in {detected / n:.1%}")


def _doctor(numbers: Numbers, rule: GateRule, rounds: int, begin: int) -> float | None:
    """Give what a doctor would say that is called at some time."""
    own = {query: values[begin : begin + 2 * rounds] for query, values in numbers.items()}
    return calibrate(own, rule, rounds=rounds, comparisons=200, seed=begin).smallest


def _any_worse(drawn: Numbers, says: Callable[[Numbers_, Numbers_], bool], slowdown: float) -> bool:
    """Ask another rule about the first processes of a stretch, in turns as for the gate."""
    for query, values in drawn.items():
        factor = 1 + slowdown if query.metric == "latency" else 1.0
        before, after = values[0 : 2 * SIDE : 2], [factor * v for v in values[1 : 2 * SIDE : 2]]
        if says(before, after):
            return True
    return False


def _exceeds_threshold(before: Numbers_, after: Numbers_) -> bool:
    """A threshold of 10 % on the means."""
    return statistics.fmean(after) > 1.1 * statistics.fmean(before)


def _once(before: Numbers_, after: Numbers_) -> bool:
    """The same on one run a side, as most pipelines have it."""
    return after[0] > 1.1 * before[0]


def _ranks(before: Numbers_, after: Numbers_, chance: float = 0.05) -> bool:
    """Mann and Whitney's test, two-sided, in the direction of a slowdown."""
    worse = statistics.median(after) > statistics.median(before)
    return worse and float(mannwhitneyu(before, after).pvalue) < chance


def _factor_and_ranks(before: Numbers_, after: Numbers_) -> bool:
    """As asv compares: a factor of 1.1, and Mann and Whitney's test at 0.002."""
    return statistics.median(after) > 1.1 * statistics.median(before) and _ranks(before, after, 0.002)


def _gap(before: Numbers_, after: Numbers_) -> bool:
    """As NVBench's robust comparison: the intervals from minimum to third quartile lie apart."""
    return min(after) > statistics.quantiles(before, n=4, method="inclusive")[2]


RIVALS = {
    "a threshold of 10 %, one run a side": _once,
    "a threshold of 10 % on the means": _exceeds_threshold,
    "Mann-Whitney, p < 0.05": _ranks,
    "NVBench's: [min, q3] apart": _gap,
    "asv's: factor 1.1 and p < 0.002": _factor_and_ranks,
}


# --- live --------------------------------------------------------------------------------------------


def live(pool: Path, name: str, comparisons: int, budget: float, scratch: Path) -> None:
    """Run the gate itself on a model of one file against its copy; exit 1 beyond two alarms of a hundred."""
    request = models(scratch)[name]
    copy = scratch / f"{name}-again.onnx"
    shutil.copy(request.model, copy)
    twin = replace(request, model=str(copy))
    kept, session = _begin(pool)
    done = [run for run in kept["runs"] if run["model"] == name]
    begun = time.monotonic()
    with open_run_session() as bench:
        while len(done) < comparisons:
            started = time.monotonic()
            baseline = bench.execute(request.job(), watch=bench.watch)
            checked = run_gate(baseline, twin.job(), CompareOptions(), GateRule(), bench, max_time=budget)
            if bench.interrupted() or checked.ruling is None:
                print("interrupted; start me again to go on")
                return
            ruling = checked.ruling
            done.append(
                {
                    "model": name,
                    "session": session,
                    "at": round(started - begun, 2),
                    "took": round(time.monotonic() - started, 3),
                    "verdict": str(checked.verdict),
                    "rounds": ruling.rounds,
                    "worse": [str(change.query) for change in ruling.worse],
                    "open": [str(change.query) for change in ruling.open],
                }
            )
            kept["runs"].append(done[-1])
            kept["environments"][str(session)] = _environment(baseline, request.job())
            _write(pool, kept)
            print(_describe_gates(done), flush=True)
    print(_describe_gates(done))
    sys.exit(sum(run["verdict"] == "broken" for run in done) > math.ceil(0.02 * comparisons))


def _describe_gates(done: Sequence[dict[str, Any]]) -> str:
    """Say how the gates went."""
    if not done:
        return "no gates"
    verdicts = dict(Counter(run["verdict"] for run in done))
    rounds, took = (statistics.median(run[what] for run in done) for what in ("rounds", "took"))
    return f"{len(done)} gates: {verdicts}; median {rounds:.0f} rounds, {took:.0f} s"


def main() -> None:
    """Record a pool, judge one, or try the gate here."""
    parser = argparse.ArgumentParser(description="false alarms and power of the gate")
    parser.add_argument("what", choices=("record", "judge", "live"))
    parser.add_argument("--pool", type=Path, help="where runs are kept; of live gates a scratch file")
    parser.add_argument("--runs", type=int, default=200, help="of each model")
    parser.add_argument("--comparisons", type=int, default=None, help="1,000 to judge, 100 live")
    parser.add_argument("--model", default="minilm", choices=("digits", "minilm"), help="of the live gates")
    parser.add_argument("--budget", type=float, default=120.0, help="seconds that a gate may measure")
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()) / "modeldyno-gate")
    options = parser.parse_args()
    options.scratch.mkdir(parents=True, exist_ok=True)
    match options.what:
        case "record":
            record(options.pool or POOL, options.runs, options.scratch)
        case "judge":
            judge(options.pool or POOL, options.comparisons or 1000, options.budget)
        case _:
            pool = options.pool or options.scratch / "live.json"
            live(pool, options.model, options.comparisons or 100, options.budget, options.scratch)


if __name__ == "__main__":
    main()
