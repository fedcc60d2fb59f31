"""examples/plugins: a package with a plugin of each kind, built, installed and used as people would."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from pathlib import Path

import pytest
from tests.support.installed_plugins import run_beside
from tests.support.packages import built_wheel

from modeldyno.base import plugins

PACKAGE = Path(__file__).parent.parent / "examples" / "plugins"
MODULES = sorted((PACKAGE / "src" / "dyno_plugins").glob("*.py"))
NET = """import torch


def make():
    torch.manual_seed(0)
    return torch.nn.Linear(4, 2).eval(), torch.ones(2, 4)
"""
QUICK_SUITES = "TestSampler or TestExporter"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build its wheel, and install it into a folder of its own."""
    return built_wheel(tmp_path_factory.mktemp("example"), PACKAGE, "dyno-plugins")


def test_it_has_a_plugin_of_each_kind() -> None:
    """And says so in its pyproject.toml."""
    groups = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]["entry-points"]

    assert {f"modeldyno.{plugins.plural(kind)}" for kind in plugins.KINDS} <= groups.keys()


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_its_modules_import_modeldyno_plugin_alone(module: Path) -> None:
    """Nothing else of ModelDyno, nor each other."""
    tree = ast.walk(ast.parse(module.read_text(encoding="utf-8")))
    imported = {node.module or "" for node in tree if isinstance(node, ast.ImportFrom)}

    assert {name for name in imported if name.startswith(("modeldyno", "dyno_plugins"))} <= {
        "modeldyno.plugin"
    }


@pytest.mark.parametrize("suites", [QUICK_SUITES, pytest.param("", id="all", marks=pytest.mark.slow)])
def test_its_plugins_pass_their_suites(site: Path, tmp_path: Path, suites: str) -> None:
    """As its author runs them."""
    words = ("-q", "--no-cov", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", str(PACKAGE))
    done = run_beside(site, "-m", "pytest", *words, "-k", suites, str(PACKAGE / "tests"), cwd=tmp_path)

    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout


def test_a_layer_is_loaded_measured_kept_and_reported_by_them(site: Path, tmp_path: Path) -> None:
    """By the loader, the backend, the probe, the sampler, the store and the reporter."""
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "m.linear").write_text(json.dumps({"linear": {"weights": [[1, 2], [3, 4]], "bias": [0, 1]}}))
    done = run_beside(
        site, "-m", "modeldyno", "profile", "m.linear", "--probe", "latency", "--backend", "repeated",
        "--set", "times=2", "--require", "call_evenness > 0", "--max-time", "1s", "--json", "m.json",
        "-o", "m.badge", cwd=tmp_path, MODELDYNO_STORE="project://",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "m.json").read_text())
    measured = {measurement["metric"] for measurement in result["measurements"]}

    assert result["job"]["backend"] == "repeated"
    assert {"latency", "call_evenness", "load_average"} <= measured
    assert "call_evenness" in done.stdout
    assert json.loads((tmp_path / "m.badge").read_text())["message"].endswith("s")
    assert (tmp_path / ".modeldyno" / "store.db").is_file()


@pytest.mark.slow
def test_the_others_are_used_by_the_commands_of_their_kinds(site: Path, tmp_path: Path) -> None:
    """The converter, the exporter, the strategy and the importer; and all are listed."""
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "pyproject.toml").touch()

    def run(*words: str) -> str:
        done = run_beside(site, "-m", "modeldyno", *words, cwd=tmp_path, MODELDYNO_STORE="project://")
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("convert", "net.py:make", "--to", "linear", "-o", "forms")
    (layer,) = tmp_path.glob("forms/**/model.linear")
    run("sweep", str(layer), "--strategy", "shuffled", "--backend", "repeated", "--space", "times=1,2",
        "--max-trials", "2", "--max-time", "20s", "--json", "study.json")  # fmt: skip
    study = json.loads((tmp_path / "study.json").read_text())
    assert study["strategy"] == "shuffled"
    trial = study["trials"][0]["result"]
    run("export", trial, "--to", "json-lines:history.jsonl")
    assert json.loads((tmp_path / "history.jsonl").read_text())["id"] == trial
    assert "hey" in run("import", str(PACKAGE / "tests" / "importer.csv"))
    listed = " ".join(run("plugins").split())
    assert all(re.search(rf"\b{name}\b", listed) for name in ("plain-json", "load-average", "project"))
