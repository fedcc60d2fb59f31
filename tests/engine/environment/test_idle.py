"""Whether a device is idle: faked looks, the real processor, and GPUs as a driver would describe them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from modeldyno.engine.environment import idle
from modeldyno.engine.environment.device_state import DeviceProcess, DeviceState
from modeldyno.engine.environment.devices import DeviceReading
from modeldyno.engine.environment.idle import IdleRule, busy_reason
from modeldyno.engine.environment.machine import allowed_cores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

AT_ONCE = IdleRule(samples=1, period=0.0)


class TestLooks:
    def test_each_look_must_find_it_idle(self) -> None:
        """Five of them by default."""
        checks: list[tuple[str, float]] = []

        def check_device(device: str, period: float) -> str | None:
            checks.append((device, period))
            return None

        assert busy_reason("cuda:1", IdleRule(), sample=check_device) is None
        assert checks == [("cuda:1", 1.0)] * 5

    @pytest.mark.parametrize("busy", range(5))
    def test_one_that_does_not_is_enough(self, busy: int) -> None:
        """Its reason is told, and nobody looks again."""
        checks: list[str] = []

        def check_device(_device: str, _period: float) -> str | None:
            checks.append("")
            return "ada trains" if len(checks) == busy + 1 else None

        assert busy_reason("cpu", IdleRule(), sample=check_device) == "ada trains"
        assert len(checks) == busy + 1

    def test_without_looks_nothing_is_busy(self) -> None:
        """Whoever knows better need not wait."""
        assert busy_reason("cpu", IdleRule(samples=0)) is None


@contextmanager
def times(
    monkeypatch: pytest.MonkeyPatch,
    *,
    busy: float = 0.0,
    stolen: float = 0.0,
    own: float = 0.0,
    cores: int = 4,
) -> Iterator[Callable[[float], None]]:
    """Let so many seconds of processor time pass in each second; yield what sleeps."""
    now = [100.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    def read(_cores: frozenset[int]) -> idle._CpuTimes:
        at = now[0]
        return idle._CpuTimes(at=at, busy=busy * at, stolen=stolen * at, own=own * at)

    monkeypatch.setattr(idle, "allowed_cores", lambda: tuple(range(cores)))
    monkeypatch.setattr(idle, "_read_cpu", read)
    seconds = [{1: (0.0, "ada"), 7: (5.0, "eve")}, {1: (0.1, "ada"), 7: (5.5, "eve"), 9: (0.0, "new")}]
    monkeypatch.setattr(idle, "_cpu_by_process", lambda: seconds.pop(0) if seconds else {})
    yield sleep


class TestProcessor:
    @pytest.mark.parametrize(
        ("busy", "stolen", "own", "reason"),
        [
            (0.07, 0.0, 0.0, None),
            (2.0, 0.0, 1.95, None),
            (0.04, 0.03, 0.0, None),
            (0.09, 0.0, 0.0, "others use 0.09 of 4 cores, mostly eve (pid 7)"),
            (3.0, 0.0, 2.5, "others use 0.50 of 4 cores, mostly eve (pid 7)"),
            (0.01, 0.5, 0.0, "the hypervisor takes 0.50 of 4 cores"),
            (1.0, 0.0, 1.2, None),
        ],
    )
    def test_what_others_use_counts_and_what_we_use_does_not(
        self, monkeypatch: pytest.MonkeyPatch, busy: float, stolen: float, own: float, reason: str | None
    ) -> None:
        """Two percent of the allowed cores are allowed; who uses most is told."""
        with times(monkeypatch, busy=busy, stolen=stolen, own=own) as sleep:
            assert busy_reason("cpu", IdleRule(samples=1), sleep=sleep) == reason

    def test_the_share_is_of_all_allowed_cores(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The same use is less of more cores."""
        with times(monkeypatch, busy=0.5, cores=2) as sleep:
            assert busy_reason("cpu", IdleRule(samples=1), sleep=sleep) is not None
        with times(monkeypatch, busy=0.5, cores=64) as sleep:
            assert busy_reason("cpu", IdleRule(samples=1), sleep=sleep) is None

    @pytest.mark.parametrize(("busy", "stolen"), [(2.02, 0.0), (0.0, 2.02)])
    def test_all_cores_may_be_used_whatever_the_clocks_say(
        self, monkeypatch: pytest.MonkeyPatch, busy: float, stolen: float
    ) -> None:
        """A share of 100 % has no limit: two clocks may find more than all cores in use."""
        with times(monkeypatch, busy=busy, stolen=stolen, cores=2) as sleep:
            assert busy_reason("cpu", IdleRule(samples=1, cpu=0.99), sleep=sleep) is not None
            assert busy_reason("cpu", IdleRule(samples=1, cpu=1.0), sleep=sleep) is None

    def test_a_stranger_is_seen(self) -> None:
        """A process that computes and is none of our children."""
        rule = IdleRule(samples=1, period=1.0, cpu=0.3 / len(allowed_cores()))
        code = "import os\nif os.fork() == 0:\n os.setsid()\n print(os.getpid(), flush=True)\n while 1: pass"
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
            assert parent.stdout is not None
            stranger = int(parent.stdout.readline())
        try:
            reason = busy_reason("cpu", rule)
            assert reason is not None
            assert reason.startswith(("others use ", "the hypervisor takes "))
        finally:
            os.kill(stranger, signal.SIGKILL)

    def test_what_we_and_our_children_use_is_ours(self) -> None:
        """By the kernel's own count."""
        cores = frozenset(allowed_cores())
        before = idle._read_cpu(cores)
        subprocess.run([sys.executable, "-c", "n = 0\nwhile n < 5_000_000: n += 1"], check=True)
        end = time.process_time() + 0.3
        while time.process_time() < end:
            pass
        after = idle._read_cpu(cores)

        assert after.own - before.own >= 0.35
        assert after.busy - before.busy >= after.own - before.own - 0.3
        assert after.stolen >= before.stolen

    def test_a_machine_that_cannot_be_read_is_busy(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nothing is claimed of it."""

        def read(_cores: frozenset[int]) -> idle._CpuTimes:
            raise FileNotFoundError(2, "No such file or directory", "/proc/stat")

        monkeypatch.setattr(idle, "_read_cpu", read)
        reason = busy_reason("cpu", AT_ONCE)
        assert reason is not None
        assert reason.startswith("cpu cannot be read: ")


GIB, MIB = 1 << 30, 1 << 20
CARD = DeviceState(
    index=0, uuid="GPU-a", name="NVIDIA T", cuda="cuda:0", utilization=0.0, memory_used=4 * MIB
)


def process(pid: int, size: int | None, *, computes: bool = True) -> DeviceProcess:
    return DeviceProcess(pid=pid, name=None if pid > 2**22 else "eve", bytes=size, computes=computes)


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Give a function that says what the driver answers."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def answer(*states: DeviceState) -> None:
        reading = DeviceReading(devices=states, source="nvidia-smi is not on the path.")
        monkeypatch.setattr(idle, "read_devices", lambda: reading)

    return answer


class TestGpu:
    @pytest.mark.parametrize(
        ("utilization", "memory", "reason"),
        [
            (0.0, 4, None),
            (0.05, 500, None),
            (0.06, 4, "others use 6 % of cuda:0"),
            (0.0, 501, "others hold 501 MiB of cuda:0"),
        ],
    )
    def test_little_use_and_little_memory_are_idle(
        self, gpus: Callable[..., None], utilization: float, memory: int, reason: str | None
    ) -> None:
        """Up to 5 % and 500 MiB."""
        gpus(replace(CARD, utilization=utilization, memory_used=memory * MIB))
        assert busy_reason("cuda:0", AT_ONCE) == reason

    def test_a_process_of_others_makes_it_busy(self, gpus: Callable[..., None]) -> None:
        """However little it uses; it is named, if it can be."""
        gpus(replace(CARD, processes=(process(os.getppid(), 10 * MIB),)))
        assert busy_reason("cuda:0", AT_ONCE) == f"eve (pid {os.getppid()}) uses cuda:0"
        gpus(replace(CARD, processes=(process(999999999, 10 * MIB),)))
        assert busy_reason("cuda:0", AT_ONCE) == "process 999999999 uses cuda:0"

    def test_a_desktop_does_not(self, gpus: Callable[..., None]) -> None:
        """It draws, and does not compute: what it uses and holds counts, as that of others."""
        desktop = process(os.getppid(), 90 * MIB, computes=False)
        gpus(replace(CARD, memory_used=100 * MIB, processes=(desktop,)))
        assert busy_reason("cuda:0", AT_ONCE) is None
        gpus(replace(CARD, memory_used=600 * MIB, processes=(desktop,)))
        assert busy_reason("cuda:0", AT_ONCE) == "others hold 600 MiB of cuda:0"

    def test_what_we_hold_is_ours(self, gpus: Callable[..., None]) -> None:
        """Its memory is not that of others, and we may be who uses it."""
        ours = replace(CARD, utilization=0.4, memory_used=9000 * MIB)
        gpus(replace(ours, processes=(process(os.getpid(), 8900 * MIB),)))
        assert busy_reason("cuda:0", AT_ONCE) is None
        gpus(replace(ours, processes=(process(os.getpid(), 8000 * MIB),)))
        assert busy_reason("cuda:0", AT_ONCE) == "others hold 1000 MiB of cuda:0"
        gpus(replace(ours, processes=(process(os.getpid(), None),)))
        assert busy_reason("cuda:0", AT_ONCE) is None

    def test_the_card_is_the_one_that_cuda_means(self, gpus: Callable[..., None]) -> None:
        """The driver's numbers are others where CUDA_VISIBLE_DEVICES is set."""
        busy = replace(CARD, uuid="GPU-b", utilization=0.9)
        gpus(replace(busy, cuda="cuda:1"), replace(CARD, index=1))
        assert busy_reason("cuda:0", AT_ONCE) is None
        assert busy_reason("cuda", AT_ONCE) is None
        assert busy_reason("cuda:1", AT_ONCE) == "others use 90 % of cuda:1"

    def test_an_instance_of_a_card_is_known_by_its_memory_and_processes(
        self, gpus: Callable[..., None]
    ) -> None:
        """Its share of the utilization is not known."""
        whole = replace(CARD, cuda=None, utilization=0.9)
        part = replace(CARD, instance=0, uuid="MIG-a", utilization=None)
        gpus(whole, part)
        assert busy_reason("cuda:0", AT_ONCE) is None
        gpus(whole, replace(part, memory_used=GIB))
        assert busy_reason("cuda:0", AT_ONCE) == "others hold 1024 MiB of cuda:0"

    @pytest.mark.parametrize(
        ("states", "visible", "reason"),
        [
            ((), None, "nvidia-smi is not on the path."),
            ((CARD,), "0", "CUDA_VISIBLE_DEVICES '0' hides it"),
            ((CARD,), None, "there is no such device"),
            (
                (replace(CARD, cuda=None), replace(CARD, cuda=None, name="NVIDIA U", index=1)),
                None,
                "CUDA numbers unlike cards by speed; set CUDA_DEVICE_ORDER=PCI_BUS_ID",
            ),
            ((replace(CARD, cuda="xpu:1"),), None, "there is no such device"),
            ((replace(CARD, cuda="cuda:1", utilization=None),), None, "its utilization is not known"),
            ((replace(CARD, cuda="cuda:1", memory_used=None),), None, "its used memory is not known"),
        ],
    )
    def test_a_card_that_cannot_be_read_is_busy(
        self,
        gpus: Callable[..., None],
        monkeypatch: pytest.MonkeyPatch,
        states: tuple[DeviceState, ...],
        visible: str | None,
        reason: str,
    ) -> None:
        """Nobody could measure on one that is hidden, and nothing is claimed of one that does not answer."""
        gpus(*states)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert busy_reason("cuda:1", AT_ONCE) == f"cuda:1 cannot be read: {reason}"

    def test_it_looks_for_a_while(self, gpus: Callable[..., None]) -> None:
        """A period after each look, which is not waited for once somebody was seen."""
        slept: list[float] = []
        gpus(CARD)
        assert busy_reason("cuda:0", IdleRule(samples=3, period=1.0), sleep=slept.append) is None
        assert slept == [1.0] * 3
        gpus(replace(CARD, utilization=0.5))
        assert busy_reason("cuda:0", IdleRule(samples=3, period=1.0), sleep=slept.append) is not None
        assert slept == [1.0] * 3
