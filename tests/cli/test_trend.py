"""``modeldyno trend``, as a user types it, on a store with a history."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import modeldyno as package
from modeldyno.base import plugins
from modeldyno.base.errors import RequestError
from modeldyno.cli.actions.trend import _run_hook
from modeldyno.comparison.change.trend import Trend
from modeldyno.profiling.views import brief
from modeldyno.testing.sample_results import a_failed_result, a_result
from modeldyno.testing.sample_series import a_trend

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Protocol

    from modeldyno.base.result.result import Result

    class CommandResult(Protocol):
        code: int
        out: str
        err: str


WOBBLE = (0.0, 0.01, -0.01, 0.004, -0.006)


def made(place: int, level: float, digest: str = "5a", **config: int) -> Result:
    """Make a result of about this many milliseconds."""
    samples = [level * 1e-3 * (1 + WOBBLE[(place + n) % 5]) for n in range(20)]
    result = a_result(
        samples=samples, id=f"{place:02x}" * 6, created=f"2026-01-{1 + place:02}T03:04:05.678901+00:00"
    )
    assert result.model is not None
    return replace(
        result,
        model=replace(result.model, digest=f"sha256:{digest * 32}"),
        job=replace(result.job, config={**result.job.config, **config}),
    )


@pytest.fixture
def put(modeldyno: Callable[..., CommandResult]) -> Callable[..., None]:
    """Fill the store of the command line."""
    del modeldyno

    def fill(*results: Result) -> None:
        with plugins.store() as store:
            for result in results:
                store.put(result, headline=brief(result))

    return fill


@pytest.fixture
def worse(put: Callable[..., None]) -> None:
    """Twelve results, and eight that are a tenth slower with another model."""
    put(*(made(n, 1.0) for n in range(12)), *(made(n, 1.1, "77") for n in range(12, 20)))


@pytest.mark.usefixtures("worse")
def test_a_regression_is_told(modeldyno: Callable[..., CommandResult]) -> None:
    """The output has the start, the size, and the change of the model, within 80 columns."""
    result = modeldyno("trend", "digits")

    assert result.code == 0
    assert result.out.startswith("digits: latency.p50 has been worse by 10")
    assert "2026-01-13 03:04 (0c0c0c)" in result.out
    assert "when the model changed" in result.out
    assert "▁" in result.out
    assert "█" in result.out
    assert max(map(len, result.out.splitlines())) <= 80


@pytest.mark.usefixtures("worse")
def test_it_fails_a_pipeline_when_asked(modeldyno: Callable[..., CommandResult]) -> None:
    """Exit code 1 with --fail-on-regression, 0 without."""
    assert modeldyno("trend", "digits", "--fail-on-regression", "-q").code == 1
    result = modeldyno("trend", "digits", "-q")
    assert result.code == 0
    assert len(result.out.splitlines()) == 1


def test_a_hook_that_leaves_a_process_holds_nothing() -> None:
    """What it leaves has the document open, and does not read it."""
    begin = time.monotonic()
    _run_hook(["sh", "-c", "sleep 3 & exit 0"], bytes(1 << 20), a_trend())
    assert time.monotonic() - begin < 2


@pytest.mark.usefixtures("worse")
def test_a_hook_gets_the_document(modeldyno: Callable[..., CommandResult], tmp_path: Path) -> None:
    """The hook gets the document on standard input, and the sentence in its environment."""
    path = tmp_path / "told"
    hook = f"sh -c 'cat > {path}; echo \"$MODELDYNO_TREND\" >&2'"
    result = modeldyno("trend", "digits", "--exec", hook)

    assert result.code == 0
    assert json.loads(path.read_text())["name"] == "digits"
    assert "has been worse" in result.err


@pytest.mark.usefixtures("worse")
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("digits", "--exec", "false"), 4, "false failed with exit code 1"),
        (("digits", "--exec", "/no/such/hook"), 2, "--exec cannot run /no/such/hook"),
        (("digits", "--exec", "'"), 2, "is not a valid command"),
        (("digits", "--smallest", "200%"), 2, "--smallest takes a fraction"),
        (("digits", "--metric", "latency.p99"), 2, "No result of digits has a valid latency.p99"),
        (("digits", "--metric", "latenzy"), 2, "latenzy"),
        (("digits", "--set", "threads=9"), 2, "stored results of digits has that backend and those settings"),
        (("digits", "--backend", "torch"), 2, "stored results of digits has that backend"),
        (("unknown",), 2, "The store has no results of 'unknown'"),
    ],
)
def test_what_cannot_be_answered_is_one_sentence(
    modeldyno: Callable[..., CommandResult], arguments: tuple[str, ...], code: int, message: str
) -> None:
    """The message says what to do."""
    result = modeldyno("trend", *arguments)
    assert result.code == code
    assert message in result.err
    assert len(result.err.splitlines()) == 1


def test_an_inspection_does_not_hide_what_was_measured(
    modeldyno: Callable[..., CommandResult], put: Callable[..., None]
) -> None:
    """The newest result that has the metric determines which results are comparable."""
    inspected = made(9, 1.0)
    job = replace(inspected.job, probes=("static",), config={})
    put(*(made(n, 1.0) for n in range(8)), replace(inspected, measurements=(), job=job))
    result = modeldyno("trend", "digits")
    assert result.code == 0, result.err
    assert "over 8 results" in result.out.replace("\n", " ")


def test_a_hook_is_not_called_without_a_regression(
    modeldyno: Callable[..., CommandResult], put: Callable[..., None], tmp_path: Path
) -> None:
    """A level history does not call the hook."""
    put(*(made(n, 1.0) for n in range(8)))
    path = tmp_path / "told"
    result = modeldyno("trend", "digits", "--exec", f"touch {path}", "--fail-on-regression")
    assert result.code == 0
    assert "is stable at 1.00 ms over 8 results" in result.out.replace("\n", " ")
    assert not path.exists()


def test_few_results_make_no_history(
    modeldyno: Callable[..., CommandResult], put: Callable[..., None]
) -> None:
    """The message has the required number."""
    put(made(0, 1.0))
    assert "only 1 result, and a step needs at least six" in " ".join(
        modeldyno("trend", "models/digits.onnx").out.split()
    )


def test_other_setups_are_left_out(modeldyno: Callable[..., CommandResult], put: Callable[..., None]) -> None:
    """The newest result or the options decide; failed results are left out."""
    put(*(made(n, 1.0) for n in range(8)), *(made(n, 2.0, threads=1) for n in range(8, 10)))
    put(a_failed_result(id="f" * 12, created="2026-01-20T00:00:00+00:00", name="digits"))
    result = package.trend("digits")
    assert [reading.value > 0.0015 for reading in result.readings] == [True, True]
    assert result.left_out == 8
    two = package.trend("digits", threads=2)
    assert len(two.readings) == 8
    assert not two.steps
    assert isinstance(two, Trend)
    with pytest.raises(RequestError, match="no results of 'digit'"):
        package.trend("digit")
    printed = modeldyno("trend", "digits", "--set", "threads=2", "--json", "-")
    assert printed.code == 0, printed.err
    document = json.loads(printed.out)
    assert len(document["readings"]) == 8


def test_the_newest_far_off_is_undecided(
    modeldyno: Callable[..., CommandResult], put: Callable[..., None]
) -> None:
    """One or two results are too few for a level, and are reported."""
    put(*(made(n, 1.0) for n in range(8)), made(8, 1.5))
    assert "the newest result is +50" in " ".join(modeldyno("trend", "digits").out.split())
    put(made(9, 1.5))
    assert "the newest 2 results are" in " ".join(modeldyno("trend", "digits").out.split())


def test_a_history_is_drawn(
    modeldyno: Callable[..., CommandResult], put: Callable[..., None], tmp_path: Path
) -> None:
    """As a page with its chart, and as numbers; another suffix is refused at once."""
    put(*(made(n, 1.0) for n in range(8)), *(made(n, 1.3) for n in range(8, 16)))
    assert modeldyno("trend", "digits", "-o", "history.html").code == 0
    page = (tmp_path / "history.html").read_text(encoding="ascii")
    assert '<figure data-picture="0"' in page
    assert "has been worse by" in page
    assert modeldyno("trend", "digits", "-o", "history.csv", "-q").code == 0
    assert len((tmp_path / "history.csv").read_text().splitlines()) == 17
    assert "No reporter writes" in modeldyno("trend", "digits", "-o", "history.docx").err
