from __future__ import annotations

from itertools import islice, pairwise
from typing import TYPE_CHECKING

import pytest

from modeldyno.base.job.load_spec import Arrivals, Load
from modeldyno.serving.loadgen.arrivals import LoadShare, due_times

if TYPE_CHECKING:
    from pathlib import Path

SECOND = 1_000_000_000


def first(count: int, load: Load, share: LoadShare | None = None, seed: int = 0) -> list[int]:
    return list(islice(due_times(load, share or LoadShare(), seed=seed), count))


def paced(kind: Arrivals, rate: float, **more: float) -> Load:
    return Load(arrivals=kind, rate=rate, **more)  # type: ignore[arg-type]


def test_a_constant_rate_is_due_at_equal_steps() -> None:
    """The n-th request is due n / rate seconds after the start."""
    assert first(4, paced(Arrivals.CONSTANT, 100)) == [0, 10_000_000, 20_000_000, 30_000_000]


def test_a_burst_is_due_at_once_and_keeps_the_mean_rate() -> None:
    """Three at once at 100/s come every 30 ms."""
    times = first(7, paced(Arrivals.BURST, 100, burst=3))
    assert times == [0, 0, 0, 30_000_000, 30_000_000, 30_000_000, 60_000_000]


def test_poisson_arrivals_have_the_mean_and_the_spread_of_an_exponential() -> None:
    """The gaps have mean 1 / rate, and a standard deviation that equals it."""
    times = first(20_001, paced(Arrivals.POISSON, 1000), seed=3)
    gaps = [(after - before) / SECOND for before, after in pairwise(times)]
    mean = sum(gaps) / len(gaps)
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert mean == pytest.approx(0.001, rel=0.03)
    assert deviation == pytest.approx(0.001, rel=0.05)


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gamma_arrivals_have_the_mean_of_the_rate_and_the_spread_of_their_burstiness(
    burstiness: float,
) -> None:
    """The coefficient of variation of the gaps is 1 over the root of the burstiness."""
    times = first(40_001, paced(Arrivals.GAMMA, 1000, burstiness=burstiness), seed=3)
    gaps = [(after - before) / SECOND for before, after in pairwise(times)]
    mean = sum(gaps) / len(gaps)
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert mean == pytest.approx(0.001, rel=0.03)
    assert deviation / mean == pytest.approx(burstiness**-0.5, rel=0.05)


def test_poisson_arrivals_of_a_seed_are_the_same_again() -> None:
    """A seed tells the times, another one others."""
    load = paced(Arrivals.POISSON, 10)
    assert first(9, load, seed=1) == first(9, load, seed=1) != first(9, load, seed=2)


@pytest.mark.parametrize("kind", [Arrivals.CONSTANT, Arrivals.BURST, Arrivals.GAMMA])
@pytest.mark.parametrize("drivers", [2, 3])
def test_the_shares_of_several_drivers_make_up_the_whole(kind: Arrivals, drivers: int) -> None:
    """Merged, the times of all drivers are those of one."""
    load = paced(kind, 50, burst=4, burstiness=0.5, ramp=0.5)
    parts = [time for index in range(drivers) for time in first(40, load, LoadShare(index=index, of=drivers))]
    assert sorted(parts) == first(40 * drivers, load)


def test_a_thinned_poisson_process_has_its_part_of_the_rate() -> None:
    """One of four drivers sends a quarter, at times of its own."""
    load = paced(Arrivals.POISSON, 1000)
    parts = [first(5000, load, LoadShare(index=index, of=4)) for index in (0, 1)]
    for part in parts:
        assert part[-1] / SECOND == pytest.approx(20.0, rel=0.06)
    assert not set(parts[0]) & set(parts[1])


@pytest.mark.parametrize("kind", [Arrivals.CONSTANT, Arrivals.POISSON])
def test_the_rate_grows_linearly_over_the_ramp(kind: Arrivals) -> None:
    """Half of the ramp sends a quarter of what the whole ramp sends, and the full rate follows."""
    times = [time / SECOND for time in first(4000, paced(kind, 1000, ramp=2.0), seed=5)]
    assert times == sorted(times)
    assert sum(time < 1 for time in times) == pytest.approx(250, rel=0.2)
    assert sum(time < 2 for time in times) == pytest.approx(1000, rel=0.1)
    assert sum(2 <= time < 3 for time in times) == pytest.approx(1000, rel=0.1)


def test_the_slots_of_a_closed_loop_begin_over_the_ramp() -> None:
    """Four slots over two seconds begin every half second; without a ramp all begin at once."""
    assert first(9, Load(concurrency=4, ramp=2.0)) == [0, SECOND // 2, SECOND, 3 * SECOND // 2]
    assert first(9, Load(concurrency=3)) == [0, 0, 0]
    assert first(9, Load(concurrency=4, ramp=2.0), LoadShare(index=1, of=2)) == [SECOND // 2, 3 * SECOND // 2]


@pytest.mark.parametrize(("amount", "of"), [(10, 3), (2, 3), (9, 1)])
def test_an_amount_is_shared_out_without_a_rest(amount: int, of: int) -> None:
    """The parts sum to the whole and differ by one at most."""
    parts = [LoadShare(index=index, of=of).amount(amount) for index in range(of)]
    assert sum(parts) == amount
    assert max(parts) - min(parts) <= 1


def test_a_trace_is_shared_out_request_by_request(tmp_path: Path) -> None:
    """Each driver takes every other time, in order."""
    (tmp_path / "trace").write_text("5.5\n5.0\n\n5.25\n")
    load = Load(arrivals=Arrivals.TRACE, trace=str(tmp_path / "trace"))
    assert first(9, load, LoadShare(index=0, of=2)) == [0, SECOND // 2]
    assert first(9, load, LoadShare(index=1, of=2)) == [SECOND // 4]


def test_a_trace_is_replayed_faster_and_in_part(tmp_path: Path) -> None:
    """The window is of the trace as it was recorded."""
    (tmp_path / "trace").write_text("0\n1\n2\n3\n")
    load = Load(arrivals=Arrivals.TRACE, trace=str(tmp_path / "trace"), speed=4.0, window=3.0)
    assert first(9, load) == [0, SECOND // 4, SECOND // 2]
    assert first(9, load, LoadShare(index=1, of=2)) == [SECOND // 4]
