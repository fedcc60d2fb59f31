"""Variants of a registered version."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.registry import DIGEST

from modeldyno.base.errors import RequestError, StoreError
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.registry import conversions, execute
from modeldyno.registry.records.policy import Policy
from modeldyno.registry.records.records import TaskKind, TaskState, VariantState
from modeldyno.registry.register import Registration, register
from modeldyno.testing.sample_conversions import a_conversion

if TYPE_CHECKING:
    from pathlib import Path

    from modeldyno.conversion.request import ConversionRequest
    from modeldyno.registry.interface import Registry

KEPT: list[Path] = []
"""The folder that each conversion was given for what its source returns."""
REF = ModelRef(scheme="onnx", locator="net.onnx")


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[ConversionRequest]:
    """Answer every conversion at once; returns the requests."""
    requests: list[ConversionRequest] = []

    def convert(request: ConversionRequest, kept: Path, **_options: Any) -> Any:
        kept.mkdir(exist_ok=True)
        KEPT.append(kept)
        requests.append(request)
        made = a_conversion()
        assert made.model is not None
        return replace(made, model=replace(made.model, digest=DIGEST))

    monkeypatch.setattr(conversions, "convert", convert)
    return requests


def test_a_conversion_that_fails_is_no_task_that_was_done(
    registry: Registry, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That its variant differs is an answer; that there is none is not."""
    register(Registration(model=str(model)), registry)
    task = next(task for task in registry.tasks() if task.kind is TaskKind.CONVERT)

    def fail(*_: object, **__: object) -> None:
        raise RequestError("no such operator")

    monkeypatch.setattr(conversions, "convert_version", fail)
    outcome = execute.convert(task, registry)

    assert (outcome.state, outcome.why) == (TaskState.FAILED, "no such operator")
    assert outcome.variant is not None
    assert outcome.variant.state is VariantState.FAILED


def test_a_variant_that_differs_says_where_first(
    registry: Registry, model: Path, requests: list[ConversionRequest]
) -> None:
    """In the history as well; by the built-in policy it has no tolerance."""
    version = register(Registration(model=str(model)), registry).version
    variant, made = conversions.convert_version(version, REF, "openvino", registry)
    registry.put_variant(variant, "me")

    assert variant.state is VariantState.DIFFERS
    assert variant.why.endswith("; first differs at encoder.dense (Linear): cosine 0.41 (its inputs agree)")
    assert registry.events(newest=1)[0].detail["why"] == variant.why
    assert requests[0].tolerance is None
    assert variant.conversion_id == made.id
    assert not any(each.path or each.reproduce for each in made.converted)


def test_a_version_runs_once_for_all_its_conversions(
    registry: Registry, model: Path, requests: list[ConversionRequest]
) -> None:
    """What it returned is kept until the conversions of another one begin."""
    one = register(Registration(model=str(model)), registry).version
    conversions.convert_version(one, REF, "openvino", registry)
    conversions.convert_version(one, REF, "openvino", registry)
    conversions.convert_version(replace(one, number=2), REF, "openvino", registry)
    folders = KEPT[-3:]

    assert folders[0] == folders[1] != folders[2]
    assert not folders[0].exists()
    assert len(requests) == 3


def test_a_policy_hands_on_its_tolerance_and_who_gave_it(
    registry: Registry, model: Path, requests: list[ConversionRequest]
) -> None:
    """So that the sentence of the variant names both."""
    registry.put_policy(Policy(name="loose", tolerance=1e-3, tolerated_by="ada"), "ada")
    version = register(Registration(model=str(model), policy="loose"), registry).version
    conversions.convert_version(version, REF, "openvino", registry)

    assert (requests[0].tolerance, requests[0].tolerated_by) == (1e-3, "ada")


def test_another_model_than_the_registered_one_has_no_variants(
    registry: Registry, model: Path, requests: list[ConversionRequest]
) -> None:
    """A file that is used where it is may change; what is made of it then is no form of the version."""
    del requests
    version = replace(register(Registration(model=str(model)), registry).version, digest=f"sha256:{64 * '2'}")

    with pytest.raises(StoreError, match=r"net\.onnx has changed since net/1 was registered"):
        conversions.convert_version(version, REF, "openvino", registry)
