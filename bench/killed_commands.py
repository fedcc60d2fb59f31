"""We are killed with -9 while a server of ours starts, works or stops: is anything of the engine left?

The moments are random, by turns in the start, the load and the stop; what is killed is by turns the command,
and its child that started the server. A process is known for one of the engine by a variable of its
environment, wherever it has moved; files and shared memory by their names.

With ``--command serve`` it is `modeldyno serve` that is killed, while its server starts or after: the server
must end with its owner.

    modeldyno engine install triton
    python bench/killed_commands.py [--command load|serve] [--kills 50] [--backend triton] [--grace 5]
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MODEL = Path(__file__).parent.parent / "examples" / "digits" / "digits.onnx"
MARK = "MODELDYNO_BENCH_KILLS"
SHARED = Path("/dev/shm")
POLL = 0.05
GUARD, CHILDREN = "servers.supervisor", ("runtime.worker", "runtime.serve_worker")
"""What the processes that end a server, and those that started it, run."""


def marked_processes(word: str) -> dict[int, str]:
    """Give the living processes of a round: number to command line."""
    commands = {}
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"{MARK}={word}".encode() in (place / "environ").read_bytes():
                commands[int(place.name)] = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return commands


def start_command(backend: str, folder: Path, word: str, *, serves: bool = False) -> subprocess.Popen[bytes]:
    """Begin a short load, or a server that stays."""
    arguments = ["serve"] if serves else ["load", "-c", "2", "--duration", "1s"]
    command = [sys.executable, "-m", "modeldyno", *arguments, str(MODEL), "--backend", backend]
    changed = {
        MARK: word, "TMPDIR": str(folder), "MODELDYNO_STORE": f"sqlite:///{folder}/store.db",
        "MODELDYNO_STATE": str(folder / "state"),
    }  # fmt: skip
    return subprocess.Popen(
        command, env={**os.environ, **changed}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def watch_stages(main: subprocess.Popen[bytes], word: str) -> Iterator[str]:
    """Say again and again where it stands: before, start, load, stop, after."""
    now = "before"
    while main.poll() is None:
        text = "\n".join(marked_processes(word).values())
        if "loadgen.driver" in text:
            now = "load"
        elif GUARD in text:
            now = "stop" if now in {"load", "stop"} else "start"
        elif now != "before":
            now = "after"
        yield now
        time.sleep(POLL / 5)


def spans(backend: str) -> dict[str, float]:
    """Give how long the server starts, is loaded, and stops, when nobody kills."""
    moments: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="kills-") as folder:
        main = start_command(backend, Path(folder), "whole")
        for now in watch_stages(main, "whole"):
            moments.setdefault(now, []).append(time.monotonic())
    if main.returncode or "load" not in moments:
        raise SystemExit(
            f"a load that nobody kills ends with exit code {main.returncode}; is {backend} installed?"
        )
    return {
        name: moments[name][-1] - moments[name][0] for name in ("start", "load", "stop") if name in moments
    }


def stage(commands: dict[int, str]) -> str:
    """Say which processes there were."""
    text = "\n".join(commands.values())
    if "loadgen.driver" in text:
        return "server and load"
    return "server" if GUARD in text else "no server"


def leftovers(folder: Path, word: str, names: set[str]) -> list[str]:
    """Name what should not be there any more; `names` are those of the servers' directories."""
    folders = [path.name for path in folder.glob("modeldyno-*") if path.is_dir()]
    regions = [path.name for name in names for path in SHARED.glob(f"{name}*")]
    return [*marked_processes(word).values(), *folders, *regions]


def start_time(backend: str) -> float:
    """Give how long `modeldyno serve` takes until its server has answered."""
    with tempfile.TemporaryDirectory(prefix="kills-") as name:
        folder, begin = Path(name), time.monotonic()
        main = start_command(backend, folder, "whole", serves=True)
        while not list((folder / "state").rglob("*.json")):
            if main.poll() is not None:
                raise SystemExit(f"serve ended with exit code {main.returncode}; is {backend} installed?")
            time.sleep(POLL)
        spent = time.monotonic() - begin
        main.terminate()
        main.wait()
    return spent


def kill_command(
    backend: str, phase: str, delay: float, grace: float, *, child: bool, serves: bool = False
) -> tuple[str, float, list[str]]:
    """Kill a load so long after a phase has begun; what serves, after its own beginning.

    Gives what there was, how long it took until nothing was left, and what is left.
    """
    word = f"{os.getpid()}-{random.getrandbits(64):x}"
    with tempfile.TemporaryDirectory(prefix="kills-") as name:
        folder = Path(name)
        main = start_command(backend, folder, word, serves=serves)
        if not serves:
            next((now for now in watch_stages(main, word) if now in {phase, "after"}), None)
        with suppress(subprocess.TimeoutExpired):
            main.wait(delay)
        there = marked_processes(word)
        started_it = [pid for pid, command in there.items() if any(name in command for name in CHILDREN)]
        victims = started_it if child else []
        for pid in victims or [main.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        end = time.monotonic()
        if victims:
            with suppress(subprocess.TimeoutExpired):
                main.wait(grace)  # it tells of the crash, and ends by itself, unless all was done by then
            main.kill()
            end = time.monotonic() if main.poll() is None else end
        main.poll()
        names = set(re.findall(r"/(modeldyno-\w+-\w+)", "\n".join(there.values())))
        while (survivors := leftovers(folder, word, names)) and time.monotonic() - end < grace:
            time.sleep(POLL)
            main.poll()
        spent = time.monotonic() - end
        for pid in marked_processes(word):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        main.wait()
    return stage(there), spent, survivors


def main() -> None:
    """Kill, and count."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--command", choices=("load", "serve"), default="load")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--backend", default="triton")
    parser.add_argument("--grace", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chance, serves = random.Random(options.seed), options.command == "serve"
    # A server that stays is killed while it starts, and for a third of that time after it has answered.
    phases = {"serve": 4 / 3 * start_time(options.backend)} if serves else spans(options.backend)
    print(", ".join(f"{name} takes {seconds:.2f} s" for name, seconds in phases.items()), flush=True)
    stages: Counter[str] = Counter()
    lost: list[str] = []
    longest = 0.0
    for number in range(options.kills):
        name = list(phases)[number % len(phases)]
        delay = chance.uniform(0, phases[name])
        child = bool(number % 2)
        during, spent, survivors = kill_command(
            options.backend, name, delay, options.grace, child=child, serves=serves
        )
        stages[during] += 1
        lost += survivors
        longest = max(longest, spent)
        who = "child" if child else "command"
        print(
            f"{number + 1:3} {name:5} + {delay:.2f} s, {who:7}, with {during}: gone after {spent:.2f} s",
            flush=True,
        )
        for each in survivors:
            print(f"    left: {each[:100]}", flush=True)
    kinds = ", ".join(f"{count} with {name}" for name, count in stages.items())
    print(f"{options.kills} kills ({kinds}): {len(lost)} left after {longest:.2f} s at the longest")
    raise SystemExit(bool(lost))


if __name__ == "__main__":
    main()
