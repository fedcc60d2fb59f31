"""Two saved snapshots of memory, compared by the command line and by Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from modeldyno import Result, read
from modeldyno.base import codec
from modeldyno.base.result.static_data import MemoryItem
from modeldyno.base.result.trace_data import TraceReport
from modeldyno.regions import MemoryChange, memory_change
from modeldyno.testing.sample_results import a_result, a_small_result

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Protocol

    class CommandResult(Protocol):
        code: int
        out: str
        err: str


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """Two snapshots in files, and a Result that has none."""
    for name, size in (("old", 2**20), ("new", 3 * 2**20)):
        held = (MemoryItem(scope="fc", role="activations", bytes=size),)
        made = a_small_result(name=name, activity=TraceReport(held=held))
        codec.write(tmp_path / f"{name}.json", codec.encode(made))
    codec.write(tmp_path / "bare.json", codec.encode(a_result()))
    return tmp_path


def test_a_baseline_shows_what_has_changed(modeldyno: Callable[..., CommandResult], saved: Path) -> None:
    """`show NEW --baseline OLD` prints only the difference at the peak."""
    result = modeldyno("show", "new.json", "--baseline", str(saved / "old.json"))

    assert result.code == 0
    assert result.out.startswith("new holds 2.00 MiB more at its peak than before, 3.00 MiB against 1.00 MiB")
    assert "output of fc  1.00 MiB  3.00 MiB  +2.00 MiB" in result.out
    assert "How it was measured" not in result.out


@pytest.mark.usefixtures("saved")
def test_a_result_without_a_snapshot_is_one_sentence(modeldyno: Callable[..., CommandResult]) -> None:
    """The message names the result without a snapshot, and what to do."""
    for arguments in (("bare.json", "new.json"), ("new.json", "bare.json")):
        result = modeldyno("show", arguments[0], "--baseline", arguments[1])
        assert result.code == 4
        assert "has no memory snapshot; profile it with the probe memory" in result.err
        assert result.out == ""


@pytest.mark.usefixtures("saved")
@pytest.mark.parametrize("more", [("--json",), ("--get", "latency.p50"), ("--require", "latency.p50 <= 1s")])
def test_one_question_at_a_time(modeldyno: Callable[..., CommandResult], more: tuple[str, ...]) -> None:
    """Options for one Result are refused with two."""
    result = modeldyno("show", "new.json", "--baseline", "old.json", *more)

    assert result.code == 2
    assert "--baseline cannot be combined with --get, --require or --json" in result.err


def test_python_has_the_same(saved: Path) -> None:
    """`memory_change` takes two Results, and returns the places with their bytes."""
    result = memory_change(*(read(saved / name, Result) for name in ("old.json", "new.json")))

    assert isinstance(result, MemoryChange)
    assert result.difference == 2 * 2**20
    assert [(each.scope, each.difference) for each in result.held] == [("fc", 2 * 2**20)]
