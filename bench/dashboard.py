"""How soon the dashboard of a large store answers, alone and under fifty readers and sixteen writers.

``python bench/dashboard.py [--models 10000] [--results 100000] [--studies 1000] [--keep STORE]
[--against TREE]``: fills a store of its own (or takes the one that was kept), and says what a page takes
alone and weighs, how soon Chromium has painted the largest part of it, the 95th percentile of each page under
the load of all, whether a result was lost or a writer found the store locked, and the memory of the server.
With another checkout, the dashboards of both are measured in turns on the same store.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).resolve().parents[1]
READERS, WRITERS = 50, 16
PAUSE = 0.25
"""Seconds between two results of a writer."""
SECONDS = 10
PATHS = ("/", "/models", "/models/digits", "/results", "/results/010101010101")
ALONE = (*PATHS, "/tasks", "/trends", "/events", "/studies", "/loads")
GOALS = {"p95": 0.3, "alone": 0.2, "painted": 1.0, "bytes": 100_000, "memory": 300 * 2**20}
"""Seconds, bytes."""
_WRITERS = """
import os, sys, time
from modeldyno.base import plugins
from modeldyno.base.kinds import kind_of
from modeldyno.testing.sample_results import a_result
plugins.store  # imported before the children are made
many, pause, seconds = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
for number in range(many):
    if os.fork() == 0:
        written = 0
        try:
            with plugins.store() as store:
                end = time.monotonic() + seconds
                while time.monotonic() < end:
                    at = f"2027-01-01T00:00:00.{written:06}+00:00"
                    result = a_result(id=f"{number + 100:02x}{written:010x}", created=at)
                    store.put(result, headline=kind_of(result).brief(result))
                    written += 1
                    time.sleep(pause)
        finally:
            os.write(1, f"{written}\\n".encode())
            os._exit(0)
for _ in range(many):
    os.wait()
"""
_READERS = """
import asyncio, json, sys, time
host, port, *rest = sys.argv[1:]
many, seconds, paths = int(rest[0]), float(rest[1]), rest[2:]

async def read(number, end, found):
    reader, writer = await asyncio.open_connection(host, int(port))
    path = paths[number % len(paths)]
    while time.monotonic() < end:
        begin = time.monotonic()
        writer.write(f"GET {path} HTTP/1.1\\r\\nHost: {host}:{port}\\r\\n\\r\\n".encode())
        head = await reader.readuntil(b"\\r\\n\\r\\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        size = int(head.lower().split(b"content-length:")[1].split(b"\\r\\n")[0])
        await reader.readexactly(size)
        found[path].append(time.monotonic() - begin)
    writer.close()

async def main():
    found = {path: [] for path in paths}
    end = time.monotonic() + seconds
    await asyncio.gather(*(read(number, end, found) for number in range(many)))
    print(json.dumps(found))

asyncio.run(main())
"""


def main() -> int:
    """Measure, and return 1 if a goal is missed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", type=int, default=10_000)
    parser.add_argument("--results", type=int, default=100_000)
    parser.add_argument("--studies", type=int, default=1_000)
    parser.add_argument("--keep", type=Path, help="a store that is made once")
    parser.add_argument("--against", type=Path, help="another checkout, measured in turns with this one")
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        kept = options.keep or Path(folder) / "kept.db"
        if not kept.exists():
            fill_store(kept, options.models, options.results, options.studies)
        trees = [tree for tree in (options.against, HERE) if tree is not None]
        missed = False
        for turn in range(options.rounds):
            for tree in trees:
                store = Path(folder) / f"{turn}-{tree.name}.db"  # whose log is its own, too
                shutil.copy(kept, store)
                missed = measure(tree, store)
                store.unlink()
    return int(missed)


def measure(tree: Path, store: Path) -> bool:
    """Measure the dashboard of a checkout; return whether it missed a goal."""
    os.environ["MODELDYNO_STORE"] = f"sqlite:///{store}"
    size = store.stat().st_size
    with serve_dashboard(tree) as (process, address):
        idle = psutil.Process(process.pid).memory_info().rss
        alone = {path: fetch(address + path) for path in ALONE}
        painted = largest_paint(address)
        arguments = (str(WRITERS), str(PAUSE), str(SECONDS + 6))
        writers = subprocess.Popen(
            [sys.executable, "-c", _WRITERS, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        time.sleep(5)
        began = psutil.Process(process.pid).cpu_times().user
        under_load = load_pages(address)
        used = psutil.Process(process.pid).cpu_times().user - began
        out, errors = writers.communicate()
        memory = psutil.Process(process.pid).memory_info().rss
    written = sum(map(int, out.split()))
    with sqlite3.connect(store) as connection:
        (there,) = connection.execute("SELECT count(*) FROM results WHERE created >= '2027'").fetchone()
    locked = errors.count("locked")
    print(f"\n{tree.name}: store of {size / 1e6:,.0f} MB, {READERS} readers, "
          f"{WRITERS} writers of {1 / PAUSE:g} results a second each")  # fmt: skip
    for path in ALONE:
        seconds, weight = alone[path]
        line = f"{path:24} alone {seconds * 1000:7.1f} ms {weight / 1000:7.1f} kB"
        if path in under_load:
            p50, p95, rate = under_load[path]
            line += f"   under load p50 {p50 * 1000:7.1f} ms   p95 {p95 * 1000:7.1f} ms   {rate:6.1f}/s"
        print(line)
    worst = max(p95 for _, p95, _ in under_load.values())
    figures = {
        "p95": worst,
        "alone": max(seconds for seconds, _ in alone.values()),
        "painted": max(painted.values(), default=0.0),
        "bytes": alone["/"][1],
        "memory": memory,
    }
    print(
        f"largest paint {', '.join(f'{path} {s * 1000:.0f} ms' for path, s in painted.items()) or 'unknown'}"
    )
    answers = sum(rate for _, _, rate in under_load.values()) * SECONDS
    print(f"worst p95 {worst * 1000:.0f} ms, {used / answers * 1000:.2f} ms of processor time an answer, "
          f"load of the machine {os.getloadavg()[0]:.0f}")  # fmt: skip
    print(f"memory {memory / 2**20:.0f} MiB (idle {idle / 2**20:.0f} MiB), {written} results written, "
          f"{written - there} lost, {locked} times locked out")  # fmt: skip
    over = [name for name, goal in GOALS.items() if figures[name] > goal]
    print(f"goals missed: {', '.join(over) or 'none'}", flush=True)
    return bool(over) or locked > 0 or written != there


@contextmanager
def serve_dashboard(tree: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run the dashboard of a checkout; give its process and its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "modeldyno", "ui", "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tree / "src")},
    )
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline().split()[4]
    finally:
        process.terminate()
        process.wait()


def fetch(url: str) -> tuple[float, int]:
    """Return the median time of five answers after the first, in seconds, and the bytes of one on the way.

    Each is made for who asks, as a page that follows the store asks for it.
    """
    times, weight = [], 0
    request = urllib.request.Request(url, headers={"x-follows": "1", "accept-encoding": "gzip"})
    for _ in range(6):
        time.sleep(0.6)  # longer than one answer is shown to others
        begin = time.perf_counter()
        with urllib.request.urlopen(request) as answer:
            weight = len(answer.read())
        times.append(time.perf_counter() - begin)
    return median(times[1:]), weight


def largest_paint(address: str) -> dict[str, float]:
    """Return the seconds to the largest contentful paint in headless Chromium, by page; none without it."""
    try:
        from playwright.sync_api import sync_playwright  # optional

        from modeldyno.reports import pdf

        program = pdf.find_browser()
    except Exception as error:  # noqa: BLE001 - whatever is missing
        print(f"no browser: {error}")
        return {}
    paints = {}
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for path in PATHS:
            page = browser.new_context().new_page()
            page.goto(address + path)
            page.wait_for_timeout(800)
            paints[path] = page.evaluate(_LARGEST) / 1000
            page.close()
        browser.close()
    return paints


_LARGEST = """() => new Promise((done) => new PerformanceObserver((list) =>
  done(Math.max(...list.getEntries().map((entry) => entry.startTime)))
).observe({type: "largest-contentful-paint", buffered: true}))"""


# --- a large store ---------------------------------------------------------------------------------


def fill_store(path: Path, models: int, results: int, studies: int) -> None:
    """Put something of everything into a store, and copies of a result, a study, a model and a task."""
    os.environ["MODELDYNO_STORE"] = f"sqlite:///{path}"
    from tests.dashboard.conftest import fill  # needs the store to be named

    from modeldyno.base import plugins

    with plugins.store() as store:
        fill(store)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA foreign_keys=OFF")
        copies = f"(WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {results}) "
        copies += "SELECT n FROM c)"
        made = "printf('2025-06-01T%02d:%02d:%02d.%06d+00:00', n / 3600 % 24, n / 60 % 60, n % 60, n)"
        _copy(connection, "results", copies, "id='1d1d1d1d1d1d'", {
            "id": "printf('%012x', n + 16777216)", "created": made,
            "name": f"'model-' || (n % {models})", "name_key": f"'model-' || (n % {models})",
        })  # fmt: skip
        for table in ("numbers", "facts"):
            where = "result_id='1d1d1d1d1d1d'"
            _copy(connection, table, copies, where, {"result_id": "printf('%012x', n + 16777216)"})
        some = f"(WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {studies}) "
        some += "SELECT n FROM c)"
        (study,) = connection.execute("SELECT id FROM studies").fetchone()
        own = "printf('%012x', n + 33554432)"
        _copy(connection, "studies", some, f"id='{study}'", {"id": own, "created": made})
        few = f"(WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {models}) "
        few += "SELECT n FROM c)"
        name = "'model-' || n"
        _copy(connection, "models", few, "name='digits'", {
            "name": name, "touched": made, "newest": "1", "versions": "1", "latest": "1",
        })  # fmt: skip
        of_one = "model='digits' AND number=1"
        document = "cast(replace(cast(o.document AS TEXT), 'digits', 'model-' || n) AS BLOB)"
        _copy(connection, "versions", few, of_one, {"model": name, "document": document})
        _copy(connection, "variants", few, f"{of_one} AND recipe='source'",
              {"id": f"'v' || {name}", "model": name, "document": document})  # fmt: skip
        _copy(connection, "figures", few, of_one,
              {"key": "'k' || n || o.key", "model": name, "document": document})  # fmt: skip
        open_task = "id = (SELECT max(id) FROM tasks WHERE state='queued')"
        _copy(connection, "tasks", few, open_task, {"id": "n + 1000", "key": "'t' || n"})


def _copy(
    connection: sqlite3.Connection, table: str, numbers: str, where: str, changes: dict[str, str]
) -> None:
    """Insert a copy of rows for each number `n`, with some columns changed."""
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    chosen = ", ".join(
        changes.get(column, f'o."{column}"').replace("document)", "o.document)") for column in columns
    )
    chosen = chosen.replace("cast(document", "cast(o.document").replace("|| key", "|| o.key")
    names = ", ".join(f'"{column}"' for column in columns)
    connection.execute(
        f"INSERT INTO {table} ({names}) SELECT {chosen} FROM {numbers}, "
        f"(SELECT * FROM {table} WHERE {where}) AS o"
    )


# --- readers -----------------------------------------------------------------------------------------


def load_pages(address: str) -> dict[str, tuple[float, float, float]]:
    """Let all read, each one page again and again; return median, 95th percentile, and answers a second."""
    host, _, port = address.removeprefix("http://").partition(":")
    command = [sys.executable, "-c", _READERS, host, port, str(READERS), str(SECONDS), *PATHS]
    times = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return {
        path: (median(durations), quantiles(durations, n=20)[-1], len(durations) / SECONDS)
        for path, durations in times.items()
    }


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    raise SystemExit(main())
