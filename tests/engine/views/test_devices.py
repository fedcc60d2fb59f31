from __future__ import annotations

import pytest

from modeldyno.base import plugins
from modeldyno.engine.environment.device_state import DeviceProcess, DeviceState
from modeldyno.engine.environment.devices import DeviceReading
from modeldyno.engine.views import devices as view

CARD = DeviceState(
    index=0,
    uuid="GPU-1",
    name="NVIDIA A100-SXM4-80GB",
    cuda="cuda:0",
    utilization=0.875,
    memory_used=3 << 30,
    memory_free=77 << 30,
    memory_total=80 << 30,
    power=250.0,
    power_limit=400.0,
    temperature=61.0,
    clock=1.98e9,
    processes=(DeviceProcess(pid=4711, name="python", bytes=3 << 30),),
)
UNKNOWN = DeviceState(index=1, uuid="GPU-2", name="NVIDIA GeForce RTX 4090")
INSTANCE = DeviceState(
    index=2, instance=1, uuid="MIG-1", name="H100", memory_used=300 << 20, memory_total=10 << 30
)
READING = DeviceReading(devices=(CARD, UNKNOWN, INSTANCE), source="Read from NVML.")


def test_the_tables_fit_80_columns() -> None:
    """A value and its limit share a cell and a unit; what is unknown is a dash."""
    text = plugins.terminal().text(tuple(view.blocks(READING)))

    assert text.splitlines() == [
        "Devices",
        "device   name              busy            memory      power   temp     clock",
        "cuda:0   A100-SXM4-80GB     88%     3.00/80.0 GiB  250/400 W  61 °C  1.98 GHz",
        "gpu:1    GeForce RTX 4090     —                 —          —      —         —",
        "gpu:2.1  H100                 —  300 MiB/10.0 GiB          —      —         —",
        "",
        "Processes",
        "device  pid   name      memory",
        "cuda:0  4711  python  3.00 GiB",
        "",
        "· Read from NVML.",
    ]


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        (CARD, "cuda:0 88% busy, 3.00/80.0 GiB, 250/400 W, 61 °C"),
        (INSTANCE, "gpu:2.1 300 MiB/10.0 GiB"),
        (UNKNOWN, "gpu:1 tells nothing"),
    ],
)
def test_a_line_has_what_is_known(device: DeviceState, expected: str) -> None:
    """Dashes say nothing in a log."""
    assert view.line(DeviceReading(devices=(device,), source="Read from NVML.")) == expected


def test_without_devices_the_line_says_what_was_looked_for() -> None:
    """An empty line would look like an error."""
    assert view.line(DeviceReading(devices=(), source="There is none.")) == "There is none."
