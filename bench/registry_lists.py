"""Lists and look-ups of a large registry: 10,000 models, one of them with 100,000 versions, with a history.

Prints the median and the slowest of several calls of each, in milliseconds, with the size of what it returns
as JSON. Exits with 1 if a page takes longer than 200 ms or is larger than 100 kB, or a look-up takes longer
than 100 ms.

    python bench/registry_lists.py [--store sqlite:///DIR/lists.db] [--models 10000] [--versions 100000]
    python bench/registry_lists.py --store postgresql                        # a server of its own
    python bench/registry_lists.py --store postgresql://user@host/database   # an empty one
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.support.postgres import empty_store
from tests.support.sample_registry import (
    TARGET,
    a_figure,
    a_target,
    a_task,
    a_variant,
    a_version,
    a_worker,
)

from modeldyno.base.job.version_name import VersionName
from modeldyno.registry.records.records import TaskState, event_hash
from modeldyno.stores import sql
from modeldyno.stores.rows import record_row
from modeldyno.stores.schema import ALIASES, EVENTS, FIGURES, MODELS, TASKS, VARIANTS, VERSIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from modeldyno.registry.records.records import Version
    from modeldyno.registry.store.sql_registry import SqlRegistry

PAGE_MS, LOOK_UP_MS, PAGE_BYTES = 200.0, 100.0, 100_000
FRAMEWORKS = ("onnx", "torch", "sklearn", "tensorflow")
TASKS_OF_MODELS = ("classification", "detection", "embedding", "generation", "")
BIG = "big"
CALLS = 11
EACH = 20
"""One version in so many has variants, a figure and a task; of these tasks, one in so many is open."""


def all_versions(options: argparse.Namespace) -> Iterator[Version]:
    """Yield every version: one of each model, and all those of the big one."""
    for n in range(options.models - 1):
        yield a_version(
            f"model-{n:05}",
            digest=f"sha256:{n:064x}",
            framework="rare" if n == 7 else FRAMEWORKS[n % len(FRAMEWORKS)],
            task="rare" if n == 7 else TASKS_OF_MODELS[n % len(TASKS_OF_MODELS)],
        )
    for n in range(1, options.versions + 1):
        yield a_version(BIG, n, digest=f"sha256:b{n:063x}")


def fill(store: sql.SqlStore, options: argparse.Namespace) -> None:
    """Write the rows at once; to add them one by one would take an hour."""
    sampled = [version for n, version in enumerate(all_versions(options)) if n % EACH == 0]
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    at = {
        f"model-{n:05}": (begin + timedelta(minutes=n)).isoformat(timespec="milliseconds")
        for n in range(options.models - 1)
    }
    at[BIG] = "2026-11-01T00:00:00.000+00:00"
    with store._database.writing() as connection:

        def insert(table: Any, rows: Iterable[dict[str, Any]]) -> None:
            waiting = iter(rows)
            while chunk := list(islice(waiting, 2000)):
                connection.execute(table.insert(), chunk)

        latest = {version.model: version for version in all_versions(options)}
        insert(MODELS, (model_row(version, at[name]) for name, version in latest.items()))
        insert(VERSIONS, (record_row(VERSIONS, version) for version in all_versions(options)))
        champions = {v.model: v.number for v in sampled}
        insert(ALIASES, ({"model": m, "alias": "champion", "number": n} for m, n in champions.items()))
        insert(
            VARIANTS,
            (
                record_row(VARIANTS, a_variant(v, recipe), id=f"{v.name}/{recipe}")
                for v in sampled
                for recipe in ("source", "onnx")
            ),
        )
        insert(FIGURES, (record_row(FIGURES, a_figure(a_task(v))) for v in sampled))
        insert(TASKS, (task_row(v, n) for n, v in enumerate(sampled)))
        insert(EVENTS, events(all_versions(options)))


def model_row(latest: Version, at: str) -> dict[str, Any]:
    """Make the row of a model."""
    numbers = dict.fromkeys(("newest", "versions", "latest"), latest.number)
    described = {"framework": latest.framework, "task": latest.task}
    return {"name": latest.model, "created": at, "touched": at, **numbers, **described}


def task_row(version: Version, n: int) -> dict[str, Any]:
    """Make the row of a task; one in twenty is queued, the others are done."""
    return record_row(
        TASKS,
        a_task(version),
        id=n + 1,
        state=TaskState.DONE if n % EACH else TaskState.QUEUED,
        **dict.fromkeys(("attempts", "deferrals", "token", "until"), 0),
        **dict.fromkeys(("worker", "boot", "why", "result"), ""),
        created=version.created,
    )


def events(versions: Iterable[Version]) -> Iterator[dict[str, Any]]:
    """Make a chain of events."""
    before = ""
    for version in versions:
        fields = (version.created, "ada", "version.added", version.name)
        hashed = event_hash(before, *fields, {})
        names = ("at", "actor", "kind", "subject")
        yield {
            **dict(zip(names, fields, strict=True)),
            "model": version.model,
            "detail": "{}",
            "before": before,
            "hash": hashed,
        }
        before = hashed


def calls(registry: SqlRegistry, options: argparse.Namespace) -> dict[str, tuple[float, Callable[[], Any]]]:
    """Return what is timed, and the milliseconds that it may take."""
    named = VersionName.parse
    middle = registry.models(limit=50)[-1].mark
    digest = f"sha256:b{options.versions // 2:063x}"
    version = registry.version(named(f"{BIG}/{EACH // 2}"))
    return {
        "models: first page": (PAGE_MS, registry.models),
        "models: second page": (PAGE_MS, lambda: registry.models(before=middle)),
        "models: text that all have": (PAGE_MS, lambda: registry.models(text="MODEL-0")),
        "models: text that one has": (PAGE_MS, lambda: registry.models(text="04999")),
        "models: text that none has": (PAGE_MS, lambda: registry.models(text="nothing")),
        "models: a common framework": (PAGE_MS, lambda: registry.models(framework="torch")),
        "models: a rare framework": (PAGE_MS, lambda: registry.models(framework="rare")),
        "models: a rare task": (PAGE_MS, lambda: registry.models(task="rare")),
        "models: task and framework": (PAGE_MS, lambda: registry.models(task="detection", framework="torch")),
        "versions: first page": (PAGE_MS, lambda: registry.versions(BIG)),
        "versions: in the middle": (PAGE_MS, lambda: registry.versions(BIG, below=options.versions // 2)),
        "tasks: first 1,000": (PAGE_MS, registry.tasks),
        "versions: a rare framework": (PAGE_MS, lambda: registry.find_versions(BIG, framework="rare")),
        "versions: made from one": (PAGE_MS, lambda: registry.find_versions(parent=f"{BIG}/77")),
        "newest versions: a rare task": (PAGE_MS, lambda: registry.find_versions(task="rare")),
        "tasks: of a model": (PAGE_MS, lambda: registry.tasks(model="model-00040")),
        "events: newest": (PAGE_MS, registry.events),
        "events: of a version": (PAGE_MS, lambda: registry.events(subject=f"{BIG}/77")),
        "events: of a model": (PAGE_MS, lambda: registry.events(subject="model-00040")),
        "events: of the big model": (PAGE_MS, lambda: registry.events(subject=BIG)),
        "newest version": (LOOK_UP_MS, lambda: registry.version(named(BIG))),
        "version by number": (LOOK_UP_MS, lambda: registry.version(named(f"{BIG}/77"))),
        "version by alias": (LOOK_UP_MS, lambda: registry.version(named(f"{BIG}@champion"))),
        "versions by digest": (LOOK_UP_MS, lambda: registry.with_digest(digest)),
        "variants": (LOOK_UP_MS, lambda: registry.variants(version)),
        "figures of a version": (LOOK_UP_MS, lambda: registry.figures(BIG, version.number)),
        "aliases": (LOOK_UP_MS, lambda: registry.aliases(BIG)),
        "add a version": (
            LOOK_UP_MS,
            lambda: registry.add_version(a_version(BIG, digest=str(time.monotonic()))),
        ),
        "claim": (LOOK_UP_MS, lambda: registry.claim(a_worker("b"))),
        "claim without work": (LOOK_UP_MS, lambda: registry.claim(a_worker("c", target="nothing"))),
    }


def main() -> None:
    """Fill a store, time it, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--store", help="URL of an empty store, or postgresql; by default a file")
    parser.add_argument("--models", type=int, default=10_000)
    parser.add_argument("--versions", type=int, default=100_000)
    options = parser.parse_args()
    slow = False
    with empty_store(options.store) as url, sql.open(url) as store:
        store.registry.announce(a_worker("b", target=TARGET), a_target())
        fill(store, options)
        for name, (limit, call) in calls(store.registry, options).items():
            seconds = []
            for _ in range(CALLS):
                begin = time.perf_counter()
                rows = call()
                seconds.append(1000 * (time.perf_counter() - begin))
            size = len(msgspec.json.encode(rows))
            median = statistics.median(seconds)
            paged = name.startswith(("models", "versions:")) and size > PAGE_BYTES
            late = "  TOO SLOW" if median > limit else "  TOO LARGE" if paged else ""
            slow = slow or bool(late)
            print(f"{name:28} {median:8.1f} ms  slowest {max(seconds):8.1f} ms  {size / 1000:7.1f} kB{late}")
    sys.exit(slow)


if __name__ == "__main__":
    main()
