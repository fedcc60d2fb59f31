from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

import modeldyno
from modeldyno.base.errors import RequestError
from modeldyno.base.metrics.measurement import Distribution, Measurement, observed_number
from modeldyno.base.report.blocks import Notice, Table
from modeldyno.models.load_stages import WatchStage
from modeldyno.profiling import views
from modeldyno.profiling.views.rerun_command import rerun_command_line
from modeldyno.regions import api as watch
from modeldyno.regions.api import WatchedBlock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.base.metrics.doubt import Doubt
    from modeldyno.base.result.result import Result

MEASURED = (
    Measurement(metric="process_memory", value=Distribution.of([0.0, 1 << 20, 4 << 20, 2 << 20])),
    observed_number("cpu_utilization", 1.5),
    observed_number("power", 240.0, scope="cuda:0"),
    Measurement(metric="gpu_utilization", value=Distribution.of([0.5, 0.7]), scope="cuda:0"),
)


class Sampler:
    """Sees the same each time, and remembers the stages."""

    pids = ()

    def __init__(self) -> None:
        self.stages: list[str] = []

    def mark(self, stage: str) -> None:
        """Begin a stage."""
        self.stages.append(stage)

    def stop(self) -> Iterator[Measurement | Doubt]:
        """Give what was seen."""
        yield from MEASURED


@pytest.fixture
def sampler(monkeypatch: pytest.MonkeyPatch) -> Sampler:
    """Let this sampler watch."""
    fake = Sampler()
    monkeypatch.setattr(watch, "start_samplers", lambda _pid, *, period: [fake] if period else [])
    return fake


def watched_result(sampler: Sampler) -> Result:
    with modeldyno.watch(name="a block") as block:
        assert sampler.stages
    return block.result


def test_a_block_is_the_timed_stage(sampler: Sampler) -> None:
    """What is there at its beginning is the baseline, and is not counted."""
    result = watched_result(sampler)

    assert sampler.stages == [WatchStage.BASELINE, WatchStage.TIMED]
    assert result["process_memory.max"] == 4 << 20
    assert result["power@cuda:0"] == 240
    assert 0 < (result["total_time"] or 0) < 60


def test_a_watched_block_is_shown_with_its_course_and_devices(sampler: Sampler) -> None:
    """A sentence, a sparkline, and the table of devices, on the screen and on a page."""
    result = watched_result(sampler)
    blocks, page = list(views.blocks(result)), list(views.page(result))
    notices = [block.text for block in blocks if isinstance(block, Notice)]
    (table,) = (b for b in blocks if isinstance(b, Table) and b.title == "Devices in the block")

    assert notices[0].startswith("a block took ")
    assert notices[0].endswith(" on 1.50 cores and up to 4.00 MiB of memory.")
    assert notices[1] == "memory above that at the beginning, over time: ▁▃█▅"
    assert table.rows == (("cuda:0", "60.0%", "240 W"),)
    assert table in page
    assert list(views.overview(result)) == blocks


def test_the_command_that_repeats_it_runs_the_script(
    sampler: Sampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No command of ours watches a block; what was typed at a prompt has no script."""
    monkeypatch.setattr(sys, "argv", ["train.py", "--fast"])
    assert rerun_command_line(watched_result(sampler)) == "python train.py"
    monkeypatch.setattr(sys, "argv", ["-c"])
    assert rerun_command_line(watched_result(sampler)) == "python"


def test_it_may_be_started_and_stopped(sampler: Sampler) -> None:
    """Where the code is no block; twice is twice."""
    block = modeldyno.watch().start()
    first, second = block.stop(), block.start().stop()

    assert block.result is second
    assert first.id != second.id
    assert len(sampler.stages) == 4


def test_it_is_stored_only_if_asked(sampler: Sampler) -> None:
    """The store is the user's."""
    kept: list[Result] = []
    block = WatchedBlock(period=1.0, name=None, keep=kept.append)
    with block:
        assert not kept

    assert kept == [block.result]
    assert sampler.stages


def test_a_block_that_fails_was_seen_until_then(sampler: Sampler) -> None:
    """Its error goes on."""
    block = modeldyno.watch()
    with pytest.raises(ZeroDivisionError), block:
        _ = 1 / 0

    assert block.result["cpu_utilization"] == 1.5
    assert sampler.stages


@pytest.mark.usefixtures("sampler")
def test_what_makes_no_sense_is_refused() -> None:
    """Each with what to do."""
    block = modeldyno.watch()
    with pytest.raises(RequestError, match="once its block has ended"):
        _ = block.result
    with pytest.raises(RequestError, match="has not begun"):
        block.stop()
    block.start()
    with pytest.raises(RequestError, match="has begun already"):
        block.start()
    with pytest.raises(RequestError, match="more than 0 seconds"):
        modeldyno.watch(period=0.0)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="watched on Linux only")
def test_memory_that_a_block_takes_is_seen() -> None:
    """By a real process beside this one, however short the block is."""
    with modeldyno.watch(period=60.0) as block:
        held = bytearray(64 << 20)

    assert len(held) <= (block.result["process_memory.max"] or 0) < 1.5 * len(held)
