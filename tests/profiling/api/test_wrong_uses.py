"""What is typed wrongly in Python is found by a type checker or told in a sentence; true means held."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from operator import attrgetter
from threading import get_ident
from time import sleep
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.packages import built_wheel

import modeldyno
from modeldyno.base import plugins
from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.profiling.api.settings import CountedKnobs, Knobs, PlannedKnobs, ServedKnobs
from modeldyno.testing.sample_results import a_result

if TYPE_CHECKING:
    from pathlib import Path

BRIEF = Plan(min_time=0.05, min_runs=5, max_time=0.5, precision=0.5)
PLANTED = """\
from __future__ import annotations

from pathlib import Path

import modeldyno
from modeldyno import Plan, Result


def layer(x: float) -> float:
    return 2 * x


def measure() -> Result:
    plan = Plan(max_time=3, precision=0.05)
    return modeldyno.profile(layer, 1.0, plan=plan, tags="main", batch_size=8, threads=2)


def served(url: str) -> Result:
    return modeldyno.load(url, concurrency=4, max_time=5, inputs=["x=1x4"])


def judged(result: Result) -> bool:
    report = modeldyno.check(result, require="latency.p99 <= 50ms")
    return report.verdict == "held" and bool(result.judge("latency.p50 <= 1s"))


def kept(result: Result) -> str:
    modeldyno.save(result, Path("result.json"))
    latency = result["latency.p50"]
    assert latency is not None
    return f"{latency * 1e6:.0f} us"


def swept() -> int:
    study = modeldyno.sweep(layer, example=1.0, space="batch_size=1,2", max_trials=2)
    return len(study.trials)


result = measure()
modeldyno.profile(layer, 1.0, max_tme=3)  # 1: a misspelt field of the plan
modeldyno.load("http://127.0.0.1:8000", batchsize=8)  # 2: a misspelt knob
modeldyno.profle(layer, 1.0)  # 3: a function that is not there
print(result.nmae)  # 4: an attribute that is not there
modeldyno.profile(layer, 1.0, max_time=[3])  # 5: a list for a time
print(result["latency.p50"] * 2)  # 6: a number that may be missing
Plan(max_tiem=3)  # 7: a misspelt argument of a class
modeldyno.save("result.json", result)  # 8: the wrong order
answer: str = modeldyno.compare(result, result)  # 9: another type of document
"""


@pytest.mark.slow
def test_mypy_finds_nine_of_nine_planted_errors_and_nothing_else(tmp_path: Path) -> None:
    """Strictly, against the installed wheel."""
    (tmp_path / "script.py").write_text(PLANTED)
    site = built_wheel(tmp_path)
    assert (site / "modeldyno" / "py.typed").is_file()
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--config-file=", "script.py"],
        cwd=tmp_path, env={"MYPYPATH": str(site), "PATH": "/usr/bin:/bin"}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    errors = [line for line in done.stdout.splitlines() if line.startswith("script.py:") and "error" in line]
    lines = {line.split(":")[1] for line in errors}
    planted = {str(n) for n, line in enumerate(PLANTED.splitlines(), 1) if "  # " in line}

    assert len(planted) == 9
    assert lines == planted, done.stdout


def test_the_names_for_type_checkers_are_those_of_the_knobs() -> None:
    """A knob that is added to a backend is added to them; `model` is the parameter of that name."""
    knobs = {
        name for _, backend in plugins.usable("backend") for knob in backend.knobs for name in knob.names
    }

    assert knobs - {"model"} == Knobs.__annotations__.keys()
    fields = Plan.__dataclass_fields__.keys() - {"bounds"}
    assert PlannedKnobs.__annotations__.keys() == Knobs.__annotations__.keys() | fields
    assert CountedKnobs.__annotations__.keys() < Knobs.__annotations__.keys()
    assert ServedKnobs.__annotations__.keys() < Knobs.__annotations__.keys()


@pytest.mark.parametrize(
    ("wrong", "meant"), [("max_tme", "max_time"), ("requir", "require"), ("batch_sze", "batch_size")]
)
def test_a_misspelt_argument_is_told_with_the_right_one(wrong: str, meant: str) -> None:
    """Be it a parameter, a field of the plan or a knob."""
    arguments: dict[str, Any] = {wrong: 3}
    with pytest.raises(UnknownName, match=f"'{wrong}'; did you mean '{meant}'"):
        modeldyno.profile(len, **arguments)


@pytest.mark.parametrize("name", ["gate", "load", "trend", "compat.load_baseline", "sweeps.rerank"])
def test_a_document_for_a_name_is_refused_in_a_sentence(name: str) -> None:
    """Not with its whole report as the name of a file."""
    with pytest.raises(RequestError, match="takes no Result as") as caught:
        attrgetter(name)(modeldyno)(a_result(), *((a_result(),) if name == "gate" else ()))

    assert len(str(caught.value)) < 150


def test_a_document_is_shown_as_it_is() -> None:
    """`show` gives what it is given."""
    assert modeldyno.store.show(a_result()) == a_result()


def test_what_check_gives_is_true_if_the_bounds_are_held() -> None:
    """So that `assert` fails where one is broken."""
    assert modeldyno.check(a_result(), require="latency.p50.raw <= 1h")
    assert not modeldyno.check(a_result(), require="latency.p50.raw <= 1ns")


@pytest.mark.usefixtures("brief_measurements")
def test_profiles_in_two_threads_take_turns() -> None:
    """Otherwise each call would wait for Python while the other thread has it."""
    callers: list[int] = []

    def call() -> None:
        callers.append(get_ident())
        sleep(0.002)

    def measure(_: int) -> float:
        result = modeldyno.profile(call, plan=BRIEF, probes="latency", store=False, progress=False)
        return result["latency.p50.raw"] or 0

    with ThreadPoolExecutor(2) as pool:
        medians = list(pool.map(measure, range(2)))

    assert sum(one != other for one, other in pairwise(callers)) == 1
    assert all(0.002 <= median < 0.02 for median in medians)


@pytest.mark.usefixtures("brief_measurements")
def test_profiles_of_files_in_two_threads_take_turns(tmp_path: Path) -> None:
    """Each in processes of its own, which would share the cores: their calls seemed four times as long."""
    (tmp_path / "slow.py").write_text(
        "import os\nfrom pathlib import Path\nfrom time import sleep\n\ndef call():\n"
        "    sleep(0.002)\n    with Path(__file__).with_name('log').open('a') as log:\n"
        "        log.write(f'{os.getpid()}\\n')\n"
    )

    def measure(_: int) -> None:
        modeldyno.profile(
            f"call:{tmp_path}/slow.py:call", plan=BRIEF, probes="latency", store=False, progress=False
        )

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(measure, range(2)))
    callers = (tmp_path / "log").read_text().split()

    assert len(set(callers)) >= 2
    assert sum(one != other for one, other in pairwise(callers)) == len(set(callers)) - 1
