"""A job file on the command line: its keys are options, typed options win, mistakes have their line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest

import modeldyno as public
from modeldyno.base.errors import RequestError
from modeldyno.base.yaml_file import parse_yaml_text
from modeldyno.cli import cli
from modeldyno.cli.actions import job_run
from modeldyno.cli.job_file import expand_job_file
from modeldyno.profiling.job_file import expand_jobs, read_jobs
from modeldyno.testing.sample_results import a_result

if TYPE_CHECKING:
    from collections.abc import Callable

    from modeldyno.base.report.blocks import Table

MODEL = str(Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx")
JOB = """command: profile
model: m.onnx
set:
  batch_size: 8
  threads: 1
input: [a=1x8, b=1x8]
probe: [static, latency]
max-time: 5s
require: latency.p50 <= 5ms
quiet: true
inline: false
"""


def parameters(name: str, *arguments: str) -> dict[str, Any]:
    """What a command reads of such words."""
    ctx = click.Context(cli)
    command = cli.get_command(ctx, name)
    assert command is not None
    expanded = expand_job_file(command, ctx, arguments)
    return command.make_context(name, expanded, **cli.context_settings).params


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job file in the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text(JOB)
    return tmp_path / "job.yaml"


def test_the_keys_of_a_file_are_options(job: Path) -> None:
    """Lists repeat an option, mappings are its pairs, switches are true or false."""
    read = parameters("profile", job.name)

    assert read["model"] == "m.onnx"
    assert read["settings"] == ("batch_size=8", "threads=1")
    assert read["inputs"] == ("a=1x8", "b=1x8")
    assert read["probes"] == ("static", "latency")
    assert read["max_time"] == 5.0
    assert (read["quiet"], read["inline"]) == (True, False)


def test_typed_options_override_those_of_the_file(job: Path) -> None:
    """A knob by its name, anything else as a whole; a typed model replaces that of the file."""
    read = parameters(
        "profile", "other.onnx", job.name, "--set", "threads=2", "--max-time", "1s", "--input", "c=1x8",
        "--require", "latency.p99 <= 1s", "throughput >= 1/s",
    )  # fmt: skip

    assert read["model"] == "other.onnx"
    assert read["settings"] == ("batch_size=8", "threads=2")
    assert read["inputs"] == ("c=1x8",)
    assert read["max_time"] == 1.0
    assert read["require"] == ("latency.p99 <= 1s", "throughput >= 1/s")


def test_a_typed_batch_size_replaces_the_knob(job: Path) -> None:
    """It is the same knob."""
    assert parameters("profile", job.name, "-b", "2")["settings"] == ("threads=1", "batch_size=2")


def test_a_value_of_an_option_is_no_job_file(job: Path) -> None:
    """Only an argument can be one."""
    assert parameters("profile", "m.onnx", "--json", job.name)["json_path"] == job.name


def test_arguments_of_several_words_come_from_a_list(tmp_path: Path) -> None:
    """Such as those of compare."""
    (tmp_path / "c.yaml").write_text("baseline: a.onnx\ncandidate: [b.onnx, c.onnx]\n")
    read = parameters("compare", str(tmp_path / "c.yaml"))

    assert (read["baseline"], read["candidate"], *read["more"]) == ("a.onnx", "b.onnx", "c.onnx")


@pytest.mark.parametrize(
    ("before", "after", "message"), [
        ("max-time: 5s", "max-time: 5 parsecs", "job.yaml, line 8: --max-time: 'parsecs'"),
        ("probe:", "prob:", "job.yaml, line 7: There is no option of profile 'prob'; did you mean 'probe'"),
        ("quiet: true", "quiet: perhaps", "job.yaml, line 10: quiet is a switch"),
        ("quiet: true", "trust: true", "job.yaml, line 10: a file cannot say trust"),
        ("max-time: 5s", "max-time:", "job.yaml, line 8: max_time has no value"),
        ("max-time: 5s", "max-time: {a: [{b: 1}]}", "job.yaml, line 8: max_time is nested too deeply"),
        ("max-time: 5s", "min-runs: many", "job.yaml, line 8: min_runs: 'many' is not a valid integer"),
    ],
)  # fmt: skip
def test_a_mistake_names_its_line(job: Path, before: str, after: str, message: str) -> None:
    """Whether in a key or in a value."""
    job.write_text(JOB.replace(before, after))

    with pytest.raises(RequestError, match=message):
        parameters("profile", job.name)


def test_what_only_the_measurement_finds_names_its_line_as_well(
    modeldyno: Callable[..., Any], job: Path
) -> None:
    """A knob that no backend has, a model that is not there."""
    job.write_text(JOB.replace("m.onnx", MODEL).replace("threads: 1", "thread: 1"))
    assert "job.yaml, line 5: There is no knob 'thread'" in modeldyno("profile", "job.yaml").err

    job.write_text(JOB.replace("m.onnx", MODEL).replace("batch_size: 8", "batch_size: [1, 8]"))
    assert "job.yaml, line 4: The knob batch_size takes" in modeldyno("profile", "job.yaml").err

    job.write_text(JOB.replace("m.onnx", MODEL).replace("latency.p50 <=", "latencyy.p50 <="))
    assert "job.yaml, line 9: There is no metric 'latencyy'" in modeldyno("profile", "job.yaml").err

    job.write_text(JOB)
    assert "job.yaml, line 2: There is no file or directory 'm.onnx'" in modeldyno("profile", "job.yaml").err


def test_jobs_run_one_after_the_other_and_end_in_a_table(
    modeldyno: Callable[..., Any], tmp_path: Path
) -> None:
    """Each document is saved; a job that fails does not keep the next from being run."""
    (tmp_path / "jobs.yaml").write_text(
        f"command: inspect\nmatrix:\n  model: [{MODEL}, absent.onnx, {MODEL}]\nno_store: true\nquiet: true\n"
    )
    outcome = modeldyno("run", "--json", "out", "jobs.yaml")

    assert outcome.code == 2
    assert "Job 2 of 3: inspect absent.onnx" in outcome.out
    assert "line 3: There is no file or directory 'absent.onnx'" in outcome.err
    assert [line.split()[3] for line in outcome.out.splitlines()[-3:]] == ["done", "refused", "done"]
    assert json.loads((tmp_path / "out" / "3.json").read_text())["job"]["model"]["locator"] == MODEL
    assert not (tmp_path / "out" / "2.json").exists()


def test_a_mistake_in_any_job_is_found_before_the_first_runs(
    modeldyno: Callable[..., Any], tmp_path: Path
) -> None:
    """Nothing is measured for hours to end in a typing error."""
    (tmp_path / "jobs.yaml").write_text(
        f"jobs:\n  - command: inspect\n    model: {MODEL}\n  - command: inspect\n    depht: 3\n"
    )
    outcome = modeldyno("run", "jobs.yaml")

    assert outcome.code == 2
    assert "Job 1" not in outcome.out
    assert "jobs.yaml, line 5: There is no option of inspect 'depht'; did you mean 'depth'?" in outcome.err


@pytest.mark.parametrize(
    ("text", "message"), [
        ("model: a.onnx", "Job 1 of jobs.yaml does not say its command; add command: profile"),
        ("command: prfile", "line 1: There is no command 'prfile'; did you mean 'profile'"),
        ("command: registry", "line 1: registry cannot be a job"),
    ],
)  # fmt: skip
def test_a_job_without_a_command_of_its_own_is_refused(text: str, message: str) -> None:
    """With what to write."""
    with pytest.raises(RequestError, match=message):
        job_run.check_jobs(expand_jobs(parse_yaml_text(text, "jobs.yaml")), ())


def test_an_option_that_one_of_the_jobs_does_not_have_names_that_job(tmp_path: Path) -> None:
    """Options that follow the file are those of every job."""
    path = tmp_path / "jobs.yaml"
    path.write_text(f"jobs: [{{command: inspect, model: {MODEL}}}]")
    jobs = read_jobs(str(path))
    with pytest.raises(click.UsageError, match="Job 1 \\(inspect\\): No such option"):
        job_run.check_jobs(jobs, ("--percentile", "p99"))


def test_a_row_of_the_table_has_at_most_80_columns() -> None:
    """Whatever the jobs are called."""
    config = parse_yaml_text(
        "command: profile\nmatrix: {model: [a, b], name: [" + "x" * 90 + ", y]}", "j.yaml"
    )
    finished = [job_run.FinishedJob(job=job, code=5, made=[a_result()]) for job in expand_jobs(config)]
    table: Table = job_run.table_of_jobs(finished)
    widths = [max(map(len, column)) for column in zip(*table.rows, strict=True)]

    assert sum(widths) + 2 * (len(widths) - 1) <= 80


def test_python_runs_the_same_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A document for each job, None for one that fails; a wrong file is refused."""
    monkeypatch.chdir(tmp_path)
    Path("jobs.yaml").write_text(
        f"command: inspect\nno_store: true\nmatrix:\n  model: [{MODEL}, absent.onnx]\n"
    )
    first, second = public.run("jobs.yaml")

    assert isinstance(first, public.Result)
    assert first["parameters"] == 38_282
    assert second is None
    Path("wrong.yaml").write_text("command: inspect\nmax_tim: 3s\n")
    with pytest.raises(RequestError, match="no option of inspect 'max_tim'"):
        public.run("wrong.yaml")
