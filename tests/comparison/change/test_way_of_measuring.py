"""What counts as measured in the same way, and how the rest is named."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from modeldyno.base.job.load_spec import Load
from modeldyno.base.metrics.doubt import CODES, Doubt
from modeldyno.base.metrics.measurement import Distribution, Measurement
from modeldyno.base.metrics.metric import Query
from modeldyno.base.result.result import Environment
from modeldyno.comparison.change.way_of_measuring import CODE, measured_alike
from modeldyno.testing.sample_results import a_job, a_small_result

if TYPE_CHECKING:
    from modeldyno.base.result.result import Fact, Result

QUERIES = tuple(map(Query.parse, ("latency.p50", "latency.max", "process_memory.max", "parameters")))


def result(*, version: str | None = "0.1.0", doubts: tuple[Doubt, ...] = (), **changes: Any) -> Result:
    """Return a Result of a Job with such changes; those of its Plan under ``plan``."""
    job = a_job("net")
    plan = replace(job.plan, **changes.pop("plan", {}))
    software: dict[str, Fact] = {} if version is None else {"modeldyno": version}
    job = replace(job, plan=plan, **changes)
    return a_small_result(job=job, environment=Environment(software=software), doubts=doubts)


def not_compared(before: Result, after: Result) -> list[str]:
    """Return the queries that are left out, and check that a doubt names each."""
    alike, doubts = measured_alike(QUERIES, before, after)
    left_out = [str(query) for query in QUERIES if query not in alike]
    assert all(any(name in doubt.seen for doubt in doubts) for name in left_out)
    assert bool(doubts) is bool(left_out)
    return left_out


@pytest.mark.parametrize(
    ("changes", "left_out"),
    [
        ({}, []),
        ({"plan": {"processes": 5, "seed": 3, "timeout": 9.0}}, []),
        ({"config": {"threads": 4}}, []),
        ({"probes": ("static", "outputs", "latency", "throughput")}, []),
        ({"probes": ("static", "latency")}, ["process_memory.max"]),
        ({"plan": {"max_time": 5.0}}, ["latency.max", "process_memory.max"]),
        ({"plan": {"min_warmup": 9}}, ["latency.max", "process_memory.max"]),
        ({"load": Load(concurrency=4)}, ["latency.p50", "latency.max"]),
        ({"version": "0.2.0"}, ["process_memory.max"]),
        ({"version": None}, []),
        ({"doubts": (Doubt(code="not-isolated", seen="it ran here", advice=""),)}, ["process_memory.max"]),
    ],
)
def test_a_figure_is_compared_if_what_it_depends_on_is_the_same(
    changes: dict[str, Any], left_out: list[str]
) -> None:
    """A rate or latency depends on the load, memory on the process, an extreme on the length."""
    probes = ("static", "latency", "throughput")
    assert not_compared(result(probes=probes), result(**{"probes": probes, **changes})) == left_out


def with_memory(*samples: float, max_time: float) -> Result:
    """Return a Result of such a length, with the memory of one process."""
    memory = Measurement(metric="process_memory", value=Distribution.of(samples))
    return replace(result(plan={"max_time": max_time}), measurements=(memory,))


@pytest.mark.parametrize(
    ("longer", "left_out"),
    [
        ((5e6, 8e6, 8e6, 8.1e6), []),
        ((5e6, 8e6, 8e6, 9e6), ["process_memory.max"]),
        ((9e6,), ["process_memory.max"]),
    ],
)
def test_memory_depends_on_the_length_only_if_it_grows(
    longer: tuple[float, ...], left_out: list[str]
) -> None:
    """A maximum of the first half is that of loading and the first calls; other extremes need the length."""
    short, long = with_memory(5e6, 8e6, 7e6, 7e6, max_time=1.0), with_memory(*longer, max_time=20.0)
    for pair in ((short, long), (long, short)):
        assert not_compared(*pair) == ["latency.max", *left_out]


def test_two_loads_are_alike_by_what_they_send() -> None:
    """How long a load lasts, and who sends it, is not what is sent."""
    before = result(load=Load(concurrency=4, duration=5.0))
    assert not_compared(before, result(load=Load(concurrency=4, requests=50, drivers=2))) == []
    assert not_compared(before, result(load=Load(concurrency=8))) == ["latency.p50", "latency.max"]


def test_prompts_of_a_cache_are_another_load() -> None:
    """A second run with the same prompts is no faster server."""
    cold = result(load=Load(concurrency=4))
    warm = replace(cold, doubts=(Doubt(code="cached-prompts", seen="", advice=""),))

    assert not_compared(cold, warm) == ["latency.p50", "latency.max"]
    assert not_compared(warm, warm) == []


def test_the_doubt_names_metrics_and_both_ways() -> None:
    """One doubt for each reason."""
    (doubt,) = measured_alike(QUERIES, result(load=Load(concurrency=4)), result(load=Load(concurrency=8)))[1]
    assert doubt.code == CODE in CODES
    assert doubt.seen == (
        "not compared: latency.p50 and latency.max, measured differently: a load of concurrency 4 and a "
        "load of concurrency 8"
    )
