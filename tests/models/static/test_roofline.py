from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeldyno.base.errors import UnknownName
from modeldyno.base.job.devices import DEVICES, DevicePeaks, find_device
from modeldyno.models.flops import CountedOp
from modeldyno.models.static.roofline import (
    Bound,
    estimate_decode_seconds,
    estimate_eager,
    estimate_ideal,
    limiting_resource,
)
from modeldyno.models.static.totals import Totals

TOY = DevicePeaks(
    name="toy",
    flops={"float32": 100.0, "float16": 400.0, "int8": 800.0},
    bandwidth=10.0,
    memory=1000,
    source="a test",
)
NARROW = DevicePeaks(
    name="narrow", flops={"bfloat16": 50.0, "int8": 90.0}, bandwidth=1.0, memory=1, source=""
)
COUNTED = st.builds(
    CountedOp,
    st.integers(0, 10**9),
    st.integers(0, 10**9),
    st.just(0),
    st.integers(0, 10**9),
    st.integers(0, 10**9),
)


class TestPeak:
    @pytest.mark.parametrize(
        ("device", "dtype", "rate"),
        [
            (TOY, "float32", 100),
            (TOY, "float16", 400),
            (TOY, "bfloat16", 100),
            (TOY, "tf32", 100),
            (TOY, "float8_e4m3fn", 400),
            (TOY, "float4_e2m1fn_x2", 400),
            (TOY, "uint8", 800),
            (TOY, "int4", 800),
            (TOY, "quint4x2", 800),
            (TOY, "float64", 100),
            (TOY, "complex64", 100),
            (TOY, "int64", 100),
            (NARROW, "float32", 50),
            (NARROW, "float8_e5m2", 50),
            (NARROW, "uint8", 90),
            (DEVICES["t4"], "bfloat16", 8.1e12),
            (DEVICES["tpu-v5e"], "float32", 197e12),
            (DEVICES["a100"], "float32", 156e12),
            (DEVICES["a100"], "tf32", 156e12),
            (DEVICES["a100"], "float64", 19.5e12),
            (DEVICES["v100"], "float32", 15.7e12),
            (replace(TOY, flops={}), "int8", inf),
        ],
    )
    def test_the_next_wider_dtype_does(self, device: DevicePeaks, dtype: str, rate: float) -> None:
        """A dtype without a peak has that of the next wider, or of the fastest floating one."""
        assert device.peak(dtype) == pytest.approx(rate)


class TestIdeal:
    def test_the_lower_roof_decides(self) -> None:
        """Time is the longer of the products that no mask discards and the bytes that must move."""
        busy = estimate_ideal(Totals(macs=700, skippable=200, elementwise=10**9, moved=20), TOY, "float32")
        starved = estimate_ideal(Totals(macs=700, skippable=200, moved=200), TOY, "float32")
        assert (busy, starved) == (10.0, 20.0)
        assert (limiting_resource(10.0, busy), limiting_resource(10.0, starved)) == (
            Bound.COMPUTE,
            Bound.MEMORY,
        )


class TestEager:
    def test_each_operator_has_its_own_roof(self) -> None:
        """Operators follow each other, so that the times of their own bounds add up."""
        heavy, light = CountedOp(500, 0, 0, 5, 5), CountedOp(0, 100, 0, 50, 50)
        assert estimate_eager(Counter([heavy, light, light]), TOY, "float32") == 30.0

    def test_nothing_takes_no_time(self) -> None:
        """A network that runs nothing has a bound of 0."""
        assert estimate_eager({}, TOY, "float32") == 0

    @given(costs=st.lists(COUNTED, max_size=9))
    def test_it_lies_between_the_roofs_and_their_sum(self, costs: list[CountedOp]) -> None:
        """Running one by one takes at least either total, and at most both together."""
        seconds = estimate_eager(Counter(costs), TOY, "float16")
        compute = sum(2 * cost.macs + cost.elementwise for cost in costs) / TOY.peak("float16")
        memory = sum(cost.read + cost.written for cost in costs) / TOY.bandwidth
        assert max(compute, memory) <= seconds * (1 + 1e-9)
        assert seconds <= (compute + memory) * (1 + 1e-9)


def test_a_token_reads_weights_and_cache() -> None:
    """One generated token takes the time to read active weights and the cache once."""
    assert estimate_decode_seconds(70, 30, TOY) == 10.0


class TestDevices:
    @pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES)
    def test_peaks_are_plausible(self, device: DevicePeaks) -> None:
        """Every row names its source, and no dtype is slower than one of twice its bits."""
        assert device.source
        assert 1e11 < device.bandwidth < 1e13
        assert 10**10 < device.memory < 3 * 10**11
        ladder = ("float64", "float32", "tf32", "float16", "float8", "float4")
        rates = [device.flops[dtype] for dtype in ladder if dtype in device.flops]
        assert rates == sorted(rates)
        assert device.flops.get("int8", 1e99) >= max(
            device.flops.get("float16", 0), device.flops.get("bfloat16", 0)
        )
        assert all(1e12 < rate < 1e16 for rate in device.flops.values())

    def test_an_h100_has_its_dense_peaks(self) -> None:
        """Peaks are those without sparsity."""
        device = find_device("h100")
        assert device.peak("bfloat16") == pytest.approx(989.4e12)
        assert (device.bandwidth, device.memory) == (3.35e12, 80 * 10**9)

    def test_an_unknown_name_is_refused(self) -> None:
        """A device that is not in the table is named, with all that are: a like name is another device."""
        with pytest.raises(UnknownName, match=r"no device 'p100' in the table; known: h100, .*, here\."):
            find_device("p100")

    @pytest.mark.parametrize("name", ["H100-PCIe", "h100 pcie", "H100PCIE"])
    def test_names_are_read_as_people_write_them(self, name: str) -> None:
        """Capitals, spaces and dashes make no difference."""
        assert find_device(name).name == "h100-pcie"
