"""Does every change of a registry leave its event, although its writers are killed with -9?

Four processes add versions, move an alias, change labels and remove versions, each change in the name of an
actor of its own; killed ones are replaced. Each change that was done must have exactly one event. Then a
hundred histories are spoilt, each by one event that was altered or left out, and an alias is rolled back by
one command. Exits with 1 if an event is missing or is there twice, a spoilt history is taken for whole, or
the alias did not move back.

    python bench/registry_events.py [--changes 10000] [--kills 40]
    python bench/registry_events.py --store postgresql   # a server of its own
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.support.postgres import empty_store
from tests.support.sample_registry import a_version

from modeldyno.base.job.version_name import VersionName
from modeldyno.registry.records.records import first_broken
from modeldyno.stores import sql

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.registry.records.records import RegistryEvent
    from modeldyno.registry.store.sql_registry import SqlRegistry

WRITERS = 4
SPOILT = 100
KINDS = ("version.added", "alias.moved", "version.changed", "version.removed")


def write(url: str, log: Path) -> None:
    """Make changes until killed, one kind after the other, and write down each that was done."""
    model = f"model-{os.getpid()}"
    with sql.open(url) as store, log.open("a", buffering=1) as lines:
        registry = store.registry
        version, _ = registry.add_version(a_version(model, creator="nobody"))
        for number in itertools.count():
            kind = KINDS[number % len(KINDS)]
            actor = f"{os.getpid()}-{number}"
            if kind == "version.added":
                version, _ = registry.add_version(a_version(model, digest=f"sha256:{actor}", creator=actor))
            elif kind == "alias.moved":
                registry.move_alias(model, "champion", version.number, actor)
            elif kind == "version.changed":
                registry.change_version(version, actor, labels={"number": str(number)})
            else:  # not the one that the alias names, as that would move it too
                spare, _ = registry.add_version(a_version(model, digest=f"spare:{actor}", creator="nobody"))
                registry.remove_version(spare, actor)
            lines.write(f"{actor} {kind}\n")


def change(url: str, folder: Path, options: argparse.Namespace) -> tuple[list[tuple[str, str]], int]:
    """Let the writers write until enough was done; return what they wrote down, and how many were killed."""
    chance, kills = random.Random(options.seed), 0
    logs: list[Path] = []
    each = -(-options.changes // (WRITERS + options.kills))

    def start_worker() -> int:
        logs.append(folder / f"{len(logs)}.log")
        pid = os.fork()
        if pid == 0:
            try:
                write(url, logs[-1])
            except BaseException:  # noqa: BLE001 - the process of the parent is not to go on
                traceback.print_exc()
            os._exit(1)
        return pid

    def done_tasks() -> list[tuple[str, str]]:
        lines = (line for log in logs if log.exists() for line in log.read_text().splitlines())
        return [(actor, kind) for actor, kind in (line.split(" ") for line in lines)]

    writers = [start_worker() for _ in range(WRITERS)]
    while len(written := done_tasks()) < options.changes:
        if kills < options.kills and len(written) >= each * (kills + 1):
            victim = chance.randrange(WRITERS)
            os.kill(writers[victim], signal.SIGKILL)
            os.waitpid(writers[victim], 0)
            writers[victim], kills = start_worker(), kills + 1
        time.sleep(chance.uniform(0.01, 0.05))
        if any(os.waitpid(pid, os.WNOHANG)[0] for pid in writers):
            raise SystemExit("A writer ended by itself.")
    for pid in writers:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return done_tasks(), kills


def spoil(events: Sequence[RegistryEvent], chance: random.Random) -> list[RegistryEvent]:
    """Alter or leave out one event; without the newest, of which the chain cannot know."""
    at = chance.randrange(len(events) - 1)
    event = events[at]
    altered = chance.choice(
        (
            None,
            replace(event, actor="somebody else"),
            replace(event, subject=f"{event.subject}0"),
            replace(event, at="2020-01-01T00:00:00.000+00:00"),
            replace(event, detail={**event.detail, "why": "it was so"}),
        )
    )
    return [*events[:at], *([altered] if altered else []), *events[at + 1 :]]


def rolled_back(url: str, registry: SqlRegistry) -> bool:
    """Move an alias, and undo it by one command; return whether it names the version of before."""
    for number in (1, 2):
        version, _ = registry.add_version(a_version("net", digest=f"sha256:{number}"))
        registry.move_alias("net", "champion", version.number, "ada")
    command = [sys.executable, "-m", "modeldyno", "registry", "alias", "net", "champion", "--rollback"]
    subprocess.run(command, check=True, stdout=subprocess.PIPE, env={**os.environ, "MODELDYNO_STORE": url})
    return registry.version(VersionName.parse("net@champion")).number == 1


def main() -> None:
    """Change, count, spoil, roll back."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--store", help="URL of an empty store, or postgresql; by default a file")
    parser.add_argument("--changes", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="registry-events-") as folder, empty_store(options.store) as url:
        with sql.open(url) as store:
            store.registry.models()  # so that the tables are there
        written, kills = change(url, Path(folder), options)
        with sql.open(url) as store:
            events = store.registry.events(newest=100 * options.changes)
            broken = store.registry.first_broken_event()
            back = rolled_back(url, store.registry)
    counts = Counter((event.actor, event.kind) for event in events)
    missing = sum(counts[change] == 0 for change in written)
    twice = sum(times > 1 for (actor, _), times in counts.items() if actor != "nobody")
    unseen = sum(first_broken(spoil(events, chance)) is None for _ in range(SPOILT))
    counted = f"{missing} events missing, {twice} twice"
    print(f"{len(written):,} changes by {WRITERS} processes, {kills} killed: {counted}")
    print(f"chain of {len(events):,} events: {'whole' if broken is None else f'broken at {broken}'}; "
          f"of {SPOILT} spoilt ones {unseen} taken for whole")  # fmt: skip
    print(f"alias rolled back by one command: {'yes' if back else 'NO'}")
    sys.exit(bool(missing or twice or unseen or broken is not None or not back))


if __name__ == "__main__":
    main()
