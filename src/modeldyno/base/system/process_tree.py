"""Processes of the operating system: their trees, their memory, and how to end them with their parent.

Standard library only: the side process that watches a measurement imports this and little else.
"""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator

_PR_SET_PDEATHSIG = 1
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK = os.sysconf("SC_CLK_TCK")
_IN_MEMORY = ("/memfd:", "/dev/shm/")  # noqa: S108 - fixed by the system
"""How the links of descriptors begin whose files are on no disk."""


def end_with_parent() -> None:
    """Have the kernel kill this process when its parent dies (Linux; elsewhere nothing)."""
    parent = os.getppid()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the request was made
        os._exit(1)


def describe_process(pid: int, name: str | None = None) -> str:
    """Return ``name (pid 17)``, or ``process 17`` if it is gone, or of another container.

    The name is read if it is not known.
    """
    with suppress(OSError):
        name = name or Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    return f"{name} (pid {pid})" if name else f"process {pid}"


def list_process_tree(root: int) -> list[int]:
    """List a process and its living descendants."""
    pids = [root]
    for pid in pids:
        with suppress(OSError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                with suppress(OSError):
                    pids += map(int, (task / "children").read_text().split())
    return pids


def ancestors(count: int) -> list[int]:
    """Return the parent of this process, its parent, and so on, up to `count`."""
    pids = [os.getppid()]
    with suppress(IndexError):
        while len(pids) < count and pids[-1] > 1:
            pids.append(int(stat_fields(pids[-1])[1]))
    return [pid for pid in pids if pid > 1]


def available_memory() -> int | None:
    """Return the bytes that this machine has left for a new process; None if the kernel does not say."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    return None


def tree_memory(pids: Iterable[int]) -> int:
    """Return the bytes of memory of several processes, counting shared memory once.

    Anonymous memory is shared only between forks, each of which is charged its share. Pages of files, such as
    libraries and mapped weights, are also shared with unrelated processes, which must not change the result:
    they count at least as resident in the process that has most of them, which is exact if one has them all.
    Files without a disk that are open for writing but not mapped count in full.
    Older kernels (before Linux 5.9) give only proportional sizes, or resident ones.
    """
    pids = tuple(pids)
    anonymous = files = most = 0
    for pid in pids:
        sizes = _read_kilobytes(f"/proc/{pid}/smaps_rollup")
        if "Pss_Anon" in sizes:
            anonymous += sizes["Pss_Anon"]
            files += sizes["Pss"] - sizes["Pss_Anon"]
            most = max(most, sizes["Rss"] - sizes["Anonymous"])
        elif "Pss" in sizes:
            anonymous += sizes["Pss"]
        else:
            anonymous += resident_size(pid)
    return anonymous + max(files, most) + open_memory_files(pids)


def open_memory_files(pids: Iterable[int]) -> int:
    """Return the bytes of files without a disk that processes hold open for writing, but do not map.

    Such are those of memfd_create and of shared memory; what is mapped is in the resident size.
    """
    sizes: dict[int, int] = {}
    for pid in pids:
        opened = dict(_memory_files(pid))
        mapped = _mapped_inodes(pid) if opened else frozenset[int]()
        for inode, size in opened.items():
            unmapped = max(0, size - resident_size(pid)) if inode in mapped else size
            sizes[inode] = min(unmapped, sizes.get(inode, unmapped))
    return sum(sizes.values())


def _memory_files(pid: int) -> Iterator[tuple[int, int]]:
    """Yield the inode and the bytes of each file without a disk that a process may write to."""
    with suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with suppress(OSError, ValueError, IndexError):
                if not os.readlink(entry.path).startswith(_IN_MEMORY):
                    continue
                flags = Path(f"/proc/{pid}/fdinfo/{entry.name}").read_text().partition("flags:")[2].split()[0]
                if int(flags, 8) & os.O_ACCMODE:
                    status = os.stat(entry.path)
                    yield status.st_ino, status.st_blocks * 512


def _mapped_inodes(pid: int) -> frozenset[int]:
    with suppress(OSError, ValueError, IndexError):
        return frozenset(int(line.split()[4]) for line in Path(f"/proc/{pid}/maps").read_text().splitlines())
    return frozenset()


def shared_memory_in_use() -> int:
    """Return the bytes of memory of the whole machine that is in files without a disk; 0 if unknown."""
    return _read_kilobytes("/proc/meminfo").get("Shmem", 0)


def forget_peak(pid: int) -> bool:
    """Reset the peak resident size; return whether this system can."""
    try:
        Path(f"/proc/{pid}/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def peak_size(pid: int) -> int:
    """Return the peak resident size in bytes since it was last reset; 0 if unknown."""
    return _read_kilobytes(f"/proc/{pid}/status").get("VmHWM", 0)


def _read_kilobytes(path: str) -> dict[str, int]:
    """Read the lines in kB as bytes; empty if the file cannot be read."""
    with suppress(OSError):
        lines = Path(path).read_text().splitlines()
        return {line.partition(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.endswith(" kB")}
    return {}


def start_ticks(pid: int) -> int:
    """Return when a process started, in ticks since boot; 0 if it is gone.

    A process id may be reused; together with the start time it is unique.
    """
    return int((stat_fields(pid) or ["0"] * 20)[19])


def cpu_seconds(pid: int) -> float:
    """Return the seconds of user and system time of a process and its ended children."""
    return sum(map(int, stat_fields(pid)[11:15])) / _TICK


def cores_time(cores: Container[int]) -> tuple[float, float]:
    """Return the seconds since boot that these cores were busy, and that were stolen from them."""
    busy = stolen = 0
    for line in Path("/proc/stat").read_text(encoding="ascii").splitlines():
        name, _, rest = line.partition(" ")
        if name.startswith("cpu") and name != "cpu" and int(name[3:]) in cores:
            user, nice, system, _idle, _wait, irq, soft, steal, *_ = map(int, rest.split())
            busy += user + nice + system + irq + soft
            stolen += steal
    return busy / _TICK, stolen / _TICK


def disk_traffic(pid: int) -> tuple[int, int] | None:
    """Return the disk bytes read and written by a process and its ended children; None if not allowed."""
    try:
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    except OSError:
        return None if Path(f"/proc/{pid}").exists() else (0, 0)
    counts = dict(line.split(": ") for line in lines)
    return int(counts["read_bytes"]), int(counts["write_bytes"])


def network_traffic(pid: int) -> tuple[int, int] | None:
    """Return the bytes received and sent in a process's network namespace, without the loopback."""
    try:
        lines = Path(f"/proc/{pid}/net/dev").read_text().splitlines()[2:]
    except OSError:
        return None
    devices = dict(line.split(":", 1) for line in lines)
    counts = [fields.split() for name, fields in devices.items() if name.strip() != "lo"]
    return sum(int(fields[0]) for fields in counts), sum(int(fields[8]) for fields in counts)


def stat_fields(pid: int) -> list[str]:
    """Return the fields of ``stat`` after the name; empty for a process that is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return []


def is_stopped(pid: int) -> bool:
    """Return whether a signal has stopped a process, which goes on only by another (SIGCONT)."""
    return stat_fields(pid)[:1] == ["T"]


def release_free_memory() -> None:
    """Return freed memory to the system, so that the size of this process is what it holds (glibc only).

    Otherwise the model would reuse memory that we have freed, and it would not be counted as the model's.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def runs_code(pid: int, code: str) -> bool:
    """Return whether an argument of a process is, or begins with, this module (``-m``) or code (``-c``)."""
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(argument.startswith(code.encode()) for argument in arguments)


def resident_size(pid: int) -> int:
    """Return the bytes of resident memory; 0 for a process that is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except OSError:
        return 0
