from __future__ import annotations

import json
import plistlib
import sys
from typing import TYPE_CHECKING, Any

import pytest

from modeldyno.engine.environment import other_devices
from modeldyno.engine.environment.device_state import DeviceProcess, DeviceState
from modeldyno.engine.environment.devices import read_devices

if TYPE_CHECKING:
    from pathlib import Path

MIB, GIB = 1 << 20, 1 << 30


def unit(value: float | str, name: str) -> dict[str, Any]:
    """A figure as amd-smi writes it."""
    return {"value": value, "unit": name}


METRIC = {
    "gpu": 0,
    "usage": {"gfx_activity": unit(66, "%"), "umc_activity": unit(3, "%"), "mm_activity": "N/A"},
    "power": {"socket_power": unit(250, "W"), "gfx_voltage": "N/A"},
    "clock": {"gfx_0": {"clk": unit(2100, "MHz")}, "mem_0": {"clk": unit(1300, "MHz")}},
    "temperature": {"edge": "N/A", "hotspot": unit(61, "C"), "mem": unit(50, "C")},
    "mem_usage": {
        "total_vram": unit(196592, "MB"),
        "used_vram": unit(283, "MB"),
        "free_vram": unit(196309, "MB"),
    },
}
AMD: dict[str, Any] = {
    "list": [{"gpu": 0, "bdf": "0000:01:00.0", "uuid": "b4ff74a0"}, {"gpu": 1, "bdf": "0000:02:00.0"}],
    "metric": [METRIC, {"gpu": 1, "usage": "N/A", "power": "N/A"}],
    "static": [
        {"gpu": 0, "asic": {"market_name": "AMD Instinct MI300X"}, "limit": {"max_power": unit(750, "W")}}
    ],
    "process": [
        {
            "gpu": 0,
            "process_list": [
                {"process_info": {"name": "python", "pid": 42, "memory_usage": {"vram_mem": unit(GIB, "B")}}}
            ],
        },
        {"gpu": 1, "process_list": [{"process_info": "No running processes detected"}]},
    ],
}
MI300 = DeviceState(
    index=0, uuid="b4ff74a0", name="AMD Instinct MI300X", cuda="cuda:0", utilization=0.66,
    memory_used=283 * MIB, memory_free=196309 * MIB, memory_total=196592 * MIB, power=250.0,
    power_limit=750.0, temperature=61.0, clock=2.1e9, memory_clock=1.3e9,
    processes=(DeviceProcess(pid=42, name="python", bytes=GIB),),
)  # fmt: skip
ROCM = {
    "card0": {
        "Unique ID": "0x9a", "Card Series": "AMD Instinct MI210", "GPU use (%)": "0",
        "VRAM Total Memory (B)": "68702699520", "VRAM Total Used Memory (B)": "10960896",
        "Average Graphics Package Power (W)": "35.0", "Max Graphics Package Power (W)": "300.0",
        "Temperature (Sensor edge) (C)": "34.0", "sclk clock speed:": "(800Mhz)", "mclk clock speed:": "N/A",
    },
    "system": {"Driver version": "6.3"},
}  # fmt: skip
XPU = {
    "discovery -j": {
        "device_list": [{"device_id": 0, "device_name": "Intel(R) Data Center GPU Flex 170", "uuid": "00-1"}]
    },
    "discovery -d 0 -j": {"device_id": 0, "memory_physical_size_byte": str(14 * GIB)},
    "stats -d 0 -j": {
        "device_id": 0,
        "device_level": [
            {"metrics_type": "XPUM_STATS_GPU_UTILIZATION", "value": 12.5},
            {"metrics_type": "XPUM_STATS_MEMORY_USED", "value": 512.0},
            {"metrics_type": "XPUM_STATS_POWER", "value": 118.3},
            {"metrics_type": "XPUM_STATS_GPU_FREQUENCY", "value": 2050},
            {"metrics_type": "XPUM_STATS_GPU_CORE_TEMPERATURE", "value": 47.0},
            {"metrics_type": "XPUM_STATS_MEMORY_BANDWIDTH", "value": 3},
        ],
    },
    "ps -j": {
        "device_util_by_proc_list": [
            {"device_id": 0, "mem_size": 2048, "process_id": 42, "process_name": "python"},
            {"device_id": 1, "mem_size": 1, "process_id": 43, "process_name": "other"},
        ]
    },
}


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A path with no tool on it, and time enough for those that are put there."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(other_devices, "_TIMEOUT", 60.0)
    return tmp_path


def write_tool(place: Path, answers: dict[str, Any]) -> None:
    """Write a command that answers the words it knows after a line of text, and fails at others."""
    place.write_text(
        f"#!{sys.executable} -IS\n"
        "import json, sys\n"
        f"answers = json.loads({json.dumps(answers)!r})\n"
        "words = ' '.join(sys.argv[1:])\n"
        "known = next((answers[key] for key in answers if words.startswith(key)), None)\n"
        "print('WARNING: a line of text')\n"
        "print(json.dumps(known)) if known is not None else sys.exit('unknown: ' + words)\n"
    )
    place.chmod(0o755)


def test_cards_of_amd_are_read_by_amd_smi(path: Path) -> None:
    """Units become base units; N/A and what is missing is None; the order of a variable is not guessed."""
    write_tool(path / "amd-smi", AMD)
    reading = read_devices(environ={})
    assert reading.source == "Read from amd-smi."
    second = DeviceState(index=1, uuid="0000:02:00.0", name="AMD GPU", cuda="cuda:1")
    assert reading.devices == (MI300, second)
    hidden = read_devices(environ={"HIP_VISIBLE_DEVICES": "1,0"}).devices
    assert [device.cuda for device in hidden] == [None, None]


def test_newer_versions_put_the_list_below_a_key(path: Path) -> None:
    """The figures are the same."""
    write_tool(path / "amd-smi", {topic: {"gpu_data": answer} for topic, answer in AMD.items()})
    assert read_devices(environ={}).devices[0] == MI300


def test_without_amd_smi_rocm_smi_is_read(path: Path) -> None:
    """It names each figure with its unit; which processes there are is not read."""
    write_tool(path / "rocm-smi", {"--show": ROCM})
    reading = read_devices(environ={})
    assert reading.source == "Read from rocm-smi."
    assert reading.devices == (
        DeviceState(
            index=0, uuid="0x9a", name="AMD Instinct MI210", cuda="cuda:0", utilization=0.0,
            memory_used=10960896, memory_free=68702699520 - 10960896, memory_total=68702699520, power=35.0,
            power_limit=300.0, temperature=34.0, clock=8e8,
        ),
    )  # fmt: skip


def test_cards_of_intel_are_read_by_xpu_smi(path: Path) -> None:
    """Programs call them xpu:0."""
    write_tool(path / "xpu-smi", XPU)
    reading = read_devices(environ={})
    assert reading.source == "Read from xpu-smi."
    assert reading.devices == (
        DeviceState(
            index=0, uuid="00-1", name="Intel(R) Data Center GPU Flex 170", cuda="xpu:0", utilization=0.125,
            memory_used=512 * MIB, memory_free=14 * GIB - 512 * MIB, memory_total=14 * GIB, power=118.3,
            temperature=47.0, clock=2.05e9, processes=(DeviceProcess(pid=42, name="python", bytes=2 * MIB),),
        ),
    )  # fmt: skip


def test_gpus_of_apple_are_read_by_ioreg(path: Path) -> None:
    """They share the memory of the machine, so that only what they use of it is a figure."""
    listed = [
        {
            "IORegistryEntryID": 4294968,
            "model": "Apple M1 Pro",
            "gpu-core-count": 16,
            "PerformanceStatistics": {"Device Utilization %": 37, "In use system memory": 700 * MIB},
        },
        {"model": b"Intel Iris Pro\0", "PerformanceStatistics": {}},
    ]
    (path / "answer.plist").write_bytes(plistlib.dumps(listed))
    (path / "ioreg").write_text(f"#!{sys.executable}\nprint(open({str(path / 'answer.plist')!r}).read())\n")
    (path / "ioreg").chmod(0o755)

    reading = read_devices(environ={})

    assert reading.source == "Read from ioreg."
    assert reading.devices == (
        DeviceState(
            index=0, uuid="4294968", name="Apple M1 Pro", cuda="mps", utilization=0.37, memory_used=700 * MIB
        ),
        DeviceState(index=1, uuid="1", name="Intel Iris Pro"),
    )  # fmt: skip
    (path / "answer.plist").write_text("no list")
    assert read_devices(environ={}).devices == ()


def test_tools_that_fail_leave_no_device_and_a_sentence(path: Path) -> None:
    """As without their drivers."""
    write_tool(path / "amd-smi", {})
    write_tool(path / "xpu-smi", {})
    reading = read_devices(environ={})
    assert reading.devices == ()
    assert reading.source == "There is no device: amd-smi and xpu-smi are here, and list none."
