from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support import faulty_models
from tests.support.measured_once import measured_once

from modeldyno.base import codec, plugins
from modeldyno.base.errors import StoreError
from modeldyno.base.metrics.metric import METRICS
from modeldyno.base.result.result import Progressed
from modeldyno.cli import COMMANDS
from modeldyno.cli.actions.printing import print_result
from modeldyno.testing.sample_results import a_failed_result, a_result
from modeldyno.testing.sample_studies import a_study

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Protocol

    class CommandResult(Protocol):
        code: int
        out: str
        err: str


DIGITS = str(Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx")
STEADY = "call:modeldyno.testing.known_latency:steady"
QUICK = ("--max-time", "2s", "--min-time", "0.1s", "--precision", "50%", "--probe", "latency")
HEAVY = (
    "numpy",
    "torch",
    "onnxruntime",
    "sqlalchemy",
    "scipy",
    "optuna",
    "rich",
    "asyncio",
    "importlib.metadata",
)


@pytest.fixture(scope="module", autouse=True)
def _equal_profiles_are_measured_once() -> Iterator[None]:
    with measured_once():
        yield


def test_help_imports_nothing_heavy() -> None:
    """Help imports click, but no framework."""
    code = (
        "import sys\nfrom modeldyno.cli import main\n"
        "try: main(['--help'])\n"
        f"finally: print('LOADED', [m for m in {HEAVY!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "LOADED []" in done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(modeldyno: Callable[..., CommandResult], command: str) -> None:
    """Each command explains itself, within 100 columns."""
    result = modeldyno(command, "--help")

    assert result.code == 0
    assert all(len(line) <= 100 for line in result.out.splitlines())


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("profil",), 2, "There is no command 'profil'; did you mean 'profile'?"),
        (("profile",), 2, "MODEL is missing; write modeldyno profile model.onnx"),
        (("profile", "no.onnx"), 2, "There is no file or directory 'no.onnx'"),
        (("profile", "onxn:m.onnx"), 2, "There is no loader 'onxn'; did you mean 'onnx'?"),
        (("profile", STEADY, "--set", "batchsize=8"), 2, "did you mean 'batch_size'?"),
        (("profile", STEADY, "--set", "batch_size"), 2, "is not knob=value"),
        (
            ("sweep", STEADY, "--space", "a=1,2", "b=3"),
            2,
            "'b=3' belongs to no option; for another --space, write --space b=3.",
        ),
        (
            ("show", "r.json", "--json", "-"),
            2,
            "--json takes no value, such as '-'; it prints: for a file, write",
        ),
        (
            ("profile", STEADY, "-b", "8,16"),
            2,
            "--batch-size takes a whole number, not '8,16'; modeldyno sweep MODEL --space batch_size=8,16",
        ),
        (("profile", STEADY, "--processes", "two"), 2, "--processes takes a whole number, not 'two'."),
        (("profile", "--model", "m.onnx"), 2, "no option --model; MODEL stands without an option"),
        (("profile", STEADY, "--layers"), 2, "--layers needs a value. Only modules with one of these texts"),
        (("registry", "add", "-o"), 2, "No such option '-o'."),
        (("profile", STEADY, "--trust", "more"), 2, "--trust takes no value, such as 'more'."),
        (
            ("profile", STEADY, "more"),
            2,
            "Got unexpected extra argument (more) See: modeldyno profile --help",
        ),
        (("profile", STEADY, "--set", "batch_size=0"), 2, "a whole number from 1, not 0"),
        (("profile", STEADY, "--probe", "latencies"), 2, "There is no probe 'latencies'"),
        (("profile", STEADY, "--require", "latency <= 5ms"), 2, "name a statistic"),
        (("profile", STEADY, "--require", "latncy.p99 <= 5ms"), 2, "did you mean 'latency'?"),
        (("profile", STEADY, "--require", "latency.p99 <= 5MiB"), 2, "'MiB' in '5MiB' is not a unit here"),
        (("profile", STEADY, "--percentile", "p100"), 2, "p100"),
        (("profile", STEADY, "--processes", "0"), 2, "'--processes': 0 is not in the range"),
        (("profile", STEADY, "--max-time", "-5s"), 2, "--max-time -5s: it must be more than 0."),
        (("profile", STEADY, "--precision", "200%"), 2, "--precision 200%: it must be more than 0, and less"),
        (
            ("profile", STEADY, "--min-runs", "9", "--max-runs", "5"),
            2,
            "--min-runs 9 is more than --max-runs 5",
        ),
        (("profile", STEADY, "--memory-limit", "10"), 2, "it was read as bytes; write 10GiB."),
        (("profile", STEADY, "--memory-limit", "1MiB"), 2, "a child process needs at least 64 MiB"),
        (("profile", STEADY, "--metric", "latency"), 2, "--metric needs a baseline to compare with"),
        (("profile", STEADY, "--max-regression", "5%"), 2, "name one with --baseline."),
        (("doctor", "--max-regression", "0%"), 2, "cannot be told apart from noise; write 5%"),
        (("doctor", "--budget", "0s"), 2, "--budget 0s: it must be more than 0."),
        (("advise", STEADY, "--max-time", "0s"), 2, "--max-time 0s: it must be more than 0."),
        (("compare", "a", "b", "--min-rounds", "5", "--max-rounds", "3"), 2, "--min-rounds 5 is more than"),
        (("profile", STEADY, "--pin", "a"), 2, "is not a list of cores"),
        (("profile", STEADY, "--pin", "0,0"), 2, "--pin is (0, 0), but must name distinct processors"),
        (("load", STEADY, "--requests", "0"), 2, "'--requests': 0 is not in the range x>=1"),
        (("profile", STEADY, "--json", "no/such/r.json"), 2, "the directory no/such does not exist"),
        (("profile", STEADY, "-o", "no/such/r.md"), 2, "the directory no/such does not exist"),
        (
            ("check", "r.json", "--baseline", "r.json", "--junit", "no/r.xml"),
            2,
            "the directory no does not exist",
        ),
        (("run", "--json", "no/such/r.json", __file__), 2, "the directory no/such does not exist"),
        (("profile", STEADY, "--input", "no.npz"), 2, "neither a file nor a shape"),
        (("profile", STEADY, "--backend", "pyton"), 2, "did you mean 'python'?"),
        (("profile", STEADY, "--inline", "--trust"), 2, "loaded only in a child process"),
        (("profile", STEADY, "--inline", "--processes", "2"), 2, "there is no processes"),
        (("profile", STEADY, "--require", "load_time.p99 <= 1s"), 2, "is one number and has no p99"),
        (("profile", STEADY, "-o", "x.docx"), 2, "No reporter writes 'x.docx'"),
        (("profile", STEADY, "--max-time", "soon"), 2, "--max-time: 'soon' is not a quantity"),
        (("profile", STEADY, "--pin", "4095"), 2, "Cannot pin to the cores 4095"),
        (("profile", "."), 2, "holds no model"),
        (("show", "no.json"), 2, "There is no file 'no.json'"),
        (("show", "deadbeef"), 2, "deadbeef"),
        (("plugins", "onnxruntim"), 2, "did you mean 'onnxruntime'?"),
    ],
)
def test_a_wrong_request_gets_one_sentence_and_its_code(
    modeldyno: Callable[..., CommandResult], arguments: tuple[str, ...], code: int, says: str
) -> None:
    """One line on standard error says what was wrong; nothing is measured."""
    result = modeldyno(*arguments)

    assert (result.code, result.out) == (code, "")
    assert len(result.err.strip().splitlines()) == 1
    assert says in result.err


def test_a_profile_is_shown_saved_and_stored(modeldyno: Callable[..., CommandResult], tmp_path: Path) -> None:
    """The verdict comes first; the document is on disk and in the store."""
    reports = "-o", "r.html", "-o", "r.csv"
    completed = modeldyno("profile", STEADY, *QUICK, "--json", "r.json", *reports, "--tag", "first")
    result = codec.read(tmp_path / "r.json")

    assert completed.code == 0
    assert completed.out.startswith("known_latency.steady answers in ")
    assert all(len(line) <= 80 for line in completed.out.splitlines())
    assert "Saved to r.json, r.html and r.csv." in completed.out
    assert modeldyno("show", "first", "--json").out == (tmp_path / "r.json").read_text()
    assert modeldyno("show", "@first", "--json").out == (tmp_path / "r.json").read_text()
    assert modeldyno("check", "first", "--baseline", "@first").code in {0, 5}
    assert modeldyno("check", "first", "--baseline", f"@{result.id[:6]}").code == 2
    assert f"its newest: {result.id[:6]}." in modeldyno("show", result.name).err
    assert result.id[:6] in modeldyno("list").out
    assert modeldyno("tag", result.id[:6], "best").out.endswith("best, first\n")
    assert modeldyno("tag", result.id[:6], "best", "--remove").out.endswith("first\n")
    assert modeldyno("report", "first", "-o", "r.csv").code == 0
    assert (tmp_path / "r.csv").read_text().startswith("metric,scope,statistic")
    assert modeldyno("report", "first", "-o", "r.docx").code == 2
    assert result.id in modeldyno("rm", result.id[:6]).out
    assert "Nothing is stored yet" in modeldyno("list").out
    assert "no such results" in modeldyno("list", "--tag", "first").out


def test_show_gives_one_number_to_scripts(modeldyno: Callable[..., CommandResult], tmp_path: Path) -> None:
    """A statistic, its interval, an uncertified percentile and its plain quantile."""
    samples = [0.002 + 1e-6 * (i * 617 % 100) for i in range(100)]
    codec.write(tmp_path / "r.json", codec.encode(a_result(samples=samples)))
    median = float(modeldyno("show", "r.json", "--get", "latency.p50").out)
    low, high = map(float, modeldyno("show", "r.json", "--get", "latency.p50.ci").out.split())
    grams = modeldyno("show", "r.json", "--carbon", "400g/kWh", "--power", "65W", "--get", "carbon")
    assert float(grams.out) > 0
    uncertified = modeldyno("show", "r.json", "--get", "latency.p99")

    assert 0.002 < low < median < high < 0.0021
    assert (uncertified.code, uncertified.out) == (0, "null\n")
    assert "584 effective samples are missing" in uncertified.err
    assert float(modeldyno("show", "r.json", "--get", "latency.p99.raw").out) == pytest.approx(0.002098)
    assert modeldyno("show", "r.json", "--get", "latency.p99.ci").out.endswith(" null\n")
    assert modeldyno("show", "r.json", "--get", "steal").code == 4


def test_standard_output_holds_the_document_alone(modeldyno: Callable[..., CommandResult]) -> None:
    """With --json - a pipe gets JSON and nothing else."""
    result = modeldyno("profile", STEADY, *QUICK, "--json", "-", "--no-store")

    assert json.loads(result.out)["schema"] == 1


@pytest.mark.parametrize(
    ("bound", "code", "word"),
    [
        ("latency.min <= 1s", 0, "held"),
        ("latency.min <= 1ms", 1, "broken"),
        ("latency.p99.9 <= 100s", 5, "undecided"),
    ],
)
def test_a_bound_decides_the_exit_code(
    modeldyno: Callable[..., CommandResult], bound: str, code: int, word: str
) -> None:
    """Held is 0, broken is 1, undecided is 5, and the output says which."""
    result = modeldyno(
        "profile", STEADY, *QUICK, "--max-time", "0.5s", "--require", bound, "--json", "r.json"
    )

    assert result.code == code
    assert word in result.out
    assert modeldyno("show", "r.json", "--require", bound).code == code


def test_percentiles_are_read_as_they_are_typed_elsewhere() -> None:
    """Several in one option, with or without the letter, each once."""
    from modeldyno.cli.actions.options import parse_percentiles

    assert parse_percentiles(("95", "p99,99.9", "p95")) == ("p95", "p99", "p99.9")


def test_a_requested_percentile_makes_the_run_go_on(
    modeldyno: Callable[..., CommandResult], tmp_path: Path
) -> None:
    """With p95 bounded there are at least its 130 effective samples."""
    modeldyno(
        "profile", STEADY, "--probe", "latency", "--min-time", "0.05s", "--precision", "50%",
        "--max-time", "4s", "--require", "latency.p95 <= 1s", "--json", "r.json",
    )  # fmt: skip
    result = codec.read(tmp_path / "r.json")

    latency = result.find("latency")
    assert latency is not None

    assert result.ask("latency.p95").value is not None or latency.value.stop == "time limit"  # type: ignore[union-attr]
    assert len(latency.value) >= 130  # type: ignore[arg-type]
    assert result.job.plan.percentiles == ("p95",)


def test_a_failed_run_is_kept_and_exits_with_4(modeldyno: Callable[..., CommandResult]) -> None:
    """A crash is reported and stored, without a traceback."""
    result = modeldyno("profile", f"call:{faulty_models.__file__}:segfault", *QUICK)

    assert result.code == 4
    assert "SIGSEGV" in result.out
    assert "Traceback" not in result.err
    assert "failed in first call: crash" in modeldyno("list").out


@pytest.mark.slow
def test_several_processes_are_pooled(modeldyno: Callable[..., CommandResult], tmp_path: Path) -> None:
    """Two processes give two runs, and the doubt that they are few."""
    modeldyno("profile", STEADY, *QUICK, "--processes", "2", "--json", "r.json", "-q")
    result = codec.read(tmp_path / "r.json")
    latency = result.find("latency")

    assert latency is not None
    assert len(latency.value.runs) == 2  # type: ignore[union-attr]
    assert "few-processes" in {doubt.code for doubt in result.doubts}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="nothing here is always full")
def test_a_full_disk_is_told_as_one(modeldyno: Callable[..., CommandResult], tmp_path: Path) -> None:
    """A full disk gives one sentence, not a report of a bug."""
    codec.write(tmp_path / "r.json", codec.encode(a_result()))
    for arguments in (["show", "r.json"], ["show", "r.json", "--json"], ["--version"]):
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "modeldyno", *arguments],
                stdout=full, stderr=subprocess.PIPE, text=True, check=False, cwd=tmp_path,
            )  # fmt: skip

        assert done.returncode == 4
        assert done.stderr == "modeldyno: Cannot write to standard output: No space left on device.\n"
    saved = modeldyno("profile", STEADY, *QUICK, "--json", "/dev/full", "--junit", "/dev/full")
    assert saved.code == 4
    assert "answers in" in saved.out
    assert "Saved" not in saved.out
    assert saved.err.endswith("modeldyno: Cannot write /dev/full: No space left on device.\n")


def test_a_tag_of_several_removes_none_of_them(modeldyno: Callable[..., CommandResult]) -> None:
    """The output has their number, and says that a baseline was removed."""
    with plugins.store() as store:
        for number, tags in enumerate((["a", "@main"], ["a"])):
            store.put(a_result(id=f"{number}" * 12), headline="")
            store.tag(f"{number}" * 12, add=tags)

    refused = modeldyno("rm", "a")
    assert refused.code == 2
    assert "2 results have the tag 'a'; give their ids" in refused.err
    assert modeldyno("rm", "0000").out == "removed 000000000000, the baseline @main\n"
    assert modeldyno("rm", "a").out == "removed 111111111111\n"


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores cannot be chosen here")
def test_a_run_stays_on_its_cores(modeldyno: Callable[..., CommandResult], tmp_path: Path) -> None:
    """--pin leaves the child one core."""
    core = min(os.sched_getaffinity(0))
    modeldyno("profile", STEADY, *QUICK, "--pin", str(core), "--json", "r.json")

    assert codec.read(tmp_path / "r.json").environment.hardware["cores_allowed"] == 1


def test_a_file_gives_defaults_and_a_flag_overrides_it(
    modeldyno: Callable[..., CommandResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Default < modeldyno.toml < environment < flag."""
    (tmp_path / "modeldyno.toml").write_text(
        '[profile]\nseed = 1\nmin-runs = 7\nmax-time = "2s"\nname = "file"\n'
    )
    monkeypatch.setenv("MODELDYNO_PROFILE_SEED", "2")
    monkeypatch.setenv("MODELDYNO_PROFILE_NAME", "environment")
    modeldyno("profile", STEADY, *QUICK, "--name", "flag", "--json", "r.json")
    job = codec.read(tmp_path / "r.json").job

    assert (job.plan.min_runs, job.plan.seed, job.name) == (7, 2, "flag")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[profile]\nmax-tme = "1s"\n', "did you mean 'max_time'"),
        ("[profile]\nmax-time = [1]\n", "'max_time' of [profile] takes one value, not a list."),
        ("[profile]\ntag = {a = 1}\n", "'tag' of [profile] takes values in a list, not a table."),
        ('[profile]\nrequire = "latency"\n', "'latency' is not a constraint"),
        ("[profile]\nrequire = 5\n", "'5' is not a constraint"),
        ("[profil]\nseed = 1\n", "did you mean 'profile'"),
        ("[profile]\ntrust = true\n", "no option of [profile]"),
        ("[profile]\nbatch-size = inf\n", "`profile.batch-size` of the file"),
        ("[profile]\nbatch-size = 1e999\n", "write a finite number"),
        ("[profile]\nmax-time = nan\n", "`profile.max-time` of the file"),
        ("[load]\nbatch-size = [-inf]\n", "`load.batch-size[0]` of the file"),
    ],
)
def test_a_file_of_settings_is_read_strictly(
    modeldyno: Callable[..., CommandResult], tmp_path: Path, text: str, says: str
) -> None:
    """A misspelt key or table is refused, and so is a number such as NaN; a file cannot grant trust."""
    (tmp_path / "modeldyno.toml").write_text(text)
    result = modeldyno("profile", STEADY)

    assert result.code == 2
    assert says in result.err


@pytest.mark.parametrize(
    "words",
    [
        ("profile", "LONG.onnx"),
        ("show", "LONG.json"),
        ("import", "LONG"),
        ("run", "LONG"),
        ("verify", "LONG"),
        ("registry", "get", "net", "LONG"),
        ("profile", STEADY, "--json", "LONG"),
    ],
)
def test_a_name_that_no_file_has_is_refused(
    modeldyno: Callable[..., CommandResult], words: tuple[str, ...]
) -> None:
    """One of 300 characters, before anything is measured."""
    result = modeldyno(*(word.replace("LONG", "x" * 300) for word in words))

    assert result.code == 2
    assert len(result.err.splitlines()) == 1
    assert "this is a bug" not in result.err


def test_every_option_of_the_plan_arrives(modeldyno: Callable[..., CommandResult], tmp_path: Path) -> None:
    """Quantities arrive in base units, and the child can read them."""
    result = modeldyno(
        "profile", STEADY, "--probe", "latency", "--json", "r.json", "--max-time", "2s", "--min-time",
        "100ms", "--min-runs", "6", "--max-runs", "500", "--min-warmup", "9", "--target", "mean",
        "--precision", "5%",
        "--seed", "3", "--timeout", "2m", "--memory-limit", "2GiB",
    )  # fmt: skip
    plan = codec.read(tmp_path / "r.json").job.plan

    assert result.code == 0
    assert (plan.max_time, plan.min_time, plan.precision, plan.timeout) == (2.0, 0.1, 0.05, 120.0)
    assert (plan.min_runs, plan.max_runs, plan.target, plan.seed) == (6, 500, "mean", 3)
    assert plan.min_warmup == 9
    assert plan.memory_limit == 2 << 30


def test_the_verdict_survives_a_closed_pipe(tmp_path: Path) -> None:
    """After a broken pipe, the exit code is still that of the bound."""
    profile = f"{sys.executable} -m modeldyno profile {STEADY} --no-store {' '.join(QUICK)}"
    command = f"{profile} --require 'latency.min <= 1ns'"
    script = f"{command} | head -n 1 > {tmp_path}/out; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], check=False)

    assert done.returncode == 1


def test_a_store_that_cannot_be_opened_is_found_before_measuring(
    modeldyno: Callable[..., CommandResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is measured if it cannot be stored; the message for a path has the right URL."""
    for store, says, code in (
        ("/tmp/x.db", "write MODELDYNO_STORE=sqlite:////tmp/x.db", 2),
        (f"sqlite:///{__file__}/x.db", "cannot be opened", 4),
    ):
        monkeypatch.setenv("MODELDYNO_STORE", store)
        result = modeldyno("profile", STEADY, "--tag", "kept")

        assert (result.out, result.code) == ("", code)
        assert says in result.err


def test_what_cannot_be_stored_is_measured_and_printed(
    modeldyno: Callable[..., CommandResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read-only home, as in a container, only gives a warning."""
    monkeypatch.setenv("MODELDYNO_STORE", f"sqlite:///{__file__}/x.db")
    result = modeldyno("profile", STEADY, *QUICK, "--json", "r.json", "-q")

    assert result.code == 0
    assert "answers in" in result.out
    assert "warning: the result is not stored" in result.err
    assert "--no-store" in result.err
    assert Path("r.json").exists()


def test_a_store_that_fails_at_the_end_costs_a_warning(
    modeldyno: Callable[..., CommandResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example on a full disk; with a tag the exit code reports the failure."""

    def full(results: Sequence[object], tags: object = ()) -> None:
        del tags
        if results:
            raise StoreError("The store x cannot be written, as its disk is full.")

    monkeypatch.setattr("modeldyno.stores.catalog.store_results", full)
    plain, tagged = (modeldyno("profile", STEADY, *QUICK, "-q", *tag) for tag in ((), ("--tag", "mine")))

    assert (plain.code, tagged.code) == (0, 4)
    assert all("answers in" in result.out and "disk is full" in result.err for result in (plain, tagged))


@pytest.mark.parametrize(
    "arguments", [("list",), ("show", "abc"), ("report", "abc", "-o", "x.md"), ("rm", "abc")]
)
def test_looking_for_something_makes_no_store(
    modeldyno: Callable[..., CommandResult],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    arguments: tuple[str, ...],
) -> None:
    """A command that only reads does not write to the disk."""
    monkeypatch.setenv("MODELDYNO_STORE", f"sqlite:///{tmp_path}/a/b/s.db")
    modeldyno(*arguments)

    assert not (tmp_path / "a").exists()


def test_what_was_only_seen_has_no_interval(modeldyno: Callable[..., CommandResult]) -> None:
    """An extreme is judged as seen, with a doubt; its interval is null."""
    bound = ("--require", "latency.max <= 10s")
    result = modeldyno("profile", STEADY, *QUICK, *bound, "--json", "r.json", "-q")

    assert result.code == 0
    assert "no-interval" in result.out
    assert modeldyno("show", "r.json", "--get", "latency.max.ci").out == "null null\n"
    assert modeldyno("show", "r.json", "--get", "load_time.ci").out == "null null\n"


def test_a_damaged_settings_file_is_named(modeldyno: Callable[..., CommandResult], tmp_path: Path) -> None:
    """TOML that cannot be read gives one sentence."""
    (tmp_path / "modeldyno.toml").write_text("[profile\n")

    assert modeldyno("list").code == 2


def test_a_setting_outside_a_table_is_refused(
    modeldyno: Callable[..., CommandResult], tmp_path: Path
) -> None:
    """The message says which table to put the key in."""
    (tmp_path / "modeldyno.toml").write_text("seed = 1\n")

    assert "[profile]" in modeldyno("list").err


def test_quiet_prints_the_verdict_only(modeldyno: Callable[..., CommandResult]) -> None:
    """One sentence, which may take two lines of a terminal."""
    result = modeldyno("profile", STEADY, *QUICK, "-q", "--no-store")

    assert len(result.out.strip().splitlines()) == 1


def test_verbose_prints_every_number(modeldyno: Callable[..., CommandResult]) -> None:
    """The table of all statistics comes after the rest."""
    assert "foreign_cpu" in modeldyno("profile", STEADY, *QUICK, "-v", "--no-store").out


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    """--debug anywhere prints the traceback."""
    command = [sys.executable, "-m", "modeldyno", "show", "no.json", "--debug"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)

    assert "Traceback" in done.stderr


def test_debug_shows_the_traceback_of_the_users_own_code(tmp_path: Path) -> None:
    """What a child process raised has its own, down to the user's line; without it there is one sentence."""
    (tmp_path / "broken.py").write_text("def setup():\n    return {}['key']\n\n\nMODEL = setup()\n")
    command = [sys.executable, "-m", "modeldyno", "profile", "call:broken.py:MODEL", "--no-store"]
    plain, debug = (
        subprocess.run([*command, *more], capture_output=True, text=True, cwd=tmp_path, check=False)
        for more in ((), ("--debug",))
    )

    assert "in setup" not in plain.stderr
    assert "broken.py\", line 2, in setup\n    return {}['key']" in debug.stderr
    assert debug.stderr.strip().endswith(plain.stderr.strip())


def test_the_schema_describes_the_document(modeldyno: Callable[..., CommandResult]) -> None:
    """What `schema` prints is JSON Schema with the number in its title."""
    assert json.loads(modeldyno("schema").out)["title"] == "ModelDyno result, schema 1"


def test_plugins_are_listed_with_their_knobs(modeldyno: Callable[..., CommandResult]) -> None:
    """Every kind has a heading, and a backend lists its knobs."""
    listed, knobs = modeldyno("plugins").out, modeldyno("plugins", "onnxruntime").out

    assert "strategies  (sweep --strategy NAME)" in listed
    assert "  latency         Seconds of one call with the whole batch, in the steady state." in listed
    assert "knobs: device, threads" in listed
    assert "batch_size, also batch: a whole number from 1" in knobs
    assert max(map(len, (*listed.splitlines(), *knobs.splitlines()))) <= 80


def test_one_kind_of_plugin_and_all_metrics_are_listed(modeldyno: Callable[..., CommandResult]) -> None:
    """Commands that messages refer to exist; a misspelt name gets a suggestion."""
    probes, metrics = modeldyno("plugins", "probes").out, modeldyno("plugins", "metrics").out

    assert set(re.findall(r"^  (\S+)", probes, re.MULTILINE)) == set(plugins.names("probe"))
    assert set(re.findall(r"^  (\S+)", metrics, re.MULTILINE)) == set(METRICS)
    assert "did you mean 'probes'?" in modeldyno("plugins", "probs").err


def test_a_list_that_is_cut_says_so(modeldyno: Callable[..., CommandResult]) -> None:
    """A truncated list says how to see older results."""
    with plugins.store() as store:
        for number in range(3):
            store.put(a_result(id=f"{number:012x}"), headline="")

    assert "There are older ones; to see more: --limit 10" in modeldyno("list", "-n", "2").err
    assert modeldyno("list", "-n", "3").err == ""


def test_a_list_is_filtered_by_conditions(modeldyno: Callable[..., CommandResult]) -> None:
    """Studies are left out; a condition that cannot be read exits with 2, and one that none keeps with 0."""
    with plugins.store() as store:
        store.put(a_result(), headline="")
        store.put_study(a_study(), headline="")

    result = modeldyno("list", "--where", "latency.mean < 2ms and batch_size = 8 and name ~ DIGITS")
    assert "01234" in result.out
    assert "Studies" not in result.out
    none = modeldyno("list", "--where", "latency.p99 < 1s")
    assert (none.code, none.out.startswith("No stored result matches; a percentile")) == (0, True)
    refused = modeldyno("list", "--where", "latncy.p99 < 1s")
    assert refused.code == 2
    assert "at character 1 of 15" in refused.err
    assert "No stored result has btach_size" in modeldyno("list", "--where", "btach_size = 8").err


def test_the_size_of_a_batch_has_an_option_of_its_own(modeldyno: Callable[..., CommandResult]) -> None:
    """``-b 16`` is ``--set batch_size=16``, and contradicts another size."""
    once = modeldyno("inspect", DIGITS, "-b", "16", "--json", "-").out
    twice = modeldyno("profile", DIGITS, "-b", "16", "--set", "batch_size=4")

    assert json.loads(once)["job"]["config"]["batch_size"] == 16
    assert "batch_size is set twice: 4 and 16" in twice.err


def test_help_is_a_command_too(modeldyno: Callable[..., CommandResult]) -> None:
    """`help COMMAND` works; an unknown command is refused."""
    assert modeldyno("help").out == modeldyno("--help").out
    assert modeldyno("help", "show").out == modeldyno("show", "--help").out
    assert "did you mean 'profile'?" in modeldyno("help", "profil").err


def test_versions_that_matter_are_told(modeldyno: Callable[..., CommandResult]) -> None:
    """--version names Python and the frameworks."""
    assert "numpy" in modeldyno("--version").out
    assert modeldyno("-V").out == modeldyno("--version").out


def test_progress_is_one_line() -> None:
    """Stage, samples, value with its precision, time left."""
    from modeldyno.base.progress import line

    event = Progressed(stage="latency: steady", runs=1200, value=0.0123, precision=0.031, left=4.2)

    assert line(event) == "  latency: steady, 1,200 samples, 12.3 ms ± 3.1%, about 4 s left"


def test_without_a_terminal_a_line_says_every_while_where_it_stands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Lines have the elapsed time; with quiet there are none."""
    from modeldyno.base.progress import Progress

    with Progress(every=0.01) as progress:
        progress.announce("5 rounds")
        progress.watch(Progressed(stage="process 2 of 5"))
        progress.watch(Progressed(stage="latency: steady", runs=1200))
        output = ""
        while "steady" not in output:
            output += capsys.readouterr().err
            time.sleep(0.005)
    time.sleep(0.05)
    capsys.readouterr()
    time.sleep(0.05)

    assert "5 rounds\n" in output
    assert "  0 s: process 2 of 5, latency: steady, 1,200 samples\n" in output
    assert capsys.readouterr().err == ""
    with Progress(quiet=True, every=0.001) as progress:
        progress.announce("5 rounds")
        time.sleep(0.05)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("line", "typed", "left_out"),
    [
        (
            "profile --model-repository r --profile-models m --latency-budget 10 --gpus 0 -d 5 --bogus 4",
            "modeldyno sweep 'r#m' --set protocol=grpc --mode online --latency-budget 10ms",
            ["--bogus: Model Analyzer has no", "--gpus: ", "--duration-seconds: "],
        ),
        (
            "report --report-model-configs m_config_4 --output-formats pdf --checkpoint-directory c",
            "modeldyno report m --configuration m_4 -o m.pdf",
            ["--checkpoint-directory: "],
        ),
        (
            "analyze --analysis-models m --num-configs-per-model 4 --inference-output-fields perf_throughput",
            "modeldyno sweep --rerank m -o m.html --top 4",
            ["--inference-output-fields: "],
        ),
        ("profile --model-repository models --profile-models m", "modeldyno sweep 'models#m'", []),
    ],
)
def test_no_option_of_model_analyzer_is_dropped_in_silence(
    line: str, typed: str, left_out: list[str], modeldyno: Callable[..., CommandResult]
) -> None:
    """Each is in the command, or stands on a line of its own below it with the reason."""
    result = modeldyno(*line.split())

    first, *others = result.err.strip().split("\n  ")
    assert result.code == 2
    assert all(word in first for word in typed.split())
    assert len(others) == len(left_out)
    for item in left_out:
        assert any(each.startswith(f"left out: {item}") and each[-8:].strip() for each in others)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("profile m.onnx --threads", "it is a knob: --set "),
        ("profile --model-repository models", "Model Analyzer's profile is modeldyno sweep"),
        ("sweep m.onnx --profile-models m", "modeldyno sweep DIRECTORY#MODEL sweeps a model"),
        ("sweep m.onnx --triton-launch-mode=local", "modeldyno sweep --set launch=local tells how"),
        ("sweep m.onnx --output-model-repository-path out", "modeldyno sweep --export-configs DIR writes"),
        ("sweep m.onnx --override-output-model-repository", "--overwrite writes into any directory"),
        ("sweep m.onnx --config-file perf.yaml", "modeldyno sweep SWEEP.yaml reads one"),
        ("sweep m.onnx -f perf.yaml", "modeldyno sweep SWEEP.yaml reads one"),
        ("report --report-model-configs m_1", "modeldyno report m --configuration m_1 -o m.html"),
        ("doctor --max-time 5s", "no option --max-time; --budget 5s limits the time"),
        ("monitor", "no command 'monitor'; modeldyno ui --open shows what goes on here"),
        ("alert", "no command 'alert'; modeldyno trend MODEL --fail-on-regression"),
        ("plan", "no command 'plan'; modeldyno load MODEL --find-load"),
        ("analyze", "modeldyno explain MODEL says where the time goes"),
        ("profile --model-path m.onnx --threshold latency.p99:100ms memory:1GB", "mean 'process_memory'"),
        (
            "profile m.onnx --threshold perf_latency_p99:100ms",
            "no metric 'perf_latency_p99'; did you mean 'latency.p99'",
        ),
    ],
)
def test_words_of_other_tools_are_answered_with_ours(
    line: str, says: str, modeldyno: Callable[..., CommandResult]
) -> None:
    """A knob is no option, a repository is swept, and a bound of an unknown metric is no model."""
    result = modeldyno(*line.split())

    assert result.code == 2
    assert says in result.err


def test_a_line_of_progress_keeps_the_time_left() -> None:
    """In a narrow terminal the stage is truncated, but not the time left."""
    from modeldyno.base.progress import line

    event = Progressed(stage="trial 7 (best so far 400/s): batch_size=2, threads=4", left=300.0)

    assert line(event, width=40) == "  trial 7 (best so far, about 5 min left"
    assert line(event, width=200).endswith("threads=4, about 5 min left")


def test_a_run_without_any_number_can_be_shown_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    """Verbose output has no table of numbers then."""
    print_result(a_failed_result(measurements=()), verbose=True)
    assert "failed in load" in capsys.readouterr().out


def test_a_profile_says_what_inferences_cost(modeldyno: Callable[..., CommandResult]) -> None:
    """With the interval of the throughput, also in its document; with a baseline there are two results."""
    measured = modeldyno("profile", DIGITS, "--max-time", "1s", "--price", "$1.20/h", "--json", "r.json")
    document = json.loads(Path("r.json").read_text())
    (cost,) = document["costs"]
    rate = next(m for m in document["measurements"] if m["metric"] == "throughput")["value"]

    assert "Cost at $1.20 per hour" in measured.out
    assert cost["of"] == "million inferences"
    assert cost["amount"] == pytest.approx(1.2 / 3600 * 1e6 / rate)
    assert cost["interval"]["low"] < cost["amount"] < cost["interval"]["high"]
    for words, why in (
        (["soon"], "is not a price"),
        (["1/h", "--baseline", "x"], "--price is of one result"),
    ):
        refused = modeldyno("profile", DIGITS, "--price", *words)
        assert (refused.code, why in refused.err) == (2, True)
