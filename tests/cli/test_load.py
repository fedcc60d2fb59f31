"""``modeldyno load``, as a user types it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from modeldyno.base import plugins
from modeldyno.base.job.job import Job
from modeldyno.base.job.load_spec import Load
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.base.metrics.constraints import Answer, Constraint
from modeldyno.base.metrics.measurement import Interval
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.cli import main
from modeldyno.cli.actions.load import _describe_duration as describe_duration
from modeldyno.cli.actions.load import _explain_end as explain_end
from modeldyno.engine.runtime.events import empty_result
from modeldyno.profiling.request import Request
from modeldyno.profiling.run import JudgedResult
from modeldyno.serving.load.capacity import Capacity
from modeldyno.serving.load.capacity_steps import CapacitySearch, SearchEnd
from modeldyno.serving.load.load_curve import LoadCurve, LoadPoint
from modeldyno.serving.loadtest import series as loadtest_series
from modeldyno.stores.catalog import list_documents
from modeldyno.stores.lookup import find_conclusion
from modeldyno.testing.sample_results import a_job
from modeldyno.testing.sample_series import a_capacity, a_ladder
from modeldyno.testing.server import serve_in_subprocess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.cli.conftest import CommandResult

SHORT = ("--input", "x=1x4", "--max-time", "1.5s", "--min-time", "0.3s", "--precision", "50%")
SURE = (*SHORT, "--max-time", "20s", "--precision", "90%", "--percentile", "p50")
"""Until the median is certified, which takes long on a busy machine."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Run a server that takes 5 ms for each request."""
    with serve_in_subprocess("--service", "constant:0.005") as running:
        yield f"http://127.0.0.1:{running.port}#echo"


@pytest.fixture(autouse=True)
def _store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODELDYNO_STORE", f"sqlite:///{tmp_path}/store.db")


def run(*arguments: str) -> int:
    """Run the command; return its exit code."""
    with pytest.raises(SystemExit) as left:
        main(["load", *arguments])
    code = left.value.code
    return code if isinstance(code, int) else 0


def test_a_url_is_put_under_load(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One command gives the rate, the latency and the stages of a request."""
    assert run(url, "-c", "2", *SHORT) == 0
    output = capsys.readouterr().out
    assert "requests/s at concurrency 2" in output
    assert "Where a request spends its time" in output
    assert "closed loop" in output


def test_a_bound_that_is_broken_is_the_exit_code(url: str) -> None:
    """A bound that cannot hold gives 1."""
    assert run(url, *SHORT, "--require", "throughput >= 1000000000/s", "-q") == 1


def test_a_ladder_is_told_with_its_knee(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Several concurrencies give one table and one document."""
    path = tmp_path / "ladder.json"
    page = tmp_path / "ladder.html"
    assert run(url, "-c", "1,2", *SHORT, "--json", str(path), "-o", str(page)) == 0
    assert "Throughput by load" in page.read_text(encoding="ascii")
    result = capsys.readouterr().out
    assert result.startswith("At most 2 loads of 1.5 s each, about 3 s in all; --max-time shortens it.\n")
    assert "Throughput and latency under each load" in result
    assert [rung["load"] for rung in json.loads(path.read_text())["rungs"]] == [1, 2]


@pytest.mark.slow
def test_a_ladder_is_found_again_in_the_store(
    url: str, tmp_path: Path, modeldyno: Callable[..., CommandResult]
) -> None:
    """A load curve is listed, shown, reported and removed by its id; its results stay."""
    criteria = ("--demand", "1000/s", "--price", "$1/h")
    arguments = ("--require", "latency.p50 <= 60s", *criteria, "--json", "ladder.json")
    output = plain(modeldyno("load", url, "-c", "1,2", *SHORT, *SURE, *arguments).out)
    document = json.loads((tmp_path / "ladder.json").read_text())
    own = document["id"]
    assert f"Stored as {own}; for a report: modeldyno report {own[:6]}" in output
    assert f"needs {document['provision']['replicas']:,} replica" in output
    assert document["expense"]["per_hour"] == document["provision"]["replicas"]

    assert own[:6] in modeldyno("list").out
    assert plain(modeldyno("show", own[:6], *criteria).out) in output
    assert json.loads(modeldyno("show", own[:6], "--json", *criteria).out) == document
    assert modeldyno("report", own[:6], "-o", "ladder.html").code == 0
    assert "Throughput by load" in (tmp_path / "ladder.html").read_text(encoding="ascii")
    assert modeldyno("report", "ladder.json", "-o", "ladder.csv").code == 0
    assert "request_rate" in (tmp_path / "ladder.csv").read_text(encoding="utf-8")
    assert "a load series" in modeldyno("show", own[:6], "--get", "latency.p50").err
    assert "is a ladder; export its results" in modeldyno("export", own[:6], "--to", "perfetto:x.json").err
    assert modeldyno("rm", own[:6]).out == f"removed {own}\n"
    left = modeldyno("list").out
    assert own[:6] not in left
    assert document["rungs"][0]["result"][:6] in left


def plain(text: str) -> str:
    """Return the text without line breaks."""
    return " ".join(text.split())


@pytest.mark.parametrize("quiet", [False, True])
@pytest.mark.parametrize(
    ("again", "code", "message"),
    [
        ((0.4, 0.6), 0, "another measurement confirms it"),
        ((1.9, 2.1), 1, "another measurement broke it"),
        ((0.9, 1.1), 5, "another measurement is undecided: too close to the bound to be sure"),
    ],
)
def test_what_verifies_a_search_decides_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], again: tuple[float, float],
    code: int, message: str, quiet: bool,
) -> None:  # fmt: skip
    """A load that first held and then broke its bound is not recommended; nor an undecided one."""
    bound = Constraint.parse("latency.p50 <= 1s")
    passed, checked = (
        LoadPoint(load=2, judgements=(bound.on(Answer(query=bound.query, value=low + 0.1, interval=ends)),))
        for low, high in ((0.4, 0.6), again)
        for ends in (Interval(low=low, high=high),)
    )
    result = Capacity(
        search=CapacitySearch(bounds=(bound,)),
        rungs=(passed,),
        end=SearchEnd.LARGEST,
        passed=2.0,
        failed=None,
        verified=checked,
        ours=False,
    )
    outcome = JudgedResult(
        result=empty_result(Job(model=ModelRef(scheme="url", locator="m"), backend="remote"))
    )
    monkeypatch.setattr(loadtest_series, "measure_loads", lambda *_words, **_more: iter([(outcome, result)]))
    arguments = ("--find-load", "--require", str(bound), "--no-store", *(("-q",) if quiet else ()))
    assert run("http://127.0.0.1:1#m", *arguments) == code
    output = " ".join(capsys.readouterr().out.split())
    assert "Concurrency 2 holds" in output
    assert (message in output) is (code != 0 or not quiet)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--rate", "5", "--replay", "x"), "give one of them"),
        (("-c", "4,2"), "'4,2' is not a ladder"),
        (("-c", "1,2", "--find-load"), "exclude each other"),
        (("--rate", "1,2", "--find-load"), "Several values of --rate and --find-load exclude each other"),
        (("--rate", "1,2", "-c", "1,2"), "Several rates and several values of --concurrency exclude"),
        (("--rate", "2,1"), "is not up to 64 rising rates"),
        (("--find-load",), "--find-load needs a bound"),
        (("--resume", "1add"), "has its model; drop http"),
        (("--rerank", "1add"), "has its model; drop http"),
        (("--header", "nonsense"), "--header takes 'Name: value'"),
        (
            ("--header", "Authorization: Bearer $ABSENT_TOKEN"),
            "'Authorization' names an environment variable",
        ),
        (("-c", "1,2", "--records", "x.csv"), "--records holds the requests of one load"),
        (("--records", "requests.txt"), "cannot be written as '.txt'"),
        (("-c", "0"), "not a ladder"),
        (("--rate", "5:poison"), "did you mean 'poisson'"),
        (("-c", "1,2", "-o", "x.docx"), "No reporter writes"),
    ],
)
def test_wrong_words_are_refused(
    url: str, arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Invalid requests are refused in one sentence, with code 2, before anything is sent."""
    assert run(url, *arguments) == 2
    assert message in capsys.readouterr().err


def test_a_load_needs_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    """Or a series to go on with."""
    assert run() == 2
    assert "A load needs a MODEL" in capsys.readouterr().err


@pytest.mark.slow  # tests/serving/loadtest/test_resume.py goes on within this process
def test_a_killed_ladder_goes_on(url: str, tmp_path: Path, modeldyno: Callable[..., CommandResult]) -> None:
    """After kill -9 only the load that was being measured is measured again."""
    arguments = ("load", url, "-c", "1,2,4", *SHORT, "--duration", "0.5s")
    environment = {**os.environ, "MODELDYNO_STORE": f"sqlite:///{tmp_path}/store.db"}
    process = subprocess.Popen(
        [sys.executable, "-m", "modeldyno", *arguments], env=environment, stdout=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 120
    with plugins.store() as store:
        while not (entries := store.conclusions()) and time.monotonic() < deadline:
            time.sleep(0.02)
    process.kill()
    process.wait()
    [entry] = entries
    before = find_conclusion(entry.id)
    assert isinstance(before, LoadCurve)

    resumed = modeldyno("load", "--resume", entry.id[:6], "--json", "whole.json", "--demand", "1/s")
    assert resumed.code == 0
    assert resumed.out.startswith("At most ")
    whole = json.loads((tmp_path / "whole.json").read_text())
    assert [rung["load"] for rung in whole["rungs"]] == [1, 2, 4]
    assert [rung["result"] for rung in whole["rungs"]][: len(before.rungs)] == [
        rung.result for rung in before.rungs
    ]
    again = plain(modeldyno("load", "--resume", entry.id[:6]).out)
    assert "Nothing more was measured: every load that was asked for is measured" in again
    refused = modeldyno("load", "--resume", entry.id[:6], "--requests", "9", "--backend", "triton")
    assert refused.code == 2
    assert "cannot change --backend, --requests; only --concurrency and --require can." in refused.err
    assert "drop --no-store" in modeldyno("load", "--resume", entry.id[:6], "--no-store").err
    assert "exclude each other" in modeldyno("load", "--resume", "x", "--rerank", "y").err


@pytest.mark.slow  # as tests/serving/loadtest/test_resume.py, which also ranks anew
def test_a_ladder_is_judged_by_other_bounds(url: str, modeldyno: Callable[..., CommandResult]) -> None:
    """It says which load holds, in the words of a search, and how to go on from there."""
    assert modeldyno("load", url, "-c", "1,2", *SURE).code == 0
    [entry] = list_documents().conclusions
    reranked = modeldyno("load", "--rerank", entry.id, "--require", "latency.p50 <= 60s")
    output = plain(reranked.out)

    assert "Concurrency 2 holds latency.p50 <= 60 s, and no load was found that breaks it" in output
    assert "stored loads were judged, and nothing more was measured" in output
    assert f"modeldyno load --resume {entry.id[:6]} --find-load --require 'latency.p50 <= 60 s'" in output
    assert reranked.code == 5
    assert [each.id for each in list_documents().conclusions] == [entry.id]
    assert modeldyno("load", "--rerank", entry.id, "--require", "latency.p50 <= 1us", "-q").code == 1
    result = modeldyno(
        "load", "--resume", entry.id, "--find-load", "--most", "2", "--require", "latency.p50 <= 60s"
    )
    assert result.code == 0
    assert result.out.startswith("At most ")
    assert "Concurrency 2 holds latency.p50 <= 60 s" in plain(result.out)
    assert "another measurement confirms it" in plain(result.out)
    search, _ = list_documents().conclusions
    ended = modeldyno("load", "--resume", search.id, "--header", "A: b")
    assert "Nothing more was measured: the search had ended." in plain(ended.out)


def test_the_estimate_of_a_series_is_of_the_durations_that_were_asked_for() -> None:
    """A steady window of 2 s and a ramp of 1 s take 3 s each, whatever the plan allows."""
    ladder = a_ladder()
    job = replace(a_job(), load=Load(concurrency=1, duration=2.0, ramp=1.0))
    series = replace(ladder, job=job, loads=(1, 64), rungs=())

    assert (
        describe_duration(series) == "At most 2 loads of 3 s each, about 6 s in all; --duration shortens it."
    )


@pytest.mark.parametrize(
    ("series", "sentence"),
    [
        (replace(a_capacity(), end=SearchEnd.MEASUREMENTS), "the limit of 10 measurements is reached"),
        (replace(a_ladder(), loads=(1, 64)), "to measure it anyway: -c 64"),
    ],
)
def test_why_nothing_more_is_measured(series: LoadCurve | Capacity, sentence: str) -> None:
    """The reason says what to give for more."""
    assert sentence in explain_end(series)


@pytest.mark.slow
def test_a_header_is_sent_and_in_no_document(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token reaches the server, but neither the document nor the store."""
    monkeypatch.setenv("MODELDYNO_HEADERS", "")
    monkeypatch.setenv("TOKEN", "s3cr3t-of-the-test")
    path = tmp_path / "out.json"
    assert run(url, *SHORT, "--header", "Authorization: Bearer $TOKEN", "--json", str(path)) == 0
    assert b"s3cr3t-of-the-test" not in path.read_bytes()
    assert all(b"s3cr3t-of-the-test" not in each.read_bytes() for each in tmp_path.glob("store.db*"))


def test_the_rates_of_a_language_model_are_those_of_its_clock(
    modeldyno: Callable[..., CommandResult], tmp_path: Path
) -> None:
    """A chat of 16 tokens takes 0.2 s, whatever the phase in which its window begins."""
    with serve_in_subprocess("--service", "constant:0.05", "--workers", "64", "--pace", "0.01") as server:
        url = f"http://127.0.0.1:{server.port}#echo,protocol=openai"
        shape = ("--set", "endpoint=chat", "--set", "max_tokens=16", "-c", "4")
        outcome = modeldyno("load", url, *shape, "--duration", "1.2s", "--json", "load.json")
    assert outcome.code == 0
    document = json.loads((tmp_path / "load.json").read_text())
    values = {each["metric"]: each["value"] for each in document["measurements"] if not each["scope"]}
    seconds = values["service_time"]["certificate"]["mean"]

    assert 0.2 <= seconds < 0.4
    assert values["request_rate"] == pytest.approx(4 / seconds, rel=0.03)
    assert values["token_rate"] == pytest.approx(64 / seconds, rel=0.03)


def test_a_search_announces_no_more_than_its_loads_may_take(url: str) -> None:
    """All loads together take as long as ``--max-time`` says, the verification included."""
    request = Request(
        model=url, backend="remote", settings={}, inputs=("x=1x4",), probes=("load",), load=Load(),
        require=("latency.p99 <= 1s",), plan=Plan(max_time=15.0),
    )  # fmt: skip
    search = loadtest_series.begin_search(request)

    assert search.job is not None
    assert search.search.max_time == search.search.patience * search.job.plan.max_time == 15.0
    assert describe_duration(search) == "At most 10 loads and a verification, within about 15 s (--max-time)."


def test_of_a_number_of_requests_no_time_is_told() -> None:
    """Nobody knows how long they take before the first has been answered."""
    job = replace(a_job(), load=Load(concurrency=1, requests=1500), plan=Plan(may_extend=True))
    series = replace(a_ladder(), job=job, loads=(1, 2, 64), rungs=())

    assert describe_duration(series) == "3 loads of 1,500 requests each, however long they take."


@pytest.mark.parametrize(
    ("bounds", "longer"),
    [
        ((), "longer where an answer takes seconds"),
        ((Constraint.parse("latency.p95 <= 50ms"),), "up to 10 min each while a bound is open"),
        ((Constraint.parse("throughput >= 5/s"),), "longer where an answer takes seconds"),
    ],
)
def test_the_estimate_says_when_loads_take_longer(bounds: tuple[Constraint, ...], longer: str) -> None:
    """If nobody said how long they may take; a bound on a percentile is waited for."""
    job = replace(a_job(), plan=replace(a_job().plan, may_extend=True, max_time=20.0))
    series = replace(a_ladder(), job=job, loads=(1, 2, 64), rungs=(), bounds=bounds)

    assert describe_duration(series) == f"3 loads, about 60 s in all, {longer} (--max-time)."
