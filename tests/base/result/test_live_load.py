"""A load that goes on, second by second."""

from __future__ import annotations

from modeldyno.base.result.live_load import SECONDS_KEPT, LiveLoad, add_second
from modeldyno.base.result.trace_data import LiveSecond

BEGUN = LiveLoad(id="a" * 12, created="2026-01-01", name="digits", load="", seconds=())


def after(*times: float) -> LiveLoad:
    """Return the load after seconds that begin at these times."""
    load = BEGUN
    for at in times:
        load = add_second(load, "concurrency 8", LiveSecond(at=at, answered=1, failed=0))
    return load


def test_it_has_its_newest_seconds() -> None:
    """Two minutes of them, the oldest first."""
    load = after(*map(float, range(SECONDS_KEPT + 3)))

    assert [second.at for second in load.seconds] == list(map(float, range(3, SECONDS_KEPT + 3)))
    assert load.load == "concurrency 8"
    assert not load.certified


def test_a_fresh_process_begins_anew() -> None:
    """Its seconds count from 0 again, and are not mixed with those of the process before."""
    assert [second.at for second in after(0.0, 1.0, 2.0, 0.0, 1.0).seconds] == [0.0, 1.0]
