from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support.registry import ONCE
from tests.support.sample_registry import a_variant

from modeldyno.registry import worker as worker_module
from modeldyno.registry.policies import tasks_missing_on
from modeldyno.registry.records.policy import DEFAULT
from modeldyno.registry.records.records import TaskState, VariantState
from modeldyno.registry.register import Registration, register
from modeldyno.registry.targets import target_here
from modeldyno.registry.worker import run_worker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from modeldyno.profiling.request import Request
    from modeldyno.registry.interface import Registry
    from modeldyno.registry.records.records import HardwareTarget

HERE = target_here()
OTHER = replace(HERE, id="other", name="other machine", hardware={**HERE.hardware, "processor": "another"})


def add(registry: Registry, model: Path, **options: object) -> None:
    register(Registration(model=str(model), **{"convert": False, **options}), registry)  # type: ignore[arg-type]


def missing(registry: Registry, target: HardwareTarget = OTHER) -> list[str]:
    return [task.label for task in tasks_missing_on(registry, target.id)]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Callable[[HardwareTarget], None]:
    """Give a function that makes this machine another one."""
    return lambda target: monkeypatch.setattr(worker_module, "target_here", lambda *_: target)


@pytest.mark.usefixtures("measured")
def test_a_new_target_measures_what_was_registered_before_it_was_there(
    registry: Registry, model: Path, measured: list[Request], here: Callable[[HardwareTarget], None]
) -> None:
    add(registry, model)
    run_worker(ONCE)
    here(OTHER)

    run_worker(ONCE)

    assert len(measured) == 6
    assert len(registry.figures_on(OTHER.id, "fresh")) == 3


def test_what_was_queued_for_a_target_is_not_queued_again(registry: Registry, model: Path) -> None:
    add(registry, model)

    assert missing(registry, target_here()) == []


def test_what_was_cancelled_stays_so(registry: Registry, model: Path) -> None:
    add(registry, model)
    registry.enqueue(tuple(tasks_missing_on(registry, OTHER.id)))
    registry.change_tasks([task.id for task in registry.tasks()], TaskState.CANCELLED, "me")

    assert missing(registry) == []


def test_a_version_that_is_not_to_be_measured_is_left_alone(registry: Registry, model: Path) -> None:
    add(registry, model, profile=False)

    assert missing(registry) == []


def test_usable_variants_are_measured_as_the_policy_of_their_version_says(
    registry: Registry, model: Path
) -> None:
    registry.put_policy(replace(DEFAULT, name="small", batch_sizes=(4,)), "me")
    add(registry, model, policy="small")
    version = registry.versions("net")[0]
    registry.put_variant(a_variant(version, "openvino", state=VariantState.CLOSE), "me")
    registry.put_variant(a_variant(version, "onnx", state=VariantState.DIFFERS), "me")

    assert missing(registry) == ["net/1 source: batch 4", "net/1 openvino: batch 4"]


def test_the_newest_version_and_those_with_an_alias_are_measured(registry: Registry, model: Path) -> None:
    for content in (b"weights", b"one", b"two", b"three"):
        model.write_bytes(content)
        add(registry, model)
    registry.move_alias("net", "champion", 2, "me")

    assert {label.partition(" ")[0] for label in missing(registry)} == {"net/2", "net/4"}
