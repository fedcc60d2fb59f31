"""Describe this machine: what makes two results comparable, and what could disturb one."""

from __future__ import annotations

import os
import platform
import re
import sys
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from modeldyno.base.result.result import Environment

if TYPE_CHECKING:
    from collections.abc import Iterable

    from modeldyno.base.result.result import Fact

_CGROUP = Path("/sys/fs/cgroup")
_CPU = Path("/sys/devices/system/cpu")
_NVIDIA = Path("/proc/driver/nvidia")
_UNLIMITED = 1 << 60
_VERSION = re.compile(r"^Version: *(\S+)", re.MULTILINE)
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_DRIVERS = ("proc/driver/nvidia/gpus/*", "dev/nvidiactl", "dev/dxg", "dev/kfd", "dev/dri/renderD*")
"""Paths that exist if there is a driver of NVIDIA, WSL, AMD or Intel."""


def describe_environment(packages: Iterable[str], *, pinned: bool = False) -> Environment:
    """Return the hardware, the versions of `packages`, and the current conditions."""
    return Environment(hardware=hardware(pinned=pinned), software=software(packages), conditions=conditions())


def hardware(*, pinned: bool = False) -> dict[str, Fact]:
    """Return what two results must share to be comparable; pinning does not change the quota."""
    cores = psutil.cpu_count(logical=True) or 1
    return {
        "processor": processor_name(),
        "architecture": platform.machine(),
        "cores": cores,
        "cores_allowed": len(allowed_cores()),
        "cpu_quota": cpu_quota(cores if pinned else len(allowed_cores())),
        "memory": memory_limit(),
        **({"devices": names} if (names := gpu_names()) else {}),
    }


def software(packages: Iterable[str]) -> dict[str, Fact]:
    """Return versions; a difference between them may be what is compared."""
    versions: dict[str, Fact] = {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
    }
    for package in ("modeldyno", "numpy", *packages):
        try:
            versions[package] = installed_version(package)
        except (
            metadata.PackageNotFoundError
        ):  # its package has another name: sklearn, or xgboost of xgboost-cpu
            if version := getattr(sys.modules.get(package), "__version__", None):
                versions[package] = str(version)
    if driver := _read_text(_NVIDIA / "version"):
        versions["nvidia_driver"] = next(iter(re.findall(r"\d+\.\d+(?:\.\d+)*", driver)), "unknown")
    return versions


def installed_version(package: str) -> str:
    """Return the version of an installed package; only the line that has it is read of its description.

    Raises:
        PackageNotFoundError: no package of this name is installed.
    """
    distribution = metadata.distribution(package)
    match = _VERSION.search(distribution.read_text("METADATA") or "")
    return match[1] if match else distribution.version


def conditions() -> dict[str, Fact]:
    """Return possible disturbances: load average, frequency governor, turbo, thread settings."""
    facts: dict[str, Fact] = {"load_average": round(os.getloadavg()[0], 2)}
    governor = _read_text(_CPU / "cpu0/cpufreq/scaling_governor")
    if governor:
        facts["governor"] = governor
    if (turbo := _read_text(_CPU / "intel_pstate/no_turbo")) is not None:
        facts["turbo"] = turbo == "0"
    if uuids := _gpu_uuids():
        facts["device_uuids"] = uuids
    facts |= {name: os.environ[name] for name in _THREAD_VARIABLES if name in os.environ}
    return facts


def _gpu_uuids() -> str:
    """Return the UUIDs of the GPUs that the NVIDIA driver lists, in its order; empty if there are none."""
    return ", ".join(
        value for text in _gpu_files() for value in re.findall(r"^GPU UUID:\s*(GPU-\S+)", text, re.MULTILINE)
    )


def _gpu_files() -> list[str]:
    return [_read_text(file) or "" for file in sorted((_NVIDIA / "gpus").glob("*/information"))]


def gpu_names() -> str:
    """Return the GPUs that the NVIDIA driver lists, such as ``2 x NVIDIA A100``; empty if there are none."""
    models = [line.partition(":")[2].strip() for text in _gpu_files() for line in text.splitlines()[:1]]
    counted = {name: models.count(name) for name in dict.fromkeys(models)}
    return ", ".join(f"{count} x {name}" if count > 1 else name for name, count in counted.items())


def may_have_device(root: Path = Path("/")) -> bool:
    """Return whether there may be an accelerator, without asking a framework."""
    return sys.platform == "darwin" or any(True for pattern in _DRIVERS for _ in root.glob(pattern))


def processor_name() -> str:
    """Return the name of the processor."""
    for line in (_read_text(Path("/proc/cpuinfo")) or "").splitlines():
        if line.startswith(("model name", "Hardware", "cpu model")):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def allowed_cores() -> tuple[int, ...]:
    """Return the numbers of the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def cpu_quota(most: int | None = None) -> float:
    """Return the cores that the container's quota allows, at most `most`, by default the allowed ones."""
    cores = float(len(allowed_cores()) if most is None else most)
    quota, _, period = (_read_text(_CGROUP / "cpu.max") or "").partition(" ")
    if not period:
        quota = _read_text(_CGROUP / "cpu/cpu.cfs_quota_us") or ""
        period = _read_text(_CGROUP / "cpu/cpu.cfs_period_us") or ""
    with suppress(ValueError, ZeroDivisionError):
        limit = float(quota) / float(period)
        return min(cores, limit) if limit > 0 else cores
    return cores


def _machine_memory() -> tuple[int, int]:
    """Return the bytes of the machine's memory, and of what is available of it."""
    try:
        memory = psutil.virtual_memory()
    except OSError:  # no /proc: the C library asks the kernel, which does not count caches as available
        page = os.sysconf("SC_PAGE_SIZE")
        return page * os.sysconf("SC_PHYS_PAGES"), page * os.sysconf("SC_AVPHYS_PAGES")
    return int(memory.total), int(memory.available)


def memory_limit() -> int:
    """Return the bytes that this process may use: the machine's memory or the container's limit."""
    total = _machine_memory()[0]
    for path in (_CGROUP / "memory.max", _CGROUP / "memory/memory.limit_in_bytes"):
        with suppress(ValueError, TypeError):
            limit = int(_read_text(path) or "")
            return min(total, limit) if limit < _UNLIMITED else total
    return total


def free_memory() -> int:
    """Return the bytes free for a new process, within the machine's memory and the container's limit."""
    free = _machine_memory()[1]
    for folder in _memory_groups():
        for limit, used, cache in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            with suppress(ValueError, TypeError):
                left = int(_read_text(folder / limit) or "") - int(_read_text(folder / used) or "")
                facts = dict(line.split() for line in (_read_text(folder / "memory.stat") or "").splitlines())
                free = min(free, left + int(facts.get(cache, 0)))
    return max(0, free)


def spare_memory(held: int = 0) -> int:
    """Return the bytes that a child may use: what is free or `held` by it, less a reserve for the machine."""
    return int(max(0.0, free_memory() + held - _RESERVE * memory_limit()))


_RESERVE = 0.05
"""Share of the machine's memory that children leave free."""


def memory_kills() -> int | None:
    """Count the processes that the kernel has killed because memory ran out; None where unknown.

    Counted for this container, or without one, for the machine.
    """
    files = [folder / name for folder in _memory_groups() for name in ("memory.events", "memory.oom_control")]
    for file in (*files, Path("/proc/vmstat")):
        for line in (_read_text(file) or "").splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    return None


def _memory_groups(listed: Path = Path("/proc/self/cgroup")) -> list[Path]:
    """Return the directories with the memory statistics of this process's control group."""
    folders: list[Path] = []
    for line in (_read_text(listed) or "").splitlines():
        _, controllers, path = line.split(":", 2)
        root = _CGROUP if not controllers else _CGROUP / "memory"
        if not controllers or "memory" in controllers.split(","):
            folders += dict.fromkeys((root / path.lstrip("/"), root))
    return [folder for folder in folders if folder.is_dir()]


def _read_text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
