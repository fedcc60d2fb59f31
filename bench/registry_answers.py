"""Answers of a large registry against the truth: 10,000 models with figures drawn from known distributions.

Asks 20 questions, each of another model with many versions, forms, batch sizes and two machines, and compares
each answer with the exhaustive computation from the distributions themselves: right; careful, if it is
unknown or dearer than the best (more replicas, or without a demand a smaller rate); or wrong, if what it
names breaks a bound or does not carry the demand, or if something holds of which it says that nothing does.
Exits with 1 if one is wrong, or takes more than 100 ms of CPU time.

    python bench/registry_answers.py [--models 10000] [--questions 20] [--seed 0]
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from statistics import NormalDist, median
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np
from tests.support.sample_registry import a_figure, a_target, a_variant, a_version

from modeldyno.base.metrics.measurement import Distribution, Interval, Measurement
from modeldyno.registry.answering import answer
from modeldyno.registry.records.answer import AnswerState
from modeldyno.registry.records.policy import profile_task
from modeldyno.registry.records.records import FigureState, Measure
from modeldyno.registry.targets import decisive, software_here, target_here
from modeldyno.serving.loadtest.replicas import CostOptions
from modeldyno.stores import sql
from modeldyno.stores.results import _row as result_row
from modeldyno.stores.results import number_rows
from modeldyno.stores.rows import record_row
from modeldyno.stores.schema import FIGURES, MODELS, NUMBERS, RESULTS, VARIANTS, VERSIONS
from modeldyno.testing.sample_results import a_small_result
from modeldyno.testing.service_model import lognormal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from modeldyno.base.result.result import Result
    from modeldyno.registry.records.answer import RegistryAnswer
    from modeldyno.registry.records.records import Variant, VariantFigure, Version

LIMIT_MS = 100.0
VERSIONS_ASKED, RECIPES, BATCHES = 8, ("source", "openvino", "torchscript"), (1, 8, 32)
SAMPLES, PROCESSES = 3000, 3
STALE = 0.1
"""Share of figures that are stale."""
NOW = datetime.now(UTC).isoformat()


@dataclass(frozen=True, slots=True)
class Truth:
    """What is true of a variant in a configuration on a target: its calls' times are lognormal."""

    key: str
    target: str
    batch: int
    middle: float
    """Median seconds of a call."""
    sigma: float
    fresh: bool

    def latency(self, statistic: str) -> float:
        """Return a percentile, such as ``p99``, in seconds."""
        z = NormalDist().inv_cdf(float(statistic[1:]) / 100)
        return self.middle * math.exp(self.sigma * z)

    @property
    def rate(self) -> float:
        """Inferences a second."""
        return self.batch / lognormal(self.middle, self.sigma).mean


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a model."""

    model: str
    statistic: str
    bound: float
    """Seconds."""
    demand: float | None
    on: str | None


def a_measurement(truth: Truth, rng: np.random.Generator) -> Result:
    """Draw the Result of a measurement from the truth."""
    times = lognormal(truth.middle, truth.sigma).draw(rng, SAMPLES)
    mean, error = float(times.mean()), float(times.std()) / math.sqrt(SAMPLES)
    interval = Interval(low=truth.batch / (mean + 1.96 * error), high=truth.batch / (mean - 1.96 * error))
    return a_small_result(
        id=f"{abs(hash(truth.key)):016x}"[:12],
        created=NOW,
        measurements=(
            Measurement(metric="latency", value=Distribution.of(*np.split(times, PROCESSES))),
            Measurement(metric="throughput", value=truth.batch / mean, interval=interval),
        ),
    )


def figure_of(
    variant: Variant, batch: int, target: str, software: dict[str, Any], chance: random.Random
) -> VariantFigure:
    """Make a figure, of which a few are stale."""
    measure = Measure(probes=("latency", "throughput"), settings={"batch_size": batch})
    stale = chance.random() < STALE
    return a_figure(
        profile_task(variant, measure, target, priority=1),
        taken=NOW,
        software=software,
        state=FigureState.STALE if stale else FigureState.FRESH,
        why="measured with other software: onnxruntime 1.0 -> 1.1" if stale else "",
    )


def asked_model(
    name: str, targets: tuple[str, str], software: dict[str, Any], seed: int
) -> tuple[list[Version], list[Variant], list[VariantFigure], list[Result], list[Truth]]:
    """Make a model with many candidates, and what is true of each."""
    chance, rng = random.Random(f"{name} {seed}"), np.random.default_rng([seed, int(name[-5:])])
    versions, variants, figures, results, truths = [], [], [], [], []
    for number in range(1, VERSIONS_ASKED + 1):
        version = a_version(name, number, digest=f"sha256:{name}{number}")
        versions.append(version)
        for recipe in RECIPES:
            variant = a_variant(version, recipe)
            variants.append(variant)
            base = 0.002 * math.exp(chance.gauss(0, 0.4))
            for batch in BATCHES:
                for at, target in enumerate(targets):
                    figure = figure_of(variant, batch, target, software if at == 0 else {}, chance)
                    middle = base * (0.6 + 0.4 * batch) * (1.0, 0.7)[at]
                    fresh = figure.state is FigureState.FRESH
                    truths.append(Truth(figure.key, target, batch, middle, chance.uniform(0.05, 0.4), fresh))
                    results.append(a_measurement(truths[-1], rng))
                    figures.append(replace(figure, result=results[-1].id))
    return versions, variants, figures, results, truths


def fill(
    store: sql.SqlStore, options: argparse.Namespace, targets: tuple[str, str], software: dict[str, Any]
) -> dict[str, list[Truth]]:
    """Write the models at once, each with a figure; those that are asked, with many."""
    truths: dict[str, list[Truth]] = {}
    step = options.models // options.questions
    rng = np.random.default_rng(options.seed)
    with store._database.writing() as connection:

        def insert(table: Any, rows: Iterable[dict[str, Any]]) -> None:
            waiting = iter(rows)
            while chunk := list(islice(waiting, 500)):
                connection.execute(table.insert(), chunk)

        names = [f"model-{n:05}" for n in range(options.models)]
        questioned = set(names[::step][: options.questions])
        insert(MODELS, (model_row(name, VERSIONS_ASKED if name in questioned else 1) for name in names))
        chance = random.Random(options.seed)
        for name in names:
            if name in questioned:
                versions, variants, figures, results, truths[name] = asked_model(
                    name, targets, software, options.seed
                )
            else:
                versions = [a_version(name, digest=f"sha256:{name}")]
                variants = [a_variant(versions[0])]
                figure = figure_of(variants[0], 1, targets[0], software, chance)
                results = [a_measurement(Truth(figure.key, targets[0], 1, 0.002, 0.1, True), rng)]
                figures = [replace(figure, result=results[0].id)]
            insert(VERSIONS, (record_row(VERSIONS, version) for version in versions))
            insert(VARIANTS, (record_row(VARIANTS, variant, id=variant.name) for variant in variants))
            insert(RESULTS, (result_row(result, "") for result in results))
            insert(NUMBERS, (row for result in results for row in number_rows(result)))
            insert(FIGURES, (record_row(FIGURES, figure) for figure in figures))
    return truths


def model_row(name: str, latest: int) -> dict[str, Any]:
    """Make the row of a model."""
    numbers = dict.fromkeys(("newest", "versions", "latest"), latest)
    return {"name": name, "created": NOW, "touched": NOW, "framework": "onnx", "task": "", **numbers}


def questions(truths: dict[str, list[Truth]], seed: int) -> Iterator[Question]:
    """Make questions: bounds from far below to far above what there is, half of them near a candidate."""
    chance = random.Random(seed)
    for n, (model, model_truths) in enumerate(truths.items()):
        statistic = ("p50", "p90", "p99")[n % 3]
        values = sorted(truth.latency(statistic) for truth in model_truths)
        share = n / max(1, len(truths) - 1)
        near = values[int(share * (len(values) - 1))]
        bound = near * (chance.uniform(0.98, 1.02) if n % 2 else (0.5, 1.5)[n % 4 == 0])
        demand = None if n % 5 == 4 else chance.uniform(100, 50_000)
        yield Question(model, statistic, bound, demand, ("here", "there", None)[n % 3])


def judge(
    question: Question, answered: RegistryAnswer, truths: list[Truth], on: str | None
) -> tuple[str, float]:
    """Compare an answer with the exhaustive computation: right, careful or wrong; and how much too dear."""
    candidates = [truth for truth in truths if on is None or truth.target == on]
    holding = [truth for truth in candidates if truth.latency(question.statistic) <= question.bound]
    fresh = [truth for truth in holding if truth.fresh]
    if answered.state is AnswerState.UNKNOWN:
        return ("careful" if fresh else "right"), 0.0
    if answered.state is AnswerState.NOTHING_HOLDS:
        return ("wrong" if holding else "right"), 0.0
    assert answered.best is not None
    chosen = next(truth for truth in candidates if truth.key == answered.best.figure.key)
    if chosen not in fresh:
        return "wrong", 0.0
    if question.demand is None:
        dearer = max(truth.rate for truth in fresh) / chosen.rate - 1
        return ("careful" if dearer else "right"), dearer
    least = min(math.ceil(question.demand / truth.rate) for truth in fresh)
    replicas = answered.best.replicas or 0
    if replicas * chosen.rate < question.demand:
        return "wrong", 0.0
    return ("right" if replicas == least else "careful"), replicas / least - 1


def main() -> None:
    """Fill a store, ask, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--models", type=int, default=10_000)
    parser.add_argument("--questions", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    here, there = target_here(name="here"), a_target(name="there")
    names = {"here": here.id, "there": there.id, None: None}
    software = decisive(software_here(), "onnxruntime")
    verdicts, times, dearer, unknown = [], [], [], 0
    with (
        tempfile.TemporaryDirectory(prefix="registry-answers-") as folder,
        sql.open(f"sqlite:///{folder}/answers.db") as store,
    ):
        for target in (here, there):
            store.registry.put_target(target)
        truths = fill(store, options, (here.id, there.id), software)
        for question in questions(truths, options.seed):
            demand = None if question.demand is None else f"{question.demand:.3f}/s"
            bound = f"latency.{question.statistic} <= {question.bound * 1e6:.3f}us"
            begin, used = time.perf_counter(), time.process_time()
            answered = answer(
                store.registry,
                question.model,
                require=[bound],
                cost=CostOptions.parse(demand, "1.2/h"),
                on=question.on,
            )
            used, took = time.process_time() - used, time.perf_counter() - begin
            verdict, more = judge(question, answered, truths[question.model], names[question.on])
            verdicts.append(verdict)
            dearer.append(more)
            unknown += answered.state is AnswerState.UNKNOWN
            times.append(1000 * used)
            print(
                f"{question.model} {bound:30} {demand or '':>12} on {question.on or 'any':6} "
                f"{answered.state:14} {verdicts[-1]:8} {1000 * used:6.1f} ms of CPU, {1000 * took:6.1f} ms"
            )
    counts = {verdict: verdicts.count(verdict) for verdict in ("right", "careful", "wrong")}
    print(
        f"{', '.join(f'{n} {verdict}' for verdict, n in counts.items())} ({unknown} of them unknown, "
        f"the others at most {max(dearer):.0%} dearer than what is best in truth); "
        f"median {median(times):.1f} ms, slowest {max(times):.1f} ms of CPU"
    )
    sys.exit(counts["wrong"] > 0 or max(times) > LIMIT_MS)


if __name__ == "__main__":
    main()
