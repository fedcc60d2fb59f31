"""The devices of this machine from Python: what each does now.

It imports little, so that the first call takes little time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.engine.environment.devices import read_devices

if TYPE_CHECKING:
    from modeldyno.engine.environment.device_state import DeviceState


def devices() -> tuple[DeviceState, ...]:
    """Read the accelerators of this machine at this moment, as ``modeldyno devices`` does.

    Returns:
        Each NVIDIA card in the driver's order, followed by its MIG instances: use and share as fractions,
        memory in bytes, power in W, temperature in °C, clocks in Hz, and the processes on it. A figure that
        cannot be read is None. Empty if there is no device, or neither NVML nor nvidia-smi.
    """
    return read_devices().devices
