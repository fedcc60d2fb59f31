from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from modeldyno.engine.environment import devices, nvidia_smi
from modeldyno.engine.environment.device_state import DeviceProcess, DeviceState
from modeldyno.engine.environment.devices import read_devices
from modeldyno.engine.environment.nvidia import has_nvml_library

if TYPE_CHECKING:
    from collections.abc import Callable

FAKES = Path(__file__).parents[2] / "engine/samplers/fakes"
GIB = 1 << 30
CARD = {
    "name": "NVIDIA T",
    "uuid": "GPU-aaaa-1",
    "parts": [],
    "used": 3 * GIB,
    "free": 13 * GIB,
    "total": 16 * GIB,
    "utilization": 87,
    "watts": 250.0,
    "limit_watts": 400.0,
    "clocks": {"1": 1980, "2": 2619},
    "temperature": 61,
    "processes": [["parent", GIB], [2**22 + 1, None]],
}
UNSUPPORTED = {"name": "NVIDIA T", "uuid": "GPU-cccc-3", "parts": []}
DIVIDED = {
    **CARD,
    "uuid": "GPU-dddd-4",
    "parts": [
        {"uuid": "MIG-d1", "used": GIB, "free": GIB, "total": 2 * GIB, "processes": [["parent", 1 << 20]]},
        {"uuid": "MIG-d2", "used": 0, "free": 2 * GIB, "total": 2 * GIB, "processes": []},
    ],
}
FOUR: list[dict[str, Any]] = [CARD, {**CARD, "uuid": "GPU-bbbb-2", "utilization": 0}, UNSUPPORTED, DIVIDED]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[dict[str, Any]]], None]:
    """Give a function that puts these cards behind NVML."""
    monkeypatch.syspath_prepend(FAKES)
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    monkeypatch.setattr(devices, "has_nvml_library", lambda: True)

    def describe(cards: list[dict[str, Any]]) -> None:
        monkeypatch.setenv("FAKE_NVML", json.dumps(cards))

    return describe


class TestNvml:
    def test_a_card_is_read_in_base_units(self, fake: Callable[[list[dict[str, Any]]], None]) -> None:
        """Fractions, bytes, watts, degrees, hertz; a process of another container has no name."""
        fake([CARD])
        (card,) = read_devices(environ={}).devices
        parent, other = card.processes

        assert card == DeviceState(
            index=0,
            uuid="GPU-aaaa-1",
            name="NVIDIA T",
            cuda="cuda:0",
            utilization=0.87,
            memory_used=3 * GIB,
            memory_free=13 * GIB,
            memory_total=16 * GIB,
            power=250.0,
            power_limit=400.0,
            temperature=61.0,
            clock=1.98e9,
            memory_clock=2.619e9,
            processes=card.processes,
        )
        assert (parent.pid, parent.bytes) == (os.getppid(), GIB)
        assert parent.name
        assert other == DeviceProcess(pid=2**22 + 1, name=None, bytes=None)

    def test_four_cards_are_in_the_order_of_the_driver_with_their_instances(
        self, fake: Callable[[list[dict[str, Any]]], None]
    ) -> None:
        """CUDA sees only the first instance of a divided card."""
        fake(FOUR)

        assert [(d.index, d.instance, d.uuid, d.cuda) for d in read_devices(environ={}).devices] == [
            (0, None, "GPU-aaaa-1", "cuda:0"),
            (1, None, "GPU-bbbb-2", "cuda:1"),
            (2, None, "GPU-cccc-3", "cuda:2"),
            (3, None, "GPU-dddd-4", None),
            (3, 0, "MIG-d1", "cuda:3"),
            (3, 1, "MIG-d2", None),
        ]

    def test_what_is_not_supported_is_none_and_what_is_nothing_is_zero(
        self, fake: Callable[[list[dict[str, Any]]], None]
    ) -> None:
        """The two are different."""
        fake(FOUR)
        _, still, unsupported, *_ = read_devices(environ={}).devices

        assert still.utilization == 0.0
        assert unsupported == DeviceState(index=2, uuid="GPU-cccc-3", name="NVIDIA T", cuda="cuda:2")

    def test_an_instance_has_its_own_memory_and_processes(
        self, fake: Callable[[list[dict[str, Any]]], None]
    ) -> None:
        """Its part of the use and the power is unknown; heat and clocks are the card's."""
        fake([DIVIDED])
        _, first, second = read_devices(environ={}).devices

        assert (first.memory_used, first.memory_total, second.memory_used) == (GIB, 2 * GIB, 0)
        assert [process.bytes for process in first.processes] == [1 << 20]
        assert (first.utilization, first.power, first.power_limit) == (None, None, None)
        assert (first.temperature, first.clock) == (61.0, 1.98e9)

    def test_what_the_driver_reserves_is_not_used(self, fake: Callable[[list[dict[str, Any]]], None]) -> None:
        """The first version of NVML's call counts it as used."""
        fake([{**CARD, "reserved": GIB}])
        (device,) = read_devices().devices

        assert device.memory_used == 3 * GIB

    def test_whether_a_process_computes_is_told(self, fake: Callable[[list[dict[str, Any]]], None]) -> None:
        """One that only draws does not."""
        fake([{**CARD, "drawing": [[2**22 + 1, None], [2**22 + 2, GIB]]}])
        (device,) = read_devices().devices

        computes = {process.pid: process.computes for process in device.processes}
        assert computes == {os.getppid(): True, 2**22 + 1: True, 2**22 + 2: False}

    def test_hidden_cards_are_read_too(self, fake: Callable[[list[dict[str, Any]]], None]) -> None:
        """What programs see has the name that they give it."""
        fake([CARD, {**CARD, "uuid": "GPU-bbbb-2"}])

        assert [d.cuda for d in read_devices(environ={"CUDA_VISIBLE_DEVICES": "1"}).devices] == [
            None,
            "cuda:0",
        ]
        assert [d.cuda for d in read_devices(environ={"CUDA_VISIBLE_DEVICES": ""}).devices] == [None, None]

    def test_nvml_is_shut_down(self, fake: Callable[[list[dict[str, Any]]], None]) -> None:
        """Nothing is left open, as the program may fork."""
        fake([])

        assert read_devices(environ={}).source == "There is no NVIDIA device: NVML is here, and lists none."
        assert sys.modules["pynvml"]._ASKED == ["shutdown"]


SMI = """\
#!{python}
import sys
if sys.argv[1] == "-L":
    print("GPU 0: NVIDIA T (UUID: GPU-aaaa-1)")
    print("GPU 1: NVIDIA T (UUID: GPU-abbb-2)")
    print("  MIG 1g.5gb     DeviceState  0: (UUID: MIG-b1)")
elif "compute-apps" in sys.argv[1]:
    print("GPU-aaaa-1, 4194305, 1024, /usr/bin/python3")
    print("GPU-aaaa-1, 4194306, [N/A], [Not Found]")
    print("No devices were found")
else:
    print("GPU-aaaa-1, 87, 3072, 13312, 16384, 250.50, 400.00, 61, [Not Supported], 2619")
    print("GPU-abbb-2, [N/A], [N/A], [N/A], [N/A], [N/A], [N/A], [N/A], [N/A], [N/A]")
"""


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put an nvidia-smi on the path."""
    script = tmp_path / "nvidia-smi"
    script.write_text(textwrap.dedent(SMI.format(python=sys.executable)))
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(nvidia_smi, "TIMEOUT", 60.0)


@pytest.mark.usefixtures("smi")
def test_without_nvml_nvidia_smi_says_the_same() -> None:
    """[N/A] and [Not Supported] are None, MiB become bytes; of an instance it says that it is there."""
    reading = read_devices(environ={})
    whole, divided, part = reading.devices

    assert reading.source == "Read from nvidia-smi."
    assert whole == DeviceState(
        index=0,
        uuid="GPU-aaaa-1",
        name="NVIDIA T",
        cuda="cuda:0",
        utilization=0.87,
        memory_used=3 * GIB,
        memory_free=13 * GIB,
        memory_total=16 * GIB,
        power=250.5,
        power_limit=400.0,
        temperature=61.0,
        clock=None,
        memory_clock=2.619e9,
        processes=(
            DeviceProcess(pid=4194305, name="python3", bytes=GIB),
            DeviceProcess(pid=4194306, name=None, bytes=None),
        ),
    )
    assert divided == DeviceState(index=1, uuid="GPU-abbb-2", name="NVIDIA T")
    assert part == DeviceState(index=1, instance=0, uuid="MIG-b1", name="NVIDIA T", cuda="cuda:1")


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        ("", "nvidia-smi is not on the path."),
        (
            "dev/kfd",
            f"nvidia-smi is not on the path. There is {devices._OTHER_DRIVERS['dev/kfd']}.",
        ),
    ],
)
def test_without_both_it_says_what_was_looked_for(
    there: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No devices, and a sentence."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(devices, "is_nvml_installed", lambda: False)
    (tmp_path / there).mkdir(parents=True, exist_ok=True)
    reading = read_devices(root=tmp_path)

    assert reading.devices == ()
    assert reading.source == (
        f"There is no NVIDIA device: the package nvidia-ml-py (NVML) is not installed, and {expected}"
    )


def test_the_first_call_imports_little() -> None:
    """Neither numpy nor the rest of the program: it may be made anywhere in a program that runs.

    Nor what only tools need, nor the package of NVML, where there is nothing that they could read.
    """
    heavy = {"numpy", "psutil", "msgspec", "modeldyno.profiling.api.profile"}
    if not has_nvml_library():
        heavy |= {"json", "subprocess", "pynvml"}
    code = f"import sys, modeldyno; modeldyno.devices(); print(sorted({heavy} & sys.modules.keys()))"
    environment = {**os.environ, "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.strip() == "[]"
