"""Gates of unchanged code, by every way in which a baseline can come: none of them may fail.

A door is a function from a working directory, in which the model is, to what the gate said of it. The
baseline is made anew for each run, as its user would make it. ``--slowdown`` plants a change into the
candidate instead: then the gate should fail, and may not pass.

    python bench/same_code_gates.py --door tag --runs 10
    python bench/same_code_gates.py --door all --runs 100
    python bench/same_code_gates.py --door checkout --runs 10 --slowdown 5%
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROOT = Path(__file__).parent.parent
PROGRAM = (sys.executable, "-m", "modeldyno")
MODEL = "call:work.py:work"
CODE = """\
from modeldyno.testing.known_latency import KnownLatency

work = KnownLatency({seconds})
"""
SECONDS = 0.002
BUDGET = "3m"
VERDICTS = {0: "held", 1: "worse", 5: "undecided"}
"""Exit code to verdict; any other is a failure of the gate itself."""


def write_model(folder: Path, slowdown: float = 0.0) -> None:
    """Write a function that sleeps for 2 ms, which other work hardly disturbs, and longer by a share."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "work.py").write_text(CODE.format(seconds=SECONDS * (1 + slowdown)))


def run(folder: Path, *words: str, command: Sequence[str] = PROGRAM, **environment: str) -> tuple[int, str]:
    """Run a command there, with a store of its own."""
    own = {"MODELDYNO_STORE": f"sqlite:///{folder.resolve()}/store.db"}
    done = subprocess.run(
        [*command, *words],
        cwd=folder,
        env=os.environ | own | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def measure(folder: Path, *words: str) -> str:
    """Measure the model as a baseline is; return what was printed."""
    code, output = run(folder, "profile", MODEL, "--processes", "5", *words)
    if code:
        raise SystemExit(output)
    return output


def gate(folder: Path, baseline: str, *words: str) -> str:
    """Measure the model against a baseline."""
    code, output = run(folder, "profile", MODEL, "--baseline", baseline, "--budget", BUDGET, *words)
    return verdict(code, output)


def verdict(code: int, output: str) -> str:
    """Name the verdict, and print what was said if it is a false one."""
    if code != 0:
        print(output)
    return VERDICTS.get(code, f"exit code {code}")


def printed_verdict(code: int, output: str) -> str:
    """Name the verdict that a program printed."""
    match = re.search(r"^verdict: (\w+)$", output, re.MULTILINE)
    if code or match is None:
        print(output)
        return f"exit code {code}"
    return "worse" if match[1] == "broken" else match[1]


def by_tag(folder: Path, plant: Callable[[Path], None]) -> str:
    """``--save-as-baseline main``, then ``--baseline @main``."""
    measure(folder, "--save-as-baseline", "main")
    plant(folder)
    return gate(folder, "@main")


def by_json(folder: Path, plant: Callable[[Path], None]) -> str:
    """``--json baseline.json``, then ``--baseline baseline.json``."""
    measure(folder, "--json", "baseline.json")
    plant(folder)
    return gate(folder, "baseline.json")


def by_id(folder: Path, plant: Callable[[Path], None]) -> str:
    """The id that the baseline has in the store."""
    measure(folder, "--json", "first.json")
    plant(folder)
    return gate(folder, json.loads((folder / "first.json").read_text())["id"])


def by_checkout(folder: Path, plant: Callable[[Path], None]) -> str:
    """Another checkout, which is measured in turns."""
    write_model(folder / "base")
    plant(folder)
    return gate(folder, "./base")


def by_check(folder: Path, plant: Callable[[Path], None]) -> str:
    """Two stored results, judged by ``check``."""
    measure(folder, "--json", "before.json")
    plant(folder)
    measure(folder, "--json", "after.json")
    return verdict(*run(folder, "check", "after.json", "--baseline", "before.json"))


_PYTEST = f"""
def test_speed(modeldyno_profile):
    modeldyno_profile("{MODEL}", max_time=3)
"""


def by_pytest(folder: Path, plant: Callable[[Path], None]) -> str:
    """The fixture: ``--modeldyno-update`` on the first day, a plain run on the second."""
    (folder / "test_speed.py").write_text(_PYTEST)
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    environment = {
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_PLUGINS": "modeldyno.pytest_plugin",
    }
    code, output = run(folder, "--modeldyno-update", command=command, **environment)
    if code:
        raise SystemExit(output)
    plant(folder)
    code, output = run(folder, command=command, **environment)
    undecided = code == 0 and "UndecidedWarning" in output
    return "undecided" if undecided else verdict(code, output)


_DETECT = f"""
from modeldyno import ModelProfiler, detect_regressions

current = ModelProfiler("{MODEL}", processes=5).profile()
print("verdict:", detect_regressions("baseline.json", current).verdict)
"""


def by_detect_regressions(folder: Path, plant: Callable[[Path], None]) -> str:
    """`detect_regressions` on what a `ModelProfiler` measures."""
    measure(folder, "--json", "baseline.json")
    plant(folder)
    code, output = run(folder, "-W", "ignore", "-c", _DETECT, command=(sys.executable,))
    return printed_verdict(code, output)


def by_python(folder: Path, plant: Callable[[Path], None]) -> str:
    """The function `gate`."""
    measure(folder, "--json", "baseline.json")
    plant(folder)
    measured = f"modeldyno.gate('{MODEL}', 'baseline.json', budget=180.0)"
    program = f"import modeldyno; print('verdict:', {measured}.verdict)"
    code, output = run(folder, "-c", program, command=(sys.executable,))
    return printed_verdict(code, output)


def by_action(folder: Path, plant: Callable[[Path], None]) -> str:
    """The steps of the GitHub action, with a baseline from a file."""
    measure(folder, "--json", "baseline.json")
    plant(folder)
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    (step,) = (step for step in action["runs"]["steps"] if step.get("id") == "gate")
    inputs = {name: str(spec.get("default", "")) for name, spec in action["inputs"].items()}
    inputs |= {"model": MODEL, "baseline": "baseline.json", "budget": BUDGET, "undecided": ""}
    outputs = folder / "outputs.txt"
    environment = {
        name: inputs[value.split()[1].removeprefix("inputs.")] for name, value in step["env"].items()
    } | {
        "GITHUB_OUTPUT": str(outputs),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    return verdict(*run(folder, "-c", step["run"], command=("bash",), **environment))


DOORS: dict[str, Callable[[Path, Callable[[Path], None]], str]] = {
    "tag": by_tag,
    "json": by_json,
    "id": by_id,
    "checkout": by_checkout,
    "check": by_check,
    "pytest": by_pytest,
    "detect_regressions": by_detect_regressions,
    "python": by_python,
    "action": by_action,
}
"""Each way in which a baseline can come."""


def count_verdicts(door: str, runs: int, slowdown: float) -> Counter[str]:
    """Walk through a door that many times, each in a directory of its own."""
    verdicts: Counter[str] = Counter()
    for number in range(1, runs + 1):
        with tempfile.TemporaryDirectory(prefix="same-code-") as scratch:
            folder, begun = Path(scratch), time.monotonic()
            write_model(folder)
            outcome = DOORS[door](folder, lambda place: write_model(place, slowdown))
        verdicts[outcome] += 1
        print(f"{door} {number} of {runs}: {outcome}, {time.monotonic() - begun:.0f} s", flush=True)
    return verdicts


def main() -> None:
    """Walk through doors; exit 1 if any gate of unchanged code failed."""
    parser = argparse.ArgumentParser(description="gates of unchanged code")
    parser.add_argument("--door", default="all", choices=("all", *DOORS))
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--slowdown", default="0%", help="of the candidate, such as 5%%")
    options = parser.parse_args()
    slowdown = float(options.slowdown.removesuffix("%")) / 100
    doors = tuple(DOORS) if options.door == "all" else (options.door,)
    totals = {door: count_verdicts(door, options.runs, slowdown) for door in doors}
    for door, verdicts in totals.items():
        print(f"{door:<20} {', '.join(f'{outcome} {times}' for outcome, times in sorted(verdicts.items()))}")
    wrong = "held" if slowdown else "worse"
    outcomes = {outcome for verdicts in totals.values() for outcome in verdicts}
    sys.exit(wrong in outcomes or not outcomes <= set(VERDICTS.values()))


if __name__ == "__main__":
    main()
