from __future__ import annotations

import math
from importlib import metadata
from typing import TYPE_CHECKING

import pytest

from modeldyno.engine.environment import accelerator_peaks as accelerators
from modeldyno.engine.environment.accelerator_peaks import accelerator_peaks
from modeldyno.engine.environment.device_state import DeviceState
from modeldyno.engine.environment.devices import DeviceReading

if TYPE_CHECKING:
    from pathlib import Path


class Measured:
    """A measurement that records its arguments."""

    def __init__(self, *values: tuple[float, float] | None) -> None:
        self.values = list(values)
        self.measured: list[tuple[str, str]] = []

    def __call__(self, dtype: str, device: str) -> tuple[float, float] | None:
        """Return the next values."""
        self.measured.append((dtype, device))
        return self.values.pop(0)


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody else use the card."""
    monkeypatch.setattr(accelerators, "busy_reason", lambda *_: None)


@pytest.fixture(autouse=True)
def card(monkeypatch: pytest.MonkeyPatch) -> None:
    state = DeviceState(index=0, uuid="GPU-a", name="NVIDIA T", cuda="cuda:0", memory_total=16 << 30)
    reading = DeviceReading(devices=(state,), source="")
    monkeypatch.setattr(accelerators, "read_devices", lambda: reading)
    monkeypatch.setattr(metadata, "version", lambda _: "2.11.0")


@pytest.mark.usefixtures("idle")
def test_a_card_is_measured_once_and_has_its_own_name(tmp_path: Path) -> None:
    """Its peaks are not those of `here`, which is the processor."""
    measure = Measured((4e14, 4e12))
    for _ in range(2):
        peaks = accelerator_peaks("float32", "cuda:0", measure=measure, directory=tmp_path)
        assert peaks is not None
        assert (peaks.name, peaks.flops, peaks.bandwidth) == ("cuda:0", {"float32": 4e14}, 4e12)
        assert (peaks.memory, peaks.source) == (16 << 30, "measured here with torch")
    assert measure.measured == [("float32", "cuda:0")]


@pytest.mark.usefixtures("idle")
def test_each_card_and_each_dtype_is_measured(tmp_path: Path) -> None:
    """Cards of one machine may differ."""
    measure = Measured((1.0, 1.0), (2.0, 1.0), (3.0, 1.0))
    rates = [
        accelerator_peaks(dtype, device, measure=measure, directory=tmp_path)
        for dtype, device in (("float32", "cuda:0"), ("float32", "cuda:1"), ("bfloat16", "cuda:0"))
    ]
    assert [peaks and next(iter(peaks.flops.values())) for peaks in rates] == [1.0, 2.0, 3.0]


@pytest.mark.usefixtures("idle")
def test_a_dtype_that_cannot_be_measured_has_no_peak(tmp_path: Path) -> None:
    """The card may be faster in it than in float32: only memory bounds its time from below."""
    peaks = accelerator_peaks("int8", "cuda:0", measure=Measured((4e14, 4e12)), directory=tmp_path)
    assert peaks is not None
    assert (peaks.flops, peaks.peak("int8")) == ({}, math.inf)


def test_a_card_in_use_is_measured_again_once_it_is_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its peaks may be too low until then, and say so; the better values count."""
    users = ["eve uses cuda:0", None, None]
    monkeypatch.setattr(accelerators, "busy_reason", lambda *_: users.pop(0))
    measure = Measured((1e14, 4e12), (4e14, 3e12))
    busy, quiet = (
        accelerator_peaks("float32", "cuda:0", measure=measure, directory=tmp_path) for _ in range(2)
    )
    assert busy is not None
    assert quiet is not None
    assert (busy.busy, busy.source) == (True, "measured here with torch, while it was in use")
    assert (quiet.busy, quiet.flops, quiet.bandwidth) == (False, {"float32": 4e14}, 4e12)


@pytest.mark.usefixtures("idle")
def test_what_torch_cannot_use_has_no_peaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is kept of it; without torch nothing is tried."""
    assert accelerator_peaks("float32", "cuda:7", measure=Measured(None), directory=tmp_path) is None
    assert list(tmp_path.iterdir()) == []

    def missing(_name: str) -> str:
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(metadata, "version", missing)
    assert accelerator_peaks("float32", "cuda:0", measure=Measured(), directory=tmp_path) is None


def test_products_and_transfers_are_timed_to_their_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """With small workloads, on the device that every machine has."""
    torch = pytest.importorskip("torch")
    precision = torch.get_float32_matmul_precision()
    monkeypatch.setattr(accelerators, "_MATRIX_SIDES", (8, 16))
    monkeypatch.setattr(accelerators, "_ARRAY_BYTES", (2**16,))
    try:
        for dtype in ("float32", "bfloat16"):
            rates = accelerators.measure_peaks(dtype, "cpu", seconds=0.02)
            assert all(math.isfinite(value) and value > 0 for value in rates)
    finally:
        torch.set_float32_matmul_precision(precision)


def test_what_others_hold_of_the_memory_is_left_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workloads that do not fit into half of what is free are left out."""
    torch = pytest.importorskip("torch")
    free = [0]
    monkeypatch.setattr(torch.cpu, "mem_get_info", lambda _place: (free[0], 2**40), raising=False)
    monkeypatch.setattr(torch, "set_float32_matmul_precision", lambda _precision: None)
    monkeypatch.setattr(accelerators, "_MATRIX_SIDES", (8, 2**20))
    monkeypatch.setattr(accelerators, "_ARRAY_BYTES", (2**16, 2**50))
    assert accelerators.measure_peaks("float32", "cpu", seconds=0.02) == (0.0, 0.0)
    free[0] = 2**20
    assert all(value > 0 for value in accelerators.measure_peaks("float32", "cpu", seconds=0.02))


@pytest.mark.gpu
def test_a_real_card_comes_near_its_published_peaks() -> None:
    """At least half of them, and not above."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA device here")
    from modeldyno.base.job.devices import DEVICES

    name = torch.cuda.get_device_name(0).removeprefix("NVIDIA ").split()[0].lower()
    if name not in DEVICES:
        pytest.skip(f"the peaks of {name} are not in the table")
    for dtype in ("float32", "bfloat16"):
        measured = accelerators.measure_in_subprocess(dtype, "cuda:0")
        assert measured is not None
        assert 0.5 < measured[0] / DEVICES[name].peak(dtype) <= 1.0
        assert 0.5 < measured[1] / DEVICES[name].bandwidth <= 1.0
