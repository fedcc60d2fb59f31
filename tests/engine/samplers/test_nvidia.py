from __future__ import annotations

import json
import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from modeldyno.engine.environment import nvidia_smi as calls
from modeldyno.engine.samplers import nvidia, nvidia_smi
from modeldyno.engine.samplers.nvidia import Nvml

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="starts processes of Linux")
FAKES = Path(__file__).parent / "fakes"
CARD = {
    "name": "NVIDIA T",
    "uuid": "GPU-aaaa-1",
    "parts": [],
    "used": 3 << 30,
    "utilization": 87,
    "watts": 250.0,
    "counted_watts": 240.0,
    "clocks": {"1": 1980, "2": 2619},
    "temperature": 61,
    "reasons": 4,
    "processes": [[11, 1 << 30], [12, 2 << 30], [99, 1 << 28]],
}
PARTS = [
    {"uuid": "MIG-b1", "used": 1 << 20, "processes": [[11, 1 << 19]]},
    {"uuid": "MIG-b2", "used": 2 << 20, "processes": []},
]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[dict[str, Any]]], None]:
    """Give a function that puts these cards behind NVML."""
    monkeypatch.syspath_prepend(FAKES)
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)

    def describe(cards: list[dict[str, Any]]) -> None:
        monkeypatch.setenv("FAKE_NVML", json.dumps(cards))

    return describe


def opened(environ: Mapping[str, str]) -> Nvml:
    devices = nvidia.open_nvidia_devices(environ)
    assert isinstance(devices, Nvml)
    return devices


class TestNvml:
    def test_what_a_card_tells_is_in_base_units(self, fake: Callable[[list[dict[str, Any]]], None]) -> None:
        """Fractions, bytes, watts, joules, hertz; the memory is that of the processes asked for."""
        fake([CARD])
        before = 240.0 * time.monotonic()
        reading = opened({}).read(frozenset({11, 12}))["cuda:0"]

        assert before - 1 <= reading.pop("energy") <= 240.0 * time.monotonic()
        assert reading == {
            "utilization": 0.87,
            "used": 3 << 30,
            "memory": 3 << 30,
            "ours": 2,
            "power": 250.0,
            "clock": 1.98e9,
            "memory_clock": 2.619e9,
            "temperature": 61,
            "reasons": 4,
        }

    def test_what_cannot_be_told_is_left_out(self, fake: Callable[[list[dict[str, Any]]], None]) -> None:
        """A card that supports nothing tells nothing, and never 0."""
        fake([{"name": "old", "uuid": "GPU-1", "parts": []}])

        assert opened({}).read(frozenset({11})) == {"cuda:0": {}}

    def test_the_memory_of_others_is_not_ours(self, fake: Callable[[list[dict[str, Any]]], None]) -> None:
        """Processes that are not in the tree count for nothing."""
        fake([CARD])

        assert not {"memory", "ours"} & opened({}).read(frozenset({5})).get("cuda:0", {}).keys()

    def test_how_busy_others_keep_a_card_is_read(self, fake: Callable[[list[dict[str, Any]]], None]) -> None:
        """All of them together, and which of them most; ours are left out."""
        fake([{**CARD, "shares": [[11, 40], [99, 12], [98, 20]]}])
        source = opened({})
        read = source.read(frozenset({11}))["cuda:0"]

        assert read["foreign"] == pytest.approx(0.32)
        assert read["foreign_pid"] == 98
        assert "foreign" not in source.read(frozenset({11, 98, 99}))["cuda:0"]

    def test_a_process_whose_memory_is_untold_is_still_there(
        self, fake: Callable[[list[dict[str, Any]]], None]
    ) -> None:
        """The driver may know who is there and not what they take."""
        fake([{**CARD, "processes": [[11, None]]}])
        reading = opened({}).read(frozenset({11}))["cuda:0"]

        assert reading["ours"] == 1
        assert "memory" not in reading

    def test_an_instance_has_its_own_memory_and_no_energy(
        self, fake: Callable[[list[dict[str, Any]]], None]
    ) -> None:
        """Clocks and heat are the card's; whose watts they are nobody knows."""
        fake([{**CARD, "parts": PARTS}])
        reading = opened({"CUDA_VISIBLE_DEVICES": "MIG-b1"}).read(frozenset({11}))["cuda:0"]

        assert reading == {
            "used": 1 << 20,
            "memory": 1 << 19,
            "ours": 1,
            "clock": 1.98e9,
            "memory_clock": 2.619e9,
            "temperature": 61,
            "reasons": 4,
        }

    def test_nothing_is_opened_where_everything_is_hidden(
        self, fake: Callable[[list[dict[str, Any]]], None]
    ) -> None:
        """CUDA_VISIBLE_DEVICES may hide all cards."""
        fake([CARD])

        assert nvidia.open_nvidia_devices({"CUDA_VISIBLE_DEVICES": ""}) is None
        assert nvidia.open_nvidia_devices({"CUDA_VISIBLE_DEVICES": "5"}) is None

    def test_reasons_are_asked_for_by_either_name(
        self, fake: Callable[[list[dict[str, Any]]], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Newer packages call them reasons of events; the older name is asked where that is missing."""
        fake([CARD])
        source = opened({})
        newer = lambda handle: handle["reasons"] << 1
        monkeypatch.setattr(
            sys.modules["pynvml"], "nvmlDeviceGetCurrentClocksEventReasons", newer, raising=False
        )

        assert source.read(frozenset())["cuda:0"]["reasons"] == 8

    def test_it_lets_go_of_the_driver(self, fake: Callable[[list[dict[str, Any]]], None]) -> None:
        """NVML is shut down in the end."""
        fake([CARD])
        opened({}).close()

        assert sys.modules["pynvml"]._ASKED == ["shutdown"]


SMI = """\
#!{python}
import os, sys, time
with open(os.environ["SMI_CALLS"], "a") as calls:
    calls.write(" ".join(sys.argv[1:]) + "\\n")
if os.environ.get("SMI_HANGS"):
    time.sleep(60)
if sys.argv[1] == "-L":
    print("GPU 0: NVIDIA T (UUID: GPU-aaaa-1)")
    print("GPU 1: NVIDIA T (UUID: GPU-abbb-2)")
    print("  MIG 1g.5gb     Device  0: (UUID: MIG-b1)")
elif sys.argv[1] == "--help-query-gpu":
    print('"clocks_throttle_reasons.active"')
else:
    while True:
        if "compute-apps" in sys.argv[1]:
            print("GPU-aaaa-1, 11, 1024")
            print("GPU-aaaa-1, 12, [N/A]", flush=True)
        else:
            print("GPU-aaaa-1, 87, 3072, 16384, 250.50, [Not Supported], 2619, [N/A], 0x0000000000000004")
            print("GPU-abbb-2, [N/A], [N/A], [N/A], [N/A], [N/A], [N/A], [N/A], [N/A]")
            print("half a line, and an error", flush=True)
        time.sleep(0.05)
"""


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put an nvidia-smi on the path; give the file that its calls are written to."""
    script = tmp_path / "nvidia-smi"
    script.write_text(textwrap.dedent(SMI.format(python=sys.executable)))
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("SMI_CALLS", str(tmp_path / "calls"))
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(calls, "TIMEOUT", 60.0)  # on a busy machine Python alone may take 3 s to start
    return tmp_path / "calls"


def read_own(source: nvidia_smi.Smi, pids: set[int]) -> dict[str, float]:
    """Read until both of its processes have spoken."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        reading = source.read(frozenset(pids)).get("cuda:0", {})
        if "ours" in reading or (reading and not pids):
            return reading
        time.sleep(0.02)
    raise AssertionError


# JAX warns of each fork of a process that has loaded it, as a test before these may have.
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
class TestSmi:
    def test_without_the_package_nvidia_smi_is_read(self, smi: Path) -> None:
        """Numbers become base units; what is [N/A] or [Not Supported] is left out."""
        source = nvidia.open_nvidia_devices({"CUDA_VISIBLE_DEVICES": "0"})
        assert isinstance(source, nvidia_smi.Smi)
        reading = read_own(source, {11, 12})
        source.close()

        assert reading == {
            "utilization": 0.87,
            "used": 3 << 30,
            "total": 16 << 30,
            "power": 250.5,
            "memory_clock": 2.619e9,
            "reasons": 4,
            "ours": 2,
            "memory": 1 << 30,
        }
        assert smi.read_text().count("\n") == 4

    def test_a_broken_driver_is_asked_by_nvidia_smi(
        self, smi: Path, fake: Callable[[list[dict[str, Any]]], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """NVML that does not start is as good as none."""
        assert not smi.exists()
        fake([])
        monkeypatch.setenv("FAKE_NVML_BROKEN", "1")
        source = nvidia.open_nvidia_devices({})
        assert isinstance(source, nvidia_smi.Smi)
        source.close()

        assert list(source.devices) == ["cuda:0"]  # of a divided card it can tell nothing

    def test_it_is_ended_with_its_reader(self, smi: Path) -> None:
        """Both processes are gone when it is closed."""
        source = nvidia_smi.Smi({"cuda:0": "GPU-aaaa-1"})
        read_own(source, {11})
        source.close()

        assert smi.exists()
        assert [lines._process.returncode for lines in (source._cards, source._processes)] == [-9, -9]

    def test_one_that_is_missing_gives_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """No package and no nvidia-smi: no devices."""
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setitem(sys.modules, "pynvml", None)

        assert nvidia.open_nvidia_devices({}) is None

    def test_one_that_hangs_gives_nothing(self, smi: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A call has a time limit."""
        monkeypatch.setenv("SMI_HANGS", "1")
        monkeypatch.setattr(calls, "TIMEOUT", 0.5)

        assert nvidia.open_nvidia_devices({}) is None
        assert smi.read_text() == "-L\n"
