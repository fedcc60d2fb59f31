"""The pages and recipes about one's own functions and about ModelProfiler run as they stand."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import modeldyno
from modeldyno import Plan
from modeldyno.compat import model_profiler
from modeldyno.errors import UncertifiedWarning
from modeldyno.regions.recorder import profiled

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
QUICK = Plan(min_runs=11, max_runs=11, min_time=0.0, max_time=2.0, precision=0.9)


def blocks(page: str) -> list[str]:
    text = (ROOT / "docs" / "howto" / page).read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


@pytest.fixture(autouse=True)
def own_regions() -> Iterator[None]:
    """Leave no region of a page behind."""
    yield
    profiled.disable()
    profiled.reset()


@pytest.fixture
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory of its own, and fewer calls than a page asks for."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(model_profiler, "_with_run_counts", lambda _plan, _runs, _warmup: QUICK)


def test_the_page_on_functions_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its marks count what its loop does."""
    names: dict[str, object] = {"__name__": "__main__"}
    marks, use, operators = blocks("profile-your-own-functions.md")
    exec(marks, names)
    exec(operators, {"__name__": "__main__"})
    with monkeypatch.context() as patch:
        patch.setattr(profiled, "reset", lambda: None)
        exec(use, names)
    result = names["result"]

    assert isinstance(result, modeldyno.Result)
    assert (result["calls@tokenise"], result["calls@encode"]) == (20, 20)
    assert names["seconds"] == result["latency.mean@forward"]


def test_the_recipe_for_regions_runs(tmp_path: Path) -> None:
    """It is run by the command that it names."""
    recipe = ROOT / "examples" / "recipes" / "regions.py"
    command = [sys.executable, "-m", "modeldyno", "run", "--json", "out.json", str(recipe), "20"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    result = modeldyno.read(tmp_path / "out.json", modeldyno.Result)

    assert done.stdout == "20 different records\n"
    assert "regions.py spent" in done.stderr
    assert (result["calls@load"], result["calls@digest"]) == (12, 240)


@pytest.mark.pages
@pytest.mark.usefixtures("quick")
@pytest.mark.filterwarnings("ignore::modeldyno.base.errors.UncertifiedWarning")
def test_the_page_on_the_model_profiler_runs() -> None:
    """Its blocks run one after the other, and its files are written."""
    pytest.importorskip("torch")
    assert issubclass(UncertifiedWarning, UserWarning)
    names: dict[str, object] = {}
    for block in blocks("use-model-profiler.md"):
        exec(block, names)

    assert set(names["layers"]) == {"0", "2"}  # type: ignore[call-overload]
    assert modeldyno.store.read_all("profile.json")[-1].activity is not None
    assert Path("profile.csv").stat().st_size > 0


@pytest.mark.pages
@pytest.mark.usefixtures("quick")
@pytest.mark.filterwarnings("ignore::modeldyno.base.errors.UncertifiedWarning")
def test_the_recipe_for_the_model_profiler_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """Every configuration is told, and every linear layer."""
    pytest.importorskip("torch")
    runpy.run_path(str(ROOT / "examples" / "recipes" / "model_profiler.py"))
    output = capsys.readouterr().out

    assert output.count("batch_size") == 3
    assert output.count("Linear") == 2
