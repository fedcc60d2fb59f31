"""``modeldyno plugins new``: the package that it writes works, is installed, and passes its tests."""

from __future__ import annotations

import ast
import re
import tomllib
from typing import TYPE_CHECKING

import pytest
from tests.support.installed_plugins import run_beside
from tests.support.packages import built_wheel

from modeldyno.base import plugins

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import CommandResult


@pytest.mark.parametrize("kind", plugins.KINDS)
def test_a_new_package_has_its_own_name_throughout(
    kind: str, tmp_path: Path, modeldyno: Callable[..., CommandResult]
) -> None:
    """Nothing of the example's name is left in it, and its plugin imports `modeldyno.plugin` alone."""
    folder = tmp_path / "my-plugin"
    written = modeldyno("plugins", "new", "my-plugin", "--kind", kind, "-o", str(folder))

    assert written.code == 0, written.err
    settings = tomllib.loads((folder / "pyproject.toml").read_text())
    assert "my-plugin" in settings["project"]["entry-points"][f"modeldyno.{plugins.plural(kind)}"]
    texts = {path: path.read_text() for path in folder.rglob("*.*") if path.is_file()}
    assert not [path for path, text in texts.items() if re.search("dyno.plugins", f"{path} {text}")]
    assert (folder / "tests" / f"test_{kind}.py") in texts
    for path in (folder / "src").rglob("*.py"):
        modules = [
            node.module for node in ast.walk(ast.parse(texts[path])) if isinstance(node, ast.ImportFrom)
        ]
        assert {module for module in modules if str(module).startswith("modeldyno")} <= {"modeldyno.plugin"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", plugins.KINDS)
def test_a_new_package_is_installed_and_passes_its_tests(
    kind: str, tmp_path: Path, modeldyno: Callable[..., CommandResult]
) -> None:
    """As its author does it; the list of plugins has it then."""
    folder = tmp_path / "my-plugin"
    modeldyno("plugins", "new", "my-plugin", "--kind", kind, "-o", str(folder))
    site = built_wheel(tmp_path / "built", folder, "my-plugin")
    words = ("-q", "--no-cov", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", str(folder))
    tried = run_beside(site, "-m", "pytest", *words, str(folder / "tests"), cwd=tmp_path)

    assert tried.returncode == 0, tried.stdout[-4000:]
    assert " passed" in tried.stdout
    listed = run_beside(site, "-m", "modeldyno", "plugins", plugins.plural(kind), cwd=tmp_path)
    assert re.search(r"^  my-plugin\b", listed.stdout, re.MULTILINE), listed.stdout + listed.stderr


def test_several_kinds_make_one_package(tmp_path: Path, modeldyno: Callable[..., CommandResult]) -> None:
    """A converter brings the loader of what it writes; two tables of metrics do not have one name."""
    folder = tmp_path / "trio"
    words = [word for kind in ("converter", "probe", "sampler") for word in ("--kind", kind)]

    assert modeldyno("plugins", "new", "trio", *words, "-o", str(folder)).code == 0
    groups = tomllib.loads((folder / "pyproject.toml").read_text())["project"]["entry-points"]
    assert groups == {
        "modeldyno.loaders": {"trio": "trio.loader:TrioLoader"},
        "modeldyno.probes": {"trio": "trio.probe:TrioProbe"},
        "modeldyno.samplers": {"trio": "trio.sampler:TrioSampler"},
        "modeldyno.converters": {"trio": "trio.converter:TrioConverter"},
        "modeldyno.metrics": {
            "trio-probe": "trio.probe:METRICS",
            "trio-sampler": "trio.sampler:METRICS",
        },
    }


@pytest.mark.parametrize(
    ("name", "kind", "says"),
    [
        ("Mine", "probe", "'Mine' cannot name a package"),
        ("class", "probe", "'class' cannot name a package"),
        ("json", "probe", "There is a module 'json' here"),
        ("latency", "probe", "There is a probe 'latency'"),
        ("first-call", "sampler", "There is a metric 'first_call'"),
        ("mine", "probes", "did you mean 'probe'?"),
    ],
)
def test_a_package_that_cannot_be_is_refused(
    modeldyno: Callable[..., CommandResult], tmp_path: Path, name: str, kind: str, says: str
) -> None:
    """With one sentence, before anything is written."""
    refused = modeldyno("plugins", "new", name, "--kind", kind, "-o", str(tmp_path / "new"))

    assert (refused.code, says in refused.err) == (2, True), refused.err
    assert not (tmp_path / "new").exists()


def test_what_is_there_is_not_overwritten(modeldyno: Callable[..., CommandResult], tmp_path: Path) -> None:
    """A folder that exists is refused."""
    refused = modeldyno("plugins", "new", "mine", "--kind", "probe", "-o", str(tmp_path))

    assert "exists; give another folder" in refused.err
