from __future__ import annotations

import os
import resource
import signal

import pytest

from modeldyno.base.result.result import FailureKind
from modeldyno.engine.environment import machine
from modeldyno.engine.runtime.exit_cause import ExitObserver, describe_over_limit

GIB = 1 << 30


def kills(monkeypatch: pytest.MonkeyPatch, *counts: int | None) -> None:
    """Simulate these kill counts of the kernel, one after another."""
    kill_counts = iter(counts)
    monkeypatch.setattr(machine, "memory_kills", lambda: next(kill_counts))


@pytest.mark.parametrize(
    ("counts", "largest", "kind", "phrase"),
    [
        ((3, 4), 0, FailureKind.OOM, "the kernel killed it because memory ran out"),
        ((3, 3), 7 * GIB, FailureKind.KILLED, "another process killed it"),
        (
            (None, None),
            7 * GIB,
            FailureKind.OOM,
            "when it used 7.000 GiB of 8.000 GiB, most likely because memory",
        ),
        ((None, None), 2 * GIB, FailureKind.KILLED, "no lack of memory was observed"),
    ],
)
def test_want_of_memory_is_told_where_the_kernel_or_the_size_speaks_of_it(
    monkeypatch: pytest.MonkeyPatch,
    counts: tuple[int | None, int | None],
    largest: int,
    kind: FailureKind,
    phrase: str,
) -> None:
    """The kernel's count decides; if it is unknown, a size near the limit does."""
    kills(monkeypatch, *counts)
    witness = ExitObserver.begin(8 * GIB)
    witness.note(os.getpid(), largest)
    explanation = witness.outcome(-signal.SIGKILL)

    assert explanation[0] is kind
    assert phrase in explanation[1]


@pytest.mark.parametrize(
    ("code", "kind", "phrase"),
    [
        (3, FailureKind.EXIT, "it ended the process with exit code 3"),
        (-signal.SIGSEGV, FailureKind.CRASH, "it crashed (SIGSEGV)"),
        (-signal.SIGTERM, FailureKind.KILLED, "a signal from another process ended it (SIGTERM)"),
        (-signal.SIGXCPU, FailureKind.KILLED, "it used up its CPU time limit (SIGXCPU"),
        (-40, FailureKind.KILLED, "a signal from another process ended it (signal 40)"),
    ],
)
def test_an_end_is_told_by_its_code(code: int, kind: FailureKind, phrase: str) -> None:
    """Crashes are distinguished from signals of other processes."""
    explanation = ExitObserver(limit=GIB, kills=0).outcome(code)

    assert explanation[0] is kind
    assert phrase in explanation[1]


def test_a_limit_of_processor_time_is_the_cause_only_of_what_has_used_it_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process far from its CPU time limit was killed by something else."""
    kills(monkeypatch, 0, 0, 0)
    limits = (resource.RLIM_INFINITY, 100)
    monkeypatch.setattr(resource, "prlimit", lambda _pid, _which: limits)
    witness = ExitObserver.begin(GIB)
    witness.note(os.getpid(), 0)

    assert witness.processor_limit == 100
    witness.processor_time = 12.0
    assert "another process" in witness.outcome(-signal.SIGKILL)[1]
    witness.processor_time = 99.9
    assert "used up its CPU time limit" in witness.outcome(-signal.SIGKILL)[1]


def test_a_limit_that_was_not_given_is_told_as_such() -> None:
    """The message explains the origin of a limit unless the user gave it."""
    assert "the memory free" in describe_over_limit(2 * GIB, GIB, set_by_user=False)[1]
    assert "the memory free" not in describe_over_limit(2 * GIB, GIB, set_by_user=True)[1]
