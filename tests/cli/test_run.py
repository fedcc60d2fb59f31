from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import modeldyno as package
from modeldyno.cli import _own_word_count

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Protocol

    Run = Callable[..., subprocess.CompletedProcess[str]]

    class CommandResult(Protocol):
        code: int
        out: str
        err: str


MARKED = """
import sys
from modeldyno import profiled

@profiled
def double(x):
    return 2 * x

for x in range(30):
    double(x)
"""


@pytest.fixture
def ours(tmp_path: Path) -> Run:
    """Runs a script, given as text, by `modeldyno run` in a directory of its own."""

    def run(text: str, *arguments: str, before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        (tmp_path / "script.py").write_text(text)
        command = [sys.executable, "-m", "modeldyno", "run", *before, "script.py", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)

    return run


@pytest.fixture
def pythons(tmp_path: Path) -> Run:
    """Runs a script, given as text, by Python itself."""

    def run(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "script.py").write_text(text)
        command = [sys.executable, "script.py", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)

    return run


def test_a_script_is_run_and_its_regions_are_told(ours: Run, tmp_path: Path) -> None:
    """The tables go to standard error, the document to its file, and the script's output is its own."""
    done = ours(MARKED + "print('done')", before=("--json", "out.json"))
    result = package.read(tmp_path / "out.json", package.Result)

    assert done.returncode == 0
    assert done.stdout == "done\n"
    assert "script.py spent" in done.stderr
    assert "double" in done.stderr
    assert "Saved to" in done.stderr
    assert max(map(len, done.stderr.splitlines()[:-1])) <= 80
    assert result["calls@double"] == 30
    assert result.name == "script.py"


ALIKE = """
import os, sys
from pathlib import Path
import beside
print(sys.argv, sys.path[0], __name__, __file__, __spec__, beside.NAME)
print(sys.modules["__main__"].__dict__ is globals(), Path.cwd() == Path(sys.path[0]))
"""


def test_a_script_sees_what_it_would_see(ours: Run, pythons: Run, tmp_path: Path) -> None:
    """Arguments, path, name and imports are as under Python; its options are its own."""
    (tmp_path / "beside.py").write_text("NAME = 'beside'")
    arguments = ("one", "--debug", "--json", "x", "-h")

    assert ours(ALIKE, *arguments).stdout == pythons(ALIKE, *arguments).stdout


LEAVING = """
import subprocess, sys
from modeldyno import profiled

@profiled
def start(seconds):
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    child = subprocess.Popen(["sleep", seconds], start_new_session=True, **quiet)
    print(child.pid)
    return child

start(SECONDS)
if SECONDS == "0":
    import time
    time.sleep(0.3)
"""


def test_a_process_that_the_script_leaves_is_told(ours: Run) -> None:
    """It may be wanted, as a server is, so it goes on; one that has ended is not told."""
    left = ours(LEAVING.replace("SECONDS", '"60"'))
    pid = int(left.stdout)
    os.kill(pid, signal.SIGKILL)

    assert f"The script left 1 process running: sleep (pid {pid}).\n" in left.stderr
    assert "running" not in ours(LEAVING.replace("SECONDS", '"0"')).stderr


@pytest.mark.parametrize(
    "end",
    [
        "sys.exit(7)",
        "sys.exit('a last word')",
        "raise SystemExit",
        "1 / 0",
        "def broken(:",
        "try:\n    {}['x']\nexcept KeyError as e:\n    raise ValueError('no') from e",
        "sys.excepthook = lambda *a: print('mine', a[0].__name__)\n1 / 0",
    ],
)
def test_a_script_ends_as_it_would_end(ours: Run, pythons: Run, end: str) -> None:
    """Exit code, output and traceback are those of Python; the measurements so far follow."""
    text = f"import sys\n{end}\n"
    mine, theirs = ours(text), pythons(text)

    assert mine.returncode == theirs.returncode
    assert mine.stdout == theirs.stdout
    assert mine.stderr == f"{theirs.stderr}\nscript.py called no code that is marked with profiled.\n"


def test_what_threads_and_exit_functions_do_is_told(ours: Run, tmp_path: Path) -> None:
    """The tables wait for the script's threads, its pools and its own exit functions."""
    text = MARKED + (
        "import atexit, threading, time\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "atexit.register(double, 1)\n"
        "threading.Thread(target=lambda: (time.sleep(0.2), double(1))).start()\n"
        "pool = ThreadPoolExecutor(1)\n"
        "pool.submit(double, 1)\n"
    )
    done = ours(text, before=("--json", "out.json"))

    assert done.returncode == 0
    assert package.read(tmp_path / "out.json", package.Result)["calls@double"] == 33


def test_a_forked_process_tells_nothing(ours: Run) -> None:
    """The tables are printed once, by the process that was started."""
    done = ours(MARKED + "import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)\n")

    assert done.stderr.count("script.py spent") == 1


def test_a_missing_script_or_directory_is_told(
    modeldyno: Callable[..., CommandResult], tmp_path: Path
) -> None:
    """One sentence, before anything runs."""
    result = modeldyno("run", "nothing.py")
    assert (result.code, result.out) == (2, "")
    assert "There is no file 'nothing.py'" in result.err
    (tmp_path / "script.py").write_text("print('ran')")
    result = modeldyno("run", str(tmp_path))
    assert result.code == 2
    assert "is a directory; give the path of a Python script" in result.err
    result = modeldyno("run", "--json", "-", "script.py")
    assert result.code == 2
    assert "Standard output belongs to the script" in result.err
    result = modeldyno("run", "--json", "no/where.json", "script.py")
    assert (result.code, result.out) == (2, "")
    assert "does not exist" in result.err


def test_words_behind_the_script_are_its_own() -> None:
    """--debug before `run` is ModelDyno's, and anywhere in other commands."""
    assert _own_word_count(["--debug", "run", "x.py", "--debug"]) == 1
    assert _own_word_count(["profile", "run", "--debug"]) == 3
    assert _own_word_count(["--debug"]) == 1


def test_what_prints_by_itself_is_printed_once(ours: Run) -> None:
    """The tables of the command have the regions of check_time, too."""
    done = ours(
        MARKED.replace("from modeldyno import profiled", "from modeldyno.regions import check_time").replace(
            "@profiled", "@check_time"
        )
    )

    assert done.stderr.count("Total time") == 1
    assert "double" in done.stderr
