from __future__ import annotations

import itertools
import json
import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from modeldyno.engine.environment import machine, peaks

if TYPE_CHECKING:
    from collections.abc import Iterator


class Counting:
    """A measurement that records its arguments."""

    def __init__(self) -> None:
        self.measured: list[str] = []

    def __call__(self, dtype: str) -> tuple[float, float]:
        """Return the same values each time."""
        self.measured.append(dtype)
        return 1e11, 2e10


def age(directory: Path) -> None:
    """Make what is cached older than what a busy machine waits for."""
    for path in directory.iterdir():
        os.utime(path, (0, 0))


class Time:
    """A clock that advances only when work is done."""

    def __init__(self) -> None:
        self.now = 0.0
        self.runs: list[float] = []

    def __call__(self) -> float:
        """Return the time."""
        return self.now

    def work(self, *seconds: float) -> peaks.Work:
        """Return a workload whose runs take these times, the last one forever."""
        each = itertools.chain(seconds, itertools.repeat(seconds[-1]))

        def run() -> None:
            took = next(each)
            self.runs.append(took)
            self.now += took

        return run


@pytest.fixture
def numpy_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))


@pytest.mark.usefixtures("numpy_only", "quiet")
class TestHere:
    def test_the_second_call_is_from_the_cache(self, tmp_path: Path) -> None:
        """The first measurement is cached, and read the next time."""
        measure = Counting()
        first = peaks.local_device(measure=measure, directory=tmp_path / "new" / "modeldyno")
        assert peaks.local_device(measure=measure, directory=tmp_path / "new" / "modeldyno") == first
        assert measure.measured == ["float32"]
        assert (first.name, first.flops, first.bandwidth) == ("here", {"float32": 1e11}, 2e10)
        assert first.memory == machine.memory_limit()
        assert first.source == "measured here with numpy"
        assert len(list((tmp_path / "new" / "modeldyno").iterdir())) == 1

    @pytest.mark.parametrize(
        "damage",
        ["", "{", "[]", "{}", '{"flops": null, "bandwidth": 1, "busy": false}',
         '{"flops": NaN, "bandwidth": 1, "busy": false}', '{"flops": 0, "bandwidth": 1, "busy": false}',
         "\udcff"],
    )  # fmt: skip
    def test_a_damaged_cache_is_written_anew(self, tmp_path: Path, damage: str) -> None:
        """A file without two positive numbers is ignored and replaced."""
        measure = Counting()
        peaks.local_device(measure=measure, directory=tmp_path)
        (path,) = tmp_path.iterdir()
        path.write_bytes(damage.encode(errors="surrogateescape"))
        assert peaks.local_device(measure=measure, directory=tmp_path).flops == {"float32": 1e11}
        assert len(measure.measured) == 2
        assert json.loads(path.read_text(encoding="utf-8")) == {
            "flops": 1e11,
            "bandwidth": 2e10,
            "busy": False,
        }
        assert list(tmp_path.iterdir()) == [path]

    def test_another_machine_is_measured_anew(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Hardware and threads determine the file."""
        measure = Counting()
        peaks.local_device(measure=measure, directory=tmp_path)
        monkeypatch.setenv("OMP_NUM_THREADS", "77")
        peaks.local_device(measure=measure, directory=tmp_path)
        monkeypatch.setattr(peaks, "hardware", lambda: {"processor": "another"})
        peaks.local_device(measure=measure, directory=tmp_path)
        assert len(measure.measured) == len(list(tmp_path.iterdir())) == 3

    def test_a_dtype_that_cannot_be_measured_has_no_peak(self, tmp_path: Path) -> None:
        """The processor may be faster in it than in float32: only memory bounds its time from below."""
        measure = Counting()
        for dtype in ("bfloat16", "int8", "uint8", "float8_e4m3fn"):
            device = peaks.local_device(dtype, measure=measure, directory=tmp_path)
            assert (device.flops, device.bandwidth, device.peak(dtype)) == ({}, 2e10, math.inf)
        assert measure.measured == ["float32"]

    def test_complex_products_are_those_of_their_parts(self, tmp_path: Path) -> None:
        """A complex number has the peak of its two components."""
        measure = Counting()
        assert peaks.local_device("complex64", measure=measure, directory=tmp_path).peak("complex64") == 1e11
        peaks.local_device("complex128", measure=measure, directory=tmp_path)
        assert measure.measured == ["float32", "float64"]

    def test_a_directory_that_cannot_be_written_is_no_error(self, tmp_path: Path) -> None:
        """If nothing can be cached, every call measures."""
        (tmp_path / "file").write_text("", encoding="utf-8")
        measure = Counting()
        for _ in range(2):
            peaks.local_device(measure=measure, directory=tmp_path / "file")
        assert len(measure.measured) == 2

    def test_a_busy_machine_is_measured_again_when_it_is_quiet(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Peaks measured on a busy machine are marked, and measured again when it is idle."""
        measure = Counting()
        with monkeypatch.context() as busy:
            busy.setattr(os, "getloadavg", lambda: (1e3, 0.0, 0.0))
            for _ in range(2):
                device = peaks.local_device(measure=measure, directory=tmp_path)
                assert (device.busy, device.source) == (
                    True,
                    "measured here with numpy, while the machine was busy",
                )
        assert len(measure.measured) == 1
        for _ in range(2):
            device = peaks.local_device(measure=measure, directory=tmp_path)
            assert (device.busy, device.source) == (False, "measured here with numpy")
        assert len(measure.measured) == 2

    def test_what_was_reached_once_can_be_reached(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Measured again after ten minutes while still busy: the best operations and the best bytes count."""
        measurements = iter([(5e11, 1e10), (4e11, 3e10), (2e11, 2e10)])
        monkeypatch.setattr(os, "getloadavg", lambda: (1e3, 0.0, 0.0))
        for _ in range(3):
            device = peaks.local_device(measure=lambda _dtype: next(measurements), directory=tmp_path)
            age(tmp_path)
        assert next(measurements, None) is None
        assert (device.flops, device.bandwidth) == ({"float32": 5e11}, 3e10)

    def test_without_a_home_every_call_measures(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without a cache directory nothing is cached."""
        monkeypatch.setattr(peaks, "cache_directory", lambda: None)
        measure = Counting()
        for _ in range(2):
            peaks.local_device(measure=measure)
        assert len(measure.measured) == 2

    def test_the_cache_is_the_users(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The file is in the directory that XDG_CACHE_HOME names."""
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        peaks.local_device(measure=Counting())
        assert [path.parent for path in tmp_path.rglob("peaks-*.json")] == [tmp_path / "modeldyno"]


class TestCacheDirectory:
    def test_without_a_variable_it_is_below_the_home(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A relative XDG_CACHE_HOME is ignored, as its specification asks."""
        monkeypatch.setenv("XDG_CACHE_HOME", "relative")
        monkeypatch.setattr(Path, "home", lambda: tmp_path)
        monkeypatch.setattr(sys, "platform", "linux")
        assert peaks.cache_directory() == tmp_path / ".cache" / "modeldyno"
        monkeypatch.setattr(sys, "platform", "darwin")
        assert peaks.cache_directory() == tmp_path / "Library" / "Caches" / "modeldyno"

    def test_there_may_be_no_home(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A user without a home has no cache directory."""

        def homeless() -> Path:
            raise RuntimeError

        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        monkeypatch.setattr(Path, "home", homeless)
        assert peaks.cache_directory() is None


class TestBest:
    def test_the_best_run_of_the_best_work_counts(self) -> None:
        """The first run of each workload is not timed, and the fastest of all others counts."""
        time = Time()
        works = [(100.0, time.work(0.01, 0.5, 0.25, 0.5)), (100.0, time.work(5.0, 0.2))]
        assert peaks.measure_best_rate(works, 8.0, time) == pytest.approx(500.0)

    def test_a_work_that_takes_too_long_is_left_out(self) -> None:
        """A workload that would not end in time is skipped, but never the first."""
        time = Time()
        works = [(1.0, time.work(1.0)), (1000.0, time.work(1000.0))]
        assert peaks.measure_best_rate(works, 1.0, time) == 1.0
        assert time.runs == [1.0, 1.0]

    def test_time_that_stands_still_is_no_speed(self) -> None:
        """A clock too coarse for a workload gives no rate."""
        ticks: Iterator[float] = itertools.chain([0.0] * 5, itertools.count(9.0))
        assert peaks.measure_best_rate([(1.0, lambda: None)], 1.0, lambda: next(ticks)) == 0.0


class TestMeasured:
    def test_a_real_measurement_gives_both_peaks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """With small workloads, numpy and torch both give positive numbers."""
        pytest.importorskip("torch")
        monkeypatch.setattr(peaks, "_MATRIX_SIDES", (8, 16))
        monkeypatch.setattr(peaks, "_ARRAY_BYTES", 2**16)
        for dtype in ("float32", "bfloat16"):
            device = peaks.measure_peaks(dtype, seconds=0.02)
            assert all(math.isfinite(value) and value > 0 for value in device)

    @pytest.mark.usefixtures("numpy_only")
    def test_numpy_alone_gives_both_peaks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without torch the products are numpy's."""
        monkeypatch.setattr(peaks, "_MATRIX_SIDES", (8, 16))
        monkeypatch.setattr(peaks, "_ARRAY_BYTES", 2**16)
        assert all(value > 0 for value in peaks.measure_peaks("float64", seconds=0.02))

    @pytest.mark.usefixtures("quiet")
    def test_with_torch_its_dtypes_are_measured(self, tmp_path: Path) -> None:
        """With torch loaded, 16-bit types are measured too, and the source says so."""
        pytest.importorskip("torch")
        measure = Counting()
        device = peaks.local_device("bfloat16", measure=measure, directory=tmp_path)
        assert (device.flops, device.source) == ({"bfloat16": 1e11}, "measured here with torch")
