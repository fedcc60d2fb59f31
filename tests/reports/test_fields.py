"""Columns that are chosen for the table of a study."""

from __future__ import annotations

import csv
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support.sample_trials import a_trial, add_trials, an_answer

from modeldyno.base.errors import RequestError
from modeldyno.base.result.result import Environment
from modeldyno.reports.write import write_report
from modeldyno.testing.sample_studies import a_served_study, make_goal

if TYPE_CHECKING:
    from pathlib import Path

    from modeldyno.sweeps.study.study import Study


def served() -> Study:
    """Two instances on a card, which break a bound."""
    goal = make_goal(maximize="throughput", require=["latency.p99 <= 10ms"])
    study = a_served_study("concurrency=4,8", goal=goal, settings={"device": "cuda:0", "max_batch": 16})
    environment = Environment(conditions={"device": "NVIDIA H200", "device_uuids": "GPU-1"})
    answers = (
        an_answer("throughput", 100.0),
        an_answer("latency.p99", 0.02),
        an_answer("instances", 2.0, error=0),
    )
    return add_trials(replace(study, environment=environment), [a_trial({"concurrency": 4}, *answers)])


def written(folder: Path, fields: str) -> list[list[str]]:
    path = folder / "study.csv"
    write_report([served()], path, fields=[fields])
    return list(csv.reader(path.read_text(encoding="utf-8").splitlines()))


def test_columns_come_in_the_order_in_which_they_are_named(tmp_path: Path) -> None:
    """Model, device, UUID, instances by kind, settings that were not varied, the verdict of all bounds."""
    fields = "instance_group,model,device,device_uuid,max_batch,concurrency,bounds,throughput"
    header, row = written(tmp_path, fields)

    assert header == fields.split(",")
    assert row == ["2:GPU", "digits", "cuda:0", "GPU-1", "16", "4", "broken", "100.0"]


def test_what_was_not_measured_is_empty(tmp_path: Path) -> None:
    """A metric, and a load that was not varied."""
    assert written(tmp_path, "energy, latency.p99,rate") == [
        ["energy", "latency.p99", "rate"],
        ["", "0.02", ""],
    ]


def test_the_page_says_the_device_and_the_settings(tmp_path: Path) -> None:
    """With its UUID, the kind of the instances, and what was set for all trials."""
    path = tmp_path / "study.md"
    write_report([served()], path)
    text = path.read_text(encoding="utf-8")

    assert "| device | cuda:0, GPU-1, instances of KIND_GPU |" in text.replace("\\", "")
    assert "| settings | device=cuda:0, max_batch=16 |" in text.replace("\\", "")


def test_a_misspelt_column_is_told(tmp_path: Path) -> None:
    """With the nearest one; columns are those of CSV alone, and of one document."""
    with pytest.raises(RequestError, match="no column 'concurency'; did you mean 'concurrency'"):
        written(tmp_path, "concurency")
    with pytest.raises(RequestError, match=r"columns of a \.csv file"):
        write_report([served()], tmp_path / "a.html", fields=["model"])
    with pytest.raises(RequestError, match="are of one document"):
        write_report([served(), served()], tmp_path / "a.csv", fields=["model"])
