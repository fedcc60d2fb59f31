"""Installs engines, each into an environment of its own: their pins clash with each other's and with ours.

An engine is a directory below `places.root`: ``venv``, what its recipe makes beside it, and a receipt that
is written last. What was interrupted goes on where it stopped when it is asked for again.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.errors import MissingExtra, RequestError, UnknownName
from modeldyno.servers.paths import root

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_RECEIPT = "installed.json"
_ONNXRUNTIME = "onnxruntime==1.31.1"
_TORCH = "torch==2.13.0"
_STEP = re.compile(r"(?P<word>Collecting|Downloading|Installing|Building|Using cached) (?P<rest>.*)")
_WRONG = re.compile(r"ERROR: (?P<what>.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How to install an engine."""

    name: str
    title: str
    packages: tuple[str, ...]
    """What pip is asked for; the first is the engine itself."""
    options: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """A word for ``--with`` to further packages."""
    possible: Callable[[], str] = field(default=lambda: "")
    """Says in one sentence why it cannot work here, and what to do; empty where it can."""
    finish: Callable[[Path], None] = field(default=lambda _folder: None)
    """Makes what is needed beside the environment; may be repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """An engine in an environment that we made."""

    name: str
    folder: Path
    versions: dict[str, str]
    """Of Python and the packages that the recipe names."""
    library: str
    """Directory of the library of its Python."""

    @property
    def venv(self) -> Path:
        """Its environment."""
        return self.folder / "venv"

    @property
    def site(self) -> Path:
        """Where its packages lie."""
        major, minor = self.versions["python"].split(".")[:2]
        return self.venv / "lib" / f"python{major}.{minor}" / "site-packages"

    @property
    def environment(self) -> dict[str, str]:
        """What a command of it needs set: itself first on the path, and nothing of our own Python."""
        path = f"{self.venv / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        return {"PATH": path, "VIRTUAL_ENV": str(self.venv), "PYTHONPATH": "", "PYTHONHOME": ""}

    def command(self, name: str) -> str:
        """Give the path of a command of its environment."""
        return str(self.venv / "bin" / name)


def find(name: str) -> Installed | None:
    """Look for an engine that was installed whole.

    Raises:
        UnknownName: there is no such engine.
    """
    folder = root() / _recipe(name).name
    try:
        receipt = json.loads((folder / _RECEIPT).read_text(encoding="utf-8"))
        return Installed(
            name=name, folder=folder, versions=dict(receipt["versions"]), library=receipt["library"]
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def need(name: str) -> Installed:
    """Give an installed engine.

    Raises:
        MissingExtra: it is not installed.
    """
    found = find(name)
    if found is None:
        title = _recipe(name).title
        raise MissingExtra(f"{title} is not installed; install it with: modeldyno engine install {name}")
    return found


def install(name: str, options: Sequence[str] = (), watch: Callable[[str], None] = print) -> Installed:
    """Install an engine, or what is missing of it; `watch` is told of each step in a line.

    Raises:
        UnknownName: there is no such engine, or no such option of it.
        RequestError: it cannot run here, or its packages cannot be installed.
    """
    recipe = _recipe(name)
    for option in options:
        if option not in recipe.options:
            raise UnknownName.among(f"option of {name}", option, recipe.options)
    if wrong := recipe.possible():
        raise RequestError(wrong)
    folder = root() / name
    packages = [*recipe.packages, *(each for option in options for each in recipe.options[option])]
    with _held(folder):
        _make_venv(folder / "venv", watch)
        _pip(folder / "venv", packages, watch)
        try:
            recipe.finish(folder)
        except OSError as error:
            raise RequestError(f"{recipe.title} is not as expected in {folder}: {error}.") from error
        told = {
            "versions": _versions(folder / "venv", packages),
            "library": sysconfig.get_config_var("LIBDIR") or "",
        }
        receipt = folder / f"{_RECEIPT}.new"
        receipt.write_text(json.dumps(told), encoding="utf-8")
        receipt.replace(folder / _RECEIPT)
    return need(name)


def size(folder: Path) -> int:
    """Bytes that a directory takes."""
    found = 0
    for path, _, names in os.walk(folder):
        for each in names:
            try:
                found += os.lstat(f"{path}/{each}").st_size
            except OSError:
                continue
    return found


def _recipe(name: str) -> Recipe:
    if name not in RECIPES:
        raise UnknownName.among("engine", name, RECIPES)
    return RECIPES[name]


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Keep others from installing the same engine at the same time: they wait."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise RequestError(
            f"Cannot write to {folder}: {error.strerror}; set MODELDYNO_ENGINES to another directory."
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make_venv(venv: Path, watch: Callable[[str], None]) -> None:
    if (venv / "bin" / "pip").exists() and _runs(venv):
        return
    watch(f"making an environment in {venv}")
    shutil.rmtree(venv, ignore_errors=True)
    made = subprocess.run(
        [sys.executable, "-m", "venv", str(venv)], capture_output=True, text=True, check=False
    )
    if made.returncode:
        said = (made.stdout + made.stderr).strip().splitlines() or ["it did not say why"]
        raise RequestError(f"Cannot make an environment in {venv}: {said[0]}")


def _runs(venv: Path) -> bool:
    command = [str(venv / "bin" / "python"), "-c", "import pip"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _pip(venv: Path, packages: list[str], watch: Callable[[str], None]) -> None:
    """Have pip install; raise one sentence of what it says."""
    command = [
        str(venv / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check",
        "--progress-bar", "off", "--no-input", *packages,
    ]  # fmt: skip
    wrong: list[str] = []
    changed = {**os.environ, "PYTHONPATH": "", "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=changed
    ) as pip:
        assert pip.stdout is not None
        for line in pip.stdout:
            if step := _STEP.match(line.strip()):
                watch(f"{step['word'].lower()} {_short(step['rest'])}")
            elif error := _WRONG.match(line.strip()):
                wrong.append(error["what"])
    if pip.returncode:
        why = wrong[0].rstrip(".") if wrong else f"pip ended with exit code {pip.returncode}"
        raise RequestError(f"Cannot install {packages[0]}: {why}.")


def _short(text: str) -> str:
    """Drop where a file comes from, and what pip collects it for."""
    text = re.sub(r" \(from .*\)", "", text)
    text = text.rsplit("/", 1)[-1]
    return text if len(text) <= 70 else f"{text[:69]}…"  # noqa: PLR2004 - of a line of 80


def _versions(venv: Path, packages: list[str]) -> dict[str, str]:
    names = [re.split(r"[\[=<>~!; ]", package)[0] for package in packages]
    code = (
        "import json, platform, sys; from importlib.metadata import version;"
        "print(json.dumps({'python': platform.python_version(), **{n: version(n) for n in sys.argv[1:]}}))"
    )
    command = [str(venv / "bin" / "python"), "-c", code, *names]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    if asked.returncode:
        raise RequestError(f"{names[0]} does not come up in {venv}; remove that directory and try again.")
    found: dict[str, str] = json.loads(asked.stdout)
    return found


def _triton_possible() -> str:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    library = Path(sysconfig.get_config_var("LIBDIR") or "") / (sysconfig.get_config_var("INSTSONAME") or "")
    if sys.platform != "linux":
        return "The packaged Triton runs on Linux only; use the container, or a server elsewhere."
    if not (3, 8) <= sys.version_info[:2] <= (3, 13):
        return (
            f"The packaged Triton takes Python 3.8 to 3.13, not {version}; install ModelDyno in one of those."
        )
    if library.suffix == ".a" or not library.is_file():
        return (
            "Triton's Python backend needs a Python with a shared library, which this one has not; on Debian "
            f"and Ubuntu install the package libpython{version}."
        )
    return ""


def _triton_finish(folder: Path) -> None:
    """Put the stub of this Python beside the Python backend, as Triton looks for it there."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    packaged = folder / "venv" / "lib" / f"python{version}" / "site-packages" / "pytriton" / "tritonserver"
    stub = packaged / "python_backend_stubs" / version / "triton_python_backend_stub"
    backend = folder / "backends" / "python"
    backend.mkdir(parents=True, exist_ok=True)
    for source in (*(path for path in (packaged / "backends" / "python").iterdir() if path.is_file()), stub):
        made = backend / f".{source.name}.new"
        shutil.copy2(source, made)
        made.replace(backend / source.name)  # a server that runs keeps the file that it has
    for program in (backend / stub.name, packaged / "bin" / "tritonserver"):
        program.chmod(program.stat().st_mode | 0o111)


def java() -> str:
    """Give the path of Java.

    Raises:
        MissingExtra: there is none.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin" if home else None)
    if found is None:
        raise MissingExtra(f"TorchServe needs Java 17; {_JAVA}")
    return found


_JAVA = "install it with: apt-get install -y openjdk-17-jre-headless"
_OLDEST_JAVA = 11


def _torchserve_possible() -> str:
    try:
        found = java()
    except MissingExtra as error:
        return str(error)
    said = subprocess.run([found, "-version"], capture_output=True, text=True, check=False)
    match = re.search(r'version "(\d+)', said.stderr + said.stdout)
    if match is not None and int(match[1]) < _OLDEST_JAVA:
        return f"TorchServe needs Java 17, and this is {match[1]}; {_JAVA}"
    return ""


RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            name="triton",
            title="Triton Inference Server",
            packages=("nvidia-pytriton==0.7.0", _ONNXRUNTIME),
            options={"torch": (_TORCH,)},
            possible=_triton_possible,
            finish=_triton_finish,
        ),
        Recipe(
            name="torchserve",
            title="TorchServe",
            packages=("torchserve==0.12.0", _TORCH, _ONNXRUNTIME, "pyyaml", "setuptools<81"),
            possible=_torchserve_possible,
        ),
        Recipe(  # the workers of this MLServer fail on a later uvloop
            name="mlserver",
            title="MLServer",
            packages=("mlserver==1.7.1", _ONNXRUNTIME, "uvloop==0.21.0"),
            options={"torch": (_TORCH,)},
        ),
        Recipe(
            name="openai",
            title="transformers serve",
            packages=("transformers[serving]==5.23.0", _TORCH),
        ),
    )
}
"""Engine to its recipe."""
