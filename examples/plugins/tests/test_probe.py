"""The probe passes its suite."""

from __future__ import annotations

from dyno_plugins import probe

from modeldyno.plugin import Probe
from modeldyno.testing.probes import ProbeSuite

_: Probe = probe  # a type checker compares the module with its Protocol


class TestProbe(ProbeSuite):
    name = "call-evenness"
