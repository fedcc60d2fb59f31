"""The probes that come with ModelDyno pass the examination of all probes."""

from __future__ import annotations

import pytest

from modeldyno.testing.probes import ProbeSuite

pytestmark = pytest.mark.usefixtures("brief_measurements")


class TestLatency(ProbeSuite):
    name = "latency"


class TestThroughput(ProbeSuite):
    name = "throughput"


class TestStatic(ProbeSuite):
    name = "static"
