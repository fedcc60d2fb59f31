"""Which devices of this machine are idle, from Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.engine.environment.idle import IdleRule, find_idle
from modeldyno.profiling.api.error_wording import reword_errors
from modeldyno.profiling.api.profile import as_tuple
from modeldyno.registry.targets import devices_here, named_device

if TYPE_CHECKING:
    from collections.abc import Sequence


@reword_errors
def idle_devices(
    *,
    idle_cpu: str = "2%",
    idle_utilization: str = "5%",
    idle_memory: str = "500MiB",
    idle_for: str = "5s",
    never_on: str | Sequence[str] = (),
) -> tuple[str, ...]:
    """Return the devices of this machine that nobody else uses, such as ``("cpu", "cuda:1")``.

    A worker looks in the same way before it measures. A GPU on which a process of others computes is in use;
    so is a device that ModelDyno measures on now.

    Args:
        idle_cpu: largest share of the cores that others may use; 100% for whatever they use.
        idle_utilization: largest utilization of a GPU.
        idle_memory: most memory of a GPU that others may hold.
        idle_for: how long to look, about once a second.
        never_on: devices that are left out, such as ``"gpu:0"``.

    Raises:
        RequestError: a quantity cannot be read, or a name is none of a device.
    """
    rule = IdleRule.parse(cpu=idle_cpu, utilization=idle_utilization, memory=idle_memory, period=idle_for)
    left_out = set(map(named_device, as_tuple(never_on, "never_on")))
    return find_idle([device for device in devices_here() if device not in left_out], rule)
