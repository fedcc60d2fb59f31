from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.sample_registry import a_conversion, a_task, a_variant, a_version

from modeldyno.base.document import MeasuredAt
from modeldyno.registry.records.records import (
    OPEN,
    AttachedDocument,
    EvaluationData,
    Measure,
    TaskState,
    VariantState,
    WeightFile,
    Worker,
    is_run_by,
)


def test_a_version_is_named_by_its_model_and_number() -> None:
    """As people refer to it."""
    assert a_version("digits", 3).name == "digits/3"
    assert a_version("digits", 3).reference_text == "digits/3"


@pytest.mark.parametrize("state", list(VariantState))
def test_a_variant_answers_only_if_it_is_still_the_model(state: VariantState) -> None:
    """If it agrees, or is close as its recipe declares."""
    usable = a_variant(a_version(), state=state).usable
    assert usable == (state in {VariantState.AGREES, VariantState.CLOSE})


def test_what_is_deferred_is_still_to_be_done() -> None:
    """Ended are only those that are done, failed or cancelled."""
    assert set(TaskState) - OPEN == {TaskState.DONE, TaskState.FAILED, TaskState.CANCELLED}


@pytest.mark.parametrize(
    ("measure", "label"),
    [
        (Measure(probes=("latency",), settings={"batch_size": 8}), "batch 8"),
        (Measure(probes=("latency",), settings={"batch_size": 8, "threads": 2}), "batch 8 threads=2"),
        (Measure(probes=("latency",), settings={"threads": 2}), "threads=2"),
        (Measure(probes=("latency",), backend="openvino", settings={"batch_size": 1}), "openvino batch 1"),
        (Measure(probes=("load",), backend="triton", concurrency=4), "triton at 4"),
        (Measure(probes=("latency", "throughput")), "latency and throughput"),
    ],
)
def test_a_measure_is_told_in_a_few_words(measure: Measure, label: str) -> None:
    """Its load, its batch size and other settings, or else its probes."""
    assert measure.label == label


def test_a_task_is_told_with_its_version_and_recipe() -> None:
    """A measurement by what is measured, a conversion as one."""
    assert a_task(a_version("digits", 3), batch=8).label == "digits/3 source: batch 8"
    assert a_conversion(a_version("digits", 3), "openvino").label == "digits/3 openvino: convert"


@pytest.mark.parametrize(
    ("why", "sentence"),
    [
        ("agrees (36 samples)", "agrees (36 samples)"),
        ("the registered model itself", "agrees: the registered model itself"),
        ("", "agrees"),
    ],
)
def test_a_variant_says_its_state_once(why: str, sentence: str) -> None:
    """Whether its reason begins with the state or not."""
    variant = a_variant(a_version(), state=VariantState.AGREES, why=why)

    assert variant.sentence == sentence
    assert variant.name == f"{variant.model}/{variant.number} {variant.recipe}"


def test_labelled_samples_are_kept_as_the_files_of_a_version_are() -> None:
    """One file, which messages name."""
    file = WeightFile(path="test.npz", digest="sha256:1", size=3)
    data = EvaluationData(metrics=("accuracy",), file=file)

    assert (data.files, data.entry) == ((file,), "test.npz")
    assert data.name == "the labelled samples test.npz"


def test_a_task_has_its_place_in_a_list() -> None:
    """Of its state first, then its priority and its number; every state has one."""
    task = replace(a_task(a_version()), id=7, priority=3)
    ranks = [replace(task, state=state).place for state in TaskState]
    assert all(place[1:] == (3, 7) for place in ranks)
    leased, done = (replace(task, state=state).place for state in (TaskState.LEASED, TaskState.DONE))
    assert leased < done


def test_a_worker_tells_what_share_of_its_time_it_was_idle() -> None:
    """Once it has been heard of for any time."""
    worker = Worker(id="w", target="t", host="h", pid=1, software={})
    assert worker.idle is None
    assert replace(worker, alive=40.0, worked=10.0).idle == pytest.approx(0.75)


def test_an_engine_runs_a_version_itself_or_a_form_that_is_still_the_model() -> None:
    """By the form, without its precision, or by the backend."""
    version = a_version()
    source, differing = a_variant(version), a_variant(version, "onnx-int8", state=VariantState.DIFFERS)

    assert is_run_by(version, (source,), version.kind)
    assert is_run_by(version, (differing, replace(differing, state=VariantState.CLOSE)), "ONNX")
    assert not is_run_by(replace(version, kind="torch"), (replace(differing, backend="x"),), "onnx")


def test_what_is_attached_names_its_version() -> None:
    """By model and number, as people refer to it."""
    attached = AttachedDocument(model="digits", number=3, document="0123", kind="result", at=MeasuredAt())
    assert attached.version == "digits/3"
