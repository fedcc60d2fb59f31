"""Sweeping several models on one server: their knobs, their loads, and one goal for all."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.base.metrics.measurement import Measurement
from modeldyno.base.result.multi_model import with_model_scope
from modeldyno.base.yaml_file import FileConfig, parse_yaml_text
from modeldyno.engine.environment import machine
from modeldyno.engine.runtime.engine import _configs
from modeldyno.engine.runtime.warm_worker import _shared_part
from modeldyno.sweeps import build as words_of
from modeldyno.sweeps.loop import run_trials
from modeldyno.sweeps.point_to_job import job_at_point
from modeldyno.sweeps.study.ranking import ranking
from modeldyno.testing.sample_studies import SimulatedTrials

if TYPE_CHECKING:
    from modeldyno.base.job.job import Job
    from modeldyno.base.result.result import Event
    from modeldyno.sweeps.study.study import Study

MODEL = str(Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx")
SECOND = f"{MODEL} name=b concurrency=4 max_batch=16"


def build_study(**tree: Any) -> Study:
    """Read the configuration of two models on one Triton from Python."""
    return words_of.build_study(
        FileConfig(tree={"model": MODEL, "backend": "triton", "beside": SECOND, **tree})
    )[0]


class Shared(SimulatedTrials):
    """Simulates two models that share two instances' worth of one machine."""

    __slots__ = ()

    def _events(self, job: Job, *, fresh: bool) -> list[Event]:
        (other,) = job.beside
        mine, theirs = (int(spec.config.get("instances", 1)) for spec in (job, other))
        slow = 1.0 + 0.4 * (mine + theirs - 2)
        parts = []
        for weight, count in ((300.0, mine), (100.0, theirs)):
            rate = weight * count / slow
            parts.append(SimulatedTrials(rate=partial(_constant, rate))._events(job, fresh=fresh))
        own, beside = parts
        return [
            *own,
            *(with_model_scope("b", e) for e in beside if isinstance(e, Measurement)),
        ]


def _constant(rate: float, _point: object) -> float:
    return rate


def test_knobs_and_loads_of_each_model_are_placed() -> None:
    """Names in a point have the model as prefix; a model's settings apply where there is no axis."""
    study = build_study(
        space={"instances": "1,2", "b.instances": "1,2,3", "concurrency": "1,2", "b.concurrency": "1,8"},
        set={"b.queue_delay": 100, "queue_delay": 50},
    )
    point = {"instances": 2, "b.instances": 3, "concurrency": 2, "b.concurrency": 8}
    job = job_at_point(study, point)
    (other,) = job.beside

    assert (job.config["instances"], job.config["queue_delay"]) == (2, 50)
    assert (other.config["instances"], other.config["queue_delay"], other.config["max_batch"]) == (3, 100, 16)
    assert "max_batch" not in job.config
    assert job.load is not None
    assert other.load is not None
    assert (job.load.concurrency, other.load.concurrency) == (2, 8)
    assert study.configuration(point) == {"instances": 2, "b.instances": 3}
    assert job_at_point(study, {"instances": 2}).beside[0].load == study.job.beside[0].load
    assert study.default == {"instances": 1, "b.instances": 1}


def test_a_server_stays_open_while_any_load_changes() -> None:
    """Another load of the second model needs no restart; another knob of it does."""
    study = build_study(space={"b.instances": "1,2", "b.concurrency": "1,8"})
    one, other, third = (
        job_at_point(study, {"b.instances": instances, "b.concurrency": slots})
        for instances, slots in ((1, 1), (1, 8), (2, 8))
    )
    assert _shared_part(one) == _shared_part(other) == _shared_part(third)  # the child stays in any case
    assert _configs(one) == _configs(other)
    assert _configs(one) != _configs(third)


def test_what_is_worth_a_look_is_varied_for_each_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fixed knobs and given loads are not varied, for each model separately."""
    monkeypatch.setattr(machine, "allowed_cores", lambda: (0, 1))
    names = {str(axis) for axis in build_study().space.axes}
    other = {str(axis) for axis in build_study(beside=f"{MODEL} name=b instances=2").space.axes}

    assert {"instances=1,2", "b.instances=1,2", "concurrency=1,2,4,8,16,32,64"} <= names
    assert "b.queue_delay=0,1000,5000 if b.dynamic_batching=true" in names
    assert not any(name.startswith(("b.max_batch", "b.concurrency")) for name in names)
    assert "b.concurrency=1,2,4,8,16,32,64" in other
    assert not any(name.startswith("b.instances") for name in other)


def test_a_goal_is_meant_of_every_model() -> None:
    """Without a model's name, an objective or bound applies to each; with names, weights are given."""
    study = build_study(
        space={"instances": "1,2"}, require="latency.p99 <= 20ms", minimize="process_memory.max"
    )
    weighed = build_study(space={"instances": "1,2"}, maximize={"throughput@digits": 2, "throughput@b": 1})

    assert [str(o) for o in study.goal.objectives] == ["minimize process_memory.max"]
    assert [str(c) for c in study.goal.constraints] == ["latency.p99 <= 20 ms", "latency.p99@b <= 20 ms"]
    assert [str(o) for o in build_study(space={"instances": "1,2"}).goal.objectives] == [
        "maximize throughput", "maximize throughput@b",
    ]  # fmt: skip
    assert [str(o) for o in weighed.goal.objectives] == ["maximize throughput:2", "maximize throughput@b"]


@pytest.mark.parametrize(
    ("tree", "error", "message"),
    [
        ({"beside": f"{MODEL}"}, RequestError, "Two models are called 'digits'"),
        ({"beside": f"{MODEL} name=b ports=free"}, RequestError, "The knob ports belongs to the server"),
        ({"beside": f"{MODEL} name=b instancs=2"}, UnknownName, "no knob 'b.instancs'"),
        ({"backend": "onnxruntime"}, RequestError, "`backend=triton`"),
        ({"space": {"b.concurrency": "0,1"}}, RequestError, "concurrency takes whole numbers"),
        (
            {"space": {"b.max_batch": "1,2"}, "set": {"b.preferred_batch": "4"}},
            RequestError,
            "preferred_batch",
        ),
        ({"models": ["a"]}, RequestError, "These are several models"),
    ],
)
def test_wrong_words_are_refused(tree: dict[str, Any], error: type[Exception], message: str) -> None:
    """Before anything is measured, with one message."""

    def build() -> None:
        study = build_study(**{"space": {"instances": "1,2"}, **tree})
        job_at_point(study, {**study.default, "b.max_batch": 1})

    with pytest.raises(error, match=message):
        build()


def test_a_file_has_them_in_a_list() -> None:
    """The same text as on the command line, and the line of an error."""
    text = f"model: {MODEL}\nbackend: triton\nbeside:\n  - {SECOND}\nspace: {{b.instances: [1, 2]}}\n"
    study = words_of.build_study(parse_yaml_text(text, "s.yaml"))[0]
    assert [spec.name for spec in study.job.beside] == ["b"]
    assert study.job.name == "digits"
    with pytest.raises(RequestError, match=r"s\.yaml.*line 4"):
        words_of.build_study(parse_yaml_text(text.replace("name=b", "name"), "s.yaml"))


@pytest.mark.parametrize(("weights", "best"), [((1, 1), (2, 2)), ((9, 1), (2, 1)), ((1, 9), (1, 2))])
def test_weights_decide_which_model_is_favoured(weights: tuple[int, int], best: tuple[int, int]) -> None:
    """A grid over both models' instances finds the best weighted mean."""
    study = build_study(
        space={"instances": "1,2", "b.instances": "1,2"},
        load={"concurrency": 4},
        maximize={"throughput@digits": weights[0], "throughput@b": weights[1]},
        strategy="grid",
    )
    *_, (study, _, _) = run_trials(study, rooms=Shared(rate=lambda _point: 1.0))
    best_row = ranking(study).best
    assert best_row is not None
    assert (best_row.point["instances"], best_row.point["b.instances"]) == best
    assert {key.scope for key in study.goal.queries} == {"", "b"}


def test_a_new_goal_speaks_of_every_model_once() -> None:
    """Unnamed parts stay unchanged, and new parts apply to every model."""
    study = build_study(space={"instances": [1, 2]}, maximize="throughput", require="latency.p99 <= 5ms")
    bound = words_of.override_goal(FileConfig(tree={"require": "error_rate <= 1%"}), study.goal, study.job)
    aim = words_of.override_goal(FileConfig(tree={"minimize": "latency.p99@b"}), study.goal, study.job)

    assert bound.objectives == study.goal.objectives
    assert [str(o.query) for o in bound.objectives] == ["throughput", "throughput@b"]
    assert [str(c.query) for c in bound.constraints] == ["error_rate", "error_rate@b"]
    assert [str(o) for o in aim.objectives] == ["minimize latency.p99@b"]
    assert aim.constraints == study.goal.constraints
