"""A device to oneself: it is looked at, and its lock is held."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

from modeldyno.environment.device_lock import device_lock
from modeldyno.environment.idle import why_busy
from modeldyno.errors import DeviceInUse

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.environment.idle import IdleRule


@contextmanager
def idle_device(device: str, who: str, rule: IdleRule) -> Iterator[None]:
    """Look whether a device is idle, then hold its lock during the block.

    Args:
        device: ``cpu``, or a GPU such as ``cuda:0``.
        who: what others read who find it held.
        rule: when it counts as idle.

    Raises:
        DeviceInUse: somebody else uses it.
    """
    if busy := why_busy(device, rule):
        raise DeviceInUse(busy)
    with device_lock(device, who) as holder:
        if holder is not None:
            raise DeviceInUse(f"{holder} measures on {device}")
        yield


def find_idle(devices: Sequence[str], rule: IdleRule) -> tuple[str, ...]:
    """Return the devices that are idle now, and not measured by ModelDyno; all are looked at at once."""

    def is_idle(device: str) -> bool:
        try:
            with idle_device(device, "modeldyno idle_devices", rule):
                return True
        except DeviceInUse:
            return False

    with ThreadPoolExecutor(max(1, len(devices))) as pool:
        return tuple(device for device, idle in zip(devices, pool.map(is_idle, devices), strict=True) if idle)
