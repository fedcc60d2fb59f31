"""The strategy passes its suite."""

from __future__ import annotations

from dyno_plugins import strategy

from modeldyno.plugin import Strategy
from modeldyno.testing.strategies import StrategySuite

_: Strategy = strategy  # a type checker compares the module with its Protocol


class TestStrategy(StrategySuite):
    name = "shuffled"
