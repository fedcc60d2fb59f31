from __future__ import annotations

import subprocess
import sys
import sysconfig
import zipfile
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from modeldyno.base.errors import MissingExtra, RequestError, UnknownName
from modeldyno.serving.servers import install, triton

if TYPE_CHECKING:
    from pathlib import Path


def wheel(folder: Path, name: str, version: str) -> None:
    """Make a wheel with nothing in it."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": "",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)


@pytest.fixture
def tiny(engines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An engine named tiny that can be installed without any network; gives the directory of engines."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    wheel(wheels, "tinyengine", "1.0")
    wheel(wheels, "tinyextra", "2.0")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    recipe = install.InstallRecipe(
        name="tiny", title="Tiny", packages=("tinyengine==1.0",), options={"extra": ("tinyextra==2.0",)}
    )
    monkeypatch.setitem(install.RECIPES, "tiny", recipe)
    return engines


@pytest.mark.slow
def test_an_engine_is_installed_and_can_grow(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps are told, versions are kept, what fails leaves no receipt, and an option can be added later."""
    lines: list[str] = []
    recipe = install.RECIPES["tiny"]

    def interrupted(_folder: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setitem(install.RECIPES, "tiny", replace(recipe, finish=interrupted))
    with pytest.raises(KeyboardInterrupt):
        install.install_server("tiny", (), lines.append)
    assert install.find_installed("tiny") is None
    with pytest.raises(MissingExtra, match="modeldyno engine install tiny"):
        install.require_installed("tiny")

    monkeypatch.setitem(install.RECIPES, "tiny", recipe)
    again: list[str] = []
    installed = install.install_server("tiny", (), again.append)
    assert any(line.startswith("creating an environment") for line in lines)
    assert not any(line.startswith("creating an environment") for line in again)
    assert installed == install.find_installed("tiny")
    assert installed.versions["tinyengine"] == "1.0"
    assert set(installed.versions) == {"python", "tinyengine"}
    assert (installed.site / "tinyengine.py").exists()
    assert installed.environment["PATH"].startswith(str(tiny / "tiny" / "venv" / "bin"))
    assert install.directory_size(installed.folder) > 10_000

    assert install.install_server("tiny", ("extra",), again.append).versions["tinyextra"] == "2.0"
    monkeypatch.setitem(install.RECIPES, "tiny", replace(recipe, packages=("nosuchpackage==3",)))
    with pytest.raises(RequestError, match=r"Cannot install nosuchpackage==3: .*nosuchpackage==3"):
        install.install_server("tiny", (), again.append)


_PIP = """#!/bin/sh
case "$*" in *install*) ;; *) exit 0;; esac
echo "Collecting tinyengine==1.0"
test -e {folder}/tried && {then}
touch {folder}/tried
echo "ERROR: the connection was reset"
echo "ERROR: No matching distribution found for tinyengine==1.0."
exit 1
"""


@pytest.mark.parametrize("then", ["exit 0", "echo again"])
def test_pip_is_tried_twice_and_its_words_are_kept(tiny: Path, then: str) -> None:
    """A download that was cut off is tried once more; the last error is told, and where all of them are."""
    venv = tiny / "tiny" / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").write_text(_PIP.format(folder=tiny, then=then))
    (venv / "bin" / "python").chmod(0o755)
    lines: list[str] = []
    if then == "exit 0":
        install._pip(venv, ["tinyengine==1.0"], lines.append)
    else:
        with pytest.raises(RequestError) as caught:
            install._pip(venv, ["tinyengine==1.0"], lines.append)
        log = tiny / "tiny" / "install.log"
        assert str(caught.value) == (
            "Cannot install tinyengine==1.0: No matching distribution found for tinyengine==1.0; "
            f"what pip printed is in {log}."
        )
        assert log.read_text().count("the connection was reset") == 2
    assert lines[1] == "pip failed: No matching distribution found for tinyengine==1.0; trying again"


def test_what_is_no_engine(engines: Path) -> None:
    """A misspelt engine, and an option that it has not, are refused with the nearest."""
    del engines
    with pytest.raises(UnknownName, match="did you mean 'triton'"):
        install.install_server("tritn")
    with pytest.raises(UnknownName, match="did you mean 'torch'"):
        install.install_server("triton", ("torsh",))


def test_a_damaged_receipt_is_none(engines: Path) -> None:
    """What cannot be read was not installed."""
    (engines / "triton").mkdir(parents=True)
    (engines / "triton" / "installed.json").write_text("{")
    assert install.find_installed("triton") is None


def test_a_place_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence names the variable that says where to install."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MODELDYNO_ENGINES", str(tmp_path / "file"))
    monkeypatch.setitem(install.RECIPES, "a", install.InstallRecipe(name="a", title="A", packages=("a",)))
    with pytest.raises(RequestError, match="set MODELDYNO_ENGINES to another directory"):
        install.install_server("a")


@pytest.mark.parametrize(
    ("version", "library", "sentence"),
    [
        ((3, 14), "libpython3.14.so", "needs Python 3.8 to 3.13"),
        ((3, 11), "libpython3.11.a", "shared library"),
        ((3, 11), "", "shared library"),
    ],
)
def test_pythons_that_triton_cannot_use(
    version: tuple[int, int], library: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Python that the packaged Triton has no part for, or that has no library, is told beforehand."""
    (tmp_path / "libpython3.14.so").write_text("")

    class Version(tuple[int, ...]):
        __slots__ = ()
        major, minor = version

    monkeypatch.setattr(sys, "version_info", Version((*version, 0)))
    variables = {"LIBDIR": str(tmp_path), "INSTSONAME": library}
    monkeypatch.setattr(sysconfig, "get_config_var", variables.get)
    assert sentence in install._triton_possible()


@pytest.mark.parametrize(("version", "sentence"), [("1.8.0_1", "this is 1"), ("17.0.1", "")])
def test_java_that_is_too_old(
    version: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TorchServe is not installed where Java is too old for it."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert subprocess.run([install.find_java(), "-version"], check=True, capture_output=True).returncode == 0
    reason = install._torchserve_possible()
    assert sentence in reason
    assert bool(reason) == bool(sentence)


def test_the_parts_of_triton_lie_together(tmp_path: Path) -> None:
    """The stub of this Python lies beside the Python backend, also when it is made again."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    packaged = tmp_path / "venv" / "lib" / f"python{version}" / "site-packages" / "pytriton" / "tritonserver"
    for path in (
        "backends/python/lib.so",
        f"python_backend_stubs/{version}/triton_python_backend_stub",
        "bin/tritonserver",
    ):
        (packaged / path).parent.mkdir(parents=True)
        (packaged / path).write_text(path)
    for _ in range(2):
        install._triton_finish(tmp_path)
    made = tmp_path / "backends" / "python"
    assert {path.name for path in made.iterdir()} == {"lib.so", "triton_python_backend_stub"}
    assert (made / "triton_python_backend_stub").stat().st_mode & 0o111


def test_a_triton_of_others_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engines: Path) -> None:
    """A tritonserver on the path is used where none was installed by us."""
    del engines
    server = tmp_path / "opt" / "bin" / "tritonserver"
    server.parent.mkdir(parents=True)
    server.write_text("#!/bin/sh\n")
    server.chmod(0o755)
    monkeypatch.setenv("PATH", str(server.parent))
    tritonserver = triton.find_tritonserver()
    assert (tritonserver.path, tritonserver.backends) == (str(server), tmp_path / "opt" / "backends")
    assert triton.find_other_tritonserver() == str(server)
