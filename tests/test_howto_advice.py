"""What the pages on making a model faster, following it and planning capacity claim."""

from __future__ import annotations

import json
import re
import shlex
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import modeldyno
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.cli import advise as advise_command
from modeldyno.cli import cli, main
from modeldyno.cli.documents import trend_command
from modeldyno.comparison.change.advice import Advice
from modeldyno.profiling.findings.rules import RULES
from modeldyno.testing.sample_results import a_small_result
from modeldyno.testing.server import serve_in_subprocess

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.base.job.job import Job
    from modeldyno.comparison.advise import AdviseOptions
    from modeldyno.engine.runtime.session import RunSession

ROOT = Path(__file__).parents[1]
DIGITS = str(ROOT / "examples" / "digits" / "digits.onnx")
QUICK = (
    "--findings-only",
    "--max-time",
    "1s",
    "--run-time",
    "0.5s",
    "--min-time",
    "0.05s",
    "--precision",
    "30%",
)


def page(name: str) -> str:
    return (ROOT / "docs" / "howto" / name).read_text(encoding="utf-8")


def commands(name: str) -> list[list[str]]:
    """The commands of a page, without the name of the program."""
    lines = re.findall(r"^\$ modeldyno (.*)$", page(name), re.MULTILINE)
    assert lines
    return [shlex.split(line) for line in lines]


@pytest.fixture(autouse=True)
def _store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODELDYNO_STORE", f"sqlite:///{tmp_path}/store.db")


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    code = left.value.code
    return code if isinstance(code, int) else 0


def test_every_finding_has_its_row() -> None:
    """The table of the page and that of the code name the same."""
    rows = re.findall(r"^\| (`.*`) \|", page("make-it-faster.md"), re.MULTILINE)
    assert {code for row in rows for code in re.findall(r"`([a-z0-9-]+)`", row)} == set(RULES)


@pytest.mark.pages
@pytest.mark.timeout(600)
def test_a_model_is_advised(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command tries what was found, in fresh processes, and tells what came of it."""
    name = "modeldyno.comparison.advise_session._FIRST_LOOK_TIMEOUT_SHARE"
    monkeypatch.setattr(name, 1.0)  # a busy machine may be slow without hanging
    path = tmp_path / "advice.json"
    assert run("advise", DIGITS, *QUICK, "--max-time", "25s", "--json", str(path)) == 0

    output = capsys.readouterr().out
    assert "\nTried, " in output
    assert max(map(len, output.splitlines())) <= 80 + len(str(path))
    document = json.loads(path.read_text())
    assert document["baseline"]["job"]["backend"] == "onnxruntime"
    assert document["tried"][0]["change"]["outcome"]
    assert {finding["code"] for finding in document["findings"]} <= set(RULES)
    (arguments,) = (arguments for arguments in commands("make-it-faster.md") if arguments[0] == "advise")
    advise_command.command.make_context("advise", arguments[1:], **cli.context_settings)


def test_a_model_is_advised_from_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """The words become the job and the wish; a live object has no process of its own."""
    plan = Plan(min_time=0.05, max_time=0.5, precision=0.3)

    def advised(job: Job, wish: AdviseOptions, bench: RunSession) -> Iterator[Advice]:
        assert callable(bench.execute)
        assert (wish.max_time, wish.space, str(wish.query)) == (1.0, False, "throughput")
        assert job.plan == plan
        yield Advice(
            id="a",
            created="now",
            query=wish.query,
            tolerance=wish.tolerance,
            baseline=a_small_result(job=job),
        )

    monkeypatch.setattr("modeldyno.comparison.advise.advise", advised)
    advice = modeldyno.advise(DIGITS, max_time="1s", findings_only=True, plan=plan, batch_size=4)
    assert advice.baseline.job.model.locator == DIGITS
    assert advice.baseline.job.config["batch_size"] == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--metric", "weight_bytes"), "is not a metric that advise can improve"),
        (("--tolerance", "-1%"), "--tolerance -1%: it must be 0 or more"),
        (("--backend", "triton"), "the findings of a load's result say what to try"),
    ],
)
def test_what_cannot_be_advised_is_one_sentence(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is measured."""
    assert run("advise", DIGITS, *arguments) == 2
    assert message in capsys.readouterr().err


def test_the_words_of_trend_are_known() -> None:
    """Each command of the page is one that the command line takes."""
    for arguments in commands("follow-a-model.md"):
        assert arguments[0] == "trend"
        trend_command.make_context("trend", arguments[1:], **cli.context_settings)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server that takes 50 ms for each request, four at once: long enough for a busy client to keep up."""
    with serve_in_subprocess("--service", "constant:0.05", "--workers", "4") as running:
        yield f"127.0.0.1:{running.port}"


SHORT = ("--max-time", "6s", "--min-time", "0.3s", "--precision", "50%", "--percentile", "p50")


@pytest.mark.pages
@pytest.mark.timeout(600)
def test_a_curve_says_how_many_replicas(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the load that gives most and holds its bound, with what they cost."""
    (arguments,) = (arguments for arguments in commands("plan-capacity.md") if arguments[0] == "load")
    there = [word.replace("127.0.0.1:8000", url) for word in arguments]
    swapped = ["1,2" if before == "--concurrency" else word for before, word in pairwise(["", *there])]
    wide = [word.replace("latency.p95 <= 200ms", "error_rate <= 50%") for word in swapped]
    assert run(*wide, *SHORT) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert re.search(r"5,000/s needs \d+ replicas", output)
    assert "within error_rate" in output, output
    assert "per hour" in output


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_stored_load_answers_too(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Replicas under its bounds, and what requests cost; bounds that do not hold answer nothing."""
    path = str(tmp_path / "load.json")
    address = f"http://{url}#echo"
    assert run("load", address, "--input", "x=1x4", "-c", "2", *SHORT, "--price", "1/h", "--json", path) == 0
    assert "million inferences" in capsys.readouterr().out
    question = ("show", path, "--demand", "5000/s", "--require")
    assert run(*question, "error_rate <= 50%") == 0
    assert "5,000/s needs" in capsys.readouterr().out
    assert run(*question, "latency.p50 <= 1us") == 2
    output = " ".join(capsys.readouterr().err.split())
    assert "The number of replicas is unknown, because latency.p50 <= 1 us" in output
    assert run("show", path, "--findings") == 0
    assert "limited by" in capsys.readouterr().out


def test_what_no_curve_answers_is_refused_before_it_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    """A demand without a bound, and what is neither a demand nor a price."""
    where = ("load", "http://127.0.0.1:1#m", "-c", "1,2")
    for arguments, message in (
        (("--demand", "10/s"), "needs a bound that each replica must hold"),
        (("--demand", "10ms"), "--demand"),
        (("--price", "cheap"), "is not a price"),
    ):
        assert run(*where, *arguments) == 2
        assert message in capsys.readouterr().err
