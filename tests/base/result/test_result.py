from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from modeldyno.base.errors import RunFailed, UncertifiedWarning, UnknownName
from modeldyno.base.job.job import Job
from modeldyno.base.job.model_ref import ModelIdentity, ModelRef
from modeldyno.base.metrics.constraints import Constraint, Verdict
from modeldyno.base.metrics.doubt import Doubt, noise_doubts
from modeldyno.base.metrics.measurement import Distribution, Measurement, observed_number
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.result.result import (
    Artifact,
    Ended,
    Environment,
    Failure,
    FailureKind,
    Loaded,
    Progressed,
    Refused,
    Result,
    fold,
    merge,
)
from modeldyno.base.result.static_data import StaticReport
from modeldyno.base.result.trace_data import TraceReport
from modeldyno.reports import display
from modeldyno.testing.sample_results import a_small_result

if TYPE_CHECKING:
    from pathlib import Path

JOB = Job(model=ModelRef.parse("onnx:m.onnx"), backend="onnxruntime", config={"batch_size": 1})
EMPTY = Result(id="0123456789ab", created="2026-01-01T00:00:00+00:00", job=JOB)
MODEL = ModelIdentity(name="m", digest="sha256:00", framework="onnx")
DOUBT = Doubt(code="drift", seen="it rose", advice="wait")
FAILURE = Failure(where="load", kind=FailureKind.ERROR, message="no")


def latency(*samples: float) -> Measurement:
    return Measurement(metric="latency", value=Distribution.of(samples))


def test_fewer_threads_are_advised_unless_one_was_asked_for() -> None:
    """Nobody knows how many a model runs by default; one cannot become fewer."""
    (noise,) = noise_doubts(1.0, 0.0)

    def advice(**config: int | bool) -> str:
        job = replace(EMPTY.job, config=dict(config))
        return fold(replace(EMPTY, job=job), [noise]).doubts[0].advice

    assert "threads=1" in advice(threads=2)
    assert "threads=1" in advice(batch_size=1)
    assert advice(threads=1) == noise.advice


def test_a_result_is_a_fold_over_events() -> None:
    """Each kind of event finds its place, and progress leaves no trace."""
    place = Environment(hardware={"cores": 2})
    result = fold(
        EMPTY,
        [
            Progressed(stage="load"),
            place,
            Loaded(model=MODEL),
            latency(1.0),
            DOUBT,
            DOUBT,
            FAILURE,
            Refused(error="RequestError", message="no"),
            Ended(),
        ],
    )

    assert (
        replace(
            EMPTY,
            environment=place,
            model=MODEL,
            measurements=(latency(1.0),),
            doubts=(DOUBT,),
            failures=(FAILURE,),
        )
        == result
    )


def test_a_later_measurement_replaces_a_provisional_one() -> None:
    """What was sent while measuring gives way to the end."""
    result = fold(EMPTY, [latency(1.0), latency(1.0, 2.0)])

    assert (latency(1.0, 2.0),) == result.measurements


def test_a_job_moves_to_another_point() -> None:
    """Only the knobs given change."""
    assert JOB.at({"batch_size": 8, "threads": 2}).config == {"batch_size": 8, "threads": 2}
    assert JOB.config == {"batch_size": 1}


def test_processes_are_merged_under_the_first_id() -> None:
    """Numbers of whole processes are pooled, doubts told once, the model is that of one that loaded it."""
    failed = replace(EMPTY, failures=(FAILURE,), doubts=(DOUBT,), measurements=(latency(9.0),))
    loaded = replace(EMPTY, id="ba9876543210", model=MODEL, measurements=(latency(1.0),), doubts=(DOUBT,))
    merged = merge([failed, loaded, loaded])
    shared = replace(DOUBT, seen="it rose (and in 2 more processes)")

    assert (EMPTY.id, MODEL, (shared,), (FAILURE,)) == (
        merged.id,
        merged.model,
        merged.doubts,
        merged.failures,
    )
    assert merged.ask("latency.n").value == 2
    assert EMPTY.id == merge([failed]).id


def test_a_percentile_that_the_pool_certifies_is_not_doubted() -> None:
    """What each process lacked may be there in the pool; what the pool lacks is doubted once."""
    plan = Plan(percentiles=("p90", "p99"))
    lacking = Doubt(code="few-samples", seen="latency.p90 lacks 24", advice="")
    one = replace(
        EMPTY,
        job=replace(JOB, plan=plan),
        doubts=(lacking,),
        measurements=(latency(*(float(i * 7919 % 101) for i in range(40))),),
    )
    merged = merge([one, one])

    assert [d.seen.split()[0] for d in merged.doubts] == ["latency.p99"]
    assert merged["latency.p90"] is not None
    assert merged.processes == 2


def test_processes_without_a_latency_are_merged_too() -> None:
    """A run of other probes pools what it has."""
    one = replace(EMPTY, measurements=(observed_number("load_time", 1.0),))

    assert merge([one, one])["load_time"] == 1.0


def test_what_a_failed_run_lacks_is_told_with_its_failure() -> None:
    """Asking a failed run for a number names the cause."""
    with pytest.raises(RunFailed, match="The run failed in load: no"):
        replace(EMPTY, failures=(FAILURE,)).ask("load_time")
    with pytest.raises(RunFailed, match="has no load_time"):
        EMPTY.ask("load_time")


def test_a_result_is_short_where_it_is_printed() -> None:
    """Neither a Result nor a Distribution spills its samples into a terminal."""
    result = replace(EMPTY, measurements=(latency(1.0, 2.0, 3.0), observed_number("steal", 0.0, scope="x")))

    assert repr(result) == "<Result 0123456789ab of onnx:m.onnx: latency.p50.raw 2.00 s>"
    assert repr(EMPTY) == "<Result 0123456789ab of onnx:m.onnx: nothing measured>"
    doubted = replace(EMPTY, doubts=(DOUBT, replace(DOUBT, code="not-isolated")))
    assert repr(doubted).endswith("nothing measured; doubts: drift>")
    assert (
        repr(latency(1.0, 2.0, 3.0).value) == "Distribution(n=3, processes=1, median=2.0, stop='converged')"
    )
    assert "median=None" in repr(Distribution(runs=()))
    assert "failed in load" in repr(replace(EMPTY, failures=(FAILURE,)))


def test_a_result_answers_queries() -> None:
    """Brackets give the number, or None where it is not certified."""
    result = replace(EMPTY, measurements=(latency(*[1.0, 2.0, 3.0] * 10), observed_number("load_time", 0.5)))

    assert (result["latency.p50"], result["load_time"]) == (2.0, 0.5)
    with pytest.warns(UncertifiedWarning, match=r"latency.p99 is None: p99 is not certified: .* are missing"):
        assert result["latency.p99"] is None
    assert result.find("latency") is not None
    assert result.find("latency", "layer") is None


def test_a_result_lists_what_it_answers() -> None:
    """Its keys are queries, each of which brackets answer with a number; what was not measured is not in."""
    result = replace(
        EMPTY, measurements=(latency(*[1.0, 2.0] * 40), observed_number("macs", 7, scope="conv.1"))
    )

    assert {"latency.p50", "latency.p99.raw", "macs@conv.1"} <= set(result)
    assert {key: result[key] for key in result.keys()} == result.to_dict()  # noqa: SIM118 - no mapping
    assert result._ipython_key_completions_() == list(result)
    assert "latency" in result
    assert "latency.p99" in result
    assert "macs@conv.1" in result
    assert not any(absent in result for absent in ("macs", "flops", "nonsense", "latency.nonsense"))


def test_a_result_judges_a_bound() -> None:
    """Text or a Constraint; the verdict is by the interval."""
    result = replace(EMPTY, measurements=(observed_number("load_time", 0.5),))

    assert result.judge("load_time <= 1s").verdict is Verdict.HELD
    assert result.judge(Constraint.parse("load_time <= 100ms")).verdict is Verdict.BROKEN


@pytest.mark.parametrize(
    ("result", "name"),
    [
        (replace(EMPTY, model=MODEL), "m"),
        (EMPTY, "onnx:m.onnx"),
        (replace(EMPTY, job=replace(JOB, name="mine")), "mine"),
    ],
)
def test_a_result_has_a_name_even_if_nothing_was_loaded(result: Result, name: str) -> None:
    """The identity's name, else what the user said, else the reference."""
    assert name == result.name


def test_a_notebook_shows_a_small_result() -> None:
    """The HTML fragment has the model's name."""
    assert "onnx:m.onnx" in EMPTY._repr_html_()


def test_a_result_shows_itself_in_other_forms(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As text, a page, a file and a table, through the one module that knows formats."""
    EMPTY.show()
    EMPTY.save(tmp_path / "r.md")
    monkeypatch.setattr(display, "data_frame", lambda result: (result.id, "table"))

    assert "onnx:m.onnx" in str(EMPTY)
    assert "onnx:m.onnx" in capsys.readouterr().out
    assert "onnx:m.onnx" in EMPTY.to_html()
    assert "onnx:m.onnx" in (tmp_path / "r.md").read_text(encoding="utf-8")
    assert EMPTY.to_pandas() == (EMPTY.id, "table")


def test_what_probes_saw_and_wrote_is_gathered() -> None:
    """The outline of a model, what a second pass saw, and files."""
    outline, activity = StaticReport(sizes={"batch": 2}), TraceReport(held_in="fc")
    file = Artifact(name="trace", path="trace.json", digest="sha256:" + "00" * 32)
    events = (outline, activity, file, Ended())
    result = fold(a_small_result(), events)
    assert result.outline == outline
    assert result.activity == activity
    assert result.artifacts == (file,)


def test_a_metric_that_is_not_installed_is_asked_for_and_not_bounded() -> None:
    """The result answers what it has; a bound is refused as any unknown name, but the number is told."""
    result = a_small_result(measurements=(Measurement(metric="moods", value=12),))

    assert {query: result[query] for query in result} == {"moods": 12}
    with pytest.raises(
        UnknownName, match=r"There is no metric 'moods'; .* This result has moods 12, which no"
    ):
        result.judge("moods >= 3")
    for bound in ("mood >= 3", "latency.p999 <= 1s"):
        with pytest.raises(UnknownName) as refused:
            result.judge(bound)
        assert "This result has" not in str(refused.value)


def test_the_first_failure_and_an_interruption_are_properties() -> None:
    """Later failures follow from the first; whoever ended a run is told by a doubt."""
    first, second = (Failure(where=where, kind=FailureKind.ERROR, message="m") for where in ("load", "open"))
    stopped = Doubt(code="interrupted", seen="", advice="")

    assert a_small_result().failure is None
    assert replace(a_small_result(), failures=(first, second)).failure is first
    assert not a_small_result().interrupted
    assert replace(a_small_result(), doubts=(stopped,)).interrupted


def test_a_number_is_read_whether_certified_or_not() -> None:
    """A distribution gives a statistic, a count itself; what was not measured is None."""
    result = replace(EMPTY, measurements=(latency(1.0, 3.0), Measurement(metric="load_time", value=4.0)))

    assert result.number("latency") == pytest.approx(2.0)
    assert result.number("latency", statistic="max") == pytest.approx(3.0)
    assert (result.number("load_time"), result.number("load_time", "open")) == (4.0, None)


def test_samples_are_asked_for_by_metric() -> None:
    """A single number has none, and neither has what was not measured."""
    times = latency(1.0, 3.0)
    result = replace(EMPTY, measurements=(times, Measurement(metric="load_time", value=4.0)))

    assert result.distribution("latency") == times.value
    assert (result.distribution("load_time"), result.distribution("latency", "layer")) == (None, None)


def test_a_cost_is_withheld_with_its_rate() -> None:
    """A load that was too short has neither; a cost that was never asked for is not withheld."""
    short = replace(a_small_result(), doubts=(Doubt(code="short-load", seen="few", advice=""),))
    assert short.withheld("cost") == "short-load"
    assert not a_small_result().withheld("cost")
