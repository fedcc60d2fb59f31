"""``modeldyno.load``: what a session of Python may rely on."""

from __future__ import annotations

import json
import os
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

import modeldyno
from modeldyno.base.errors import RequestError
from modeldyno.serving.load.endpoint_url import HEADERS_VARIABLE
from modeldyno.testing.server import serve_in_subprocess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PLAN = modeldyno.Plan(max_time=1.5, min_time=0.3, precision=0.3)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Run a server that takes 2 ms for each request."""
    with serve_in_subprocess("--service", "constant:0.002") as running:
        yield f"http://127.0.0.1:{running.port}#echo"


def test_a_load_is_a_result_like_any_other(url: str) -> None:
    """Numbers are read by name, and a bound is judged."""
    result = modeldyno.load(url, concurrency=2, inputs="x=1x4", plan=PLAN)
    assert (result["latency.mean"] or 0) >= 0.002
    assert (result["request_rate"] or 0) > 0
    assert result.judge("latency.p50 <= 1ms").verdict != "held"  # a busy machine may leave it undecided


@pytest.mark.slow
@pytest.mark.parametrize("before", [None, "X-Own: 1"])
def test_headers_are_gone_after_the_load(
    url: str, monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    """A token for one server is not sent to the next, and is in no Result."""
    if before is None:
        monkeypatch.delenv(HEADERS_VARIABLE, raising=False)
    else:
        monkeypatch.setenv(HEADERS_VARIABLE, before)
    headers: list[str | None] = []
    result = modeldyno.load(
        url, inputs="x=1x4", plan=PLAN, headers={"Authorization": "Bearer abc"},
        watch=lambda _event: headers.append(os.environ.get(HEADERS_VARIABLE)),
    )  # fmt: skip
    assert set(headers) == {"Authorization: Bearer abc"}
    assert os.environ.get(HEADERS_VARIABLE) == before
    assert "Bearer" not in repr(result.job)


def test_answers_are_compared_with_those_of_a_file_of_requests(url: str, tmp_path: Path) -> None:
    """A wrong one is a failure that names its request; `checked_calls` says how many were compared."""
    echo, steps = read_answer(url), [{"x": {"content": [float(i)], "shape": [1]}} for i in range(3)]
    answers = [{echo: [0.0]}, {echo: [1.0]}, {echo: [7.0]}]
    (tmp_path / "a.json").write_text(json.dumps({"data": steps, "validation_data": answers}))
    result = modeldyno.load(url, requests=6, inputs=str(tmp_path / "a.json"), plan=PLAN, store=False)

    assert result.failure is not None
    assert "1 of 3 requests are not the expected ones; that to request 3" in result.failure.message
    assert (result["checked_calls"] or 0) >= 3


def read_answer(url: str) -> str:
    """Return the name of the server's output."""
    session = urllib.parse.urlsplit(url)
    body = json.dumps({"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}]}).encode()
    request = urllib.request.Request(f"http://{session.netloc}/v2/models/echo/infer", body)
    with urllib.request.urlopen(request) as answer:
        return str(json.load(answer)["outputs"][0]["name"])


def test_several_loads_are_a_curve(url: str) -> None:
    """Each load is a stored Result, and the curve is stored and found by its id."""
    curve = modeldyno.load_curve(
        url, concurrency=(1, 2), inputs="x=1x4", plan=PLAN, require="latency.p50 <= 1s", tags="ladder"
    )

    assert [point.load for point in curve.rungs] == [1, 2]
    assert [entry.id for entry in modeldyno.store.list(tag="ladder")] == [
        point.result for point in reversed(curve.rungs)
    ]
    assert modeldyno.store.show(curve.id) == curve
    needed = modeldyno.serving.replicas(curve.id, demand="1000/s", price="1.20/h")
    assert needed.provision is not None
    assert needed.provision.replicas >= 1
    with pytest.raises(RequestError, match="a load series has bounds of its own"):
        modeldyno.serving.replicas(curve, demand=1000, require="latency.p50 <= 1s")


@pytest.mark.slow
def test_several_rates_are_a_curve(url: str) -> None:
    """Of an open loop, each with the arrivals of all; what it lacks of the rates is measured later."""
    curve = modeldyno.load_curve(
        url, rate="40.5,80:gamma=0.5", concurrency="8", inputs="x=1x4", plan=PLAN, store=False, progress=False
    )
    assert curve.knob == "rate"
    assert [rung.load for rung in curve.rungs] == [40.5, 80]
    assert str(curve.job.load) == "40.5/s gamma of burstiness 0.5, at most 8 at once"  # type: ignore[union-attr]
    assert modeldyno.load_curve(
        url, rate=[40.5], inputs="x=1x4", plan=PLAN, store=False, progress=False
    ).loads == (40.5,)
    with pytest.raises(RequestError, match="are rates; measure other ones anew, with rate"):
        modeldyno.load_curve(resume=curve, concurrency="1,2")
    with pytest.raises(RequestError, match="Several rates and several values of concurrency"):
        modeldyno.load_curve(url, rate="1,2", concurrency="1,2")


def test_the_largest_load_is_found(url: str) -> None:
    """The answer is a document; a search needs a bound."""
    capacity = modeldyno.find_load(
        url, most=2, measurements=2, inputs="x=1x4", plan=PLAN, require="latency.p50 <= 1s", store=False
    )

    assert capacity.search.most == 2
    assert capacity.passed is None or capacity.passed <= 2
    with pytest.raises(RequestError, match=f"no .*{capacity.id}|There is no|The store has no"):
        modeldyno.store.show(capacity.id)
    with pytest.raises(RequestError, match=r"find_load\(\) needs a bound"):
        modeldyno.find_load(url, inputs="x=1x4")
    with pytest.raises(RequestError, match="is not a ladder"):
        modeldyno.load_curve(url, concurrency=(4, 2), inputs="x=1x4")


@pytest.mark.slow  # tests/cli/test_load.py goes on and judges anew
def test_a_curve_goes_on_and_becomes_a_search(url: str) -> None:
    """Only loads that are missing are measured; what cannot change is named as an argument."""
    curve = modeldyno.load_curve(url, concurrency=(1, 2), inputs="x=1x4", plan=PLAN)
    further = modeldyno.load_curve(resume=curve.id, concurrency=(1, 2, 4))
    assert (further.id, [point.load for point in further.rungs]) == (curve.id, [1, 2, 4])
    assert modeldyno.load_curve(resume=further) == further

    answer = modeldyno.serving.rerank_load(curve.id, "latency.p50 <= 60s")
    assert [point.load for point in answer.rungs] == [1, 2, 4]
    capacity = modeldyno.find_load(resume=curve.id, require="latency.p50 <= 60s", most=4, measurements=3)
    assert capacity.rungs == answer.rungs
    assert modeldyno.store.show(capacity.id) == capacity

    with pytest.raises(RequestError, match=r"change inputs=, max_time=, plan=; only concurrency= and"):
        modeldyno.load_curve(resume=curve.id, inputs="x=1x4", plan=PLAN, max_time=2)
    with pytest.raises(RequestError, match=r"cannot change concurrency=, model=; only max_time="):
        modeldyno.find_load(url, resume=curve.id, concurrency=2)
    with pytest.raises(RequestError, match="is a search for a load; go on with find_load"):
        modeldyno.load_curve(resume=capacity.id)
    with pytest.raises(RequestError, match="needs a model, or resume= with the id"):
        modeldyno.find_load(require="latency.p50 <= 60s")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"rate": 5, "replay": "x"}, "give one of them"),
        ({"concurrency": 0}, "at least 1 as its concurrency"),
        ({"rate": "5:poison"}, "did you mean 'poisson'"),
        ({"records": "/absent/x.csv"}, "There is no directory '/absent'"),
    ],
)
def test_wrong_words_are_refused(url: str, options: dict[str, Any], says: str) -> None:
    """Invalid requests are refused in one sentence, before anything is sent."""
    with pytest.raises(RequestError, match=says):
        modeldyno.load(url, inputs="x=1x4", **options)
