"""The sampler passes its suite."""

from __future__ import annotations

from modeldyno.testing.samplers import SamplerSuite


class TestSampler(SamplerSuite):
    name = "load-average"
