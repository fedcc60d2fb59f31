"""What makes two results comparable is read from the machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno import machine

if TYPE_CHECKING:
    import pytest

VERSION = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 2024\nGCC 12.2\n"


def a_driver(root: Path, *models: str) -> Path:
    """Write what NVIDIA's driver tells of its cards."""
    for number, model in enumerate(models):
        folder = root / "gpus" / f"0000:0{number}:00.0"
        folder.mkdir(parents=True)
        (folder / "information").write_text(f"Model: \t\t {model}\nIRQ:   \t 17\nGPU UUID: \t GPU-{number}\n")
    (root / "version").write_text(VERSION)
    return root


def test_cards_belong_to_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The models of cards are hardware, the version of their driver is software."""
    driver = a_driver(tmp_path, "NVIDIA H200", "NVIDIA L4", "NVIDIA H200")
    monkeypatch.setattr(machine, "_NVIDIA", driver)

    found = machine.environment(())

    assert found.hardware["devices"] == "2 x NVIDIA H200, NVIDIA L4"
    assert found.software["nvidia_driver"] == "550.54.15"


def test_without_cards_nothing_is_said_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a driver of NVIDIA has no such entries."""
    monkeypatch.setattr(machine, "_NVIDIA", tmp_path / "absent")

    found = machine.environment(())

    assert "devices" not in found.hardware
    assert "nvidia_driver" not in found.software
    assert found.hardware["cores"]


def test_a_pin_leaves_the_quota_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer cores are allowed, and the quota is what it is without."""
    monkeypatch.setattr(machine, "allowed_cores", lambda: (0,))
    monkeypatch.setattr(machine, "_CGROUP", Path("/absent"))
    monkeypatch.setattr("psutil.cpu_count", lambda logical: 4)  # noqa: ARG005 - as it is called

    pinned, bare = machine.hardware(pinned=True), machine.hardware()

    assert (pinned["cores_allowed"], pinned["cpu_quota"]) == (1, 4.0)
    assert (bare["cores_allowed"], bare["cpu_quota"]) == (1, 1.0)
