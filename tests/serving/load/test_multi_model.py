"""Several models on one server: whose a metric is, a knob, a load."""

from __future__ import annotations

from dataclasses import replace

import pytest

from modeldyno.base.errors import RequestError
from modeldyno.base.job.knob import Knob, configure
from modeldyno.base.job.load_spec import Arrivals, Load
from modeldyno.base.metrics.constraints import Constraint
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Measurement, observed_number
from modeldyno.base.metrics.metric import Query
from modeldyno.base.result import multi_model
from modeldyno.base.result.multi_model import CoHostedModelSpec
from modeldyno.base.result.result import Artifact, Failure, FailureKind
from modeldyno.sweeps.study.goal import Goal, Objective, goal_of_each_model

BATCH = Knob(name="max_batch", kind=int, default=8, sentence="", aliases=("max_batch_size",))
FIELDS = Knob(name="config", kind=str, default=None, family=True, sentence="")


def test_what_is_found_of_a_model_beside_bears_its_name() -> None:
    """A measurement by its scope, a doubt and a failure in words; a file as it is."""
    assert multi_model.with_model_scope("b", observed_number("throughput", 2.0)).scope == "b"
    assert multi_model.with_model_scope("b", observed_number("requests", 2, scope="ok")).scope == "b/ok"
    doubt = Doubt(code="drift", seen="it drifts", advice="wait")
    assert multi_model.with_model_scope("b", doubt).seen == "b: it drifts"
    failure = Failure(where="load", kind=FailureKind.SERVER, message="it died")
    assert multi_model.with_model_scope("b", failure).message == "b: it died"
    file = Artifact(name="config.pbtxt", path="", digest="")
    assert multi_model.with_model_scope("b", file) is file


def test_measurements_are_divided_among_models() -> None:
    """Each model's are as if it were alone; those of no model beside are the first one's."""
    own = [observed_number("throughput", 1.0), observed_number("requests", 3, scope="ok")]
    theirs = [*own, observed_number("throughput", 2.0, scope="bob")]
    mixed: list[Measurement] = [*own, *(multi_model.with_model_scope("b", each) for each in own), theirs[-1]]

    assert list(multi_model.measurements_of_model("b", mixed)) == own
    assert list(multi_model.measurements_of_model("bob", mixed)) == [observed_number("throughput", 2.0)]
    assert list(multi_model.measurements_of_first_model(["b", "bob"], mixed)) == own


def test_a_query_stands_for_every_model_unless_it_names_one() -> None:
    """What only the server has is asked once; the first model may be named, too."""
    latency = Query.parse("latency.p99")
    assert [str(each) for each in multi_model.expand_query(latency, "a", ("b", "c"))] == [
        "latency.p99", "latency.p99@b", "latency.p99@c",
    ]  # fmt: skip
    assert multi_model.expand_query(Query.parse("latency.p99@a"), "a", ("b",)) == (latency,)
    named = Query.parse("latency.p99@b")
    assert multi_model.expand_query(named, "a", ("b",)) == (named,)
    memory = Query.parse("process_memory.max")
    assert multi_model.expand_query(memory, "a", ("b",)) == (memory,)


@pytest.mark.parametrize(
    ("text", "own", "written"),
    [
        ("latency.p99", "a", "latency.p99@a"),
        ("latency.p99@b", "a", "latency.p99@b"),
        ("latency.p99", "", "latency.p99"),
        ("process_memory.max", "a", "process_memory.max"),
    ],
)
def test_a_query_is_written_such_that_it_stands_for_one_model(text: str, own: str, written: str) -> None:
    """What is written is read as the same again, and not as of every model."""
    query = Query.parse(text)

    assert str(multi_model.with_model_named(query, own)) == written
    assert not own or multi_model.expand_query(multi_model.with_model_named(query, own), own, ("b",)) == (
        query,
    )


def test_a_goal_is_meant_of_every_model() -> None:
    """Objectives and bounds alike, with their weights; one that names a model is that one's."""
    goal = Goal(
        objectives=(Objective.parse("throughput:2"), Objective.parse("latency.p50@b", maximize=False)),
        constraints=(Constraint.parse("latency.p99 <= 9ms"),),
    )
    joint_goal = goal_of_each_model(goal, "a", ("b",))

    assert [str(each) for each in joint_goal.objectives] == [
        "maximize throughput:2", "maximize throughput@b:2", "minimize latency.p50@b",
    ]  # fmt: skip
    assert [str(each.query) for each in joint_goal.constraints] == ["latency.p99", "latency.p99@b"]


def test_knobs_are_named_in_front() -> None:
    """By their own names, by their others, and as members of a family; each model has its defaults."""
    table = multi_model.all_models_knobs((BATCH, FIELDS), ("b",))
    config = configure(table, {"b.max_batch_size": 4, "b.config.x.y": 1, "config.z": 2})

    assert config == {"max_batch": 8, "b.max_batch": 4, "b.config.x.y": "1", "config.z": "2"}
    assert multi_model.split_config(config, ("b",)) == (
        {"max_batch": 8, "config.z": "2"},
        {"max_batch": 4, "config.x.y": "1"},
    )
    assert multi_model.model_of_setting("b.concurrency", ("b",)) == "b"
    assert multi_model.model_of_setting("concurrency", ("b",)) == ""


@pytest.mark.parametrize(
    ("text", "neighbour"),
    [
        ("b.onnx", CoHostedModelSpec(model="b.onnx", name="b")),
        ("dir/bert.v2.onnx", CoHostedModelSpec(model="dir/bert.v2.onnx", name="bert-v2")),
        ("http://host:8000#tagger", CoHostedModelSpec(model="http://host:8000#tagger", name="tagger")),
        ("'my model.onnx' name=m", CoHostedModelSpec(model="my model.onnx", name="m")),
        (
            "b.onnx concurrency=4 rate=9:poisson instances=2 input=a=1x4 input=b=1x8 config.x=1",
            CoHostedModelSpec(
                model="b.onnx", name="b", concurrency=4, rate="9:poisson", inputs=("a=1x4", "b=1x8"),
                settings={"instances": "2", "config.x": "1"},
            ),
        ),
    ],
)  # fmt: skip
def test_a_model_beside_is_read_from_words(text: str, neighbour: CoHostedModelSpec) -> None:
    """A path or a URL, and then what it is to have."""
    assert CoHostedModelSpec.parse(text) == neighbour


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names no model"),
        ("'b.onnx", "names no model"),
        ("b.onnx fast", "'fast' is not name=value"),
        ("b.onnx name=a/b", "cannot be called 'a/b'"),
        ("b.onnx name=config", "cannot be called 'config'"),
        ("b.onnx concurrency=many", "concurrency=many is not a whole number"),
        ("b.onnx instances=1 instances=2", "gives instances twice: 1 and 2"),
    ],
)
def test_wrong_words_are_refused(text: str, message: str) -> None:
    """One sentence says what is wrong."""
    with pytest.raises(RequestError, match=message):
        CoHostedModelSpec.parse(text)


def test_a_load_is_that_of_the_first_but_for_what_is_said() -> None:
    """Its length is the same; arrivals are its own."""
    first = Load(concurrency=8, duration=5.0, requests=100, drivers=2)
    usual = Load(concurrency=8, duration=5.0)

    assert CoHostedModelSpec.parse("b").load(first) == usual
    assert CoHostedModelSpec.parse("b concurrency=2").load(first) == replace(usual, concurrency=2)
    opened = CoHostedModelSpec.parse("b rate=50:burst=5").load(first)
    assert (opened.arrivals, opened.rate, opened.burst, opened.concurrency) == (Arrivals.BURST, 50.0, 5, None)
    closed = CoHostedModelSpec.parse("b concurrency=3").load(opened)
    assert closed == Load(concurrency=3, duration=5.0)
    with pytest.raises(RequestError, match="A trace is for one model alone"):
        CoHostedModelSpec.parse("b").load(Load(arrivals=Arrivals.TRACE, trace="file"))


def test_names_tell_models_apart() -> None:
    """Two models of one name are refused, whichever is the first."""
    others = [CoHostedModelSpec.parse("b.onnx"), CoHostedModelSpec.parse("c.onnx")]
    multi_model.check_names("a", others)
    for own, more in (("b", others), ("a", [*others, CoHostedModelSpec.parse("b.onnx")])):
        with pytest.raises(RequestError, match="Two models are called 'b'"):
            multi_model.check_names(own, more)
    assert multi_model.default_model_name("...") == "model"
