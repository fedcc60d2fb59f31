"""Whole searches over spaces that were measured in full: what is found, with how many measurements?

A measurement is drawn: the mean of all that was recorded of a point, times the noise that was recorded. The
answer is judged by the means: whether it holds the bounds, and what share it reaches of the best that does.
Beside quick stand the exhaustive grid, points at random, Optuna's TPE and its Gaussian process with as many
measurements as quick may have, and the hill climb that Model Analyzer's documents describe, written anew:
instances in steps of one, batch in powers of two, twice their product as the concurrency, then the best three
at every concurrency. All answers are verified by the same rule, whose measurements are not counted. The
status is 1 where fewer than 95 of 100 searches of quick answer 95 % of the best, which noise alone may keep
the grid from as well, or one takes more than its allowance, or a proposal in a space of a million points more
than 50 ms.

    python bench/search.py [--runs 100] [--synthetic 0] [--strategies quick,optuna-gp] [NAME ...]
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import random
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.support.random_surfaces import FAMILIES
from tests.support.recorded_surfaces import (
    Surface,
    count_starts,
    run_search,
    simulate_trial,
    study_of,
    verify_best,
)

from modeldyno.base.metrics.metric import Query
from modeldyno.sweeps.strategies import bayesian, grid, optuna
from modeldyno.sweeps.strategies.study_history import open_points, rank_candidates, search_budget, used_budget
from modeldyno.sweeps.study.ranking import ranking
from modeldyno.sweeps.study.search_space import key
from modeldyno.sweeps.study.study import LOADS, Study, TrialPurpose, TrialRequest, TrialState
from modeldyno.testing.sample_studies import a_study, make_goal
from modeldyno.testing.strategies import add_done_trial, plain_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from modeldyno.sweeps.study.goal import Goal
    from modeldyno.sweeps.study.search_space import Axis, Point
    from modeldyno.sweeps.study.study import Trial

FOLDER = Path(__file__).parent / "measured_spaces"
REACHED = math.log(0.95)
RESAMPLES = 300
SWIFT = 0.05
"""Seconds that a proposal may take where the space is large."""
MEMORY = Query.parse("process_memory.max")


# --- the strategies ----------------------------------------------------------------------------------


def at_random(study: Study) -> TrialRequest | None:
    """Give any point that was not measured, as often as quick may measure."""
    points = list(open_points(study))
    if not points or used_budget(study) >= search_budget(study):
        return None
    source = np.random.default_rng([study.seed, len(study.trials)])
    return TrialRequest(point=points[source.integers(len(points))])


RADIUS, INITIAL, TOP = 3.0, 3, 3
STEPS = ((1.0, 3), (0.3, 2), (0.09, 1))
"""Gain along an axis, and the step that it is worth."""


@dataclass(kw_only=True)
class Climb:
    """The hill climb: a place is a step on each axis of numbers that is no load and no delay."""

    surface: Surface
    study: Study
    source: np.random.Generator

    def run(self) -> Study:
        """Climb, and then measure the best configurations at every load."""
        home: tuple[int, ...] = tuple(0 for _ in self.axes)
        self.measure(self.point(home), TrialPurpose.DEFAULT)
        visited = {home}
        while True:
            self.survey(home)
            step = self.step(home)
            while any(step) and not self.passes(self.take_step(home, step)):
                step = tuple(int(math.copysign(abs(size) - 1, size)) if size else 0 for size in step)
            home = self.take_step(home, step)
            if home in visited:
                break
            visited.add(home)
        self.sweep()
        return self.study

    @property
    def axes(self) -> list[Axis]:
        """The axes that are climbed."""
        return [a for a in self.surface.space.axes if a.ordered and a.name not in (*LOADS, "queue_delay")]

    def point(self, place: Sequence[int]) -> Point:
        """Give the point at a place: what is not climbed is as the default has it."""
        chosen = {axis.name: axis.values[n] for axis, n in zip(self.axes, place, strict=True)}
        for axis in (axis for axis in self.surface.space.axes if axis.name in LOADS):
            work = 2 * float(chosen.get("max_batch", 1)) * float(chosen.get("instances", 1))
            chosen[axis.name] = min(axis.values, key=lambda value: abs(math.log(float(value) / work)))
        return self.surface.space.completed({**self.surface.default, **chosen})

    def measure(self, point: Point, stage: TrialPurpose = TrialPurpose.SEARCH) -> None:
        """Measure a point once."""
        if key(point) not in self.study.candidates and key(point) not in self.study.skipped:
            trial = simulate_trial(
                self.surface, self.study, TrialRequest(point=point, stage=stage), self.source
            )
            self.study = self.study.add(trial)

    def trial(self, place: Sequence[int]) -> Trial | None:
        """Give what was measured at a place."""
        candidate = self.study.candidates.get(key(self.point(place)))
        return candidate.trials[0] if candidate and candidate.trials[0].state is TrialState.DONE else None

    def places_around(self, home: Sequence[int]) -> list[tuple[int, ...]]:
        """Give the places within the radius, the nearest first."""
        places = [tuple(place) for place in np.ndindex(*(len(axis.values) for axis in self.axes))]
        near = [place for place in places if 0 < math.dist(place, home) <= RADIUS]
        self.source.shuffle(near)
        return sorted(near, key=lambda place: math.dist(place, home))

    def survey(self, home: Sequence[int]) -> None:
        """Measure the place itself, and of those around it as many as are needed for a step."""
        self.measure(self.point(home))
        for place in self.places_around(home):
            if sum(self.trial(other) is not None for other in self.places_around(home)) >= INITIAL:
                return
            self.measure(self.point(place))

    def gain(self, place: Sequence[int], home: Sequence[int]) -> float:
        """Give how much better a place is: by its score, or where one breaks a bound, by how far."""
        one, other = self.trial(place), self.trial(home)
        if one is None or other is None:
            return 0.0
        if self.passes(place) != self.passes(home):
            return 1.0 if self.passes(place) else -1.0
        values = [{a.query: a.value or 0.0 for a in trial.answers} for trial in (one, other)]
        return self.study.goal.gain(*values)

    def passes(self, place: Sequence[int]) -> bool:
        """Say whether a place holds the bounds, as it was measured."""
        self.measure(self.point(place))
        trial = self.trial(place)
        return trial is not None and all(
            (j.answer.value or 0) <= j.constraint.bound
            if j.constraint.at_most
            else (j.answer.value or 0) >= j.constraint.bound
            for j in trial.judgements
        )

    def step(self, home: Sequence[int]) -> tuple[int, ...]:
        """Give the step that the gains of the places around it, weighted by their directions, are worth."""
        vector = np.zeros(len(self.axes))
        for place in self.places_around(home):
            if self.trial(place) is not None:
                way = np.subtract(place, home)
                vector += way / np.linalg.norm(way) * self.gain(place, home)
        sizes = [next((step for least, step in STEPS if abs(part) >= least), 0) for part in vector]
        return tuple(int(math.copysign(size, part)) for size, part in zip(sizes, vector, strict=True))

    def take_step(self, home: Sequence[int], step: Sequence[int]) -> tuple[int, ...]:
        """Take a step, as far as the axes go."""
        pairs = zip(home, step, self.axes, strict=True)
        return tuple(min(max(n + size, 0), len(axis.values) - 1) for n, size, axis in pairs)

    def sweep(self) -> None:
        """Measure the best configurations at every load, until four loads have gained less than 5 %."""
        loads = [axis for axis in self.surface.space.axes if axis.name in LOADS]
        for candidate in rank_candidates(self.study)[:TOP] if loads else ():
            rates: list[float] = []
            for value in loads[0].values:
                point = {**candidate.point, loads[0].name: value}
                self.measure(point)
                done = self.study.candidates.get(key(point))
                rates.append(self.score(done.trials[0]) if done else -math.inf)
                if len(rates) > 4 and max(rates[-4:]) - rates[-4] < math.log(1.05):
                    break

    def score(self, trial: Trial) -> float:
        """Give the logarithm of how good a trial was."""
        values = {a.query: a.value or 0.0 for a in trial.answers}
        return self.study.goal.gain(values, dict.fromkeys(values, 1.0)) if values else -math.inf


def climb(surface: Surface, goal: Goal, seed: int) -> Study:
    """Search by the hill climb."""
    study = study_of(surface, goal, seed=seed)
    return Climb(surface=surface, study=study, source=np.random.default_rng([seed, 22])).run()


def search_with(
    propose: Callable[[Study], TrialRequest | None], surface: Surface, goal: Goal, seed: int
) -> Study:
    """Search by a strategy."""
    return run_search(surface, goal, propose, seed=seed)


STRATEGIES: dict[str, Callable[[Surface, Goal, int], Study]] = {
    "quick": partial(search_with, bayesian.propose),
    "grid": partial(search_with, grid.propose),
    "random": partial(search_with, at_random),
    "tpe": partial(search_with, optuna.tpe.propose),
    "optuna-gp": partial(search_with, optuna.gp.propose),
    "climb": climb,
}


# --- the runs ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How a search went."""

    measurements: int
    starts: int
    measured_best: float
    """Logarithm of the best that was measured, over the best that there is."""
    answer: float
    """The same of the answer, once it was verified."""


def run(surface: Surface, place: int, strategy: str, seed: int) -> Run:
    """Search once."""
    goal, best = surface.goals[place], surface.bests[place]
    study = STRATEGIES[strategy](surface, goal, seed)
    answer = ranking(verify_best(surface, study), RESAMPLES).best
    return Run(
        measurements=len(study.measured),
        starts=count_starts(study.measured),
        measured_best=max(surface.score(goal, trial.point) for trial in study.measured) - best,
        answer=-math.inf if answer is None else surface.score(goal, answer.point) - best,
    )


def share(values: Sequence[float]) -> float:
    """Give the share of searches that reached 95 % of the best."""
    return sum(value >= REACHED for value in values) / len(values)


def surfaces(names: Sequence[str], synthetic: int) -> Iterator[Surface]:
    """Read what was recorded, and make up as many of each kind as are asked for."""
    for path in sorted(FOLDER.glob("*.json")):
        if not names or path.stem in names:
            yield Surface.read(path)
    for make in FAMILIES.values():
        for seed in range(synthetic):
            yield make(1000 + seed)


def swiftness() -> float:
    """Give the median time of a proposal, in seconds: a million points, 200 trials of which are known."""
    names = ("batch_size", "threads", "a", "b", "c", "concurrency")
    goal = make_goal(maximize="throughput", require=["latency.p99 <= 50ms", "process_memory.max <= 1GiB"])
    study = a_study(*(f"{name}=1..10" for name in names), goal=goal)
    source = random.Random(1)
    for _ in range(200):
        point = {axis.name: source.choice(axis.values) for axis in study.space.axes}
        study = add_done_trial(
            study, TrialRequest(point=point), {**plain_values(point), MEMORY: 1e8 * source.random()}
        )
    times = []
    for seed in range(20):
        begun = time.perf_counter()
        bayesian.propose(dataclasses.replace(study, seed=seed))
        times.append(time.perf_counter() - begun)
    return float(np.median(times))


def goal_text(goal: Goal) -> str:
    """Say what is looked for."""
    return ", ".join([*map(str, goal.objectives), *map(str, goal.constraints)])


def main() -> int:
    """Search, and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", help="surfaces, by the names of their files; all of them")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--synthetic", type=int, default=0, help="made-up surfaces of each kind, as well")
    parser.add_argument("--strategies", default=",".join(STRATEGIES))
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options = parser.parse_args()
    missed = False
    with ProcessPoolExecutor(options.processes) as pool:
        for surface in surfaces(options.names, options.synthetic):
            for place, goal in enumerate(surface.goals):
                if not math.isfinite(surface.bests[place]):
                    continue
                most = search_budget(study_of(surface, goal))
                print(
                    f"{surface.name}: {goal_text(goal)}; {surface.space.size} points, "
                    f"at most {most} measurements"
                )
                for strategy in options.strategies.split(","):
                    begun = time.monotonic()
                    once = partial(run, surface, place, strategy)
                    runs = list(pool.map(once, range(options.runs), chunksize=5))
                    answered, measured = (
                        share([r.answer for r in runs]),
                        share([r.measured_best for r in runs]),
                    )
                    made, started = ([getattr(r, name) for r in runs] for name in ("measurements", "starts"))
                    print(
                        f"  {strategy:7} measured {measured:4.0%}  answer {answered:4.0%}   measurements "
                        f"{np.median(made):4.0f}, at most {max(made):3}   starts {np.median(started):4.0f}"
                        f"   [{time.monotonic() - begun:.0f} s]",
                        flush=True,
                    )
                    missed |= strategy == "quick" and (answered < 0.95 or max(made) > most)
    seconds = swiftness()
    print(f"a million points, 200 trials: quick proposes in {1000 * seconds:.0f} ms")
    return int(missed or seconds > SWIFT)


if __name__ == "__main__":
    sys.exit(main())
