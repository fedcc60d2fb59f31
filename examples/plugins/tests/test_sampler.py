"""The sampler passes its suite."""

from __future__ import annotations

from dyno_plugins import sampler

from modeldyno.plugin import Sampler
from modeldyno.testing.samplers import SamplerSuite

_: Sampler = sampler  # a type checker compares the module with its Protocol


class TestSampler(SamplerSuite):
    name = "load-average"
