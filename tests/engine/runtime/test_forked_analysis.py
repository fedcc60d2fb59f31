"""Analysis in a fork of the process."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Measurement
from modeldyno.base.result.result import Event, Progressed
from modeldyno.base.system.process_tree import list_process_tree, resident_size
from modeldyno.engine.runtime import forked_analysis
from modeldyno.engine.runtime.forked_analysis import Watching, analyse_isolated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux is safe to fork")
SIZE = 64 << 20
WEIGHT = Measurement(metric="parameters", value=3)
DOUBT = Doubt(code="not-analysed", seen="a reason", advice="nothing")


@pytest.fixture(autouse=True)
def can_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ignore the threads of the test runner."""
    monkeypatch.setattr(forked_analysis, "_can_fork", lambda: True)


def run_analysis(analysis: Callable[[Watching], Iterator[Event]], **changes: Any) -> list[Event]:
    return list(
        analyse_isolated(
            analysis, changes.get("watch", lambda _event: None), changes.get("interrupted", lambda: False)
        )
    )


def test_what_a_copy_finds_is_told_and_its_progress_at_once() -> None:
    """The events are those of an analysis here; progress is reported immediately."""
    events: list[Event] = []

    def analysis(watch: Watching) -> Iterator[Event]:
        watch(Progressed(stage="static"))
        yield WEIGHT
        yield DOUBT

    assert run_analysis(analysis, watch=events.append) == [WEIGHT, DOUBT]
    assert events == [Progressed(stage="static")]


def test_a_copy_removes_its_own_files_and_not_ours(tmp_path: Path) -> None:
    """Of two files that are removed at the exit of a process, that of the copy goes and ours stays."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.touch()
    atexit.register(ours.unlink)

    def analysis(_watch: Watching) -> Iterator[Event]:
        theirs.touch()
        atexit.register(theirs.unlink)
        yield WEIGHT

    try:
        assert run_analysis(analysis) == [WEIGHT]
    finally:
        atexit.unregister(ours.unlink)
    assert ours.exists()
    assert not theirs.exists()


def test_what_a_copy_takes_is_not_ours() -> None:
    """An analysis that keeps 64 MiB does not change the size of this process."""
    kept: list[bytes] = []

    def analysis(_watch: Watching) -> Iterator[Event]:
        kept.append(b"1" * SIZE)
        yield WEIGHT

    before = resident_size(os.getpid())
    assert run_analysis(analysis) == [WEIGHT]
    assert resident_size(os.getpid()) - before < SIZE / 8
    assert kept == []


def test_a_copy_that_crashes_is_doubted() -> None:
    """Events before the crash count, and the model is measured anyway."""

    def analysis(_watch: Watching) -> Iterator[Event]:
        yield WEIGHT
        os._exit(1)

    first, second = run_analysis(analysis)
    assert first == WEIGHT
    assert isinstance(second, Doubt)
    assert "crashed" in second.seen


def test_a_copy_that_waits_for_a_thread_it_does_not_have_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork that neither works nor reports is ended, and the analysis done here."""
    monkeypatch.setattr(forked_analysis, "_STUCK_AFTER", 0.5)
    here, forever = os.getpid(), threading.Event()
    before = set(list_process_tree(here))

    def analysis(_watch: Watching) -> Iterator[Event]:
        yield WEIGHT
        if os.getpid() != here:
            forever.wait()
        yield DOUBT

    assert run_analysis(analysis) == [WEIGHT, DOUBT]
    assert set(list_process_tree(here)) <= before


def test_an_interruption_ends_a_copy() -> None:
    """An analysis is not awaited after an interruption."""
    forever = threading.Event()

    def analysis(_watch: Watching) -> Iterator[Event]:
        forever.wait()
        yield WEIGHT

    assert run_analysis(analysis, interrupted=lambda: True) == []


@pytest.mark.parametrize("reason", ["threads", "device"])
def test_where_a_copy_would_not_work_the_analysis_is_done_here(
    reason: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Another thread, or an open device, would be missing in a fork."""
    monkeypatch.undo()
    monkeypatch.setattr(threading, "active_count", lambda: 2 if reason == "threads" else 1)
    monkeypatch.setattr(forked_analysis, "_DEVICES", (str(tmp_path / "nvidia"),))
    pids: list[int] = []

    def analysis(_watch: Watching) -> Iterator[Event]:
        pids.append(os.getpid())
        yield WEIGHT

    with (tmp_path / ("nvidia0" if reason == "device" else "other")).open("w"):
        assert run_analysis(analysis) == [WEIGHT]
    assert pids == [os.getpid()]


def test_a_process_of_one_thread_without_device_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process with one thread and no device is forked."""
    monkeypatch.undo()
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    pids: list[int] = []

    def analysis(_watch: Watching) -> Iterator[Event]:
        pids.append(os.getpid())
        yield WEIGHT

    assert run_analysis(analysis) == [WEIGHT]
    assert pids == []
