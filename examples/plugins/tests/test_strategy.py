"""The strategy passes its suite."""

from __future__ import annotations

from modeldyno.testing.strategies import StrategySuite


class TestStrategy(StrategySuite):
    name = "shuffled"
