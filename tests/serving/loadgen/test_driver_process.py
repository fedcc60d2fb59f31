"""Drivers that wait for the next load."""

from __future__ import annotations

import sys

import pytest

from modeldyno.serving.loadgen import driver_process
from modeldyno.serving.loadgen.driver_process import acquire_driver, prestart_drivers, prestarting_drivers


def test_one_that_waits_is_hired() -> None:
    """As many as the last load had wait for the next one; each is taken once, and one more is launched."""
    with prestarting_drivers():
        prestart_drivers(2)
        drivers = [acquire_driver(index) for index in range(3)]
        assert [hand.index for hand in drivers] == [0, 1, 2]
        assert len({hand.process.pid for hand in drivers}) == 3
        assert all(hand.process.poll() is None for hand in drivers)
        assert driver_process._PRESTARTED.drivers == []
    for hand in drivers:
        hand.end()
        assert hand.process.poll() is not None


def test_nobody_is_left_behind() -> None:
    """Those that nobody needed are ended, and outside of the block none waits."""
    with prestarting_drivers():
        prestart_drivers(1)
        prestart_drivers(1)
        (hand,) = driver_process._PRESTARTED.drivers
    assert hand.process.poll() is not None
    prestart_drivers(3)
    assert driver_process._PRESTARTED.drivers == []


def test_one_that_died_is_replaced() -> None:
    """A driver that is gone when it is needed is not hired."""
    with prestarting_drivers():
        prestart_drivers(1)
        (dead,) = driver_process._PRESTARTED.drivers
        dead.process.kill()
        dead.process.wait()
        hand = acquire_driver(0)
        assert hand is not dead
        assert hand.process.poll() is None
        hand.end()


def test_what_cannot_be_launched_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no process can be started, the caller hears of it."""
    monkeypatch.setattr(sys, "executable", "/nowhere/python")

    with pytest.raises(FileNotFoundError):
        acquire_driver(0)
