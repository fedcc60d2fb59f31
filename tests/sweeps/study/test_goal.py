"""What is to be improved, by how much it was, and what several of it are worth together."""

from __future__ import annotations

import math
from typing import Any

import pytest

from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.base.metrics.constraints import Constraint
from modeldyno.base.metrics.metric import Query
from modeldyno.base.result.cost import Price
from modeldyno.sweeps.study.goal import Goal, Objective, goal_of_each_model

RATE, P99 = Query.parse("throughput"), Query.parse("latency.p99")


class TestParse:
    @pytest.mark.parametrize(
        ("text", "direction", "query", "maximize", "weight"),
        [
            ("throughput", None, "throughput", True, 1.0),
            ("latency.p99", None, "latency.p99", False, 1.0),
            ("latency:p99:2", None, "latency.p99", False, 2.0),
            ("throughput:0.5", None, "throughput", True, 0.5),
            ("trainable_parameters", True, "trainable_parameters", True, 1.0),
            ("throughput", True, "throughput", True, 1.0),
            ("latency.p99", False, "latency.p99", False, 1.0),
        ],
    )
    def test_an_objective_is_read(
        self, text: str, direction: bool | None, query: str, maximize: bool, weight: float
    ) -> None:
        """A query, perhaps a weight; the table says which way is better unless the user does."""
        objective = Objective.parse(text, maximize=direction)

        assert objective == Objective(query=Query.parse(query), maximize=maximize, weight=weight)
        assert objective.sign == (1 if maximize else -1)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("latency.p99.ci", "is not an objective; drop the .ci"),
            ("latency.p99.raw", "is not an objective; drop the .raw"),
            ("latency", "is a distribution; name a statistic"),
            ("trainable_parameters", "has no better direction; say `maximize` or `minimize="),
            ("throughput:0", "weight of throughput is 0, but must be positive"),
        ],
    )
    def test_what_is_none_is_refused(self, text: str, message: str) -> None:
        """In one sentence."""
        with pytest.raises(RequestError, match=message):
            Objective.parse(text)

    @pytest.mark.parametrize(
        ("text", "maximize", "message"),
        [
            ("latency.p99:5", True, r"is better the lower it is.* objectives: \{latency.p99: 5\}"),
            ("latency.p99", True, r"write minimize: latency.p99 \(`minimize=latency.p99`\)"),
            ("cost", True, "cost is better the lower it is"),
            ("throughput", False, "throughput is better the higher it is.* write maximize: throughput "),
        ],
    )  # fmt: skip
    def test_a_metric_is_not_made_worse(self, text: str, maximize: bool, message: str) -> None:
        """The line to write stands in the sentence."""
        with pytest.raises(RequestError, match=message):
            Objective.parse(text, maximize=maximize)

    def test_names_are_checked(self) -> None:
        """A misspelt metric is refused."""
        with pytest.raises(UnknownName):
            Objective.parse("throughptu")

    def test_it_says_itself_in_words(self) -> None:
        """With its weight where it has one."""
        assert str(Objective.parse("throughput")) == "maximize throughput"
        assert str(Objective.parse("latency.p99:2")) == "minimize latency.p99:2"


class TestGain:
    def test_it_is_the_logarithm_of_how_many_times_better(self) -> None:
        """Twice the rate and half of the latency gain the same."""
        assert Objective.parse("throughput").gain(200, 100) == pytest.approx(math.log(2))
        assert Objective.parse("latency.p99").gain(0.01, 0.02) == pytest.approx(math.log(2))

    @pytest.mark.parametrize(
        ("value", "reference", "gain"), [(0, 0, 0.0), (1, 0, math.inf), (0, 1, -math.inf)]
    )
    def test_nothing_has_no_ratio(self, value: float, reference: float, gain: float) -> None:
        """To have what the reference has none of is endlessly better, or worse."""
        assert Objective.parse("throughput").gain(value, reference) == gain
        assert Objective.parse("latency.p99").gain(value, reference) == -gain

    def test_several_are_weighted(self) -> None:
        """The mean of their gains, each as often as its weight says."""
        goal = Goal(objectives=(Objective.parse("throughput:3"), Objective.parse("latency.p99")))

        gain = goal.gain({RATE: 200, P99: 0.02}, {RATE: 100, P99: 0.01})
        assert gain == pytest.approx((3 * math.log(2) - math.log(2)) / 4)

    def test_it_does_not_depend_on_who_is_compared_first(self) -> None:
        """A over B and B over C are A over C."""
        goal = Goal(objectives=(Objective.parse("throughput:3"), Objective.parse("latency.p99")))
        a, b, c = ({RATE: r, P99: p} for r, p in ((100.0, 0.01), (250.0, 0.05), (90.0, 0.004)))

        assert goal.gain(a, b) + goal.gain(b, c) == pytest.approx(goal.gain(a, c))

    def test_what_is_endlessly_worse_in_one_is_not_made_good_by_another(self) -> None:
        """A rate of nothing is worth nothing, though no request was late."""
        goal = Goal(objectives=(Objective.parse("throughput"), Objective.parse("error_rate")))
        errors = Query.parse("error_rate")

        assert goal.gain({RATE: 0, errors: 0}, {RATE: 1, errors: 0.1}) == -math.inf
        assert goal.gain({RATE: 1, errors: 0}, {RATE: 1, errors: 0.1}) == math.inf


class TestGoal:
    def test_a_goal_that_cannot_be_is_refused(self) -> None:
        """One without objectives, and one that names the same twice."""
        with pytest.raises(RequestError, match="needs an objective"):
            Goal(objectives=())
        with pytest.raises(RequestError, match="given twice"):
            Goal(objectives=(Objective.parse("throughput"), Objective.parse("throughput:2")))

    def test_it_knows_what_must_be_measured(self) -> None:
        """Each query once."""
        goal = Goal(
            objectives=(Objective.parse("latency.p95"), Objective.parse("latency.mean")),
            constraints=tuple(
                map(
                    Constraint.parse,
                    ("latency.p95 <= 1s", "latency.p99 <= 2s", "latency.p90.raw <= 1s", "throughput >= 1/s"),
                )
            ),
        )

        assert list(map(str, goal.queries)) == [
            "latency.p95",
            "latency.mean",
            "latency.p99",
            "latency.p90.raw",
            "throughput",
        ]

    @pytest.mark.parametrize(
        ("objective", "bounds"), [("cost:2", ()), ("throughput", ("token_cost <= 0.5",))]
    )
    def test_a_cost_needs_a_price(self, objective: str, bounds: tuple[str, ...]) -> None:
        """As an objective and as a bound; the sentence says what to add."""
        parts: dict[str, Any] = {
            "objectives": (Objective.parse(objective),),
            "constraints": tuple(map(Constraint.parse, bounds)),
        }
        with pytest.raises(RequestError, match=r"cost needs the price of the machine; add `price=1\.20/h`"):
            Goal(**parts)
        assert Goal(**parts, price=Price(per_hour=1.2)).price is not None

    def test_models_that_share_a_machine_have_no_cost_of_their_own(self) -> None:
        """What each of them uses of it is not known."""
        goal = Goal(objectives=(Objective.parse("cost"),), price=Price(per_hour=1.2))
        with pytest.raises(RequestError, match="cost is that of one model on a machine"):
            goal_of_each_model(goal, "a", ["b"])
