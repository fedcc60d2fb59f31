"""Test suite that every strategy must pass.

Inherit and name the strategy; one that cannot search any space names those that it can::

    from modeldyno.testing.strategies import StrategySuite

    class TestMyStrategy(StrategySuite):
        name = "mine"
"""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import pytest

from modeldyno.base import plugins
from modeldyno.base.errors import RequestError
from modeldyno.base.metrics.constraints import Answer
from modeldyno.base.metrics.metric import Query
from modeldyno.sweeps.study.search_space import Space, key
from modeldyno.sweeps.study.study import Study, Trial, TrialPurpose, TrialRequest, TrialState
from modeldyno.testing.sample_studies import a_study, make_goal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from modeldyno.sweeps.interface import Strategy
    from modeldyno.sweeps.study.goal import Goal
    from modeldyno.sweeps.study.search_space import Point

_HEAVY = ("numpy", "scipy", "torch", "optuna")
RATE, LATE = Query.parse("throughput"), Query.parse("latency.p99")
GOALS = {
    "one objective": make_goal(maximize="throughput"),
    "a bound": make_goal(maximize="throughput", require=["latency.p99 <= 20ms"]),
    "to be minimised": make_goal(minimize="latency.p99", require=["throughput >= 100/s"]),
    "several objectives": make_goal(maximize="throughput:2", minimize="latency.p99"),
    "a bound that nothing holds": make_goal(maximize="throughput", require=["latency.p99 <= 1us"]),
    "a bound of nothing": make_goal(maximize="throughput", require=["error_rate <= 0"]),
    "a bound that nobody measures": make_goal(maximize="throughput", require=["energy <= 1"]),
}


def add_done_trial(study: Study, ask: TrialRequest, values: dict[Query, float]) -> Study:
    """Add a trial with values; a p99 is uncertified, and has only its raw quantile."""
    answers = [Answer(query=query, value=value) for query, value in values.items() if query != LATE]
    if LATE in values:
        answers += [
            Answer(query=LATE, value=None, why="not certified yet"),
            Answer(query=replace(LATE, part="raw"), value=values[LATE]),
        ]
    number = len(study.trials) + 1
    return study.add(
        Trial(
            number=number,
            point=ask.point,
            state=TrialState.DONE,
            stage=ask.stage,
            answers=tuple(answers),
            seconds=1.0,
        )
    )


def add_failed_trial(
    study: Study, ask: TrialRequest, *, state: TrialState = TrialState.FAILED, kind: str = "oom"
) -> Study:
    """Add a trial that failed, or was skipped as invalid."""
    number = len(study.trials) + 1
    return study.add(Trial(number=number, point=ask.point, state=state, failure="it did not fit", kind=kind))


def plain_values(point: Point) -> dict[Query, float]:
    """Return the values of a point: larger numbers are faster, and later."""
    size = math.prod(
        value for value in point.values() if isinstance(value, int) and not isinstance(value, bool)
    )
    late = 0.001 * size * (1.5 if point.get("precision") == "fp32" else 1.0)
    return {
        RATE: 1000 * size / (size + 4),
        LATE: late,
        Query.parse("error_rate"): 0.0 if size < 16 else 0.01,
    }


class StrategySuite:
    """Inherit and set `name`."""

    name: ClassVar[str]
    """The name of the strategy's entry point."""
    axes: ClassVar[tuple[str, ...]] = (
        "batch_size=1..32*2",
        "precision=fp32,bf16,int8",
        "compile=false,true if precision=fp32,bf16",
        "concurrency=1..8*2",
    )
    """A space that it can search."""

    @pytest.fixture
    def strategy(self) -> Strategy:
        """Return the plugin, by its entry point; skip if its requirements are not installed."""
        plugin = plugins.strategy(self.name)
        for module in plugin.requires:
            pytest.importorskip(module)
        return plugin

    def study(self, goal: Goal | None = None, *axes: str) -> Study:
        """Return a new study of the space."""
        return a_study(*(axes or self.axes), goal=goal or GOALS["a bound"], strategy=self.name, seed=3)

    @pytest.mark.parametrize("goal", GOALS)
    def test_it_asks_for_points_of_the_space_each_once_and_comes_to_an_end(
        self, strategy: Strategy, goal: str
    ) -> None:
        """Whatever is asked for, every point is one of the space that was not measured before."""
        studies = list(_search(strategy, self.study(GOALS[goal]), plain_values))
        last = studies[-1]

        assert all(last.space.holds(trial.point) for trial in last.trials)
        assert len({key(trial.point) for trial in last.trials}) == len(last.trials) >= 1
        assert strategy.propose(last) is None

    def test_it_is_a_function_of_the_study(self, strategy: Strategy) -> None:
        """The same study gives the same proposal, on the way as at the beginning."""
        for study in _search(strategy, self.study(), plain_values):
            assert strategy.propose(study) == strategy.propose(replace(study))

    def test_it_searches(self, strategy: Strategy) -> None:
        """What it asks for is no default, and verifies nothing."""
        ask = strategy.propose(self.study())

        assert ask is not None
        assert ask.stage is TrialPurpose.SEARCH

    def test_what_cannot_be_is_not_asked_for_again(self, strategy: Strategy) -> None:
        """Where no point can be, each is asked for once at most, and then there is nothing left."""
        study = self.study(None, *self.axes[:2])
        keys = set()
        while (ask := strategy.propose(study)) is not None:
            assert key(ask.point) not in keys
            keys.add(key(ask.point))
            study = add_failed_trial(study, ask, state=TrialState.SKIPPED, kind="")

        assert len(keys) == study.space.size

    def test_failures_do_not_stop_it(self, strategy: Strategy) -> None:
        """Where every point fails, it comes to an end without an error."""
        study = self.study()
        while (ask := strategy.propose(study)) is not None:
            assert key(ask.point) not in study.candidates
            study = add_failed_trial(study, ask, kind="crash")

        assert study.trials

    def test_what_takes_more_memory_than_what_ran_out_of_it_is_left_out(self, strategy: Strategy) -> None:
        """After a batch that did not fit, no larger one is tried with all else the same."""
        study = self.study()
        while (ask := strategy.propose(study)) is not None:
            for trial in study.trials:
                same_otherwise = {**trial.point, "batch_size": ask.point["batch_size"]} == ask.point
                assert not (
                    trial.kind == "oom" and same_otherwise and _batch(ask.point) > _batch(trial.point)
                )
            study = (
                add_failed_trial(study, ask)
                if _batch(ask.point) > 4
                else add_done_trial(study, ask, plain_values(ask.point))
            )

        assert any(_batch(trial.point) <= 4 for trial in study.trials)

    def test_it_takes_up_what_others_have_measured(self, strategy: Strategy) -> None:
        """A default that is no point of the space, and trials that verified some, do not disturb it."""
        study = self.study()
        study = add_done_trial(
            study,
            TrialRequest(point={"batch_size": 3}, stage=TrialPurpose.DEFAULT),
            {RATE: 10.0, LATE: 0.001},
        )
        first = next(study.space.points())
        study = add_done_trial(
            study, TrialRequest(point=first, stage=TrialPurpose.VERIFY), plain_values(first)
        )
        ask = strategy.propose(study)

        assert ask is not None
        assert study.space.holds(ask.point)
        assert ask.point != first

    def test_it_does_not_walk_through_a_large_space(
        self, strategy: Strategy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Of a million points no more are looked at than the history and a few thousand others."""
        enumerated = 0
        walk = Space._points_from  # noqa: SLF001 - it yields the points that are enumerated

        def counted(self: Space, place: int, chosen: Point) -> Iterator[Point]:
            nonlocal enumerated
            for point in walk(self, place, chosen):
                enumerated += place == len(self.axes)
                yield point

        monkeypatch.setattr(Space, "_points_from", counted)
        study = self.large()
        for _ in range(12):
            if (ask := strategy.propose(study)) is not None:
                study = add_done_trial(study, ask, plain_values(ask.point))

        assert study.trials
        assert enumerated < 20_000

    def large(self) -> Study:
        """Return a new study of a million points."""
        return self.study(
            None, *(f"{name}=1..10" for name in ("batch_size", "a", "b", "c", "d", "concurrency"))
        )

    def test_importing_it_imports_no_framework(self) -> None:
        """It can be named without imports."""
        code = (
            f"import sys; from modeldyno.base import plugins; plugins.strategy({self.name!r})\n"
            f"print([module for module in {_HEAVY!r} if module in sys.modules])"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

        assert done.stdout == "[]\n"


class LadderSuite(StrategySuite):
    """For a strategy that searches one numeric axis."""

    axes: ClassVar[tuple[str, ...]] = ("batch_size=1..64*2",)

    def large(self) -> Study:
        """Return a new study of as many points as an axis may have."""
        return self.study(None, "batch_size=1..10000")

    def test_it_refuses_a_space_of_several_axes(self, strategy: Strategy) -> None:
        """The sentence names the axes."""
        with pytest.raises(RequestError, match="batch_size, threads"):
            strategy.propose(self.study(None, "batch_size=1,2", "threads=1,2"))


def _batch(point: Point) -> float:
    return float(point["batch_size"])


def _search(
    strategy: Strategy, study: Study, gives: Callable[[Point], dict[Query, float]]
) -> Iterator[Study]:
    """Search; yield the study after each trial."""
    while (ask := strategy.propose(study)) is not None:
        study = add_done_trial(study, ask, gives(ask.point))
        yield study
