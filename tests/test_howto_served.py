"""The pages and recipes about servers under load, and about inspectors, run as they stand."""

from __future__ import annotations

import re
import runpy
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.registry import ANY_LOAD

import modeldyno
from modeldyno.cli import main
from modeldyno.compat import Profiler
from modeldyno.testing.server import serve_in_subprocess

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
HOWTO = ROOT / "docs" / "howto"
PLACE = "127.0.0.1:8000"
QUICK = '[load]\nmax_time = "2s"\nmin_time = "0.2s"\nprecision = "30%"\n'
COMMANDS = [
    (page, command)
    for page in ("load-a-server.md", "find-the-largest-load.md", "load-several-models.md")
    for block in re.findall(r"```console\n(.*?)```", (HOWTO / page).read_text(encoding="utf-8"), re.DOTALL)
    for command in re.findall(r"^\$ (modeldyno .*)$", block.replace("\\\n", " "), re.MULTILINE)
]

pytestmark = pytest.mark.pages


@pytest.fixture(scope="module")
def place() -> Iterator[str]:
    """Run the server that the pages speak of, where there is a free port."""
    with serve_in_subprocess("--service", "exponential:0.002", "--workers", "4") as running:
        yield f"127.0.0.1:{running.port}"


@pytest.fixture(autouse=True)
def _directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "modeldyno.toml").write_text(QUICK)
    monkeypatch.setenv("MODELDYNO_STORE", f"sqlite:///{tmp_path}/store.db")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_the_commands_of_the_pages_run(place: str, page: str, command: str) -> None:
    """Each is run for a shorter time than the page says, so that a bound may break, or stay undecided."""
    assert PLACE in command, page
    short = re.sub(r"--duration \S+", "--duration 0.5s", command.replace(PLACE, place))
    if "--find-load" in short:
        short += " --most 2"
    with pytest.raises(SystemExit) as left:
        main(shlex.split(short)[1:])
    allowed = {0, 1, 5} if "--require" in short else {0}
    assert left.value.code in allowed


@pytest.mark.filterwarnings("ignore::modeldyno.errors.UncertifiedWarning")
def test_the_page_on_inspectors_runs(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The class that it writes is measured, and the one that it need not write."""
    text = (HOWTO / "write-an-inspector.md").read_text(encoding="utf-8").replace(PLACE, place)
    own, ready_made = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, object] = {}
    exec(own, names)
    exec(ready_made, names)

    assert isinstance(names["profiler"], Profiler)
    assert capsys.readouterr().out.count("all batch throughput") == 2


@pytest.mark.filterwarnings("ignore::modeldyno.errors.UncertifiedWarning")
def test_the_client_of_the_page_for_users_of_modelci_runs(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is measured with one batch size, with two, and on each device that is idle."""
    monkeypatch.setattr("modeldyno.compat.server_profiler.IdleRule", lambda **_: ANY_LOAD)
    monkeypatch.setattr("modeldyno.engine.environment.device_lock._folder", lambda: tmp_path)
    text = (HOWTO / "come-from-modelci.md").read_text(encoding="utf-8").replace(PLACE, place)
    _, script = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {}
    exec(script, names)

    assert capsys.readouterr().err.count("all batch throughput") == 5
    assert [*names["by_size"]] == [1, 8]
    assert {device: [*sizes] for device, sizes in names["by_device"].items()} == {"cpu": [1, 8]}
    assert names["by_size"][8]["all_batch_throughput"] > names["by_size"][8]["request_rate"]


def test_the_recipe_for_an_inspector_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """It prints every figure of the document that inspectors come from."""
    runpy.run_path(str(ROOT / "examples" / "recipes" / "inspector.py"))
    output = capsys.readouterr().out

    assert "batch size: 8" in output
    assert "SLA: p95 <= 0.05 s: " in output


def test_the_recipe_for_a_load_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It tells of a closed loop and of an open one, against a server of its own."""
    recipe = ROOT / "examples" / "recipes" / "load.py"
    load = modeldyno.load
    monkeypatch.setattr(
        modeldyno, "load", lambda *arguments, **more: load(*arguments, **(more | {"duration": 0.5}))
    )
    monkeypatch.setattr(sys, "argv", [str(recipe)])
    runpy.run_path(str(recipe))
    output = capsys.readouterr().out

    assert "concurrency 4: " in output
    assert "200/s poisson: " in output
