from __future__ import annotations

import os

from modeldyno.engine.environment.device_state import DeviceProcess, DeviceState
from modeldyno.engine.environment.devices import DeviceReading
from modeldyno.engine.environment.machine import processor_name
from modeldyno.engine.environment.server_usage import ServerPlace, place_of_process

UNKNOWN = ServerPlace(id="unknown", name="unknown")


def reading(*processes: int | None) -> DeviceReading:
    """Two cards; each with that process, if any."""
    return DeviceReading(
        devices=tuple(
            DeviceState(
                index=index, uuid=f"GPU-{index}", name="NVIDIA P4", cuda=f"cuda:{index}" if index else None,
                processes=() if pid is None else (DeviceProcess(pid=pid, name=None, bytes=None),),
            )
            for index, pid in enumerate(processes)
        ),
        source="Read from NVML.",
    )  # fmt: skip


def test_a_server_is_where_the_driver_shows_its_processes() -> None:
    """By what programs call the card, or the driver's number where they do not see it."""
    me = os.getpid()
    assert place_of_process(me, reading(1, me)) == ServerPlace(id="cuda:1", name="NVIDIA P4")
    assert place_of_process(me, reading(me, me)).id == "gpu:0, cuda:1"


def test_a_server_on_no_device_computes_on_the_processor() -> None:
    """Unless the driver shows no process at all, or the server is not known."""
    me = os.getpid()
    for devices in (reading(1, None), DeviceReading(devices=(), source="none")):
        assert place_of_process(me, devices) == ServerPlace(id="cpu", name=processor_name())
    assert place_of_process(me, reading(None, None)) == UNKNOWN
    assert place_of_process(None, reading()) == UNKNOWN
