from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from modeldyno.base import plugins
from modeldyno.base.errors import MissingExtra, UnknownName

HEAVY = ("numpy", "torch", "onnx", "onnxruntime", "transformers", "rich")


def test_importing_a_plugin_imports_no_framework() -> None:
    """The parent process can look at a plugin for nothing: all of them, one after the other."""
    code = (
        "import sys; from modeldyno.base import plugins\n"
        "for kind in ('loader', 'backend', 'probe', 'sampler'):\n"
        "    for name in plugins.names(kind):\n"
        "        plugins.resolve(kind, name)\n"
        f"        print(kind, name, [m for m in {HEAVY!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()

    assert len(lines) == sum(len(plugins.names(kind)) for kind in ("loader", "backend", "probe", "sampler"))
    assert [line for line in lines if not line.endswith("[]")] == []


@pytest.mark.parametrize("kind", plugins.KINDS)
def test_every_kind_has_plugins_that_resolve(kind: str) -> None:
    """What pyproject declares can be imported."""
    assert plugins.names(kind)
    assert all(plugins.resolve(kind, name) is not None for name in plugins.names(kind))


def test_an_unknown_plugin_is_refused_with_the_nearest() -> None:
    """A misspelt backend is told with the one that was meant."""
    with pytest.raises(UnknownName, match="did you mean 'onnxruntime'"):
        plugins.backend("onnxrunntime")


def test_what_is_like_nothing_gets_no_suggestion() -> None:
    """Three letters in common are no misspelling; what there is is listed."""
    message = str(UnknownName.among("object", "nope", ["compiled", "eager"]))
    assert message == "There is no object 'nope'; known: compiled, eager."


def test_a_missing_extra_says_what_to_install() -> None:
    """The sentence has the command to type."""
    with pytest.raises(
        MissingExtra, match="needs no_such_module; install it with: pip install no_such_module"
    ):
        plugins.require(("json", "no_such_module"), "model x")

    assert plugins.missing_message(("onnx",), "model x").endswith("pip install onnx onnxruntime")
    assert plugins.missing(("json.decoder", "no_such_module.part")) == ("no_such_module.part",)
    assert plugins.missing_message(("keras", "tensorflow"), "model x").endswith(
        "pip install keras tensorflow"
    )
    assert plugins.missing_message(("psycopg",), "store").endswith("pip install 'psycopg[binary]'")


def test_what_to_install_is_what_the_extras_declare() -> None:
    """A hint names packages, so that it works where ModelDyno is on no index; pyproject has the same ones."""
    path = Path(__file__).parents[1] / "pyproject.toml"
    extras = tomllib.loads(path.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    declared = {re.match(r"[\w-]+(?:\[\w+\])?", each)[0] for extra in extras.values() for each in extra}  # type: ignore[index]
    kinds = ("loader", "backend", "exporter", "strategy")
    plugged = (plugins.resolve(kind, name) for kind in kinds for name in plugins.names(kind))
    modules = {module for plugin in plugged for module in getattr(plugin, "requires", ())}
    hinted = {package for module in modules for package in plugins.PACKAGES.get(module, (module,))}

    assert {"onnx", "onnxruntime", "torch", "transformers", "optuna"} <= hinted
    assert hinted - {"scipy", "sqlalchemy"} <= declared
    without_extra = {"hummingbird-ml", "onnxconverter-common"}  # no installer finds them an onnx of today
    named = {package for packages in plugins.PACKAGES.values() for package in packages}
    assert named - without_extra <= declared
    assert not any("modeldyno" in package for package in hinted)


def test_a_part_that_is_gone_is_no_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a package has lost since it was installed is told apart from a package that is wanted."""
    entry = EntryPoint(name="gone", value="modeldyno.models.loaders.gone:x", group="modeldyno.loaders")
    monkeypatch.setattr(plugins, "_entry_points", lambda _kind: {"gone": entry})

    with pytest.raises(MissingExtra, match="modeldyno has changed since it was installed"):
        plugins.resolve("loader", "gone")


def test_python_that_a_model_has_emptied_is_no_fault_of_the_installation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is running cannot be missing: code that ran in this process has cleared `sys.path`."""

    class Gone:
        module = "modeldyno.models.loaders.onnx"

        def load(self) -> None:
            raise ModuleNotFoundError(name="modeldyno")

    monkeypatch.setattr(plugins, "_entry_points", lambda _kind: {"onnx": Gone()})
    with pytest.raises(MissingExtra, match=r"has emptied sys\.path or sys\.modules"):
        plugins.resolve("loader", "onnx")
