"""The devices of this machine at a moment: tables of 80 columns, and one line for a log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base.report.blocks import Block, make_table, note
from modeldyno.base.stats.units import BYTES, CELSIUS, FRACTION, HERTZ, WATTS
from modeldyno.base.views.text import format_known, shorten_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.engine.environment.device_state import DeviceState
    from modeldyno.engine.environment.devices import DeviceReading

_NAME = 16
_PROCESS_NAME = 40
_UNKNOWN = "—"


def blocks(reading: DeviceReading) -> Iterator[Block]:
    """Lay out the devices, the processes on them, and where that is known from."""
    if reading.devices:
        titles = ("device", "name", "busy>", "memory>", "power>", "temp>", "clock>")
        yield make_table("Devices", titles, map(_figures, reading.devices))
    running = [
        (
            _label(device),
            str(process.pid),
            _UNKNOWN if process.name is None else shorten_text(process.name, _PROCESS_NAME),
            format_known(process.bytes, BYTES),
        )
        for device in reading.devices
        for process in device.processes
    ]
    if running:
        yield make_table("Processes", ("device", "pid", "name", "memory>"), running)
    yield note(reading.source)


def line(reading: DeviceReading) -> str:
    """Return the devices in one line; without any, what was looked for."""
    return "; ".join(_in_brief(device) for device in reading.devices) or reading.source


def _in_brief(device: DeviceState) -> str:
    label, _, busy, *others, _ = _figures(device)
    texts = [text for text in (f"{busy} busy", *others) if not text.startswith(_UNKNOWN)]
    return f"{label} {', '.join(texts) or 'tells nothing'}"


def _figures(device: DeviceState) -> tuple[str, ...]:
    return (
        _label(device),
        shorten_text(device.name.removeprefix("NVIDIA "), _NAME),
        format_known(device.utilization, FRACTION, 2),
        _part_of(device.memory_used, device.memory_total, BYTES),
        _part_of(device.power, device.power_limit, WATTS),
        format_known(device.temperature, CELSIUS, 2),
        format_known(device.clock, HERTZ),
    )


def _label(device: DeviceState) -> str:
    """Return what programs call it, else the driver's number, with that of a MIG instance."""
    return device.cuda or (
        f"gpu:{device.index}" if device.instance is None else f"gpu:{device.index}.{device.instance}"
    )


def _part_of(value: float | None, total: float | None, unit: str) -> str:
    """Return both, such as ``3.00/80.0 GiB``; only the first where the second is unknown."""
    part = format_known(value, unit)
    if value is None or total is None:
        return part
    limit = format_known(total, unit)
    number, _, name = part.partition(" ")
    return f"{number if limit.endswith(f' {name}') or not value else part}/{limit}"
