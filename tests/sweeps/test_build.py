"""Building a Study from its configuration: what is accepted, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from modeldyno.base import plugins
from modeldyno.base.errors import RequestError
from modeldyno.base.job.load_spec import Arrivals, Load
from modeldyno.base.job.think_time import ThinkTime
from modeldyno.base.result.cost import Price
from modeldyno.base.yaml_file import FileConfig, parse_yaml_text
from modeldyno.engine.environment import machine
from modeldyno.sweeps import axes, value_parsers
from modeldyno.sweeps import build as words_of
from modeldyno.sweeps import schema as sweeps_schema
from modeldyno.sweeps.point_to_job import job_at_point
from modeldyno.sweeps.study.goal import Rank

if TYPE_CHECKING:
    from modeldyno.sweeps.study.search_space import Axis
    from modeldyno.sweeps.study.study import Study

MODEL = "call:modeldyno.testing.known_latency:steady"
ONNX = str(Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx")


def build_study(**tree: Any) -> Study:
    """Read a configuration from Python."""
    return made(**tree)[0]


def made(**tree: Any) -> tuple[Study, tuple[Axis, ...]]:
    return words_of.build_study(FileConfig(tree={"model": ONNX, **tree}))


def filed(text: str) -> Study:
    """Read a configuration from a file."""
    return words_of.build_study(parse_yaml_text(f"model: {ONNX}\n{text}", "s.yaml"))[0]


def spoken(study: Study) -> list[str]:
    return [str(axis) for axis in study.space.axes]


@pytest.mark.parametrize(
    "text",
    [
        "space: {batch_size: [1, 2, 4, 8]}",
        "space: {batch: '1,2,4,8'}",
        "space: {batch_size: 1..8*2}",
        "space: {batch_size: {from: 1, to: 8, times: 2}}",
        "space: {batch_size: {start: 1, stop: 8, times: 2}}",
        "space: {batch_size: {values: [1, 2, 4, 8]}}",
        "space: {batch_size: {values: 1..8*2}}",
    ],
)
def test_values_are_written_in_many_ways(text: str) -> None:
    """A list, a text and a range give the same axis, under any name of the knob."""
    assert spoken(filed(text)) == ["batch_size=1,2,4,8"]


def test_a_range_has_steps() -> None:
    """The step is 1 by default."""
    assert spoken(filed("space: {batch_size: {from: 1, to: 3}}")) == ["batch_size=1,2,3"]
    assert spoken(filed("space: {batch_size: {from: 1, to: 9, step: 4}}")) == ["batch_size=1,5,9"]


@pytest.mark.parametrize("condition", ["{parallel: true}", "parallel=true", "{parallel: [true]}"])
def test_an_axis_may_depend_on_another(condition: str) -> None:
    """The condition is read in the types of the other knob."""
    study = filed(
        f"space:\n  parallel: [false, true]\n  inter_threads: {{values: [1, 2], if: {condition}}}\n"
    )

    assert spoken(study) == ["parallel=false,true", "inter_threads=1,2 if parallel=true"]
    assert study.space.size == 3


def test_a_list_within_a_list_is_one_value() -> None:
    """Batch sizes that belong together stay together."""
    study = filed("backend: triton\nspace: {preferred_batch: [[4, 8], 16]}")

    assert study.space.axes[0].values == ("4,8", "16")
    assert str(study.space.axes[0]) == "preferred_batch=[4,8],16"


def test_words_of_python_and_of_a_file_say_the_same() -> None:
    """Python's numbers, booleans and mappings are read like the text of a file."""
    ours = build_study(
        space={"batch_size": [1, 2], "parallel": [False, True]}, require=["latency.p99 <= 10ms"],
        budget={"max_time": 600.0}, plan={"seed": 3},
    )  # fmt: skip
    file = filed(
        "space: {batch_size: [1, 2], parallel: [false, true]}\nrequire: latency.p99 <= 10ms\n"
        "budget: {max_time: 10m}\nplan: {seed: 3}\n"
    )

    assert (ours.space, ours.goal, ours.budget, ours.job) == (file.space, file.goal, file.budget, file.job)
    assert ours.seed == file.seed == 3


def test_shorthands_are_a_goal() -> None:
    """Online under a latency budget means throughput of a server with a bounded p99."""
    study = build_study(mode="online", latency_budget="10ms", min_throughput=500)

    assert study.job.backend == "triton"
    assert [str(aim) for aim in study.goal.objectives] == ["maximize throughput"]
    assert [str(bound) for bound in study.goal.constraints] == ["latency.p99 <= 10 ms", "throughput >= 500/s"]
    assert study.job.plan.percentiles == ("p99",)
    assert study.job.load is not None
    assert study.job.load.within == 0.01


def test_objectives_have_weights() -> None:
    """As a mapping, as text, maximized and minimized together."""
    study = build_study(
        maximize={"throughput": "2"}, minimize=["latency.p99:3", "process_memory.max"], rank="each-load"
    )

    assert [str(aim) for aim in study.goal.objectives] == [
        "maximize throughput:2", "minimize latency.p99:3", "minimize process_memory.max",
    ]  # fmt: skip
    assert study.goal.rank is Rank.EACH
    assert study.job.plan.percentiles == ("p99",)


def test_objectives_know_their_directions() -> None:
    """With weights as in other tools, combined with explicit directions."""
    study = build_study(objectives={"throughput": "10", "latency.p99": "5"}, minimize="process_memory.max")

    assert [str(aim) for aim in study.goal.objectives] == [
        "maximize throughput:10", "minimize latency.p99:5", "minimize process_memory.max",
    ]  # fmt: skip


def test_without_axes_what_usually_matters_is_varied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each backend suggests axes; those set already, or with one value here, are left out."""
    monkeypatch.setattr(machine, "allowed_cores", lambda: (0, 1, 2, 3))
    study, chosen = made()
    fixed, _ = made(set={"threads": 2})
    shaped, _ = made(input="image=8x1x8x8")

    assert spoken(study) == ["batch_size=1,2,4,8,16,32", "threads=1,2,4"]
    assert chosen == study.space.axes
    assert spoken(fixed) == ["batch_size=1,2,4,8,16,32"]
    assert spoken(shaped) == ["threads=1,2,4"]
    monkeypatch.setattr(machine, "allowed_cores", lambda: (0,))
    assert [axis.name for axis in made()[0].space.axes] == ["batch_size"]


@pytest.mark.parametrize("backend", plugins.names("backend"))
def test_what_a_backend_finds_worth_a_look_is_its_own(backend: str) -> None:
    """Each suggested axis is a knob of the backend, in its types; some backends suggest none."""
    knobs = {knob.name for knob in plugins.backend(backend).knobs}

    assert {axis.name for axis in axes.suggested_axes(backend, {}, 4, ())} <= knobs


def test_a_server_is_put_under_rising_loads_unless_told_otherwise() -> None:
    """Concurrency is varied unless the load is configured."""
    study, chosen = made(backend="triton", space={"instances": [1, 2]})
    with_load, _ = made(
        backend="triton", space={"instances": [1, 2]}, load={"concurrency": 8, "duration": "2s"}
    )
    paced, _ = made(space={"rate": "100..300:100"}, load={"arrivals": "poisson", "drivers": "2"})

    assert spoken(study) == ["instances=1,2", "concurrency=1,2,4,8,16,32,64"]
    assert [axis.name for axis in chosen] == ["concurrency"]
    assert spoken(with_load) == ["instances=1,2"]
    assert with_load.job.load is not None
    assert (with_load.job.load.concurrency, with_load.job.load.duration) == (8, 2.0)
    assert paced.job.load is not None
    assert (paced.job.load.arrivals, paced.job.load.rate) == (Arrivals.POISSON, 100.0)
    assert paced.job.backend == "triton"


def test_a_rate_that_is_varied_may_be_that_of_sequences() -> None:
    """Each trial begins them at its rate, of the lengths that are given."""
    load = {"arrivals": "sequences", "sequence": "10..30", "concurrency": 8, "think_time": "2s~0.5s"}
    study, _ = made(space={"rate": [5, 10]}, load=load)

    assert job_at_point(study, {"rate": 10}).load == Load(
        arrivals=Arrivals.SEQUENCES,
        rate=10.0,
        sequence=(10, 30),
        concurrency=8,
        think_time=ThinkTime(low=2.0, high=2.0, spread=0.5),
    )


def test_a_trace_is_replayed_at_each_point() -> None:
    """At its times, unless a rate is varied; then no concurrency is."""
    load = {"replay": "/t.csv", "replay_speed": 2, "replay_window": "10m"}
    study, chosen = made(backend="triton", space={"instances": [1, 2]}, load=load)
    paced, _ = made(backend="triton", space={"rate": [5, 10]}, load=load)

    replayed = Load(arrivals=Arrivals.TRACE, trace="/t.csv", speed=2.0, window=600.0)
    assert [axis.name for axis in chosen] == []
    assert job_at_point(study, {"instances": 2}).load == replayed
    assert job_at_point(paced, {"rate": 10}).load == Load(arrivals=Arrivals.CONSTANT, rate=10.0)


def test_the_default_is_what_is_set_or_what_the_backend_does() -> None:
    """A fixed knob that is varied gives the default's value; one without a known default is left out."""
    study = build_study(
        space={"batch_size": [1, 2], "threads": [1, 2], "parallel": [True]}, set={"threads": "2"}
    )
    bare = build_study(space={"batch_size": [1, 2], "threads": [1, 2]})
    served = build_study(backend="triton", space={"instances": [1, 2]})

    assert study.default == {"batch_size": 1, "threads": 2, "parallel": False}
    assert study.settings == {"threads": 2}
    assert bare.default == {"batch_size": 1}
    assert served.default == {"instances": 1}


def test_the_default_of_a_size_that_an_input_names_is_the_first_that_is_varied() -> None:
    """Else the first measurement would have no size; one that is given, or not named, stays as it is."""
    varied = {"n": [2, 4], "m": [8, 16]}
    named = build_study(model="call:json:dumps", space=varied, input=["x=nx3", "y=3xn"])
    unnamed = build_study(model="call:json:dumps", space=varied, input=["x=2x3"])

    assert named.default == {"n": 2}
    assert unnamed.default == {}


def test_the_default_of_a_server_has_the_batch_that_it_would_choose_where_that_is_allowed() -> None:
    """Triton's is 8, which makes it the point of 8; requests of 16 samples ask for more than that."""
    varied = {"instances": [1, 2], "max_batch": [1, 8, 32]}
    small = build_study(space=varied, backend="triton")
    large = build_study(space=varied, backend="triton", set={"batch_size": 16})

    assert small.default == {"instances": 1, "max_batch": 8}
    assert large.default == {"instances": 1}


def test_the_default_names_its_backend_where_that_is_varied() -> None:
    """The default is one of the points, and not compared with itself."""
    study = build_study(space={"backend": ["onnxruntime"], "batch_size": [1, 8]})

    assert study.default == {"backend": "onnxruntime", "batch_size": 1}
    assert study.space.holds(study.default)


def test_only_what_a_run_does_not_tell_needs_an_analysis() -> None:
    """The static probe is left out, to save time, unless the goal needs it."""
    assert build_study().job.probes == ("latency", "throughput")
    assert build_study(minimize="macs").job.probes == ("static", "latency", "throughput")
    assert build_study(probe="static,latency").job.probes == ("static", "latency")


def test_a_study_has_the_name_of_its_model() -> None:
    """That of the file, the function or the model on a server, or the given one."""
    assert build_study().name == "digits"
    assert build_study(model=MODEL, space={"batch_size": [1, 2]}).name == "steady"
    assert build_study(name="mine").name == "mine"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("maximise: throughput", "line 2: .*did you mean 'maximize'"),
        ("maximize: {throughput: 10, latency.p99: 5}", "line 2: latency is better the lower it is"),
        ("request_rate: 100", "line 2: .*write rate: below space:"),
        ("max_time: 10s", "line 2: .*write it below budget: for the whole sweep"),
        ("profile_models: [a, b]", "line 2: .*the same server at the same time below beside:"),
        ("trust: true", "line 2: .*give `trust` each time instead"),
        ("space: 5", "line 2: 'space' holds names with values"),
        ("space:\n  batch_size: 0,2", "line 3: The knob batch_size takes a whole number from 1, not 0"),
        ("space:\n  batch_size: [1, 1]", "line 3: .*a value twice"),
        ("space:\n  batch_size: {from: 1}", "line 3: The axis batch_size needs"),
        ("space:\n  batch_size: {form: 1}", "line 3: .*did you mean 'from'"),
        ("space:\n  batch_size: {from: 1, start: 1, to: 2}", "line 3: from and start mean the same"),
        ("space:\n  batch_size: {values: 1, from: 1, to: 2}", "line 3: .*both values and a range"),
        ("space:\n  batch_size: {values: [1], if: [a]}", "line 3: .*names one other axis"),
        ("space:\n  batch_size: [{a: 1}]", "line 3: A value of an axis is a word or a number"),
        ("space:\n  instances: 1,2", "line 3: There is no knob 'instances' here, but a server has it"),
        ("backend: onnxruntime\nspace:\n  concurrency: 1..4", "line 3: .*where there is no concurrency"),
        ("require:\n- latency.p99 <= 10ms\n- latncy.p50 <= 1", "line 4: .*did you mean 'latency'"),
        ("latency_budget: 10 MiB", "line 2: 'MiB' in '10 MiB' is not a unit here"),
        ("latency_budget: 10", "line 2: '10' has no unit; write 10ms or 10s"),
        ("maximize:\n  throughput: much", "line 3: 'much' is not a number"),
        ("maximize:\n- latency.p99.ci", "line 3: .*not an objective"),
        ("rank: best", "line 2: There is no value of rank: 'best'"),
        ("mode: offlin", "line 2: .*did you mean 'offline'"),
        ("plan:\n  max_tim: 1s", "line 3: .*did you mean 'max_time'"),
        ("plan:\n  max_time: soon", "line 3: 'soon' is not a quantity"),
        ("plan:\n  min_runs: few", "line 3: 'few' is not a whole number"),
        ("plan:\n  min_runs: 0", "line 2: `min_runs` is 0"),
        ("plan:\n  processes: 3", "line 3: There is no 'plan' part 'processes'"),
        ("plan:\n  pin: a", "line 3: `pin` 'a' is not a list of cores"),
        ("budget:\n  certain: 200%", "line 3: certain is 200%"),
        ("budget:\n  certain: certain >= 200%", "line 3: certain is 200%"),
        ("budget:\n  max_trials: 0", "line 3: max_trials is 0, but must be 1 or more"),
        ("strategy: quik", "line 2: .*did you mean 'quick'"),
        ("backend: onnxruntim", "line 2: .*did you mean 'onnxruntime'"),
        ("backend: triton\nload:\n  rate: fast", "line 4: `rate` 'fast' is not a rate"),
        ("backend: triton\nload:\n  arrivals: closed", "line 4: There is no value of arrivals"),
        ("backend: triton\nload:\n  arrivals: poisson", "line 4: .*need a rate"),
        ("backend: triton\nload:\n  replay: t\n  rate: 5", "line 4: rate and replay both set"),
        ("backend: triton\nload:\n  replay_speed: 2", "line 3: `replay_speed` and `replay_window` are of"),
        (
            "backend: triton\nload:\n  rate: 5\n  arrivals: sequences",
            "line 5: Sequences that begin at a rate need `sequence`",
        ),
        ("set:\n  batch_size: 2\n  batch: 4", "line 4: The knob batch_size is set twice"),
        ("set:\n  batch_size: [1, 2]", "line 3: .*takes one value"),
        ("set:\n  batch_siz: 1", "line 3: .*did you mean 'batch_size'"),
    ],
)
def test_a_mistake_tells_its_line_and_what_to_write(text: str, message: str) -> None:
    """Errors in a file are reported before anything runs."""
    with pytest.raises(RequestError, match=f"^s.yaml, {message}"):
        filed(text)


def test_words_without_a_model_are_refused() -> None:
    """Only the model is required."""
    with pytest.raises(RequestError, match="names no model"):
        words_of.build_study(FileConfig(tree={"space": {"batch_size": [1]}}))


def test_what_has_no_knobs_to_vary_is_told_so() -> None:
    """A backend without suggested axes needs explicit ones; a batch is what most models take."""
    with pytest.raises(RequestError, match="such as `space=batch_size=1,8,64` if the model takes a batch"):
        build_study(model=MODEL)
    with pytest.raises(RequestError, match="nothing to vary by default; give `space`, with a knob of"):
        build_study(model=MODEL, set={"batch_size": 1})


@pytest.mark.parametrize(
    ("text", "share"), [("certain >= 95%", 0.95), ("certain>0.9", 0.9), ("99 %", 0.99), ("0.5", 0.5)]
)
def test_a_certainty_is_a_sentence_or_a_share(text: str, share: float) -> None:
    """It is written as a bound, or alone."""
    assert value_parsers.parse_certainty(text) == pytest.approx(share)


DOCUMENTS: tuple[dict[str, Any], ...] = (
    {"model": "m.onnx"},
    {
        "model": "m.onnx",
        "space": {"a": [1, 2], "b": "1..4", "c": {"from": 1, "to": 4, "if": {"a": 1}}, "d": [[1, 2]]},
    },
    {
        "model": "m.onnx",
        "objectives": {"throughput": 2},
        "minimize": ["energy"],
        "require": "latency.p99 <= 1ms",
    },
    {"model": "m.onnx", "budget": {"max_time": "10m", "max_trials": 10, "certain": 0.9}},
    {
        "model": "m.onnx",
        "plan": {"max_time": 3, "seed": 1},
        "load": {"rate": "100:poisson", "duration": "2s"},
    },
)
WRONG: tuple[dict[str, Any], ...] = (
    {},
    {"model": "m", "modle": 1},
    {"model": "m", "space": {"a": {"form": 1}}},
    {"model": "m", "budget": {"time": "10m"}},
    {"model": "m", "rank": "best"},
)


def test_the_schema_takes_what_is_right_and_no_more() -> None:
    """Editors with the JSON Schema mark the same errors."""
    validator = jsonschema.Draft202012Validator(sweeps_schema.schema())
    validator.check_schema(sweeps_schema.schema())

    assert [list(validator.iter_errors(document)) for document in DOCUMENTS] == [[]] * len(DOCUMENTS)
    assert all(list(validator.iter_errors(document)) for document in WRONG)


def test_a_price_is_part_of_the_goal() -> None:
    """It may stand in a file; a cost without it is refused with what to add, and what is no price, too."""
    study = filed("space: {batch_size: [1, 2]}\nminimize: cost\nprice: $1.20/h\n")
    assert study.goal.price == Price(per_hour=1.2, currency="$")
    assert [str(objective) for objective in study.goal.objectives] == ["minimize cost"]
    with pytest.raises(RequestError, match="cost needs the price of the machine"):
        build_study(space={"batch_size": "1,2"}, require="cost <= 0.5")
    with pytest.raises(RequestError, match="is not a price"):
        build_study(space={"batch_size": "1,2"}, price="cheap")


def test_another_goal_keeps_the_price_unless_it_has_one() -> None:
    """A rerank by a cost may rest on the price that the study was measured with."""
    study = build_study(space={"batch_size": "1,2"}, price="1.20/h")
    cheap = words_of.override_goal(FileConfig(tree={"objectives": "cost"}), study.goal, study.job)
    dear = words_of.override_goal(FileConfig(tree={"price": "2/h"}), study.goal, study.job)
    assert (cheap.price, dear.price) == (Price(per_hour=1.2), Price(per_hour=2.0))
    assert dear.objectives == study.goal.objectives
