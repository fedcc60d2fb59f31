"""Where a document was measured, and of which models it has figures."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.sample_explanations import an_explanation

from modeldyno.base.document import MeasuredAt, StoredDocument
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.base.metrics.measurement import observed_number
from modeldyno.base.result.result import Environment
from modeldyno.testing.sample_conversions import a_conversion
from modeldyno.testing.sample_results import a_result
from modeldyno.testing.sample_series import a_comparison, a_ladder

HERE = Environment(hardware={"processor": "a processor"}, conditions={"device": "cuda:1"})


def test_a_call_in_a_process_is_of_its_processor_and_device() -> None:
    """The device is the one that was chosen, or what the framework says."""
    result = a_result(environment=HERE)
    chosen = replace(result, job=replace(result.job, config={"batch_size": 8, "device": "cpu"}))
    untold = replace(result, job=replace(result.job, config={"batch_size": "many"}))

    at = MeasuredAt(host="a processor", device="cpu", engine=result.job.backend, batch_size=8)
    assert chosen.measured_at == at
    assert untold.measured_at == replace(at, device="cuda:1", batch_size=1)


def test_a_load_of_a_running_server_is_of_its_host_and_its_devices() -> None:
    """What a device held before the load is no device; nobody knows that of a server that tells none."""
    result = a_result(environment=HERE)
    job = replace(result.job, model=ModelRef(scheme="url", locator="http://far:8000#digits"), config={})
    devices = tuple(
        observed_number("device_used", 1.0, scope=scope) for scope in ("cuda:0", "cuda:0 baseline")
    )
    there = replace(result, job=job, measurements=devices).measured_at

    assert there == MeasuredAt(host="far", device="cuda:0", engine=job.backend, batch_size=1)
    assert replace(result, job=job, measurements=()).measured_at.device == ""


def test_documents_of_several_results_are_measured_where_the_last_one_was() -> None:
    """A comparison where its candidate was; a load series that keeps no job was somewhere."""
    comparison, explanation, ladder = a_comparison(), an_explanation(), a_ladder()

    assert comparison.measured_at == comparison.results[-1].measured_at
    assert explanation.measured_at == explanation.last.measured_at
    assert replace(ladder, job=None).measured_at == MeasuredAt()
    assert replace(ladder, job=a_result().job, environment=None).measured_at.engine == a_result().job.backend


@pytest.mark.parametrize("document", [a_conversion(), replace(a_ladder(), model=None), a_result(model=None)])
def test_a_document_without_a_model_has_figures_of_none(document: StoredDocument) -> None:
    """A conversion is listed as a variant instead."""
    assert document.model_digests == frozenset()


def test_a_document_has_figures_of_each_of_its_models() -> None:
    """Of a comparison both."""
    first, second = (replace(a_result().model, digest=digest) for digest in ("sha256:1", "sha256:2"))  # type: ignore[type-var]
    one, other = a_result(model=first), a_result(model=second)
    comparison = replace(
        a_comparison(), baseline=one, contrasts=(replace(a_comparison().contrasts[0], candidate=other),)
    )

    assert comparison.model_digests == {"sha256:1", "sha256:2"}
    assert replace(a_ladder(), model=first).model_digests == {"sha256:1"}
    assert an_explanation(results={"in process": a_result(model=second)}).model_digests == {"sha256:2"}
