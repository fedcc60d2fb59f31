from __future__ import annotations

from dataclasses import replace

import pytest

from modeldyno.base.errors import RequestError
from modeldyno.base.metrics.measurement import Distribution, Interval, Measurement, observed_number
from modeldyno.engine.trace.carbon import Emission, with_carbon
from modeldyno.testing.sample_results import a_small_result

GRID = Emission(intensity=360 / 3.6e6)
"""0.1 mg for a joule."""
RATE = Measurement(metric="throughput", value=1000.0, interval=Interval(low=900.0, high=1100.0))
CARD = Measurement(metric="power", value=200.0, scope="cuda:0", interval=Interval(low=190.0, high=210.0))
PACKAGE = Measurement(metric="power", value=Distribution.of([50.0, 50.0]), scope="package-0")


def carbon_of(*measurements: Measurement, emission: Emission = GRID) -> tuple[Measurement | None, set[str]]:
    result = with_carbon(replace(a_small_result(), measurements=measurements, doubts=()), emission)
    return result.find("carbon"), {doubt.code for doubt in result.doubts}


def test_all_that_is_read_counts_with_both_intervals() -> None:
    """250 W at 1,000 inferences a second are 0.25 J each: 25 mg of 1,000 of them."""
    carbon, doubts = carbon_of(RATE, CARD, replace(PACKAGE, value=50.0))
    assert carbon is not None
    assert carbon.interval is not None

    assert carbon.value == pytest.approx(0.025)
    assert carbon.interval.low == pytest.approx(0.1e-3 * 1000 * 240 / 1100)
    assert carbon.interval.high == pytest.approx(0.1e-3 * 1000 * 260 / 900)
    assert not doubts


def test_a_sampled_power_counts_by_its_mean() -> None:
    """Its interval is that of the mean."""
    carbon, _ = carbon_of(replace(RATE, interval=None), PACKAGE)
    assert carbon is not None

    assert carbon.value == pytest.approx(0.005)


def test_a_rate_that_may_be_anything_leaves_it_open() -> None:
    """The ends are 0 and infinity."""
    carbon, _ = carbon_of(replace(RATE, interval=Interval(low=0.0, high=float("inf"))), CARD)
    assert carbon is not None

    assert carbon.interval == Interval(low=0.0, high=float("inf"))


def test_of_a_load_the_requests_count() -> None:
    """Where no throughput was measured."""
    carbon, _ = carbon_of(observed_number("request_rate", 100.0), replace(CARD, interval=None))
    assert carbon is not None

    assert carbon.value == pytest.approx(0.2)
    assert carbon.interval is None


@pytest.mark.parametrize(("measurements", "lacks"), [((RATE,), "power"), ((CARD,), "rate"), ((), "rate")])
def test_what_cannot_be_read_is_unknown(measurements: tuple[Measurement, ...], lacks: str) -> None:
    """There is no estimate from a table."""
    result = with_carbon(replace(a_small_result(), measurements=measurements, doubts=()), GRID)

    assert result.find("carbon") is None
    assert [doubt.code for doubt in result.doubts] == ["unknown-carbon"]
    assert lacks in result.doubts[0].seen


def test_an_assumed_power_is_said_to_be_assumed() -> None:
    """And is not taken where power was read."""
    assumed = replace(GRID, power=65.0)
    carbon, doubts = carbon_of(RATE, emission=assumed)
    assert carbon is not None
    read, none = carbon_of(RATE, CARD, emission=assumed)
    assert read is not None

    assert carbon.value == pytest.approx(0.0065)
    assert doubts == {"assumed-power"}
    assert read.value == pytest.approx(0.02)
    assert not none


@pytest.mark.parametrize(
    ("carbon", "power", "intensity"),
    [("360g/kWh", None, 1e-4), ("0.36 kg / kWh", "65W", 1e-4), ("100mg/Wh", None, 0.1 / 3600)],
)
def test_an_intensity_is_a_mass_for_an_energy(carbon: str, power: str | None, intensity: float) -> None:
    """In the units that the other quantities have."""
    emission = Emission.parse(carbon, power)
    assert emission is not None

    assert emission.intensity == pytest.approx(intensity)
    assert emission.power == (None if power is None else 65.0)


def test_nothing_is_asked_without_an_intensity() -> None:
    """The usual case."""
    assert Emission.parse(None, None) is None


@pytest.mark.parametrize(
    ("carbon", "power", "expected"),
    [
        ("400", None, "no intensity"),
        ("400g/km", None, "not a unit"),
        ("-1g/kWh", None, "must be positive"),
        ("ag/kWh", None, "`carbon`: "),
        ("400g/kWh", "0W", "must be positive"),
        ("400g/kWh", "65km", "`power`: "),
        (None, "65W", "for carbon only"),
    ],
)
def test_what_cannot_be_read_is_refused(carbon: str | None, power: str | None, expected: str) -> None:
    """Before anything is measured."""
    with pytest.raises(RequestError, match=expected):
        Emission.parse(carbon, power)


def test_another_grid_replaces_what_was_said_of_the_first() -> None:
    """There is one carbon, and one reason why it is assumed or unknown."""
    bare = replace(a_small_result(), measurements=(RATE,), doubts=())
    unknown = with_carbon(bare, GRID)
    assumed = with_carbon(unknown, replace(GRID, power=65.0))
    cleaner = with_carbon(assumed, Emission(intensity=GRID.intensity / 2, power=65.0))

    assert [doubt.code for doubt in unknown.doubts] == ["unknown-carbon"]
    assert [doubt.code for doubt in cleaner.doubts] == ["assumed-power"]
    assert [m.value for m in cleaner.measurements if m.metric == "carbon"] == [pytest.approx(0.1e-3 * 65 / 2)]
