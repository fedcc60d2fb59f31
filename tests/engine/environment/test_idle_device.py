"""A device to oneself: looked at first, then locked; whoever finds it in use is told by whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from modeldyno.base.errors import DeviceInUse
from modeldyno.engine.environment import idle as module
from modeldyno.engine.environment.device_lock import device_lock
from modeldyno.engine.environment.idle import IdleRule, find_idle, idle_device

if TYPE_CHECKING:
    from pathlib import Path

RULE = IdleRule()


@pytest.fixture(autouse=True)
def busy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    """Give what is busy, by device."""
    reasons: dict[str, str] = {}
    monkeypatch.setattr("modeldyno.engine.environment.device_lock._folder", lambda: tmp_path)
    monkeypatch.setattr(module, "busy_reason", lambda device, _rule: reasons.get(device))
    return reasons


def test_an_idle_device_is_held_during_the_block() -> None:
    """And free afterwards."""
    with idle_device("cpu", "me", RULE), device_lock("cpu", "you") as holder:
        assert holder is not None
        assert holder.startswith("me (pid ")
    with device_lock("cpu", "you") as holder:
        assert holder is None


def test_a_busy_device_is_refused_and_not_held(busy: dict[str, str]) -> None:
    """It says who uses it."""
    busy["cpu"] = "others use 1.00 of 2 cores"
    with pytest.raises(DeviceInUse, match=r"others use 1\.00 of 2 cores"), idle_device("cpu", "me", RULE):
        pytest.fail("it is in use")
    with device_lock("cpu", "you") as holder:
        assert holder is None


def test_a_device_that_is_measured_is_refused() -> None:
    """It says by whom."""
    with (
        device_lock("cpu", "modeldyno profile"),
        pytest.raises(DeviceInUse, match=r"modeldyno profile \(pid \d+\) measures on cpu"),
        idle_device("cpu", "me", RULE),
    ):
        pytest.fail("it is measured")


def test_idle_ones_are_found_in_their_order(busy: dict[str, str]) -> None:
    """Neither busy nor measured ones are."""
    busy["cuda:1"] = "train (pid 7) uses it"
    with device_lock("cuda:2", "modeldyno worker"):
        assert find_idle(["cuda:3", "cuda:2", "cuda:1", "cpu"], RULE) == ("cuda:3", "cpu")
    assert find_idle([], RULE) == ()
