from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from modeldyno.engine.environment import server_usage
from modeldyno.engine.environment.device_state import DeviceProcess, DeviceState
from modeldyno.engine.environment.devices import DeviceReading
from modeldyno.engine.environment.running_servers import ServerRecord
from modeldyno.engine.environment.server_usage import read_usage

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
SERVER = ServerRecord(
    name="digits", model="digits.onnx", backend="triton", device="cpu", url="http://127.0.0.1:8000",
    protocol="kserve-http", ports={}, pid=os.getpid(), ticks=1, started="", detached=True, log="",
)  # fmt: skip


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Give a function that puts these processes on two cards, with so many bytes each."""

    def put(*running: tuple[int, int | None]) -> None:
        processes = tuple(DeviceProcess(pid=pid, name=None, bytes=size) for pid, size in running)
        devices = tuple(
            DeviceState(index=index, uuid=str(index), name="T", processes=processes) for index in range(2)
        )
        reading = DeviceReading(devices=devices, source="")
        monkeypatch.setattr(server_usage, "read_devices", lambda: reading)

    return put


def test_memory_on_devices_is_that_of_the_servers_processes(cards: Callable[..., None]) -> None:
    """On all of them together; what others hold is not counted."""
    cards((os.getpid(), 1 << 30), (1, 5 << 30))
    (usage,) = read_usage((SERVER,), period=0.01)
    assert usage.device_memory == 2 << 30
    assert (usage.memory or 0) > 1e6


def test_a_server_on_no_device_has_no_memory_there(cards: Callable[..., None]) -> None:
    """It is unknown, not 0: the driver may not show the processes of a container."""
    cards((1, 5 << 30))
    assert [usage.device_memory for usage in read_usage((SERVER,), period=0.01)] == [None]
