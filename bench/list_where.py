"""Filter a store of many results by conditions: processor time of each, and what keeping their numbers costs.

Each result has 200 samples of the latency and a dozen further numbers and settings. Prints, of several calls,
the median and the largest processor time in milliseconds, and how many results match; then the time that
reading every document would take instead, and the time of the migration that fills in the numbers of results
of an earlier ModelDyno. Exits with 1 if a list takes longer than 200 ms. The time of a server is not seen.

    python bench/list_where.py [--store sqlite:///DIR/where.db] [--results 10000]
    python bench/list_where.py --store postgresql://user@host/database   # an empty one
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from modeldyno.base.job.model_ref import ModelIdentity
from modeldyno.base.result.where import matches
from modeldyno.base.result.where_text import parse
from modeldyno.stores import results, sql
from modeldyno.stores.schema import FACTS, NUMBERS, VERSION_TABLE
from modeldyno.testing.sample_results import a_job, a_result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from modeldyno.base.result.result import Result

MOST_MS = 200.0
CALLS = 7
DECODED = 200
"""Documents that are read to extrapolate to all."""
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
FRAMEWORKS = ("onnx", "torch", "sklearn", "tensorflow")
CONDITIONS = (
    "latency.p50 < 20ms and framework = onnx",
    "latency.p50 < 1ns",
    "surely latency.p50 < 20ms",
    "latency.p99.raw > 1ms and (batch_size = 8 or batch_size >= 32) and not failed",
    "throughput >= 5000/s and device = cpu",
    "name ~ MODEL-09 and created > 2026-01-05",
    "tag = release",
    "tag != release and threads = 1",
    "io_binding = true and tag != release and latency.mean > 99ms",
)


def make_results(count: int) -> Iterator[Result]:
    """Yield results that differ in everything that conditions name."""
    source = random.Random(1)
    job = a_job()
    for n in range(count):
        middle = source.uniform(1e-3, 100e-3)
        config = {**job.config, "batch_size": 2 ** (n % 8), "threads": 1 + n % 3}
        yield a_result(
            id=f"{n:012x}",
            created=(BEGIN + timedelta(minutes=n)).isoformat(),
            samples=[source.gauss(middle, middle / 20) for _ in range(200)],
            job=type(job)(**{name: getattr(job, name) for name in job.__slots__} | {"config": config}),
            model=ModelIdentity(name=f"model-{n:05}", digest=f"sha256:{n:064x}", framework=FRAMEWORKS[n % 4]),
        )


def cpu_ms(call: Callable[[], object]) -> float:
    """Return the processor time of a call in milliseconds."""
    begin = time.process_time()
    call()
    return 1000 * (time.process_time() - begin)


def main() -> None:
    """Fill a store, time it, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--store", help="URL of an empty store; by default a file that is removed")
    parser.add_argument("--results", type=int, default=10_000)
    options = parser.parse_args()
    now, slow = BEGIN + timedelta(days=365), False
    with tempfile.TemporaryDirectory(prefix="list-where-") as folder:
        url = options.store or f"sqlite:///{folder}/where.db"
        with sql.open(url) as store:

            def fill() -> None:
                with store._database.writing() as connection:
                    for result in make_results(options.results):
                        results.put(connection, result, "latency p50")

            print(f"put: {cpu_ms(fill) / options.results:.2f} ms each")
            for n in range(0, options.results, 1000):
                store.tag(f"{n:012x}", add=["release"])
            for text in ("all", *CONDITIONS):
                where = None if text == "all" else parse(text, now=now)
                times = [cpu_ms(lambda where=where: store.find(where=where, limit=20)) for _ in range(CALLS)]
                count = len(store.find(where=where, limit=options.results))
                median = statistics.median(times)
                slow = slow or median > MOST_MS
                late = "  TOO SLOW" if median > MOST_MS else ""
                print(f"{median:8.1f} ms  largest {max(times):8.1f} ms  {count:6} match  {text}{late}")
            where = parse(CONDITIONS[0], now=now)
            some = [entry.id for entry in store.find(limit=DECODED)]
            each = cpu_ms(lambda: [matches(where, store.get(name)) for name in some]) / len(some)
            print(f"{each * options.results:8.1f} ms  without them: every document read, from {len(some)}")
            with store._database.writing() as connection:
                NUMBERS.drop(connection)
                FACTS.drop(connection)
                connection.exec_driver_sql(f"UPDATE {VERSION_TABLE} SET version_num = '0004'")
        print(f"{cpu_ms(lambda: sql.open(url).close()):8.1f} ms  the migration, once")
    sys.exit(slow)


if __name__ == "__main__":
    main()
