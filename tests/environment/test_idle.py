"""Whether a device is idle: faked looks, the real processor, and a GPU that a script plays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from modeldyno.environment import idle
from modeldyno.environment.idle import IdleRule, why_busy
from modeldyno.environment.machine import allowed_cores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

AT_ONCE = IdleRule(looks=1, period=0.0)


class TestLooks:
    def test_each_look_must_find_it_idle(self) -> None:
        """Five of them by default."""
        looks: list[tuple[str, float]] = []

        def look(device: str, period: float) -> str | None:
            looks.append((device, period))
            return None

        assert why_busy("cuda:1", IdleRule(), look=look) is None
        assert looks == [("cuda:1", 1.0)] * 5

    @pytest.mark.parametrize("busy", range(5))
    def test_one_that_does_not_is_enough(self, busy: int) -> None:
        """Its reason is told, and nobody looks again."""
        looks: list[str] = []

        def look(_device: str, _period: float) -> str | None:
            looks.append("")
            return "ada trains" if len(looks) == busy + 1 else None

        assert why_busy("cpu", IdleRule(), look=look) == "ada trains"
        assert len(looks) == busy + 1

    def test_without_looks_nothing_is_busy(self) -> None:
        """Whoever knows better need not wait."""
        assert why_busy("cpu", IdleRule(looks=0)) is None


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
        ("busy", "stolen", "own", "told"),
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
        self, monkeypatch: pytest.MonkeyPatch, busy: float, stolen: float, own: float, told: str | None
    ) -> None:
        """Two percent of the allowed cores are allowed; who uses most is told."""
        with times(monkeypatch, busy=busy, stolen=stolen, own=own) as sleep:
            assert why_busy("cpu", IdleRule(looks=1), sleep=sleep) == told

    def test_the_share_is_of_all_allowed_cores(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The same use is less of more cores."""
        with times(monkeypatch, busy=0.5, cores=2) as sleep:
            assert why_busy("cpu", IdleRule(looks=1), sleep=sleep) is not None
        with times(monkeypatch, busy=0.5, cores=64) as sleep:
            assert why_busy("cpu", IdleRule(looks=1), sleep=sleep) is None

    def test_a_stranger_is_seen(self) -> None:
        """A process that computes and is none of our children."""
        rule = IdleRule(looks=1, period=1.0, cpu=0.3 / len(allowed_cores()))
        code = "import os\nif os.fork() == 0:\n os.setsid()\n print(os.getpid(), flush=True)\n while 1: pass"
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
            assert parent.stdout is not None
            stranger = int(parent.stdout.readline())
        try:
            told = why_busy("cpu", rule)
            assert told is not None
            assert told.startswith(("others use ", "the hypervisor takes "))
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
        told = why_busy("cpu", AT_ONCE)
        assert told is not None
        assert told.startswith("cpu cannot be read: ")


SMI = """#!{python}
import json, os, sys
said = json.load(open({said!r}))
open({asked!r}, "a").write(sys.argv[2] + "\\n")
if said.get("fails"):
    sys.exit("NVIDIA-SMI has failed")
print(said["apps" if "compute-apps" in sys.argv[3] else "gpu"])
"""


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Give a function that says what nvidia-smi answers; it returns the file of what was asked."""
    said, asked = tmp_path / "said.json", tmp_path / "asked"
    script = tmp_path / "nvidia-smi"
    script.write_text(SMI.format(python=sys.executable, said=str(said), asked=str(asked)))
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def answers(gpu: str = "0, 4", apps: str = "", *, fails: bool = False) -> Path:
        said.write_text(json.dumps({"gpu": gpu, "apps": apps, "fails": fails}))
        return asked

    return answers


class TestGpu:
    @pytest.mark.parametrize(
        ("answer", "told"),
        [
            ("0, 4", None),
            ("5, 500", None),
            ("6, 4", "others use 6 % of cuda:0"),
            ("0, 501", "others hold 501 MiB of cuda:0"),
        ],
    )
    def test_little_use_and_little_memory_are_idle(
        self, gpu: Callable[..., Path], answer: str, told: str | None
    ) -> None:
        """Up to 5 % and 500 MiB."""
        gpu(answer)
        assert why_busy("cuda:0", AT_ONCE) == told

    def test_a_process_of_others_makes_it_busy(self, gpu: Callable[..., Path]) -> None:
        """However little it uses; it is named, if it can be."""
        gpu(apps=f"{os.getppid()}, 10")
        told = why_busy("cuda:0", AT_ONCE)
        assert told is not None
        assert told.endswith(f"(pid {os.getppid()}) uses cuda:0")
        gpu(apps="999999999, 10")
        assert why_busy("cuda:0", AT_ONCE) == "process 999999999 uses cuda:0"

    def test_what_we_hold_is_ours(self, gpu: Callable[..., Path]) -> None:
        """Its memory is not that of others."""
        gpu("40, 9000", f"{os.getpid()}, 8900")
        assert why_busy("cuda:0", AT_ONCE) is None
        gpu("40, 9000", f"{os.getpid()}, 8000")
        assert why_busy("cuda:0", AT_ONCE) == "others hold 1000 MiB of cuda:0"

    @pytest.mark.parametrize(
        ("visible", "device", "asked"),
        [
            (None, "cuda:1", "1"),
            (None, "cuda", "0"),
            ("2,3", "cuda:1", "3"),
            ("GPU-5a, 0", "cuda:0", "GPU-5a"),
        ],
    )
    def test_the_card_is_the_one_that_cuda_means(
        self,
        gpu: Callable[..., Path],
        monkeypatch: pytest.MonkeyPatch,
        visible: str | None,
        device: str,
        asked: str,
    ) -> None:
        """CUDA_VISIBLE_DEVICES gives cards other numbers."""
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        log = gpu()
        assert why_busy(device, AT_ONCE) is None
        assert set(log.read_text().split()) == {asked}

    @pytest.mark.parametrize("visible", ["", "0"])
    def test_a_hidden_card_is_no_idle_one(
        self, gpu: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, visible: str
    ) -> None:
        """Nobody could measure on it."""
        gpu()
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        told = why_busy("cuda:1", AT_ONCE)
        assert told == f"cuda:1 cannot be read: CUDA_VISIBLE_DEVICES '{visible}' hides it"

    def test_a_card_that_cannot_be_read_is_busy(
        self, gpu: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its tool fails, says something else, or is not there."""
        gpu(fails=True)
        assert str(why_busy("cuda:0", AT_ONCE)).startswith("cuda:0 cannot be read: ")
        gpu("[N/A], 4")
        assert str(why_busy("cuda:0", AT_ONCE)).startswith("cuda:0 cannot be read: ")
        gpu("")
        assert str(why_busy("cuda:0", AT_ONCE)).startswith("cuda:0 cannot be read: ")
        monkeypatch.setenv("PATH", "")
        assert str(why_busy("cuda:0", AT_ONCE)).startswith("cuda:0 cannot be read: ")

    def test_it_looks_for_a_while(self, gpu: Callable[..., Path]) -> None:
        """A period after each look, which is not waited for once somebody was seen."""
        slept: list[float] = []
        gpu()
        assert why_busy("cuda:0", IdleRule(looks=3, period=1.0), sleep=slept.append) is None
        assert slept == [1.0] * 3
        gpu("50, 4")
        assert why_busy("cuda:0", IdleRule(looks=3, period=1.0), sleep=slept.append) is not None
        assert slept == [1.0] * 3
