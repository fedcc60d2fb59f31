"""The system clock jumps by an hour at every reading, in every process: nothing is measured by it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from modeldyno.base import codec
from modeldyno.base.metrics.measurement import Distribution
from modeldyno.testing.server import serve_in_subprocess

if TYPE_CHECKING:
    from pathlib import Path

    from modeldyno.base.result.result import Result

JUMPING = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/time.h>
#include <time.h>

static int (*real)(clockid_t, struct timespec *);
static atomic_int turn;

int clock_gettime(clockid_t id, struct timespec *now) {
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(id, now);
    if (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE) now->tv_sec += turn++ % 2 ? 3600 : -3600;
    return code;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}

int gettimeofday(struct timeval *out, void *zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    out->tv_sec = now.tv_sec, out->tv_usec = now.tv_nsec / 1000;
    return 0;
}
"""
SERVICE = 0.002
"""Seconds that the model, and the server, take for a call: no true figure is below it."""


@pytest.fixture(scope="module")
def jumping(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Give an environment in which the wall clock jumps, as this process sees when it asks such a child."""
    compiler = shutil.which("cc")
    if sys.platform != "linux" or compiler is None:
        pytest.skip("needs Linux and a C compiler")
    folder = tmp_path_factory.mktemp("clock")
    (folder / "jumping.c").write_text(JUMPING)
    library = folder / "jumping.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, folder / "jumping.c", "-ldl"], check=True)
    environment = {**os.environ, "LD_PRELOAD": str(library)}
    code = "import time; print(max(abs(time.time() - time.time()) for _ in range(9)))"
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=True, stdout=subprocess.PIPE)
    assert float(done.stdout) > 7000
    return environment


def measured(environment: dict[str, str], folder: Path, *arguments: str) -> Result:
    """Run a command whose every process has such a clock; return its result."""
    document = folder / "result.json"
    done = subprocess.run(
        [sys.executable, "-m", "modeldyno", *arguments, "--json", str(document), "--no-store", "-q"],
        env=environment, capture_output=True, text=True, check=False, cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return codec.read(document)


def times(result: Result, *metrics: str) -> list[float]:
    """Give all samples of metrics, or their one number."""
    seconds: list[float] = []
    for each in result.measurements:
        if each.metric in metrics:
            value = each.value
            if isinstance(value, Distribution):
                seconds += [float(sample) for run in value.arrays() for sample in run]
            elif isinstance(value, int | float):
                seconds.append(value)
    assert seconds
    return seconds


def test_a_profile_has_no_trace_of_it(jumping: dict[str, str], tmp_path: Path) -> None:
    """No latency is below what the model takes, or absurd, and no duration is negative."""
    result = measured(
        jumping, tmp_path, "profile", "call:modeldyno.testing.known_latency:steady", "--max-time", "1s"
    )
    calls = times(result, "latency", "first_call")
    assert SERVICE <= min(calls) <= max(calls) < 60
    assert all(0 <= seconds < 60 for seconds in times(result, "load_time"))
    assert 0 < (result["throughput"] or 0) <= 1 / SERVICE


@pytest.mark.parametrize("load", [("-c", "2"), pytest.param(("--rate", "100"), marks=pytest.mark.slow)])
def test_a_load_has_no_trace_of_it(jumping: dict[str, str], tmp_path: Path, load: tuple[str, str]) -> None:
    """In a closed and an open loop: neither the driver's latencies nor its delays are negative or absurd."""
    with serve_in_subprocess("--service", f"constant:{SERVICE}", "--workers", "2") as running:
        url = f"http://{running.host}:{running.port}#echo"
        limits = ("--requests", "200", "--max-time", "20s")
        result = measured(jumping, tmp_path, "load", url, "--input", "x=1x4", *load, *limits)
    latencies = times(result, "latency", "service_time")
    assert SERVICE <= min(latencies) <= max(latencies) < 60
    assert all(0 <= seconds < 60 for seconds in times(result, "send_lag", "first_call", "load_time"))
    assert 0 < (result["request_rate"] or 0) <= 2 / SERVICE
    assert not result["error_rate"]
