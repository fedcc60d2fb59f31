from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeldyno.base.errors import RequestError
from modeldyno.base.stats.units import (
    BYTES,
    CELSIUS,
    CORES,
    COUNT,
    FRACTION,
    HERTZ,
    JOULES,
    LONGEST,
    RATE,
    SECONDS,
    WATTS,
    check_time_limit,
    display_units,
    format_axis,
    format_change,
    format_changes,
    format_estimate,
    format_number,
    format_quantity,
    join_units_unbroken,
    parse_bound,
    parse_quantity,
    read_time,
)

UNITS = (SECONDS, BYTES, COUNT, RATE, FRACTION, CORES, JOULES, WATTS, HERTZ, CELSIUS)
SIZES = st.floats(min_value=1e-9, max_value=1e14)
NEXT = {
    " ns": 1000, " us": 1000, " ms": 1000,
    " B": 1024, " KiB": 1024, " MiB": 1024, " GiB": 1024,
    "": 10_000, "/s": 1e6, " M/s": 1000, " k": 1000, " M": 1000, " G": 1000,
}  # fmt: skip


class TestParseQuantity:
    @pytest.mark.parametrize(
        ("text", "unit", "value"),
        [
            ("50ms", SECONDS, 0.05),
            (" 50 ms ", SECONDS, 0.05),
            ("3us", SECONDS, 3e-6),
            ("3µs", SECONDS, 3e-6),
            ("2min", SECONDS, 120.0),
            (".5", SECONDS, 0.5),
            ("1e-3s", SECONDS, 1e-3),
            ("2GiB", BYTES, 2 * 2**30),
            ("2GB", BYTES, 2e9),
            ("7B", BYTES, 7.0),
            ("7B", COUNT, 7e9),
            ("22.7 M", COUNT, 22.7e6),
            ("1000/s", RATE, 1000.0),
            ("77,600 samples/s", RATE, 77600.0),
            ("60/min", RATE, 1.0),
            ("12%", FRACTION, 0.12),
            ("-1,234.5", COUNT, -1234.5),
            ("1.9 cores", CORES, 1.9),
        ],
    )
    def test_a_unit_scales_its_number(self, text: str, unit: str, value: float) -> None:
        """A quantity is read as a number of the base unit, and a bare number is one already."""
        assert parse_quantity(text, unit) == pytest.approx(value, rel=1e-12)

    @pytest.mark.parametrize("text", ["", "ms", "fast", "1.2.3ms", "1,23ms", "--1", "1 2 ms", "0x10"])
    def test_what_is_no_quantity_is_refused(self, text: str) -> None:
        """Text that does not begin with a number is refused with an example."""
        with pytest.raises(RequestError, match=r"such as 50ms|is not a unit here"):
            parse_quantity(text, SECONDS)

    @pytest.mark.parametrize(("text", "unit"), [("50MB", SECONDS), ("50ms", BYTES), ("3/h", RATE)])
    def test_a_unit_of_something_else_is_refused(self, text: str, unit: str) -> None:
        """A unit that measures something else is refused, with those that do not."""
        with pytest.raises(RequestError, match="is not a unit here; use one of: "):
            parse_quantity(text, unit)


class TestParseBound:
    @pytest.mark.parametrize(
        ("text", "unit", "value"),
        [("10ms", SECONDS, 0.01), ("0", SECONDS, 0), ("0.0", SECONDS, 0), ("10", RATE, 10), ("2", BYTES, 2)],
    )
    def test_what_is_plain_is_read_as_a_quantity(self, text: str, unit: str, value: float) -> None:
        """Zero is the same in every unit, and only times are told in two."""
        assert parse_bound(text, unit) == value

    @pytest.mark.parametrize("text", ["10", " 5. ", "1e-3"])
    def test_a_time_needs_its_unit(self, text: str) -> None:
        """A time without one is refused, with what to write."""
        number = re.escape(text.strip())

        with pytest.raises(RequestError, match=f"'{number}' has no unit; write {number}ms or"):
            parse_bound(text, SECONDS)

    @pytest.mark.parametrize(("text", "percent"), [("5", "500"), ("1", "100"), ("1.2", "120")])
    def test_a_share_from_one_on_needs_its_unit(self, text: str, percent: str) -> None:
        """An error rate of at most 5 would hold whatever happened; of less than 1 there is no doubt."""
        with pytest.raises(
            RequestError, match=f"'{text}' is a share without a unit; write {text}% or {percent}%"
        ):
            parse_bound(text, FRACTION)
        assert parse_bound("0.05", FRACTION) == parse_bound("5%", FRACTION) == 0.05
        assert parse_bound("120%", FRACTION) == 1.2


class TestFormatQuantity:
    @pytest.mark.parametrize(
        ("value", "unit", "text"),
        [
            (999.96e-6, SECONDS, "1.000 ms"),
            (999.94e-6, SECONDS, "999.9 us"),
            (0.4123456e-3, SECONDS, "412.3 us"),
            (1e-10, SECONDS, "0.1000 ns"),
            (5400.0, SECONDS, "5,400 s"),
            (512, BYTES, "512 B"),
            (1024, BYTES, "1.000 KiB"),
            (1048166, BYTES, "0.9996 MiB"),
            (90_856_960, BYTES, "86.65 MiB"),
            (1234, COUNT, "1,234"),
            (0.5, COUNT, "0.5000"),
            (9999.96, COUNT, "10.00 k"),
            (50_000, COUNT, "50.00 k"),
            (22_713_216, COUNT, "22.71 M"),
            (77621.3, RATE, "77,620/s"),
            (1_912_000.0, RATE, "1.912 M/s"),
            (0.123456, FRACTION, "12.35%"),
            (1.9, CORES, "1.900 cores"),
            (-0.05, SECONDS, "-50.00 ms"),
            (1e300, SECONDS, "1.000e+300 s"),
            (math.inf, SECONDS, "inf"),
            (-math.inf, SECONDS, "-inf"),
            (math.nan, SECONDS, "nan"),
            (None, SECONDS, "null"),
        ],
    )
    def test_a_number_gets_the_unit_that_suits_it(self, value: float | None, unit: str, text: str) -> None:
        """A number is shown in the unit of its size, to four significant digits."""
        assert format_quantity(value, unit) == text

    @pytest.mark.parametrize(
        ("value", "unit", "text"),
        [
            (0.05, SECONDS, "50 ms"),
            (0.0123, SECONDS, "12.3 ms"),
            (2 * 2**30, BYTES, "2 GiB"),
            (25e6, COUNT, "25 M"),
            (1000.0, RATE, "1,000/s"),
            (1e20, SECONDS, "1e+20 s"),
        ],
    )
    def test_without_digits_a_number_is_shown_as_written(self, value: float, unit: str, text: str) -> None:
        """Without a number of digits, a quantity looks as somebody would write it."""
        assert format_quantity(value, unit, None) == text

    @pytest.mark.parametrize("unit", UNITS)
    def test_zero_is_plain(self, unit: str) -> None:
        """Zero has no digits to show."""
        assert re.fullmatch(r"0\D*", format_quantity(0.0, unit))

    @given(SIZES, st.sampled_from(UNITS), st.integers(min_value=1, max_value=8))
    def test_what_is_shown_can_be_read(self, value: float, unit: str, digits: int) -> None:
        """A quantity as shown is read again as the same number, within the rounding."""
        text = format_quantity(value, unit, digits)

        assert parse_quantity(text, unit) == pytest.approx(value, rel=0.51 * 10.0 ** (1 - digits))

    @given(SIZES, st.sampled_from(UNITS))
    def test_what_is_shown_exactly_can_be_read_exactly(self, value: float, unit: str) -> None:
        """A quantity without a number of digits loses nothing that anybody would write."""
        assert parse_quantity(format_quantity(value, unit, None), unit) == pytest.approx(value, rel=1e-11)

    @given(SIZES, st.sampled_from((SECONDS, BYTES, COUNT, RATE)), st.integers(min_value=1, max_value=8))
    def test_a_number_never_reaches_the_next_unit(self, value: float, unit: str, digits: int) -> None:
        """A number is below the next unit also once it is rounded: 1 ms is never shown as 1,000 us."""
        number, suffix = re.fullmatch(r"([\d,.]+)(.*)", format_quantity(value, unit, digits)).groups()  # type: ignore[union-attr]

        assert float(number.replace(",", "")) < NEXT.get(suffix, math.inf)


class TestFormatEstimate:
    @pytest.mark.parametrize(
        ("value", "low", "high", "unit", "texts"),
        [
            (412e-6, 409e-6, 415e-6, SECONDS, ("412 us", "409 to 415 us")),
            (412.4567e-6, 412.3e-6, 412.6e-6, SECONDS, ("412.5 us", "412.3 to 412.6 us")),
            (77612.4, 77103, 78190, RATE, ("77,600/s", "77,100 to 78,200/s")),
            (999.6e-6, 9.9e-4, 1.01e-3, SECONDS, ("1.00 ms", "0.99 to 1.01 ms")),
            (1.0, 0.2, 1.8, SECONDS, ("1.0 s", "0.2 to 1.8 s")),
            (1.0, 1 - 1e-9, 1 + 1e-9, SECONDS, ("1.0000 s", "1.0000 to 1.0000 s")),
            (5.0, 5.0, 5.0, SECONDS, ("5.00 s", "5.00 to 5.00 s")),
            (1234, 1234, 1234, COUNT, ("1,234", "1,234 to 1,234")),
            (None, 4e-4, math.inf, SECONDS, ("", "at least 400 us")),
            (3.2, 0.004, math.inf, SECONDS, ("3.2 s", "not bounded")),
            (3.2, 0.0, math.inf, SECONDS, ("3.2 s", "not bounded")),
            (1700.0, 0.0, 1.3e9, RATE, ("1,700/s", "not bounded")),
            (1700.0, 500.0, 1.8e6, RATE, ("1,700/s", "at least 500/s")),
            (None, -math.inf, 4e-4, SECONDS, ("", "at most 400 us")),
            (None, 75e-6, 0.4, SECONDS, ("", "75 us to 400 ms")),
            (None, 0.0, 0.4, SECONDS, ("", "0 to 400 ms")),
            (None, -math.inf, math.inf, SECONDS, ("", "")),
            (3.0, -math.inf, math.inf, SECONDS, ("3.00 s", "")),
            (0.0, 0.0, 0.0, SECONDS, ("0 s", "")),
            (math.nan, 1.0, 2.0, SECONDS, ("nan", "")),
        ],
    )
    def test_digits_follow_from_the_interval(
        self, value: float | None, low: float, high: float, unit: str, texts: tuple[str, str]
    ) -> None:
        """The last digit shown is of the size of the interval's half-width, and one unit serves all."""
        assert format_estimate(value, low, high, unit) == texts

    @given(SIZES, st.floats(0, 1), st.floats(0, 1), st.sampled_from(UNITS))
    def test_the_value_lies_in_its_interval_as_shown(
        self, value: float, below: float, above: float, unit: str
    ) -> None:
        """Rounding moves no value out of its interval."""
        formatted, interval = format_estimate(value, value * (1 - below), value * (1 + above), unit)
        number, low, high = (_number(text) for text in (formatted, *interval.split(" to ")))

        assert low <= number <= high


def _number(text: str) -> float:
    return float(re.sub(r"[,]|[^\d.]+$", "", text))


class TestFormatAxis:
    def test_neighbours_are_told_apart(self) -> None:
        """All edges are in one unit, with as many decimals as their steps need."""
        assert format_axis((0.9e-3, 0.95e-3, 1e-3), SECONDS) == ("0.90 ms", "0.95 ms", "1.00 ms")

    def test_round_steps_get_no_decimals(self) -> None:
        """Edges at whole numbers are shown as whole numbers."""
        assert format_axis((360e-6, 380e-6, 400e-6), SECONDS) == ("360 us", "380 us", "400 us")

    def test_a_wide_axis_changes_units(self) -> None:
        """Where edges span orders of size, each has its own unit."""
        assert format_axis((1e-6, 1e-4, 1e-2), SECONDS) == ("1.0 us", "100 us", "10 ms")

    def test_one_edge_is_enough(self) -> None:
        """An axis of one number has no step, and is shown all the same."""
        assert format_axis((2.5e-3,), SECONDS) == ("2.5 ms",)


def test_numbers_are_tied_to_their_units() -> None:
    """A no-break space stands between a number and its unit, and nowhere else."""
    assert join_units_unbroken("at 5 us of 1.5 KiB in 3 runs") == "at 5\u00a0us of 1.5\u00a0KiB in 3 runs"


def test_the_sizes_of_a_unit_are_known_to_whoever_draws() -> None:
    """The smallest first, each with where it begins."""
    assert display_units(SECONDS)[0] == (0.0, 1e-9, " ns")
    assert [name for *_, name in display_units(BYTES)][:2] == [" B", " KiB"]


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [
        (0.0, "0%"),
        (0.123, "+12.3%"),
        (-0.04, "-4.0%"),
        (-0.0004, "-0.04%"),
        (4e-6, "+<0.001%"),
        (2.468, "+247%"),
        (20.0, "21x more"),
        (1 / 2600 - 1, "2,600x less"),
        (9e43, "over 1,000,000x more"),
        (2e-7 - 1, "over 1,000,000x less"),
        (-1.0, "-100%"),
    ],
)
def test_a_change_is_shown_in_percent_or_as_a_factor(ratio: float, expected: str) -> None:
    """Never as nothing where there is one."""
    assert format_change(ratio) == expected


def test_the_ends_of_a_change_share_their_unit_where_they_have_one() -> None:
    """Percent or factors; else each has its own."""
    assert format_changes(-0.779, 0.026) == "-77.9 to +2.6%"
    assert format_changes(19.0, 21.0) == "20x to 22x more"
    assert format_changes(1 / 22 - 1, 1 / 20 - 1) == "22x to 20x less"
    assert format_changes(-0.5, 671.8) == "2.0x less to 673x more"
    assert format_changes(-0.95, -0.812) == "20x to 5.3x less"
    assert format_changes(-0.95, 0.026) == "20x less to 1.03x more"
    assert format_changes(0.0, 19.0) == "0% to 20x more"


def test_an_interval_of_changes_that_bounds_nothing_has_no_figures() -> None:
    """Of two starts that differ much its ends have dozens of digits; one end alone is told."""
    assert format_changes(-1.0, 9e43) == "not bounded"
    assert format_changes(-0.5, 9e43) == "2.0x less to over 1,000,000x more"


def test_a_share_known_to_a_few_points_has_a_tenth_of_a_point() -> None:
    """Near 100 % whole percents would hide what is left."""
    assert format_estimate(0.9917, 0.9758, 0.9972, FRACTION) == ("99.2%", "97.6 to 99.7%")
    assert format_estimate(0.5, 0.4, 0.6, FRACTION) == ("50%", "40 to 60%")


def test_a_quantity_that_overflows_is_refused() -> None:
    """It would be infinite, which no document can hold."""
    with pytest.raises(RequestError, match="'1e999' is more than any number here"):
        parse_quantity("1e999", SECONDS)


@pytest.mark.parametrize("seconds", [-1.0, 0.0, 1e308, math.inf, math.nan])
def test_a_time_limit_can_be_waited_for(seconds: float) -> None:
    """It is more than 0, unless 0 is said to be one, and at most 20 days."""
    assert check_time_limit(LONGEST, "x") == LONGEST
    assert check_time_limit(0.0, "x", zero=True) == 0
    with pytest.raises(RequestError, match=r"x is .*: it must be more than 0, and at most 20 days"):
        check_time_limit(seconds, "x")
    with pytest.raises(RequestError, match="it must be 0 or more"):
        check_time_limit(-1.0, "x", zero=True)


def test_what_the_rounding_of_a_difference_left_is_no_time() -> None:
    """A hundred-thousandth of a nanosecond is shown as none; the exact form keeps it."""
    assert format_quantity(-1.5e-20, "s") == "0 s"
    assert format_quantity(2e-12, "s", 1) == "0.002 ns"
    assert format_quantity(1.5e-20, "s", None) != "0 s"


def test_a_time_limit_may_be_text() -> None:
    """Seconds, or a number with a unit; what is no time is refused by its name."""
    assert (read_time(5, "max_time"), read_time("10m", "max_time"), read_time("1.5", "budget")) == (
        5,
        600.0,
        1.5,
    )
    with pytest.raises(RequestError, match=r"'soon' is not a quantity"):
        read_time("soon", "max_time")
    with pytest.raises(RequestError, match=r"budget is 0 s: it must be more than 0"):
        read_time("0s", "budget")


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (0.25, "0.25"), (1200.0, "1,200"), (1e7, "1e+07"), (-2.5e-7, "-2.5e-07")]
)
def test_a_tick_is_a_short_number(value: float, text: str) -> None:
    """With separators, and with an exponent where it would be long."""
    assert format_number(value) == text
