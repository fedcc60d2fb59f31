"""``modeldyno.load``: what a session of Python may rely on."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

import modeldyno
from modeldyno.core.load.endpoint_url import HEADERS_VARIABLE
from modeldyno.errors import RequestError
from modeldyno.testing.server import serve_in_subprocess

if TYPE_CHECKING:
    from collections.abc import Iterator

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


def test_a_live_object_is_refused() -> None:
    """A live object is refused."""
    with pytest.raises(RequestError, match="a live function cannot be served"):
        modeldyno.load(print_nothing)  # type: ignore[arg-type]


def print_nothing() -> None:
    """Do nothing."""


@pytest.mark.parametrize("before", [None, "X-Own: 1"])
def test_headers_are_gone_after_the_load(
    url: str, monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    """A token for one server is not sent to the next, and is in no Result."""
    if before is None:
        monkeypatch.delenv(HEADERS_VARIABLE, raising=False)
    else:
        monkeypatch.setenv(HEADERS_VARIABLE, before)
    seen: list[str | None] = []
    result = modeldyno.load(
        url, inputs="x=1x4", plan=PLAN, headers={"Authorization": "Bearer abc"},
        watch=lambda _event: seen.append(os.environ.get(HEADERS_VARIABLE)),
    )  # fmt: skip
    assert set(seen) == {"Authorization: Bearer abc"}
    assert os.environ.get(HEADERS_VARIABLE) == before
    assert "Bearer" not in repr(result.job)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"rate": 5, "replay": "x"}, "give one of them"),
        ({"concurrency": 0}, "at least 1 as its concurrency"),
        ({"rate": "5:poison"}, "did you mean 'poisson'"),
        ({"records": "/absent/x.csv"}, "There is no directory '/absent'"),
    ],
)
def test_wrong_words_are_refused(url: str, words: dict[str, Any], says: str) -> None:
    """Invalid requests are refused in one sentence, before anything is sent."""
    with pytest.raises(RequestError, match=says):
        modeldyno.load(url, inputs="x=1x4", **words)
