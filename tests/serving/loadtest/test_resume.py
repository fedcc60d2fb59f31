"""A stored load series goes on, or is judged by other bounds; the server is simulated."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from modeldyno.base import kinds, plugins
from modeldyno.base.errors import RequestError, StaleStudy
from modeldyno.base.identity import new_identity
from modeldyno.base.job.job import Job
from modeldyno.base.job.load_spec import Load
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.serving.load.capacity import Capacity
from modeldyno.serving.load.capacity_steps import CapacitySearch, SearchEnd
from modeldyno.serving.load.load_curve import LoadCurve
from modeldyno.serving.loadtest.resume import (
    check_changes,
    check_rerank,
    find_series,
    rerank_series,
    resume_curve,
    resume_search,
)
from modeldyno.serving.loadtest.series import measure_loads
from modeldyno.stores.catalog import store_conclusion, store_results
from modeldyno.stores.lookup import find_conclusion
from modeldyno.testing.sample_results import a_result
from modeldyno.testing.sample_series import a_capacity, a_ladder
from modeldyno.testing.sample_studies import SimulatedTrials

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

JOB = Job(
    model=ModelRef(scheme="url", locator="http://127.0.0.1:1#m"), backend="remote", probes=("load",),
    load=Load(),
)  # fmt: skip


@pytest.fixture(autouse=True)
def _store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODELDYNO_STORE", f"sqlite:///{tmp_path}/store.db")


def a_server(**changes: Any) -> SimulatedTrials:
    """Return a server whose throughput grows up to four slots."""
    return SimulatedTrials(rate=lambda point: 100.0 * min(float(point["concurrency"]), 4.0), **changes)


def a_curve(*loads: int, **changes: Any) -> LoadCurve:
    curve = LoadCurve(knob="concurrency", loads=loads, rungs=(), job=JOB, **new_identity())
    return replace(curve, **changes)


def stored_steps(series: Any, server: SimulatedTrials, **more: Any) -> Iterator[Any]:
    """Measure a series, and store each step before the next."""
    for outcome, latest in measure_loads(series, rooms=server, **more):
        store_results([outcome.result])
        store_conclusion(latest)
        yield latest


def test_a_ladder_goes_on_where_its_process_ended() -> None:
    """Nothing that was stored is measured again, and further loads join the same document."""
    server = a_server()
    killed = next(stored_steps(a_curve(1, 2, 4), server))
    resumed = resume_curve(find_series(killed.id[:6]), concurrency="1:8")
    *_, finished = stored_steps(resumed, server)

    assert find_conclusion(killed.id) == finished
    assert [rung.load for rung in finished.rungs] == [1, 2, 4, 8]
    assert finished.until_plateau
    assert finished.rungs[0] == killed.rungs[0]
    assert len(server.jobs) == 4
    assert resume_curve(finished).loads == (1, 2, 4, 8)


def test_other_bounds_make_a_new_ladder() -> None:
    """Every load is judged by its stored Result; the first ladder stays as it was."""
    *_, curve = stored_steps(a_curve(1, 2), a_server())
    judged = resume_curve(curve, require=["throughput >= 150/s"])

    assert judged.id != curve.id
    assert [rung.judgements[0].verdict for rung in judged.rungs] == ["broken", "held"]
    assert resume_curve(judged, require=["throughput >= 150/s"]) == judged
    assert find_conclusion(curve.id) == curve


def test_a_search_begins_with_a_ladder_and_goes_on() -> None:
    """Its limits count what is known; a search that is resumed as it was keeps its id."""
    server = a_server()
    *_, curve = stored_steps(a_curve(1, 8), server)
    begun = resume_search(curve, require=["latency.p50 <= 1us"])
    assert (begun.search.measurements, begun.search.start, begun.ours) == (12, 1, False)
    assert begun.id != curve.id
    assert resume_search(curve, most=64, measurements=3, require=["latency.p50 <= 1us"]).search == (
        CapacitySearch(bounds=begun.search.bounds, most=64, measurements=3)
    )

    *_, finished = stored_steps(resume_search(curve, require=["latency.p50 <= 60s"], measurements=3), server)
    again = resume_search(finished, measurements=4)
    assert (again.id, again.search.measurements, again.rungs) == (finished.id, 4, finished.rungs)
    other = resume_search(finished, require=["latency.p50 <= 1us"])
    assert (other.search.measurements, len(other.rungs)) == (3 + len(finished.rungs), len(finished.rungs))
    assert other.id != finished.id


def test_rerank_measures_and_stores_nothing() -> None:
    """It answers as a search does; without a bound, by those that the loads were measured for."""
    *_, curve = stored_steps(a_curve(1, 8), a_server())
    answer = rerank_series(curve, ["latency.p50 <= 60s"])

    assert isinstance(answer, Capacity)
    assert (answer.id, answer.end, answer.ours) == ("", SearchEnd.JUDGED, False)
    judged = [str(j.constraint) for rung in answer.rungs for j in rung.judgements]
    assert judged == ["latency.p50 <= 60 s"] * 2
    with plugins.store() as store:
        assert [entry.id for entry in store.conclusions()] == [curve.id]
    with pytest.raises(RequestError, match="measured without a bound"):
        rerank_series(curve, [])
    with pytest.raises(RequestError, match="has no load that was measured"):
        rerank_series(a_curve(1), ["latency.p50 <= 60s"])
    assert rerank_series(a_capacity(), []).search == a_capacity().search


def test_bounds_apply_to_every_model_of_the_server() -> None:
    """As they do where the series begins."""
    job = replace(JOB, name="a", beside=(replace(JOB, name="b"),))
    rung = a_ladder().rungs[0]
    of_both = [
        answer if not named else replace(answer, query=replace(answer.query, scope="b"))
        for answer in rung.answers
        for named in (False, True)
    ]
    curve = replace(a_ladder(), job=job, rungs=(replace(rung, answers=tuple(of_both)),))
    answer = rerank_series(curve, ["latency.p50 <= 1s"])

    assert list(map(str, answer.search.bounds)) == ["latency.p50 <= 1 s", "latency.p50@b <= 1 s"]
    assert answer.passed == 1


def test_bounds_that_nothing_is_known_of_are_refused() -> None:
    """Neither a Result in the store nor the document has the metric."""
    with pytest.raises(RequestError, match="No load of 1add1a says anything about send_lag"):
        rerank_series(a_ladder(), ["send_lag.p99 <= 1ms"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"digest": "sha256:" + "00" * 32}, "The load series cannot be resumed: the model is another one"),
        ({"hardware": {"cores": 4}}, "cannot be resumed: the machine is another one"),
    ],
)
def test_another_model_or_machine_is_refused(change: dict[str, Any], message: str) -> None:
    """Unless that is forced, which is a doubt in every Result from then on."""
    *_, curve = stored_steps(a_curve(1), a_server())
    further = resume_curve(curve, concurrency="1,2,4")
    with pytest.raises(StaleStudy, match=message):
        list(measure_loads(further, rooms=a_server(**change)))

    outcomes = [outcome for outcome, _ in measure_loads(further, rooms=a_server(**change), force=True)]
    assert all("-changed" in "".join(d.code for d in outcome.result.doubts) for outcome in outcomes)


@pytest.mark.parametrize("kind", ["ladder", "capacity"])
def test_what_an_earlier_version_wrote_is_read_and_not_resumed(kind: str) -> None:
    """It says so in one sentence; other bounds can be judged."""
    written = kinds.kind_of(series := a_ladder() if kind == "ladder" else a_capacity()).encode(series)
    old = kinds.decode(written)
    assert isinstance(old, LoadCurve | Capacity)
    with pytest.raises(RequestError, match="an earlier version of ModelDyno wrote it"):
        resume_search(old)
    if isinstance(old, LoadCurve):
        with pytest.raises(RequestError, match="an earlier version of ModelDyno wrote it"):
            resume_curve(old)
    assert rerank_series(old, ["latency.p50 <= 15ms"]).passed == 4


def test_what_cannot_change_is_refused() -> None:
    """In one sentence, which says what can."""
    with pytest.raises(RequestError, match=r"cannot change --backend, most=; only `concurrency` and `requ"):
        check_changes({"most": "most=", "require": "require=", "backend": "--backend"}, search=False)
    with pytest.raises(RequestError, match=r"only `max_time`, `measurements`, `most` and `require` can"):
        check_changes({"concurrency": "--concurrency"}, search=True)
    check_changes({"most": "--most"}, search=True)
    with pytest.raises(RequestError, match="measures nothing, so --most would have no effect"):
        check_rerank({"require": "--require", "most": "--most"})
    with pytest.raises(RequestError, match="is a search for a load"):
        resume_curve(a_capacity())


def test_another_document_is_no_series(tmp_path: Path) -> None:
    """A file is read as well as an id; a result is refused."""
    path = tmp_path / "loads.json"
    path.write_bytes(kinds.kind_of(a_ladder()).encode(a_ladder()))
    assert find_series(str(path)) == a_ladder()
    store_results([a_result()])
    with pytest.raises(RequestError, match="neither a stored load curve nor a search"):
        find_series(a_result().id)
    with pytest.raises(RequestError, match="'nothere' is neither a stored load curve nor a search"):
        find_series("nothere")
