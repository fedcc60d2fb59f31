"""What `registry show` tells of a version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.registry import ONCE
from tests.support.sample_registry import a_variant

from modeldyno.base.job.version_name import VersionName
from modeldyno.registry.interface import Outcome
from modeldyno.registry.overview import version_overview
from modeldyno.registry.records.records import TaskState, VariantState, Worker
from modeldyno.registry.register import Registration, register
from modeldyno.registry.targets import target_here
from modeldyno.registry.views import version as version_view
from modeldyno.registry.worker import run_worker
from modeldyno.reports import terminal

if TYPE_CHECKING:
    from pathlib import Path

    from modeldyno.registry.interface import Registry


@pytest.mark.usefixtures("measured")
def test_a_measurement_that_failed_is_told_until_it_is_queued_again(registry: Registry, model: Path) -> None:
    """The others have figures."""
    register(Registration(model=str(model), convert=False), registry)
    first = registry.claim(Worker(id="a", target=target_here().id, host="here", pid=1, software={}))
    assert first is not None
    registry.finish(first, Outcome(state=TaskState.FAILED, why="no shape"), "a")
    run_worker(ONCE)
    overview = version_overview(registry, VersionName.parse("net"))
    text = " ".join(terminal.text(tuple(version_view.blocks(overview))).split())

    assert [task.label for task in overview.failed] == ["net/1 source: batch 1"]
    assert "failed: source, batch 1: no shape" in text
    registry.change_tasks([first.id], TaskState.QUEUED, "me")
    assert version_overview(registry, VersionName.parse("net")).failed == ()


def test_why_a_variant_agrees_does_not_begin_with_a_bracket(registry: Registry, model: Path) -> None:
    version = register(Registration(model=str(model)), registry).version
    why = "agrees (42 samples, 5 ways of calling): largest error 1e-07 where 1e-05 is allowed"
    registry.put_variant(a_variant(version, "onnx", why=why), "me")
    overview = version_overview(registry, VersionName.parse("net"))
    text = " ".join(terminal.text(tuple(version_view.blocks(overview))).split())

    assert "agrees onnxruntime 42 samples, 5 ways of calling: largest error" in text


def test_a_source_that_no_form_can_be_compared_with_does_not_agree(registry: Registry, model: Path) -> None:
    """Its outputs are NaN, say: what a conversion found is told beside it."""
    version = register(Registration(model=str(model)), registry).version
    why = "source-invalid: the source cannot be compared: its output 'y' has 8 NaN of 8 values"
    registry.put_variant(a_variant(version, "openvino", state=VariantState.FAILED, why=why), "me")
    overview = version_overview(registry, VersionName.parse("net"))
    text = " ".join(terminal.text(tuple(version_view.blocks(overview))).split())

    assert "source not compared onnxruntime no form can be compared with it, see openvino" in text
