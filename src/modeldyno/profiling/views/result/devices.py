"""Device utilization, memory, power and energy during the timed pass, and disk and network traffic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base.metrics.metric import METRICS
from modeldyno.base.report.blocks import Block, Notice, make_table, note
from modeldyno.base.stats.units import BYTES, format_quantity
from modeldyno.base.views.text import (
    count,
    figure,
    format_known,
    format_measurement,
    join_nonempty,
    number,
    shorten_text,
)
from modeldyno.base.views.view_options import PLAIN, ViewOptions
from modeldyno.profiling.views.result.regions import is_watched_block

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.base.result.result import Result

_TRAFFIC = ("disk_read", "disk_written", "major_faults", "network_received", "network_sent")
_GAUGES = ("gpu_utilization", "device_memory", "clock", "temperature", "power", "idle_power", "energy")
_LEAST_SHOWN = {"disk_read": 2**20, "disk_written": 2**20, "major_faults": 10}
"""Traffic below this is shown only with -v: every run reads a few pages."""
_NAME = 16


def devices(result: Result, options: ViewOptions = PLAIN) -> Iterator[Block]:
    """Lay out the watched devices and the traffic, if there was any; in full if verbose."""
    yield from _table(result)
    yield from _traffic(result, options)
    if options.verbose and result.find("latency"):
        yield from _unmeasured_notices(result)


def _table(result: Result) -> Iterator[Block]:
    names = dict.fromkeys(m.scope for m in result.measurements if m.metric in _GAUGES and m.scope)
    rows = [_device_row(result, name) for name in names]
    if len(rows) > 1 and (total := figure(result, "energy")):
        rows.append(("all", "", "", "", "", "", "", total))
    if rows:
        titles = ("device", "busy>?", "memory>?", "clock>?", "temp>?", "power>?", "idle>?", "energy>?")
        yield make_table(f"Devices in {_period(result)}", titles, rows)
        yield from _notes(result, tuple(names))


def _device_row(result: Result, name: str) -> tuple[str, ...]:
    """Return the means of what was sampled, and the others with the digits that their interval justifies."""
    busy, clock, temperature = (
        format_known(result.number(metric, name), METRICS[metric].unit)
        for metric in ("gpu_utilization", "clock", "temperature")
    )
    power, idle, energy = (figure(result, metric, name, "—") for metric in ("power", "idle_power", "energy"))
    device = shorten_text(name, _NAME)
    return device, busy, _memory(result, name) or "—", clock, temperature, power, idle, energy


def _period(result: Result) -> str:
    return "the block" if is_watched_block(result) else "the timed pass"


def _notes(result: Result, names: tuple[str, ...]) -> Iterator[Notice]:
    if result.find("energy"):
        yield note("energy is per call, above the idle power, which was measured before loading")
    of_tokens = [m for m in result.measurements if m.metric == "energy_per_token"]
    if of_tokens:
        listed = (f"{format_measurement(m)}{f' of {m.scope}' if m.scope else ''}" for m in of_tokens)
        yield note(f"energy per token: {', '.join(listed)}; all at the mean power of the pass")
    if any(not result.find("device_memory", name) and _growth(result, name) for name in names):
        yield note(
            "memory with a + is the growth over all processes; the driver does not report it per process here"
        )


def _traffic(result: Result, options: ViewOptions) -> Iterator[Notice]:
    measured = {name: m for name in _TRAFFIC if (m := result.find(name))}
    sizeable = {
        name: m
        for name, m in measured.items()
        if options.verbose or number(m)[0] >= _LEAST_SHOWN.get(name, 1)
    }
    faults = sizeable.get("major_faults")
    text = join_nonempty(
        f"read {format_measurement(sizeable['disk_read'])} from disks" if "disk_read" in sizeable else "",
        f"wrote {format_measurement(sizeable['disk_written'])} to disks"
        if "disk_written" in sizeable
        else "",
        f"had {count(round(number(faults)[0]), 'major page fault')}" if faults else "",
    )
    if text:
        yield note(f"{_period(result)} {text}")
    if options.verbose and {"network_received", "network_sent"} <= sizeable.keys():
        text = (
            "meanwhile, all processes in this network namespace received "
            f"{format_measurement(sizeable['network_received'])} and sent "
            f"{format_measurement(sizeable['network_sent'])}"
        )
        yield note(text)


def _unmeasured_notices(result: Result) -> Iterator[Notice]:
    """Yield notes on what could not be measured, and what is needed for it."""
    metrics = {m.metric for m in result.measurements}
    if "power" not in metrics:
        yield note(
            "power and energy are unknown: no counter could be read. CPU counters (RAPL) usually "
            "require root; those of NVIDIA devices need the extra 'gpu', or nvidia-smi"
        )
    if "disk_read" not in metrics:
        yield note("disk traffic is unknown: /proc/PID/io could not be read")


def _memory(result: Result, name: str) -> str:
    own = result.distribution("device_memory", name)
    if own is not None:
        return format_quantity(own.statistic("max"), BYTES, 3)
    grown = _growth(result, name)
    return f"+{format_quantity(grown, BYTES, 3)}" if grown else ""


def _growth(result: Result, name: str) -> float:
    used = result.distribution("device_used", name)
    before = result.number("device_used", f"{name} baseline")
    return 0.0 if used is None or before is None else max(0.0, used.statistic("max") - before)
