"""The probe passes its suite."""

from __future__ import annotations

from modeldyno.testing.probes import ProbeSuite


class TestProbe(ProbeSuite):
    name = "call-evenness"
