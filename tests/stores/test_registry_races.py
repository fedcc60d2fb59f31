"""Several processes at once on one registry: nothing is lost or done twice, and no number is given twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.sample_registry import a_task, a_variant, a_version, a_worker

from modeldyno.registry.records.records import TaskState
from modeldyno.stores import sql

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.registry.store.sql_registry import SqlRegistry

ROOT = Path(__file__).parents[2]
KILLS = ROOT / "bench" / "killed_workers.py"
EVENTS = ROOT / "bench" / "registry_events.py"
LISTS = ROOT / "bench" / "registry_lists.py"

RACER = """
import contextlib, io, json, sys
from modeldyno.stores import sql
from modeldyno.registry.records.records import TaskState
from modeldyno.registry.interface import Outcome
from tests.support.sample_registry import *
from modeldyno.base.errors import ModelDynoError
while line := sys.stdin.readline():
    url, me, body = json.loads(line)
    with sql.open(url) as store:
        registry = store.registry
        registry.models()
        print(flush=True)
        sys.stdin.readline()
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(body)
    print(json.dumps(printed.getvalue()), flush=True)
"""
RACERS: list[subprocess.Popen[str]] = []
"""Processes that race; each opens the store anew for every race."""


@pytest.fixture(scope="module", autouse=True)
def _racers_end() -> Iterator[None]:
    yield
    for racer in RACERS:
        racer.communicate(timeout=60)
    RACERS.clear()


def at_once(url: str, body: str, count: int = 3) -> list[str]:
    """Run a body in several processes that begin together; return what each printed."""
    command = [sys.executable, "-c", RACER]
    while len(RACERS) < count:
        RACERS.append(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        )
    racers = RACERS[:count]
    for number, racer in enumerate(racers):
        tell(racer, json.dumps((url, number, body)))
    for racer in racers:
        assert racer.stdout is not None
        racer.stdout.readline()
    for racer in racers:
        tell(racer, "go")
    return [json.loads(racer.stdout.readline()) for racer in racers if racer.stdout is not None]


def tell(racer: subprocess.Popen[str], line: str) -> None:
    """Write a line to a process."""
    assert racer.stdin is not None
    racer.stdin.write(f"{line}\n")


class TestVersions:
    def test_numbers_are_given_once_and_without_gaps(self, url: str) -> None:
        """Three processes add ten versions each, to a model that is not there yet."""
        body = "for n in range(10): registry.add_version(a_version(digest=f'sha256:{me}-{n}'))"
        at_once(url, body)
        with sql.open(url) as store:
            assert [v.number for v in store.registry.versions("digits")] == list(range(30, 0, -1))
            assert store.registry.models()[0].versions == 30
            assert len(store.registry.events(newest=100)) == 30
            assert store.registry.first_broken_event() is None

    def test_the_same_content_at_once_is_one_version(self, url: str) -> None:
        """One process has added it, the others have found it."""
        printed = at_once(url, "print(*registry.add_version(a_version()))")
        with sql.open(url) as store:
            assert [v.number for v in store.registry.versions("digits")] == [1]
        assert sorted(text.rpartition(" ")[2].strip() for text in printed) == ["False"] * 2 + ["True"]

    def test_a_number_is_given_to_one_of_two(self, url: str) -> None:
        """The others are told in a sentence."""
        body = (
            "try: print(registry.add_version(a_version(digest=f'sha256:{me}'), number=7)[0].number)\n"
            "except ModelDynoError as error: print(error)"
        )
        printed = sorted(text.strip() for text in at_once(url, body))
        assert printed[0] == "7"
        assert all(text.startswith("digits/7 is another model (sha256:") for text in printed[1:])

    def test_moves_of_an_alias_follow_each_other(self, url: str) -> None:
        """In the history, each begins where the one before it ended."""
        with sql.open(url) as store:
            for n in range(1, 5):
                store.registry.add_version(a_version(number=n))
        at_once(url, "for n in range(5): registry.move_alias('digits', 'a', 1 + (me + n) % 4, str(me))")
        with sql.open(url) as store:
            moves = store.registry.alias_moves("digits", "a")
            assert [move.before for move in moves[1:]] == [move.after for move in moves[:-1]]
            assert store.registry.aliases("digits") == {"a": moves[-1].after}
            assert store.registry.first_broken_event() is None


class TestChanges:
    @pytest.mark.slow
    def test_all_kinds_of_changes_at_once_end(self, url: str) -> None:
        """None waits for another in a circle, none is refused, and the chain of events holds."""
        with sql.open(url) as store:
            for n in range(1, 4):
                version, _ = store.registry.add_version(a_version(number=n))
                store.registry.put_variant(a_variant(version), "ada")
                store.registry.enqueue([a_task(version, batch) for batch in range(30)])
        body = """
for n in range(6):
    version = registry.versions('digits')[n % 3]
    task = registry.claim(a_worker(str(me)))
    registry.put_variant(a_variant(version, f'onnx{n % 2}'), str(me))
    registry.enqueue([a_task(version, b) for b in (range(100, 110) if me % 2 else range(109, 99, -1))])
    registry.move_alias('digits', f'a{n % 2}', version.number, str(me))
    state = TaskState.CANCELLED if n % 2 else TaskState.QUEUED
    registry.change_tasks([1 + (7 * n + me) % 90], state, str(me))
    more = tuple(a_task(version, b) for b in (200 + n, 201 + n, 202 + n))
    made, figure = a_variant(version, 'x'), a_figure(task)
    registry.finish(task, Outcome(state=TaskState.DONE, variant=made, figure=figure, next=more), str(me))
    registry.add_version(a_version('other', digest=f'sha256:{me}-{n}'))
    registry.announce(a_worker(str(me)), a_target())
"""
        at_once(url, body.strip(), count=5)
        with sql.open(url) as store:
            assert store.registry.first_broken_event() is None
            assert store.registry.models(text="other")[0].versions == 30
            keys = [task.key for task in store.registry.tasks() if task.state is TaskState.QUEUED]
            assert len(keys) == len(set(keys))


class TestClaim:
    def test_each_task_is_claimed_by_one_process(self, url: str) -> None:
        """Three processes that claim as fast as they can share them without a rest."""
        with sql.open(url) as store:
            version, _ = store.registry.add_version(a_version())
            store.registry.enqueue([a_task(version, n) for n in range(100)])
        printed = at_once(
            url, "while (task := registry.claim(a_worker(str(me)))) is not None: print(task.id)"
        )
        ids = [int(line) for text in printed for line in text.split()]
        assert len(ids) == len(set(ids)) == 100

    def test_a_stepped_wall_clock_frees_nothing(
        self, registry: SqlRegistry, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nor does it lengthen a lease: leases are of the database's clock, here and in other processes."""
        version, _ = registry.add_version(a_version())
        registry.enqueue([a_task(version)])
        task = registry.claim(a_worker())
        assert task is not None
        real = time.time
        for step in (3600.0, -3600.0):
            monkeypatch.setattr(time, "time", lambda step=step: real() + step)
            assert registry.claim(a_worker("eve")) is None
            assert 50 < registry.tasks()[0].left <= 60
            body = f"import time; real = time.time; time.time = lambda: real() + {step}"
            body += "\nprint(registry.claim(a_worker('eve')))\ntime.time = real"
            assert at_once(url, body, count=1) == ["None\n"]
        assert registry.renew(task)


def killed(url: str, *options: str) -> dict[str, object]:
    """Run the bench of killed workers; return its figures."""
    command = [sys.executable, str(KILLS), "--store", url, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ})
    assert done.returncode == 0, done.stdout + done.stderr
    figures: dict[str, object] = json.loads(done.stdout)
    return figures


class TestKills:
    def test_workers_that_die_or_sleep_lose_no_task(self, url: str) -> None:
        """A few kill -9, long SIGSTOPs, and steps of the clock: each task is done once."""
        options = ("--tasks", "12", "--kills", "2", "--stops", "1", "--clock-steps", "2")
        figures = killed(url, *options, "--lease", "0.5", "--workers", "3")

        assert (figures["lost"], figures["finished twice"], figures["stuck past lease + 10 s"]) == (0, 0, 0)
        assert (figures["killed"], figures["stopped"], figures["clock steps of an hour"]) == (2, 1, 2)

    @pytest.mark.slow
    def test_many_that_die_or_sleep_lose_no_task(self, url: str) -> None:
        """As above, with 60 and 30; bench/killed_workers.py does it with 200 and 100."""
        figures = killed(url, "--tasks", "600", "--kills", "60", "--stops", "30", "--seed", "2")

        assert (figures["lost"], figures["finished twice"], figures["stuck past lease + 10 s"]) == (0, 0, 0)
        assert (figures["killed"], figures["stopped"]) == (60, 30)


def test_each_change_leaves_its_event_although_writers_are_killed(url: str) -> None:
    """And an event that was altered or left out is noticed; bench/registry_events.py does it with 10,000."""
    done = subprocess.run(
        [sys.executable, str(EVENTS), "--store", url, "--changes", "60", "--kills", "2"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 killed: 0 events missing, 0 twice" in done.stdout


@pytest.mark.slow
def test_pages_of_a_large_registry_are_quick(url: str) -> None:
    """Of 10,000 models, one with 100,000 versions: each page within 200 ms, each look-up within 100 ms."""
    done = subprocess.run(
        [sys.executable, str(LISTS), "--store", url], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
