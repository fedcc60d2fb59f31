"""Commands typed as a user types them, in a folder with a store of its own, and models of known speed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent.parent
DIGITS = ROOT / "examples" / "digits"
MEAN = 0.004
"""Seconds that a call of the quiet function takes."""

FUNCTION = """\
from modeldyno.testing.known_latency import KnownLatency

work = KnownLatency({mean!r}, {mean!r}, {slower!r}, {mean!r}, {faster!r}, busy={busy!r})
"""


def write_function(folder: Path, slowdown: float = 0.0, name: str = "model.py", *, busy: bool = False) -> str:
    """Write a function whose calls take `MEAN` seconds or `slowdown` (a share) more; return its reference.

    Its calls differ by 1 %, so that nothing rests on samples that are all equal. It sleeps, which takes some
    0.1 ms more than it was told; one that is `busy` takes exactly what it was told.
    """
    mean = MEAN * (1 + slowdown)
    text = FUNCTION.format(mean=mean, slower=1.01 * mean, faster=0.99 * mean, busy=busy)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return f"call:{name}:work"


def write_work(folder: Path, slowdown: float = 0.0, name: str = "model.py") -> str:
    """Write a function of some 20 ms of work, or more by `slowdown`: beside others it takes longer."""
    text = f"def work() -> int:\n    return sum(range({round(1_000_000 * (1 + slowdown))}))\n"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return f"call:{name}:work"


def write_digits(folder: Path, name: str = "model.onnx") -> str:
    """Copy the digit classifier; return its reference."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(DIGITS / "digits.onnx", folder / name)
    return name


def within(place: str, model: str) -> str:
    """Return the reference of a model in a folder below, as its parent names it."""
    scheme, separator, path = model.partition("call:")
    return f"call:{place}/{path}" if separator else f"{place}/{scheme}"


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of a command: a store of its own, and programs of this environment first."""
    return os.environ | {
        "MODELDYNO_STORE": f"sqlite:///{folder / 'store.db'}",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "300",
    }


_SPINS = "import os, sys\nwhile os.getppid() == int(sys.argv[1]):\n    sum(range(100_000))"


@contextmanager
def neighbours() -> Iterator[None]:
    """Keep every core busy with a process of its own meanwhile, so that who computes gets half of it."""
    spinning = [
        subprocess.Popen([sys.executable, "-c", _SPINS, str(os.getpid())]) for _ in os.sched_getaffinity(0)
    ]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def execute(folder: Path, *words: str, store: Path | None = None) -> tuple[int, str]:
    """Run any command there; return its exit code and what it printed, progress and errors first."""
    done = subprocess.run(
        words,
        cwd=folder,
        env=environment(store or folder),
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
    )
    return done.returncode, done.stderr + done.stdout


def modeldyno(folder: Path, *words: str, store: Path | None = None) -> tuple[int, str]:
    """Run a command of ModelDyno there."""
    return execute(folder, sys.executable, "-m", "modeldyno", *words, store=store)


def python(folder: Path, script: str) -> tuple[int, str]:
    """Run a script of Python there."""
    (folder / "script.py").write_text(script, encoding="utf-8")
    return execute(folder, sys.executable, "script.py")


def last_line(output: str, *words: str) -> str:
    """Return the last line that has one of the words, or else the last one."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    matching = [line for line in lines if any(word in line for word in words)]
    return (matching or lines or [""])[-1][:300]


def read_document(path: Path) -> Any:
    """Return a document as its JSON has it."""
    return json.loads(path.read_text(encoding="utf-8"))
