"""Installs inference servers, each into its own environment, since their pinned packages conflict.

A server is a directory below `paths.servers_root`: ``venv``, what its recipe adds, and a receipt that is
written last. An interrupted installation continues where it stopped.
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
from typing import TYPE_CHECKING, TextIO

from modeldyno.base.errors import MissingExtra, RequestError, UnknownName
from modeldyno.serving.servers.paths import servers_root

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_RECEIPT = "installed.json"
_ONNXRUNTIME = "onnxruntime==1.31.1"
_TORCH = "torch==2.13.0"
_STEP = re.compile(r"(?P<word>Collecting|Downloading|Installing|Building|Using cached) (?P<rest>.*)")
_PIP_ERROR = re.compile(r"ERROR: (?P<what>.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallRecipe:
    """How to install a server."""

    name: str
    title: str
    packages: tuple[str, ...]
    """Packages for pip; the first is the server itself."""
    options: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Value of ``--with`` to further packages."""
    possible: Callable[[], str] = field(default=lambda: "")
    """Returns in one sentence why it cannot work here, and what to do; empty if it can."""
    finish: Callable[[Path], None] = field(default=lambda _folder: None)
    """Creates what is needed besides the environment; may run more than once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledServer:
    """A server in an environment that ModelDyno created."""

    name: str
    folder: Path
    versions: dict[str, str]
    """Versions of Python and of the recipe's packages."""
    library: str
    """Directory of its Python's shared library."""

    @property
    def venv(self) -> Path:
        """Its virtual environment."""
        return self.folder / "venv"

    @property
    def site(self) -> Path:
        """Its site-packages directory."""
        major, minor = self.versions["python"].split(".")[:2]
        return self.venv / "lib" / f"python{major}.{minor}" / "site-packages"

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables for its commands: its own bin first on the path, nothing of our Python."""
        path = f"{self.venv / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        return {"PATH": path, "VIRTUAL_ENV": str(self.venv), "PYTHONPATH": "", "PYTHONHOME": ""}

    def command(self, name: str) -> str:
        """Return the path of a command in its environment."""
        return str(self.venv / "bin" / name)


def find_installed(name: str) -> InstalledServer | None:
    """Return a completely installed server; None if there is none.

    Raises:
        UnknownName: there is no such server.
    """
    folder = servers_root() / _recipe(name).name
    try:
        receipt = json.loads((folder / _RECEIPT).read_text(encoding="utf-8"))
        return InstalledServer(
            name=name, folder=folder, versions=dict(receipt["versions"]), library=receipt["library"]
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def require_installed(name: str) -> InstalledServer:
    """Return an installed server.

    Raises:
        MissingExtra: the server is not installed.
    """
    installed = find_installed(name)
    if installed is None:
        title = _recipe(name).title
        raise MissingExtra(f"{title} is not installed; install it with: modeldyno engine install {name}")
    return installed


def install_server(
    name: str, options: Sequence[str] = (), watch: Callable[[str], None] = print
) -> InstalledServer:
    """Install a server, or what is missing of it; `watch` gets a line per step.

    Raises:
        UnknownName: there is no such server, or no such option of it.
        RequestError: the server cannot run here, or its packages cannot be installed.
    """
    recipe = _recipe(name)
    for option in options:
        if option not in recipe.options:
            raise UnknownName.among(f"option of {name}", option, recipe.options)
    if reason := recipe.possible():
        raise RequestError(reason)
    folder = servers_root() / name
    packages = [*recipe.packages, *(package for option in options for package in recipe.options[option])]
    with _install_lock(folder):
        _make_venv(folder / "venv", watch)
        _pip(folder / "venv", packages, watch)
        try:
            recipe.finish(folder)
        except OSError as error:
            raise RequestError(f"{recipe.title} is not as expected in {folder}: {error}.") from error
        content = {
            "versions": _versions(folder / "venv", packages),
            "library": sysconfig.get_config_var("LIBDIR") or "",
        }
        receipt = folder / f"{_RECEIPT}.new"
        receipt.write_text(json.dumps(content), encoding="utf-8")
        receipt.replace(folder / _RECEIPT)
    return require_installed(name)


def directory_size(folder: Path) -> int:
    """Return the bytes that a directory takes on disk."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(f"{path}/{name}").st_size
            except OSError:
                continue
    return total


def _recipe(name: str) -> InstallRecipe:
    if name not in RECIPES:
        raise UnknownName.among("engine", name, RECIPES)
    return RECIPES[name]


@contextmanager
def _install_lock(folder: Path) -> Iterator[None]:
    """Hold a lock that makes other processes wait with installing the same server."""
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
    watch(f"creating an environment in {venv}")
    shutil.rmtree(venv, ignore_errors=True)
    completed = subprocess.run(
        [sys.executable, "-m", "venv", str(venv)], capture_output=True, text=True, check=False
    )
    if completed.returncode:
        lines = (completed.stdout + completed.stderr).strip().splitlines() or ["no error message"]
        raise RequestError(f"Cannot create an environment in {venv}: {lines[0]}")


def _runs(venv: Path) -> bool:
    command = [str(venv / "bin" / "python"), "-c", "import pip"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _pip(venv: Path, packages: list[str], watch: Callable[[str], None]) -> None:
    """Run pip install, and once more if it fails: a download may have been cut off.

    What pip printed is kept in the log beside the environment.

    Raises:
        RequestError: both failed; the message has the last error and the log.
    """
    log = venv.parent / LOG
    with log.open("w", encoding="utf-8") as file:
        for attempt in range(_ATTEMPTS):
            why = _run_pip(venv, packages, watch, file)
            if not why:
                return
            if attempt < _ATTEMPTS - 1:
                watch(f"pip failed: {_short(why)}; trying again")
    raise RequestError(f"Cannot install {packages[0]}: {why}; what pip printed is in {log}.")


LOG = "install.log"
_ATTEMPTS = 2


def _run_pip(venv: Path, packages: list[str], watch: Callable[[str], None], log: TextIO) -> str:
    """Run pip install; return its last error, empty if there is none."""
    command = [
        str(venv / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check",
        "--progress-bar", "off", "--no-input", *packages,
    ]  # fmt: skip
    errors: list[str] = []
    environment = {**os.environ, "PYTHONPATH": "", "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment,
    ) as pip:
        assert pip.stdout is not None
        for line in pip.stdout:
            log.write(line)
            if step := _STEP.match(line.strip()):
                watch(f"{step['word'].lower()} {_short(step['rest'])}")
            elif error := _PIP_ERROR.match(line.strip()):
                errors.append(error["what"])
    if not pip.returncode:
        return ""
    return errors[-1].rstrip(".") if errors else f"pip ended with exit code {pip.returncode}"


def _short(text: str) -> str:
    """Drop the download's location, and the package that needs it."""
    text = re.sub(r" \(from .*\)", "", text)
    text = text.rsplit("/", 1)[-1]
    return text if len(text) <= 70 else f"{text[:69]}…"


def _versions(venv: Path, packages: list[str]) -> dict[str, str]:
    names = [re.split(r"[\[=<>~!; ]", package)[0] for package in packages]
    code = (
        "import json, platform, sys; from importlib.metadata import version;"
        "print(json.dumps({'python': platform.python_version(), **{n: version(n) for n in sys.argv[1:]}}))"
    )
    command = [str(venv / "bin" / "python"), "-c", code, *names]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    if completed.returncode:
        raise RequestError(f"{names[0]} cannot be imported in {venv}; remove that directory and try again.")
    versions: dict[str, str] = json.loads(completed.stdout)
    return versions


def _triton_possible() -> str:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    library = Path(sysconfig.get_config_var("LIBDIR") or "") / (sysconfig.get_config_var("INSTSONAME") or "")
    if sys.platform != "linux":
        return "The packaged Triton runs on Linux only; use the container, or a server on another machine."
    if not (3, 8) <= sys.version_info[:2] <= (3, 13):
        return f"The packaged Triton needs Python 3.8 to 3.13, not {version}; install ModelDyno with one."
    if library.suffix == ".a" or not library.is_file():
        return (
            "Triton's Python backend needs a Python with a shared library, and this one has none; on Debian "
            f"and Ubuntu install the package libpython{version}."
        )
    return ""


def _triton_finish(folder: Path) -> None:
    """Copy this Python's stub into the Python backend's directory, where Triton looks for it."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    packaged = folder / "venv" / "lib" / f"python{version}" / "site-packages" / "pytriton" / "tritonserver"
    stub = packaged / "python_backend_stubs" / version / "triton_python_backend_stub"
    backend = folder / "backends" / "python"
    backend.mkdir(parents=True, exist_ok=True)
    for source in (*(path for path in (packaged / "backends" / "python").iterdir() if path.is_file()), stub):
        copy = backend / f".{source.name}.new"
        shutil.copy2(source, copy)
        copy.replace(backend / source.name)  # a running server keeps its old file
    for program in (backend / stub.name, packaged / "bin" / "tritonserver"):
        program.chmod(program.stat().st_mode | 0o111)


def find_java() -> str:
    """Return the path of Java.

    Raises:
        MissingExtra: Java is not installed.
    """
    home = os.environ.get("JAVA_HOME")
    program = shutil.which("java", path=f"{home}/bin" if home else None)
    if program is None:
        raise MissingExtra(f"TorchServe needs Java 17; {_JAVA}")
    return program


_JAVA = "install it with: apt-get install -y openjdk-17-jre-headless"
_OLDEST_JAVA = 11


def _torchserve_possible() -> str:
    try:
        program = find_java()
    except MissingExtra as error:
        return str(error)
    completed = subprocess.run([program, "-version"], capture_output=True, text=True, check=False)
    match = re.search(r'version "(\d+)', completed.stderr + completed.stdout)
    if match is not None and int(match[1]) < _OLDEST_JAVA:
        return f"TorchServe needs Java 17, and this is {match[1]}; {_JAVA}"
    return ""


RECIPES = {
    recipe.name: recipe
    for recipe in (
        InstallRecipe(
            name="triton",
            title="Triton Inference Server",
            packages=("nvidia-pytriton==0.7.0", _ONNXRUNTIME),
            options={"torch": (_TORCH,)},
            possible=_triton_possible,
            finish=_triton_finish,
        ),
        InstallRecipe(
            name="torchserve",
            title="TorchServe",
            packages=("torchserve==0.12.0", _TORCH, _ONNXRUNTIME, "pyyaml", "setuptools<81"),
            possible=_torchserve_possible,
        ),
        InstallRecipe(  # this MLServer's workers fail with a later uvloop
            name="mlserver",
            title="MLServer",
            packages=("mlserver==1.7.1", _ONNXRUNTIME, "uvloop==0.21.0"),
            options={"torch": (_TORCH,)},
        ),
        InstallRecipe(
            name="openai",
            title="transformers serve",
            packages=("transformers[serving]==5.23.0", _TORCH),
        ),
        InstallRecipe(name="llamacpp", title="llama.cpp", packages=("xllamacpp==2026.10.11549",)),
    )
}
"""Name of a server to its recipe."""
