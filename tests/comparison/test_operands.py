"""Resolving the operands of a comparison."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support.sample_trials import a_trial, add_trials, an_answer
from tests.support.tiny_onnx import mlp

from modeldyno.base import codec, plugins
from modeldyno.base.errors import RequestError
from modeldyno.base.job.job import Job
from modeldyno.base.job.probe_options import ProbeOptions
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.result.result import Result
from modeldyno.comparison import codec as codec_comparison
from modeldyno.comparison.change.build import CompareOptions
from modeldyno.comparison.operands import rerun_job, resolve_operands
from modeldyno.comparison.run import build_comparison
from modeldyno.profiling.request import Request
from modeldyno.profiling.resolve_model import names_model
from modeldyno.stores.catalog import stored_result
from modeldyno.stores.lookup import find_any
from modeldyno.sweeps import codec as codec_study
from modeldyno.testing.sample_results import a_job, a_result
from modeldyno.testing.sample_studies import a_study

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("onnx")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with its own store, which has a result tagged ``old``."""
    monkeypatch.setenv("MODELDYNO_STORE", f"sqlite:///{tmp_path}/store.db")
    monkeypatch.chdir(tmp_path)
    with plugins.store() as store:
        store.put(a_result(), headline="")
        store.tag(a_result().id, add=("old",))
    return tmp_path


def ask(word: str) -> Request:
    """Return a Request for an operand."""
    return Request(model=word, settings={}, plan=Plan())


def test_two_models_are_two_jobs(here: Path) -> None:
    """Given by their paths."""
    path = str(mlp(here))

    operands = resolve_operands([ask(path), ask(f"onnx:{path}")], run=False)

    assert all(isinstance(operand, Job) for operand in operands)


def test_stored_ids_tags_and_files_are_results(here: Path) -> None:
    """A Result object is used as it is."""
    codec.write(here / "r.json", codec.encode(a_result(id="f" * 12)))

    operands = resolve_operands([ask("0123"), ask("old"), ask("r.json"), a_result(id="e" * 12)], run=False)

    assert [operand.id[:2] for operand in operands if isinstance(operand, Result)] == ["01", "01", "ff", "ee"]


def test_what_was_measured_is_run_again_on_request(here: Path) -> None:
    """By the Jobs of the results, along with a model."""
    first, second = resolve_operands([ask("old"), ask(str(mlp(here)))], run=True)

    assert first == a_result().job
    assert isinstance(second, Job)


def test_a_model_and_a_result_are_not_compared_without_running_both(here: Path) -> None:
    """The message says what to do, and calls the result as the user does."""
    with pytest.raises(RequestError, match=r"'old' is a stored result, .* add `run` to run both"):
        resolve_operands([ask("old"), ask(str(mlp(here)))], run=False)


def test_one_side_is_no_comparison() -> None:
    """There is nothing to compare with."""
    with pytest.raises(RequestError, match="needs a baseline and a candidate"):
        resolve_operands([a_result()], run=False)


@pytest.mark.usefixtures("here")
def test_what_is_nowhere_is_refused() -> None:
    """It is neither a path nor in the store."""
    with pytest.raises(RequestError, match="nowhere"):
        resolve_operands([ask("old"), ask("nowhere")], run=False)


def test_a_study_stands_for_its_winner(here: Path) -> None:
    """The Results of its trials come from the store."""
    trial = a_trial({"batch_size": 1}, an_answer("throughput", 100.0), an_answer("latency.p99", 0.001))
    study = add_trials(a_study("batch_size=1,2"), [replace(trial, result=a_result().id)])
    codec.write(here / "s.json", codec_study.encode(study))

    first, second = resolve_operands([ask("s.json"), study], run=False)

    assert isinstance(first, Result)
    assert first == second
    assert first.doubts[-1].code == "study-winner"


def test_a_comparison_is_no_side(here: Path) -> None:
    """Its results can be compared instead."""
    document = build_comparison([a_result(), a_result(id="f" * 12)], CompareOptions())
    codec.write(here / "c.json", codec_comparison.encode(document))

    assert find_any("c.json") == document
    with pytest.raises(RequestError, match="is a comparison, which cannot be compared"):
        resolve_operands([ask("old"), ask("c.json")], run=False)


def test_a_file_of_json_is_a_document_and_other_paths_are_models(here: Path) -> None:
    """A reference is a model in any case; a bare word is looked up."""
    (here / "r.json").write_text("{}")

    assert not names_model("r.json")
    assert not names_model("old")
    assert names_model(str(here))
    assert names_model("onnx:absent.json")


@pytest.mark.parametrize(
    "word", ["nets.py:make", "./nets.py:Net", "{here}/nets.py:Net.small", "absent.py:make"]
)
def test_a_name_in_a_file_of_code_is_a_model(here: Path, word: str) -> None:
    """It needs no scheme, as in profile; a missing file is an error of a model, not of a result."""
    assert names_model(word.format(here=here))


def test_a_job_is_run_again_without_the_files_that_it_wrote() -> None:
    """Once per round."""
    observation = ProbeOptions(trace="t.json", outputs="o.npz", layers=("fc",))
    job = replace(a_job(), observation=observation, probes=("latency", "outputs"), plan=Plan(processes=5))

    job_again = rerun_job(a_result(job=job))

    assert job_again.observation == ProbeOptions(layers=("fc",))
    assert (job_again.probes, job_again.plan.processes) == (("latency",), 1)


@pytest.mark.usefixtures("here")
def test_what_the_store_has_not_is_none() -> None:
    """It may have been removed."""
    assert stored_result("0123456789ab") == a_result()
    assert stored_result("ffffffffffff") is None
