"""What makes two results comparable is read from the machine."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import psutil
import pytest

from modeldyno.engine.environment import machine

VERSION = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 2024\nGCC 12.2\n"


def a_driver(root: Path, *models: str) -> Path:
    """Write the files of an NVIDIA driver."""
    for number, model in enumerate(models):
        folder = root / "gpus" / f"0000:0{number}:00.0"
        folder.mkdir(parents=True)
        (folder / "information").write_text(f"Model: \t\t {model}\nIRQ:   \t 17\nGPU UUID: \t GPU-{number}\n")
    (root / "version").write_text(VERSION)
    return root


def test_cards_belong_to_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GPU models are hardware, the version of their driver is software, and UUIDs are of the run."""
    driver = a_driver(tmp_path, "NVIDIA H200", "NVIDIA L4", "NVIDIA H200")
    monkeypatch.setattr(machine, "_NVIDIA", driver)

    environment = machine.describe_environment(())

    assert environment.hardware["devices"] == "2 x NVIDIA H200, NVIDIA L4"
    assert environment.conditions["device_uuids"] == "GPU-0, GPU-1, GPU-2"
    assert environment.software["nvidia_driver"] == "550.54.15"


def test_without_cards_nothing_is_said_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without an NVIDIA driver has no such entries."""
    monkeypatch.setattr(machine, "_NVIDIA", tmp_path / "absent")

    environment = machine.describe_environment(())

    assert "devices" not in environment.hardware
    assert "nvidia_driver" not in environment.software
    assert environment.hardware["cores"]


def test_a_pin_leaves_the_quota_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer cores are allowed, but the quota stays the same."""
    monkeypatch.setattr(machine, "allowed_cores", lambda: (0,))
    monkeypatch.setattr(machine, "_CGROUP", Path("/absent"))
    monkeypatch.setattr("psutil.cpu_count", lambda logical: 4)

    pinned, bare = machine.hardware(pinned=True), machine.hardware()

    assert (pinned["cores_allowed"], pinned["cpu_quota"]) == (1, 4.0)
    assert (bare["cores_allowed"], bare["cpu_quota"]) == (1, 1.0)


def grouped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, files: dict[str, str]) -> None:
    """Put this process into a control group with these files."""
    (tmp_path / "listed").write_text(f"5:cpu:/\n{line}\n")
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    genuine = machine._memory_groups
    monkeypatch.setattr(machine, "_CGROUP", tmp_path)
    monkeypatch.setattr(machine, "_memory_groups", lambda: genuine(tmp_path / "listed"))


@pytest.mark.parametrize(
    ("line", "files"),
    [
        (
            "0::/mine",
            {
                "mine/memory.max": "5000",
                "mine/memory.current": "4000",
                "mine/memory.stat": "inactive_file 300",
            },
        ),
        (
            "4:memory:/mine",
            {
                "memory/mine/memory.limit_in_bytes": "5000",
                "memory/mine/memory.usage_in_bytes": "4000",
                "memory/mine/memory.stat": "total_inactive_file 300\nrss 1",
            },
        ),
        (
            "4:cpu,memory:/seen/from/outside",
            {"memory/memory.limit_in_bytes": "5300", "memory/memory.usage_in_bytes": "4000"},
        ),
    ],
)
def test_free_memory_is_what_the_container_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, files: dict[str, str]
) -> None:
    """The limit less the usage, not counting reclaimable file cache, in both kinds of groups."""
    grouped(tmp_path, monkeypatch, line, files)

    assert machine.free_memory() == 1300


def test_free_memory_without_a_container_is_that_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group without a limit says ``max``."""
    available = psutil.virtual_memory()._replace(available=77)
    monkeypatch.setattr("psutil.virtual_memory", lambda: available)
    grouped(tmp_path, monkeypatch, "0::/mine", {"mine/memory.max": "max", "mine/memory.current": "4000"})

    assert machine.free_memory() == 77


@pytest.mark.parametrize(
    ("line", "file", "text", "kills"),
    [
        ("0::/mine", "mine/memory.events", "low 0\noom 3\noom_kill 2\noom_group_kill 0", 2),
        (
            "4:memory:/mine",
            "memory/mine/memory.oom_control",
            "oom_kill_disable 0\nunder_oom 0\noom_kill 7",
            7,
        ),
    ],
)
def test_what_the_kernel_killed_for_want_of_memory_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, file: str, text: str, kills: int
) -> None:
    """The control group counts them, in both kinds."""
    grouped(tmp_path, monkeypatch, line, {file: text})

    assert machine.memory_kills() == kills


@pytest.mark.parametrize("package", ["modeldyno", "numpy", "pytest"])
def test_a_version_is_that_of_the_description(package: str) -> None:
    """Whatever else stands in it."""
    assert machine.installed_version(package) == metadata.version(package)


def test_a_package_that_is_not_there_has_no_version() -> None:
    """It is left out of the software."""
    with pytest.raises(metadata.PackageNotFoundError):
        machine.installed_version("no-such-package")
    assert "no-such-package" not in machine.software(["no-such-package"])
