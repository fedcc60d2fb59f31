"""A file of jobs: its keys, lists and combinations as single jobs, each with the lines of what it says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from modeldyno.base.errors import RequestError
from modeldyno.base.yaml_file import parse_yaml_text
from modeldyno.profiling.job_file import (
    FileJob,
    check_job_numbers,
    expand_jobs,
    is_job_address,
    read_job,
    read_jobs,
)

if TYPE_CHECKING:
    from pathlib import Path

MATRIX = """command: profile
max-time: 5s
set: {threads: 1}
matrix:
  model: [a.onnx, models/b.onnx]
  set.batch_size: [1, 8]
"""
SEVERAL = """max_time: 5s
jobs:
  - command: profile
    model: a.onnx
    set: {threads: 1}
  - command: profile
    model: a.onnx
    max-time: 1s
    matrix:
      set: {batch_size: [2, 4]}
  - command: load
    model: http://localhost:8000#m
"""


def jobs(text: str) -> tuple[FileJob, ...]:
    """The jobs of such a file."""
    return expand_jobs(parse_yaml_text(text, "jobs.yaml"))


def test_a_file_without_jobs_is_one() -> None:
    """Its command is apart from its options, whose keys are spelled with an underscore."""
    (job,) = jobs("command: profile\nmodel: a.onnx\nmax-time: 5s\n")

    assert (job.command, job.number, job.label) == ("profile", 1, "a.onnx")
    assert job.options.tree == {"model": "a.onnx", "max_time": "5s"}


def test_a_matrix_makes_a_job_of_each_combination() -> None:
    """The last key varies fastest, and what the file says besides holds for each."""
    all_jobs = jobs(MATRIX)

    assert [job.label for job in all_jobs] == [
        "a.onnx batch_size=1", "a.onnx batch_size=8", "b.onnx batch_size=1", "b.onnx batch_size=8",
    ]  # fmt: skip
    assert all_jobs[3].options.tree == {
        "max_time": "5s",
        "set": {"threads": "1", "batch_size": "8"},
        "model": "models/b.onnx",
    }


def test_each_job_adds_its_keys_to_those_of_the_file() -> None:
    """Its own win; a matrix of a job is of that job."""
    all_jobs = jobs(SEVERAL)

    assert [job.options.tree.get("max_time") for job in all_jobs] == ["5s", "1s", "1s", "5s"]
    assert [job.command for job in all_jobs] == ["profile", "profile", "profile", "load"]
    assert all_jobs[2].options.tree["set"] == {"batch_size": "4"}
    assert all_jobs[0].label == "a.onnx max_time=5s threads=1"


def test_a_mistake_is_told_with_its_own_line() -> None:
    """Also where a value comes from a list of jobs, or from a matrix."""
    last = jobs(MATRIX)[3].config
    second = jobs(SEVERAL)[1].config

    assert last.line(("set", "batch_size")) == 6
    assert last.line(("set", "threads")) == 3
    assert second.line(("max_time",)) == 8
    assert second.line(("model",)) == 7


@pytest.mark.parametrize(
    ("text", "message"), [
        ("jobs: a.onnx", "line 1: `jobs` is a list"),
        ("jobs: []", "line 1: `jobs` is a list"),
        ("jobs:\n  - a.onnx", "line 2: a job is a mapping"),
        ("jobs:\n  - jobs: [1]", "line 2: a job is a mapping"),
        ("matrix: [1]", "line 1: `matrix` maps keys"),
        ("matrix:\n  model: a.onnx", "line 2: `matrix` takes a list of values for model"),
        ("matrix:\n  set: {threads: []}", "line 2: `matrix` takes a list of values for set.threads"),
        ("max-time: 1s\nmax_time: 2s", "'max_time' occurs twice"),
        ("matrix: {" + ", ".join(f"k{n}: [1, 2]" for n in range(10)) + "}", "more than 1,000 jobs"),
    ],
)  # fmt: skip
def test_what_is_no_list_of_jobs_is_refused(text: str, message: str) -> None:
    """One sentence, with the line."""
    with pytest.raises(RequestError, match=message):
        jobs(text)


def test_an_address_names_one_job_or_several(tmp_path: Path) -> None:
    """``#2`` is the second, ``#2-3`` are two, ``#2-`` are all from the second."""
    path = tmp_path / "jobs.yaml"
    path.write_text(MATRIX)

    assert [job.number for job in read_jobs(str(path))] == [1, 2, 3, 4]
    assert [job.number for job in read_jobs(f"{path}#2")] == [2]
    assert [job.number for job in read_jobs(f"{path}#2-3")] == [2, 3]
    assert [job.number for job in read_jobs(f"{path}#2-")] == [2, 3, 4]
    assert read_job(f"{path}#3", "profile").label == "b.onnx batch_size=1"


def test_jobs_without_a_command_get_one_before_they_run(tmp_path: Path) -> None:
    """What the message names next is then accepted."""
    path = tmp_path / "jobs.yaml"
    path.write_text("model: a.onnx\nmatrix: {batch_size: [1, 8]}\n")

    with pytest.raises(RequestError, match="for all: add command: profile to it, then modeldyno run"):
        read_job(str(path), "profile")


@pytest.mark.parametrize(
    ("after", "command", "message"), [
        ("#5", "profile", "has 4 jobs; .* names number 5"),
        ("#0", "profile", "names number 0"),
        ("#3-2", "profile", "ends before it begins; write .*#2-3 or .*#3"),
        ("", "profile", "for all: modeldyno run .*; for one: modeldyno profile .*#1"),
        ("#1", "load", "line 1: this is a job of profile; type: modeldyno profile"),
    ],
)  # fmt: skip
def test_a_wrong_address_says_what_to_type(tmp_path: Path, after: str, command: str, message: str) -> None:
    """A number that is not there, several where one is meant, a job of another command."""
    path = tmp_path / "jobs.yaml"
    path.write_text(MATRIX)

    with pytest.raises(RequestError, match=message):
        read_job(f"{path}{after}", command)


def test_what_is_no_number_of_a_job_is_refused() -> None:
    """A script may have any other name."""
    for text in ("a.yaml#2", "a.yaml", "a#x.py", "a.py"):
        check_job_numbers(text)
    with pytest.raises(RequestError, match=r"'#x' names no job; write a\.yaml#2 for the second"):
        check_job_numbers("a.yaml#x")


def test_only_yaml_files_are_files_of_jobs() -> None:
    """Models and other documents are not."""
    names = ("a.yaml", "a.YML", "a.yaml#3", "a.yaml#x", "a.onnx", "yaml")

    assert list(filter(is_job_address, names)) == ["a.yaml", "a.YML", "a.yaml#3"]
    with pytest.raises(RequestError, match=r"ends in \.yaml"):
        read_jobs("a.onnx")
