"""Types commands as a user does: in a folder, with a home and a store of its own, at 80 columns."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

COLUMNS = 80
EXAMPLES = Path(__file__).parents[2] / "examples"
_UNREADABLE = re.compile(r"\bnan\b|\bNone\b|Traceback|-0\.0+ ")
"""What no output of a command has: numbers that are none, and what Python says to its programmers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """A folder in which commands are typed, one after the other."""

    folder: Path

    def __call__(self, line: str, *, codes: Collection[int] = (0,), seconds: float = 600) -> str:
        """Type a line; return what it prints, standard error last, as one line.

        Args:
            line: of ``modeldyno``, ``python`` or any other program.
            codes: the exit codes of which it is to have one.
            seconds: after which it is ended.
        """
        return self.answer(line, codes=codes, seconds=seconds)[1]

    def answer(self, line: str, *, codes: Collection[int] = (0,), seconds: float = 600) -> tuple[int, str]:
        """Type a line likewise; return its exit code as well."""
        done = subprocess.run(
            self._words(line), cwd=self.folder, env=self._environment(), capture_output=True, text=True,
            check=False, timeout=seconds,
        )  # fmt: skip
        both = f"$ {line}\n{done.stdout}{done.stderr}"
        assert done.returncode in codes, f"exit code {done.returncode}: {both}"
        assert not _UNREADABLE.search(both.partition("\n")[2]), both
        return done.returncode, " ".join(f"{done.stdout} {done.stderr}".split())

    @contextmanager
    def start(self, line: str) -> Iterator[subprocess.Popen[str]]:
        """Start a line that goes on beside others, such as a server; it is ended as by Ctrl-C."""
        with subprocess.Popen(
            self._words(line), cwd=self.folder, env=self._environment(), stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        ) as process:  # fmt: skip
            try:
                yield process
            finally:
                process.send_signal(signal.SIGINT)
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()

    def kill(self, line: str, after: float) -> None:
        """Type a line, and end it at once after so many seconds, as by ``kill -9``."""
        with subprocess.Popen(
            self._words(line), cwd=self.folder, env=self._environment(), stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:  # fmt: skip
            try:
                process.wait(after)
            except subprocess.TimeoutExpired:
                process.kill()

    def write(self, name: str, text: str) -> None:
        """Write a file of the folder."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def _words(self, line: str) -> list[str]:
        program, *words = shlex.split(line)
        python = {"modeldyno": [sys.executable, "-m", "modeldyno"], "python": [sys.executable]}
        return [*python.get(program, [program]), *words]

    def _environment(self) -> dict[str, str]:
        home = self.folder.parent
        return {
            **os.environ,
            "HOME": str(home),
            "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache")),
            "COLUMNS": str(COLUMNS),
            "MODELDYNO_STORE": f"sqlite:///{home}/store.db",
        }
