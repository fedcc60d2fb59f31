"""What the page on explaining a latency claims."""

from __future__ import annotations

import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.sample_explanations import LOADED, a_served_result

import modeldyno
from modeldyno.base import plugins
from modeldyno.base.metrics.doubt import CODES
from modeldyno.cli import cli, main
from modeldyno.cli import explain as module
from modeldyno.serving.load import explanation
from modeldyno.serving.load.explanation import HopName
from modeldyno.serving.loadtest.explanation import CONCURRENCY, MAX_TIME, ROUNDS
from modeldyno.serving.views.explanation import headline
from modeldyno.testing.server import serve_in_subprocess

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "howto" / "explain-a-latency.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\$ modeldyno explain (.*)$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_is_understood(line: str) -> None:
    """Its words are those of the command."""
    context = module.command.make_context("explain", shlex.split(line), **cli.context_settings)

    assert context.params["model"]


def test_the_numbers_are_those_of_the_code() -> None:
    """Rounds, time, and the share from which rests are doubted."""
    assert (ROUNDS, MAX_TIME, CONCURRENCY) == (3, 120.0, 4)
    assert "above 3 %" in PAGE
    assert explanation._UNEXPLAINED == 0.03
    assert {"negative-hop", "large-rest"} <= CODES.keys()


def test_every_hop_is_told() -> None:
    """The table has a row for each."""
    table = PAGE[PAGE.index("| hop |") : PAGE.index("Under load, a hop")]

    assert all(str(name) in table for name in HopName)


def test_the_change_is_told_as_the_page_shows_it() -> None:
    """The sentence of two results."""
    before, after = (
        a_served_result({**LOADED, **stages}, 4) for stages in ({}, {"queue": 12.6, "compute": 6.0})
    )
    sentence = headline(modeldyno.explain(before, after)).removeprefix("onnx:models/")

    assert sentence.replace("mini.onnx", "mini") in " ".join(PAGE.split())


@pytest.fixture
def page_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the examples, and a store with the two results that the page compares."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.setenv("MODELDYNO_STORE", f"sqlite:///{tmp_path}/store.db")
    monkeypatch.chdir(tmp_path)
    with plugins.store() as store:
        for number, (tag, queue) in enumerate((("BEFORE", 9.0), ("AFTER", 13.0))):
            result = a_served_result({**LOADED, "queue": queue}, 4)
            store.put(replace(result, id=f"{number}" * 12), headline="")
            store.tag(f"{number}" * 12, add=(tag,))
    return tmp_path


def run(line: str) -> int:
    """Run a command of the page; return its exit code."""
    with pytest.raises(SystemExit) as left:
        main(shlex.split(line))
    assert isinstance(left.value.code, int)
    return left.value.code


@pytest.mark.pages
@pytest.mark.usefixtures("page_folder")
def test_the_commands_of_the_page_work(capsys: pytest.CaptureFixture[str]) -> None:
    """Those that need no engine, in a short time."""
    served = [line for line in COMMANDS if "triton" not in line]
    assert len(served) == 3
    with serve_in_subprocess("--service", "constant:0.002") as running:
        for line in served:
            there = line.replace("localhost:8000", f"127.0.0.1:{running.port}")
            assert run(f"explain {there} --rounds 1 --max-time 5s") == 0, line
    explained = re.findall(r"Stored as (\w+)", capsys.readouterr().out)[0]
    for line in re.findall(r"^\$ modeldyno (report .*)$", PAGE, re.MULTILINE):
        assert run(line.replace("RESULT", explained)) == 0
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(code, {})


@pytest.mark.engine
@pytest.mark.usefixtures("page_folder")
def test_the_hops_of_a_model_on_triton_add_up() -> None:
    """The digits, served by the real engine: every stage is known by time stamps, and nothing is left.

    The server's counters are of all requests, and those of the traced ones agree with them.
    """
    explained = modeldyno.explain(
        "examples/digits/digits.onnx", backend="triton", rounds=1, max_time=20, threads=1
    )
    hop_times = {hop.label: hop.time for hop in explained.hops}
    assert [label for label, time in hop_times.items() if time is None] == []
    assert sum(time.seconds for time in hop_times.values() if time) == pytest.approx(explained["under load"])
    assert explained.missing == {}
    assert explained["way to the client"] > 0
    served = sum(abs(explained[f"rest {level}"]) for level in ("served alone", "under load"))
    assert served < 0.03 * explained["under load"]
    loaded = explained.results["under load"]
    for stage, counter in (("queue", "queue_time"), ("server compute", "compute_time")):
        assert loaded[f"stage_time@{stage}"] == pytest.approx(loaded[counter], rel=0.5)


@pytest.mark.engine
@pytest.mark.usefixtures("page_folder")
def test_without_a_trace_the_echo_tells_the_protocol() -> None:
    """As of a server that cannot trace; the counters are means of all requests."""
    explained = modeldyno.explain(
        "examples/digits/digits.onnx", backend="triton", rounds=1, max_time=20, request_trace=False
    )
    labels = {hop.label for hop in explained.hops}
    assert {"protocol", "rest served alone", "rest under load"} <= labels
    assert not {"way to the server", "way to the client"} & labels


@pytest.mark.engine
@pytest.mark.usefixtures("page_folder")
def test_a_model_on_triton_is_compared_with_results_of_before() -> None:
    """The command of the page, with the digits."""
    (line,) = [line for line in COMMANDS if "--baseline" in line]
    line = line.replace("minilm.onnx", "examples/digits/digits.onnx")
    assert run(f"explain {line} --rounds 1 --max-time 20s") == 0
