"""How soon the dashboard answers fifty readers while sixteen writers write, measured with ``modeldyno load``.

``python bench/dashboard.py [RESULTS]``: fills a store of its own with so many results (2,000), and says the
95th percentile of each page under the load of all, the memory of the server, and what a page takes alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from modeldyno import read
from modeldyno.core.metrics.measurement import Distribution

READERS, WRITERS = 50, 16
PAUSE = 0.25
"""Seconds between two results of a writer."""
SECONDS = 10
PATHS = ("/", "/models", "/models/digits", "/results", "/results/010101010101")
GOAL = 0.3
"""Seconds within which 95 % of the answers are there."""
_WRITER = """
import sys, time
from modeldyno import plugins
from modeldyno.kinds import kind_of
from modeldyno.testing.sample_results import a_result
with plugins.store() as store:
    for n in range(10**6):
        result = a_result(id=f"{int(sys.argv[1]):02x}{n:010x}", created=f"2027-01-01T00:00:00.{n:06}+00:00")
        store.put(result, headline=kind_of(result).brief(result))
        time.sleep(float(sys.argv[2]))
"""


def main(results: int) -> int:
    """Measure, and return 1 if a page is slower than the goal."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MODELDYNO_STORE"] = f"sqlite:///{folder}/store.db"
        fill_store(results)
        dashboard = subprocess.Popen(
            [sys.executable, "-m", "modeldyno", "ui", "--port", "0"], stdout=subprocess.PIPE, text=True
        )
        assert dashboard.stdout is not None
        address = dashboard.stdout.readline().split()[4]
        writers: list[subprocess.Popen[bytes]] = []
        try:
            alone = load_pages(address, 1, Path(folder), 3)
            writers += [
                subprocess.Popen([sys.executable, "-c", _WRITER, str(n + 100), str(PAUSE)])
                for n in range(WRITERS)
            ]
            time.sleep(3)
            under_load = load_pages(address, READERS // len(PATHS), Path(folder), SECONDS)
            memory = psutil.Process(dashboard.pid).memory_info().rss
        finally:
            for process in (*writers, dashboard):
                process.terminate()
                process.wait()
    print(f"{results:,} results, {READERS} readers, {WRITERS} writers of {1 / PAUSE:g} results a second each")
    for path in PATHS:
        p50, p95, rate = under_load[path]
        print(f"{path:24} alone {alone[path][0] * 1000:6.1f} ms   p50 {p50 * 1000:6.1f} ms   "
              f"p95 {p95 * 1000:6.1f} ms   {rate:6.1f}/s")  # fmt: skip
    worst = max(p95 for _, p95, _ in under_load.values())
    print(f"worst p95 {worst * 1000:.0f} ms (goal {GOAL * 1000:.0f} ms), memory {memory / 1e6:.0f} MB")
    return int(worst > GOAL)


def fill_store(results: int) -> None:
    """Put something of everything into the store, and many results."""
    from tests.dashboard.conftest import fill, put  # noqa: PLC0415 - needs the store to be named

    from modeldyno import plugins  # noqa: PLC0415
    from modeldyno.testing.sample_results import a_result  # noqa: PLC0415

    with plugins.store() as store:
        fill(store)
        for n in range(results):
            put(store, a_result(id=f"{n:012x}", created=f"2026-02-01T00:00:00.{n:06}+00:00"))


def load_pages(
    address: str, readers: int, folder: Path, seconds: int
) -> dict[str, tuple[float, float, float]]:
    """Load all pages at once; return the median and the 95th percentile in seconds, and answers a second."""
    processes = {}
    for number, path in enumerate(PATHS):
        file = folder / f"{number}.json"
        words = ["load", f"{address}{path}#page,protocol=http", "-c", str(readers), "--duration",
                 f"{seconds}s", "--drivers", "1", "--no-store", "--quiet", "--json", str(file)]  # fmt: skip
        processes[path] = subprocess.Popen([sys.executable, "-m", "modeldyno", *words]), file
    found = {}
    for path, (process, file) in processes.items():
        if process.wait():
            raise SystemExit(f"{path}: the load failed")
        result = read(file)
        latency = result.find("latency")
        assert latency is not None
        assert not result.number("error_rate"), (path, result.failures)
        times = latency.value
        assert isinstance(times, Distribution)
        found[path] = times.statistic("p50"), times.statistic("p95"), result.number("request_rate") or 0.0
    return found


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    raise SystemExit(main(int(sys.argv[1]) if sys.argv[1:] else 2000))
