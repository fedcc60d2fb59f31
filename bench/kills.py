"""We are killed with -9 while a server of ours starts, works or stops: is anything of the engine left?

The process that is killed is by turns the command, and its child that started the server. A process is
known for one of the engine by a variable of its environment, wherever it has moved.

    modeldyno engine install triton
    python bench/kills.py [--kills 50] [--backend triton] [--grace 5] [--seed 0]
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

MODEL = Path(__file__).parent.parent / "examples" / "digits" / "digits.onnx"
MARK = "MODELDYNO_BENCH_KILLS"
SHARED = Path("/dev/shm")
POLL = 0.05
BEGUN = time.time()
"""Of shared memory, only what came later is ours."""


def marked(word: str) -> dict[int, str]:
    """Give the living processes of a round: number to command line."""
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"{MARK}={word}".encode() in (place / "environ").read_bytes():
                found[int(place.name)] = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return found


def started(backend: str, folder: Path, word: str) -> subprocess.Popen[bytes]:
    """Start a short load."""
    command = [
        sys.executable, "-m", "modeldyno", "load", str(MODEL), "--backend", backend,
        "-c", "2", "--duration", "2s",
    ]  # fmt: skip
    changed = {MARK: word, "TMPDIR": str(folder), "MODELDYNO_STORE": f"sqlite:///{folder}/store.db"}
    return subprocess.Popen(
        command, env={**os.environ, **changed}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def stage(commands: dict[int, str]) -> str:
    """Say what was going on, by the processes that there were."""
    text = "\n".join(commands.values())
    if "loadgen.driver" in text:
        return "load"
    return "start or stop" if "engines.guard" in text else "before or after"


def left(folder: Path, word: str) -> list[str]:
    """Name what should not be there any more."""
    folders = [path.name for path in folder.glob("modeldyno-*") if path.is_dir()]
    regions = [path.name for path in SHARED.glob("modeldyno-*") if path.stat().st_mtime >= BEGUN]
    return [*marked(word).values(), *folders, *regions]


def killed(backend: str, moment: float, grace: float, *, child: bool) -> tuple[str, float, list[str]]:
    """Kill a load after so many seconds; give what was going on, how long it took, and what is left."""
    word = f"{os.getpid()}-{random.getrandbits(64):x}"
    with tempfile.TemporaryDirectory(prefix="kills-") as name:
        folder = Path(name)
        main = started(backend, folder, word)
        with suppress(subprocess.TimeoutExpired):
            main.wait(moment)
        there = marked(word)
        victims = [pid for pid, command in there.items() if "executors.child" in command] if child else []
        for pid in victims or [main.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        end = time.monotonic()
        if victims:
            main.wait()  # it tells of the crash, and ends by itself
        main.poll()
        while (rest := left(folder, word)) and time.monotonic() - end < grace:
            time.sleep(POLL)
            main.poll()
        spent = time.monotonic() - end
        for pid in marked(word):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for each in rest:  # not to be counted again
            if (SHARED / each).is_file():
                (SHARED / each).unlink()
        main.wait()
    return stage(there), spent, rest


def main() -> None:
    """Kill, and count."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--backend", default="triton")
    parser.add_argument("--grace", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="kills-") as folder:
        begin = time.monotonic()
        if code := started(options.backend, Path(folder), "whole").wait():
            raise SystemExit(f"a load that nobody kills ends with exit code {code}; is the engine installed?")
        whole = time.monotonic() - begin
    print(f"a load that nobody kills takes {whole:.1f} s", flush=True)
    stages: Counter[str] = Counter()
    lost: list[str] = []
    longest = 0.0
    for number in range(options.kills):
        moment = chance.uniform(0, whole)
        child = bool(number % 2)
        during, spent, rest = killed(options.backend, moment, options.grace, child=child)
        stages[during] += 1
        lost += rest
        longest = max(longest, spent)
        who = "child" if child else "command"
        print(f"{number + 1:3} {who:7} at {moment:5.2f} s ({during}): gone after {spent:.2f} s", flush=True)
        for each in rest:
            print(f"    left: {each[:100]}", flush=True)
    kinds = ", ".join(f"{count} in {name}" for name, count in stages.items())
    print(f"{options.kills} kills ({kinds}): {len(lost)} left after {longest:.2f} s at the longest")
    raise SystemExit(bool(lost))


if __name__ == "__main__":
    main()
