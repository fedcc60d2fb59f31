from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

import modeldyno
from modeldyno.base.errors import RequestError
from modeldyno.registry import targets
from modeldyno.registry.targets import known_target, named_device, target_here

if TYPE_CHECKING:
    from modeldyno.registry.interface import Registry


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("cpu", "cpu"),
        ("CPU", "cpu"),
        ("gpu", "cuda:0"),
        ("gpu:1", "cuda:1"),
        ("cuda:07", "cuda:7"),
        ("cuda", "cuda:0"),
    ],
)
def test_a_device_has_one_name(text: str, name: str) -> None:
    assert named_device(text) == name


@pytest.mark.parametrize("text", ["", "banana", "gpu:", "gpu:0,1", "cuda:-1"])
def test_what_is_no_device_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="is no name of a device; write cpu, or gpu:0"):
        named_device(text)


def test_a_machine_whose_memory_is_counted_differently_keeps_its_target(registry: Registry) -> None:
    """By some megabytes, as another kernel does; with half of its memory it is another one."""
    here = target_here()
    memory = here.hardware["memory"]
    assert isinstance(memory, int)
    before = replace(here, id="a" * 12, hardware={**here.hardware, "memory": memory + 2**20})
    registry.put_target(replace(before, id="b" * 12, hardware={**here.hardware, "memory": memory // 2}))
    assert known_target(here, registry) == here
    registry.put_target(before)
    assert known_target(here, registry) == before
    registry.put_target(here)
    assert known_target(here, registry) == here


def test_the_devices_are_those_that_the_command_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """By their names in CUDA, whoever reads them; without a tool, the driver's own list counts them."""
    names = ("cuda:10", "cuda:2", None)
    reading = SimpleNamespace(devices=[SimpleNamespace(cuda=name) for name in names])
    monkeypatch.setattr(targets, "read_devices", lambda: reading)
    assert targets.devices_here() == ("cpu", "cuda:2", "cuda:10")

    monkeypatch.setattr(targets, "read_devices", lambda: SimpleNamespace(devices=[]))
    monkeypatch.setattr("modeldyno.engine.environment.machine.gpu_names", lambda: "2 x A, B")
    assert targets.devices_here() == ("cpu", "cuda:0", "cuda:1", "cuda:2")


def test_every_device_on_a_cluster_is_refused() -> None:
    """It took the processor alone, without a word."""
    with pytest.raises(RequestError, match="On Ray, a worker has one kind of device: cpu, or cuda:0"):
        modeldyno.registry.work(device="all", ray="local")
    with pytest.raises(RequestError, match="write cpu, gpu:0, or all for a worker for each"):
        modeldyno.registry.work(device="banana")
