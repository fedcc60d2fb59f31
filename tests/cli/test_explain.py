"""The command ``explain``, on results that were measured before."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.sample_explanations import LOADED, a_called_result, a_served_result, an_explanation

import modeldyno as package
from modeldyno.base import kinds, plugins
from modeldyno.base.errors import RequestError
from modeldyno.cli import defaults
from modeldyno.serving.load.explanation import STATISTICS
from modeldyno.serving.loadtest.explanation import CONCURRENCY, MAX_TIME, ROUNDS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BEFORE, AFTER, CALLED = "a" * 12, "b" * 12, "c" * 12


@pytest.fixture
def stored(modeldyno: Callable[..., Any]) -> Callable[..., Any]:
    """The command line, with two loads, a profile and an explanation in its store."""
    slower = {**LOADED, "queue": 13.0}
    results = {
        BEFORE: a_served_result(LOADED, 4), AFTER: a_served_result(slower, 4), CALLED: a_called_result(),
    }  # fmt: skip
    with plugins.store() as store:
        for identifier, result in results.items():
            store.put(replace(result, id=identifier), headline="")
        store.put_conclusion(an_explanation(), headline="")
    return modeldyno


def test_a_stored_result_is_explained(stored: Callable[..., Any]) -> None:
    """Within 80 columns, and without measuring."""
    result = stored("explain", CALLED)

    assert result.code == 0
    assert "most of it what the hardware needs at least, the bound (3.00 ms, 61%)" in " ".join(
        result.out.split()
    )
    assert max(map(len, result.out.splitlines())) <= 80
    assert "Stored as" not in result.out


def test_two_stored_results_are_compared(stored: Callable[..., Any], tmp_path: Path) -> None:
    """The document and the report are written."""
    result = stored("explain", BEFORE, AFTER, "--json", "c.json", "-o", "c.html", "-q")

    assert result.code == 0
    assert " ".join(result.out.split()) == (
        "onnx:models/mini.onnx, under load: the mean latency rose by 4.0 ms: 4.0 ms of it queue under load. "
        "Saved to c.json and c.html."
    )
    document = json.loads((tmp_path / "c.json").read_text())
    assert document["kind"] == "explanation"
    assert {hop["label"] for hop in document["hops"]} >= {"queue under load", "rest under load"}
    assert "Before and now" in (tmp_path / "c.html").read_text()


def test_a_stored_explanation_is_shown_listed_and_explained_again(stored: Callable[..., Any]) -> None:
    """As any document."""
    identifier = an_explanation().id

    assert "explanation" in stored("list").out
    text = stored("show", identifier[:6]).out
    assert "Where the mean latency goes" in text
    assert "takes 15.42 ms under load (mean)" in " ".join(stored("explain", identifier[:6]).out.split())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((BEFORE, AFTER, "--baseline", CALLED), "The baseline is given twice"),
        ((CALLED, AFTER), "compare two of the same level"),
        (("m.onnx", AFTER), "give two results, or one model and --baseline"),
        ((BEFORE, "--statistic", "p99"), "p99"),
    ],
)
def test_what_cannot_be_explained_is_refused(
    stored: Callable[..., Any], tmp_path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    """In one sentence, with exit code 2."""
    (tmp_path / "m.onnx").write_bytes(b"")
    result = stored("explain", *arguments)

    assert result.code == 2
    assert sentence in " ".join(result.err.split())


def test_the_function_does_as_the_command(stored: Callable[..., Any]) -> None:
    """It takes documents, ids and files, and refuses what the command refuses."""
    assert stored("list").code == 0
    explanation = package.explain(BEFORE, AFTER)
    again = package.explain(explanation, baseline=a_served_result(LOADED, 4))

    assert kinds.kind_of(explanation).headline(explanation) == kinds.kind_of(again).headline(again)
    assert package.explain(a_called_result()).statistic == "p50"
    with pytest.raises(RequestError, match="twice"):
        package.explain(BEFORE, AFTER, baseline=CALLED)
    with pytest.raises(RequestError, match="baseline="):
        package.explain(lambda: None, AFTER)


def test_a_live_object_is_explained_in_this_process() -> None:
    """Its call; a function has no operators that could be told."""
    explanation = package.explain(lambda: sum(range(1000)), rounds=1, max_time=2, store=False, progress=False)

    assert list(explanation.results) == ["in process"]
    assert {hop.label for hop in explanation.hops if hop.time is None} >= {"kernels", "framework"}


def test_the_defaults_of_the_help_are_those_of_the_code() -> None:
    """The help does not import them."""
    assert (ROUNDS, f"{MAX_TIME / 60:.0f}m") == (defaults.EXPLAIN_ROUNDS, defaults.EXPLAIN_TIME)
    assert defaults.EXPLAIN_CONCURRENCY == CONCURRENCY
    assert defaults.EXPLAINED == STATISTICS
