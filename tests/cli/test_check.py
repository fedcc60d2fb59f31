"""``modeldyno check``, ``profile --baseline`` and ``doctor``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from modeldyno.base import codec
from modeldyno.base.errors import RequestError
from modeldyno.base.metrics.measurement import Distribution, Measurement
from modeldyno.cli.actions.gate_options import expand_bounds
from modeldyno.cli.gate_options import repeat_bound_flags
from modeldyno.testing.sample_results import a_small_result

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Protocol

    from modeldyno.base.job.job import Job
    from modeldyno.base.result.result import Result

    class CommandResult(Protocol):
        code: int
        out: str
        err: str


MODEL = "call:modeldyno.testing.known_latency:steady"
QUICK = ("--max-time", "0.5s", "--min-time", "0.1s", "--precision", "50%", "--probe", "latency")


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """Results of five processes: the baseline, the same, twice as slow, and without a model."""
    for name, factor in (("old", 1.0), ("same", 1.001), ("slow", 2.0)):
        runs = [
            [factor * (0.01 + 1e-6 * (17 * n % 40) + 2e-5 * process) for n in range(40)]
            for process in range(5)
        ]
        latency = Measurement(metric="latency", value=Distribution.of(*runs))
        made = a_small_result(name=name, measurements=(latency,))
        codec.write(tmp_path / f"{name}.json", codec.encode(made))
    failures = a_small_result()
    codec.write(tmp_path / "empty.json", codec.encode(replace(failures, measurements=())))
    return tmp_path


@pytest.mark.usefixtures("saved")
@pytest.mark.parametrize(
    ("arguments", "code", "start"),
    [
        (("same.json", "--baseline", "old.json"), 0, "same passes: no regression in latency.p50."),
        (("slow.json", "--baseline", "old.json"), 1, "slow fails: latency.p50 10.06 ms -> 20.12 ms, +100.0%"),
        (("slow.json", "--baseline", "old.json", "--max-regression", "2%"), 1, "slow fails"),
        (("same.json", "--require", "latency.p50 <= 1s", "latency.p95 <= 1s"), 0, "same passes: 2 bounds."),
        (("same.json", "--require", "latency:1ms", "throughput:10samples/s"), 1, "same fails: latency.p95"),
        (("empty.json", "--require", "latency.p50 <= 1s"), 5, "It is undecided whether digits passes"),
        (("empty.json", "--baseline", "old.json"), 5, "It is undecided"),
        (("empty.json", "--baseline", "old.json", "--undecided", "fail"), 1, "It is undecided"),
        (("empty.json", "--baseline", "old.json", "--undecided", "pass"), 0, "It is undecided"),
    ],
)
def test_a_result_is_judged_by_its_exit_code(
    modeldyno: Callable[..., CommandResult], arguments: tuple[str, ...], code: int, start: str
) -> None:
    """Held 0, broken 1, undecided 5; one sentence explains it."""
    result = modeldyno("check", "-q", *arguments)
    assert (result.code, result.err) == (code, "")
    assert result.out.startswith(start)


@pytest.mark.usefixtures("saved")
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("same.json",), "Nothing to check"),
        (("same.json", "--baseline", "@main"), "no baseline @main"),
        (("same.json", "--require", "latency.p50 <= 1s", "--metric", "latency"), "name one with --baseline"),
        (("same.json", "--baseline", "old.json", "--max-regression", "5"), "is not between 0% and 100%"),
        (("same.json", "--baseline", "old.json", "--metric", "cpu_utilization"), "has cpu_utilization"),
        (("same.json", "--baseline", "old.json", "--junit", "gone/x.xml"), "directory gone does not exist"),
        (("same.json", "--require", "requests:5"), "no better direction"),
    ],
)
def test_a_wrong_request_is_one_sentence(
    modeldyno: Callable[..., CommandResult], arguments: tuple[str, ...], sentence: str
) -> None:
    """Mistakes are reported before anything is judged."""
    result = modeldyno("check", *arguments)
    assert (result.code, result.out) == (2, "")
    assert sentence in result.err


@pytest.mark.usefixtures("saved")
def test_reports_are_written_and_annotations_printed(
    modeldyno: Callable[..., CommandResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JUnit, SARIF, a comment, and GitHub's job summary."""
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    result = modeldyno(
        "check", "slow.json", "--baseline", "old.json", "--github",
        "--junit", "j.xml", "--sarif", "s.json", "--markdown", "c.md",
    )  # fmt: skip
    assert result.code == 1
    assert result.out.startswith("::error title=slow%3A latency.p50::")
    assert "<failure" in (tmp_path / "j.xml").read_text()
    comment = (tmp_path / "c.md").read_text()
    assert comment.startswith("<!-- modeldyno: slow -->\n**❌ slow fails")
    assert (tmp_path / "summary.md").read_text() == comment


def test_short_bounds_are_read_as_they_are_meant() -> None:
    """Short bounds mean p95 of a time, the peak of memory, at least a rate; full ones are unchanged."""
    bounds, notes = expand_bounds(
        (
            "latency:100ms",
            "latency.p99:1s",
            "throughput:1000samples/s",
            "process_memory:1GB",
            "latency.p50 <= 1s",
        )
    )
    assert bounds == (
        "latency.p95 <= 100ms",
        "latency.p99 <= 1s",
        "throughput >= 1000/s",
        "process_memory.max <= 1GB",
        "latency.p50 <= 1s",
    )
    assert notes[0] == "latency:100ms is read as latency.p95 <= 100ms"
    assert len(notes) == 4
    with pytest.raises(RequestError, match="no better direction"):
        expand_bounds(("requests:5",))


def test_words_after_a_bound_are_bounds_only_where_they_look_like_one() -> None:
    """A MODEL after bounds is not read as a bound."""
    arguments = ["--require", "a <= 1", "latency:5ms", "torch:nets.py:make", "--sla", "b < 2", "-q", "c > 3"]
    assert repeat_bound_flags(arguments) == [
        *("--require", "a <= 1", "--require", "latency:5ms", "torch:nets.py:make"),
        *("--sla", "b < 2", "-q", "c > 3"),
    ]


@pytest.mark.usefixtures("nothing_is_ended")
def test_a_baseline_of_a_branch_is_kept_and_found(
    modeldyno: Callable[..., CommandResult], tmp_path: Path
) -> None:
    """The job is judged against the stored baseline; --output-dir gets reports; bounds may be short."""
    first = modeldyno("profile", MODEL, *QUICK, "--processes", "2", "--save-as-baseline", "main", "-q")
    assert first.code == 0, first.err
    listed = modeldyno("list", "--tag", "@main")
    assert "known_latency" in listed.out
    result = modeldyno(
        "profile", "--model-path", MODEL, *QUICK, "--baseline", "@main", "--budget", "1ms",
        "--max-regression", "99%", "--output-dir", "out", "--threshold", "latency:100s", "latency.min:1ns",
    )  # fmt: skip
    assert result.code == 1, result.err
    assert result.err.startswith("Measuring rounds of both models, within 0 s (--budget).\n")
    assert "latency.min <= 1 ns" in result.out
    assert "latency:100s is read as latency.p95 <= 100s" in " ".join(result.out.split())
    assert "as stored; it was not run again, because the same command" in " ".join(result.out.split())
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"result.json", "report.html", "report.md"}


@pytest.mark.usefixtures("saved")
@pytest.mark.parametrize(("arguments", "seconds"), [((), 5.0), (("--max-time", "9s"), 9.0)])
def test_a_process_of_a_gate_measures_for_a_short_time(
    modeldyno: Callable[..., CommandResult],
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    seconds: float,
) -> None:
    """The default run time is short, as more rounds are better than longer ones; --max-time overrides it."""
    max_times: list[float] = []

    def measure_gate(_baseline: object, job: Job, *_rest: object, **_more: object) -> None:
        max_times.append(job.plan.max_time)
        raise RequestError("enough")

    monkeypatch.setattr("modeldyno.cli.actions.profile.measure_gate", measure_gate)
    assert modeldyno("profile", MODEL, "--baseline", "old.json", *arguments).code == 2
    assert max_times == [seconds]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "MODEL is missing"),
        ((MODEL, "--model-path", MODEL), "both name a model"),
        ((MODEL, "--baseline", "@main"), "no baseline @main"),
        ((MODEL, "--save-as-baseline", "main", "--no-store"), "kept in the store"),
        ((MODEL, "--baseline", "x", "--inline"), "fresh processes"),
    ],
)
def test_a_gate_that_cannot_be_is_refused(
    modeldyno: Callable[..., CommandResult], arguments: tuple[str, ...], sentence: str
) -> None:
    """Before anything is measured."""
    result = modeldyno("profile", *arguments)
    assert result.code == 2
    assert sentence in result.err


def six_runs(job: Job, _session: object, *, budget: float) -> Result:
    """Give what six processes of a Job could measure, at once."""
    assert budget == 0.001
    runs = [
        [0.01 * (1 + 1e-4 * (17 * n % 40) + 1e-3 * (7 * process % 6)) for n in range(40)]
        for process in range(6)
    ]
    latency = Measurement(metric="latency", value=Distribution.of(*runs))
    return a_small_result(job=replace(job, plan=replace(job.plan, processes=6)), measurements=(latency,))


@pytest.mark.parametrize("real", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.usefixtures("nothing_is_ended")
def test_the_doctor_judges_this_machine(
    modeldyno: Callable[..., CommandResult], monkeypatch: pytest.MonkeyPatch, *, real: bool
) -> None:
    """It reports how often a gate would be wrong here, and stores its runs for the gate."""
    monkeypatch.setattr("modeldyno.comparison.calibrate.FEWEST_PROCESSES", 6)
    monkeypatch.setattr("modeldyno.comparison.calibrate.REHEARSALS", 100)
    if not real:
        monkeypatch.setattr("modeldyno.cli.actions.doctor.run_against_itself", six_runs)
    result = modeldyno("doctor", "--budget", "1ms")
    assert result.code == 0, result.err
    assert result.err.startswith("Running it against itself for 0 s (--budget), in ")
    text = " ".join(result.out.split())
    assert "against itself, 6 processes: " in text
    assert "false alarms in 100 rehearsals" in text
    assert "doctor" in modeldyno("list", "--tag", "doctor").out
