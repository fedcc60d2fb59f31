from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.registry import ONCE

from modeldyno.base import plugins
from modeldyno.base.identity import new_identity
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.profiling.run import JudgedResult
from modeldyno.registry import canary, reference_model
from modeldyno.registry.figures import current_figures
from modeldyno.registry.records.records import FigureState
from modeldyno.registry.register import Registration, register
from modeldyno.registry.targets import target_here
from modeldyno.registry.worker import run_worker
from modeldyno.testing.sample_results import a_result

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from modeldyno.base.result.result import Result
    from modeldyno.registry.interface import Registry

TARGET = target_here().id


def reading(milliseconds: float, days_ago: float = 0.0) -> Result:
    created = (datetime.now(UTC) - timedelta(days=days_ago)).isoformat(timespec="milliseconds")
    identity = {**new_identity(), "created": created}
    return a_result(name="canary", samples=[milliseconds * 1e-3] * 40, doubts=(), **identity)


@pytest.fixture
def takes(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Give a function that sets the milliseconds of the next readings, after three usual ones of 10 ms."""
    del registry
    with plugins.store() as store:
        for day in (3, 2, 1):
            earlier = reading(10, days_ago=day)
            store.put(earlier, headline="canary")
            store.tag(earlier.id, add=(f"canary:{TARGET}",))

    def set_times(*milliseconds: float, **changes: Any) -> None:
        times = iter(milliseconds)
        monkeypatch.setattr(
            canary,
            "run_request",
            lambda _request, **_: JudgedResult(result=replace(reading(next(times)), **changes)),
        )

    return set_times


def check() -> str:
    with plugins.store() as store:
        return canary.check_machine(store, TARGET)


@pytest.mark.usefixtures("measured")
def test_a_slower_reference_model_makes_the_figures_of_the_machine_stale(
    registry: Registry, model: Path, takes: Callable[..., None]
) -> None:
    register(Registration(model=str(model), convert=False), registry)
    run_worker(ONCE)
    takes(13, 13)

    assert "1.30 times as long" in check()
    figures = current_figures(registry, "net")
    assert {figure.state for figure in figures} == {FigureState.STALE}
    assert "the machine has changed" in figures[0].why


def test_a_single_slow_reading_changes_nothing(takes: Callable[..., None]) -> None:
    takes(13, 10)

    assert not check()


def test_a_reading_that_others_disturbed_says_nothing_and_is_not_kept(takes: Callable[..., None]) -> None:
    takes(13, 13, doubts=(Doubt(code="interference", seen="others", advice="wait"),))

    assert not check()
    with plugins.store() as store:
        assert len(store.find(tag=f"canary:{TARGET}")) == 3


def test_it_is_due_once_a_day(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    del registry
    with plugins.store() as store:
        assert canary.is_due(store, "another machine")


def test_the_reference_model_has_its_inputs() -> None:
    answer = reference_model.multiply(**reference_model.multiply_inputs())

    assert answer.shape == (384,)
