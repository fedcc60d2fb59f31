"""A server under load: python load.py [URL]; without one, under a server whose every request is known."""

from __future__ import annotations

import sys
from contextlib import nullcontext

import modeldyno
from modeldyno.testing.server import serve_in_subprocess

own = (
    nullcontext() if sys.argv[1:] else serve_in_subprocess("--service", "exponential:0.005", "--workers", "4")
)
with own as running:
    url = sys.argv[1] if running is None else f"http://127.0.0.1:{running.port}#echo"
    inputs = () if running is None else "x=1x8"
    for load in ({"concurrency": 4}, {"rate": "200:poisson"}):
        result = modeldyno.load(url, inputs=inputs, duration=3, **load)
        print(f"{result.job.load}: {result['request_rate']:,.0f} requests/s")
        for statistic in ("p50", "p95"):
            answer = result.ask(f"latency.{statistic}")
            print(f"  {statistic} {answer.value} s, 95 % interval {answer.interval}")
        for stage in ("queue_time", "compute_time", "network_time"):
            print(f"  {stage} {result[stage]} s")
        for doubt in result.doubts:
            print(f"  {doubt.code}: {doubt.seen}")
