"""What it costs to show a load while it goes on: the process that measures, and the one that stores.

``python bench/live_load.py [--rate 20000] [--streams 1000] [--seconds 30] [--rounds 3]``: processor time per
second of a load for summing up its records, for storing the last two minutes, and for counting the pieces of
answers in flight; and the rate that the load generator reaches at a server that does next to nothing, and its
processor time, shown and not shown, in turns.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import numpy as np

from modeldyno.base import plugins
from modeldyno.base.identity import new_identity
from modeldyno.base.job.load_spec import Load
from modeldyno.base.result.live_load import SECONDS_KEPT, LiveLoad
from modeldyno.base.result.trace_data import LiveSecond
from modeldyno.serving.load.request_log import COLUMNS, Records
from modeldyno.serving.loadgen.arrivals import LoadShare
from modeldyno.serving.loadgen.load_loop import LoadLoop
from modeldyno.serving.loadgen.request import Call
from modeldyno.serving.loadgen.running_load import LoadProgress
from modeldyno.serving.probes.live_seconds import LiveSeconds
from modeldyno.testing.server import serve_in_subprocess

BLOCKS = 10
"""Reports of a driver in a second."""


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate", type=int, default=20_000)
    parser.add_argument("--streams", type=int, default=1_000)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(
        f"summing up {options.rate:,} requests/s: "
        f"{summing_up(options.rate, options.seconds) * 1e3:.2f} ms a second"
    )
    print(
        f"counting pieces of {options.streams:,} answers: "
        f"{time_counting(options.streams) * 1e3:.2f} ms a second"
    )
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MODELDYNO_STORE"] = f"sqlite:///{folder}/store.db"
        cpu, wall, size = time_storing(Path(folder) / "store.db", options.seconds)
        print(f"storing {SECONDS_KEPT} seconds: {cpu * 1e3:.2f} ms of processor time, {wall * 1e3:.2f} ms, "
              f"{size / 1e3:.1f} kB a second")  # fmt: skip
        in_turns(options.rounds)


def summing_up(rate: int, seconds: int) -> float:
    """Return the seconds of processor time that summing up takes in a second of a load."""
    live, count = LiveSeconds(), rate // BLOCKS
    generator = np.random.default_rng(1)
    spent = 0.0
    for block in range(seconds * BLOCKS):
        end = np.sort(generator.integers(0, 10**8, count)) + block * 10**8
        columns: dict[str, Any] = {name: np.zeros(count, dtype) for name, dtype in COLUMNS.items()}
        columns |= {"due": end - generator.exponential(2e6, count).astype("int64"), "end": end}
        taken = LoadProgress(records=Records(**columns), in_flight=8, backlog=0, ended=False)
        begin = time.process_time()
        list(live.add(taken, (block + 1) * 10**8))
        spent += time.process_time() - begin
    return spent / seconds


def time_counting(streams: int, times: int = 1000) -> float:
    """Return the seconds of processor time that a driver counts pieces of answers in flight in a second."""
    spent = {}
    for streamed in (False, True):
        driver = LoadLoop(Load(concurrency=streams), LoadShare(), 1, asyncio.new_event_loop())
        driver.carrier, driver.streamed = SimpleNamespace(opened=streams), streamed  # type: ignore[assignment]
        for _ in range(streams):
            call = Call(0, 0)
            call.pieces = [1] * 100
            driver._in_flight[call] = 0
        begin = time.process_time()
        for _ in range(times):
            driver.block()
        spent[streamed] = time.process_time() - begin
    return (spent[True] - spent[False]) / times * BLOCKS


def time_storing(path: Path, times: int) -> tuple[float, float, float]:
    """Return processor time and time of storing a load once, and the bytes of its log."""
    row = LiveSecond(at=1.0, answered=1000, failed=0, p50=0.00123456789, p99=0.0123456789, worst=0.123456789,
                     pieces=1234.56789, tokens=2345.6789, first_token=0.0123456789,
                     first_token_p99=0.123456789, time_per_token=0.0123456789)  # fmt: skip
    load = LiveLoad(name="m", load="concurrency 8", seconds=(row,) * SECONDS_KEPT, **new_identity())
    with plugins.store() as store:
        assert hasattr(store, "put_live_load")
        store.put_live_load(load)
        size = Path(f"{path}-wal").stat().st_size
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(times):
            store.put_live_load(load)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        grown = Path(f"{path}-wal").stat().st_size - size
    return cpu / times, wall / times, grown / times


def in_turns(rounds: int) -> None:
    """Load a server, shown and not shown, in turns; print medians of the rounds."""
    figures: dict[str, list[tuple[float, float]]] = {"shown": [], "not shown": []}
    with serve_in_subprocess("--service", "constant:0") as server:
        for number in range(rounds):
            ways = ("shown", "not shown") if number % 2 else ("not shown", "shown")
            for way in ways:
                arguments = ["load", f"http://127.0.0.1:{server.port}#echo", "--input", "x=1x16", "-c", "8"]
                arguments += ["--duration", "8", "--json", "-", *(() if way == "shown" else ("--no-store",))]
                program = [sys.executable, "-m", "modeldyno", *arguments]
                out = subprocess.run(program, capture_output=True, check=False).stdout
                metrics = {one["metric"]: one["value"] for one in json.loads(out)["measurements"]}
                figures[way].append((metrics["request_rate"], metrics["client_time"]))
    for way, rows in figures.items():
        rate, client = (median(row[n] for row in rows) for n in (0, 1))
        each = ", ".join(f"{row[0]:,.0f}" for row in rows)
        print(f"{way:10} {rate:8,.0f} requests/s (rounds: {each}), {client * 1e6:.1f} us of client a request")


if __name__ == "__main__":
    main()
