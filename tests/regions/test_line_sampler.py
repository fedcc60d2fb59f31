"""Which line a thread is in, by its stack, and whether it waits for a loader of data."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

from modeldyno.regions.line_sampler import LineSampler


def frame(file: str, line: int, back: Any = None, name: str = "f") -> Any:
    """A frame as the sampler sees one."""
    return SimpleNamespace(
        f_code=SimpleNamespace(co_filename=file, co_qualname=name), f_lineno=line, f_back=back
    )


def test_a_line_that_takes_its_time_has_it() -> None:
    """All of it, by one sample of 2 ms after the other."""
    sampler = LineSampler()
    time.sleep(0.1)
    sampler.stop()
    (line,) = (line for line in sampler.times.lines if line.startswith("test_line_sampler.py:"))
    assert sampler.times.lines[line].seconds > 0.05
    assert sampler.files["test_line_sampler.py"] == __file__


def test_what_a_loader_runs_is_waiting_of_the_line_that_asks() -> None:
    """The line of the data set has the time, that of the loop the wait, and its caller neither."""
    sampler = LineSampler()
    sampler.stop()
    sampler.times.lines.clear()
    loop = frame("/work/train.py", 9, frame("/work/train.py", 30))
    loader = frame(
        "/x/site-packages/torch/utils/data/dataloader.py", 700, loop, "_MultiProcessingDataLoaderIter.f"
    )
    sampler._add(frame("/work/data.py", 4, loader), 0.5)
    sampler._add(loop, 0.25)
    sampler._add(None, 0.25)

    assert {line: time.seconds for line, time in sampler.times.lines.items()} == {
        "data.py:4": 0.5, "train.py:9": 0.25, "": 0.25,
    }  # fmt: skip
    assert [*sampler.times.waits] == ["train.py:9"]
    assert [*sampler.times.causes] == ["data.py:4"]
    assert sampler.times.in_background
