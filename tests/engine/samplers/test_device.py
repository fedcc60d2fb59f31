from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from modeldyno.base.job.job import Job
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Distribution, Measurement
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.engine.runtime.engine import run
from modeldyno.engine.samplers import device, device_sidecar
from modeldyno.engine.samplers.device_sidecar import DeviceRecorder

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
FAKES = Path(__file__).parent / "fakes"
GPU = {"kind": "gpu", "period": 0.1, "span": None}
PACKAGE = {"kind": "processor", "period": 0.001, "span": 262.0}
MIB = 1 << 20


def stages(**by_stage: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Build stages of readings a second apart, each of one device ``cuda:0`` or of those it names."""
    built, now = [], 0.0
    for name, readings in by_stage.items():
        samples = []
        for read in readings:
            named = read if any(isinstance(v, dict) for v in read.values()) else {"cuda:0": read}
            samples.append({"time": now, "read": named})
            now += 1.0
        built.append({"name": name, "samples": samples})
        now -= 1.0
    return built


def numbers(yielded: object) -> dict[tuple[str, str], Any]:
    return {
        (m.metric, m.scope): m.value.samples().tolist() if isinstance(m.value, Distribution) else m.value
        for m in yielded  # type: ignore[attr-defined]
        if isinstance(m, Measurement)
    }


def doubts(yielded: object) -> dict[str, str]:
    return {d.code: d.seen for d in yielded if isinstance(d, Doubt)}  # type: ignore[attr-defined]


class TestTold:
    def test_a_side_of_a_round_draws_what_it_draws_in_its_turns(self) -> None:
        """The stages in which the other had the turns are left out."""
        recorded, now, joules = [], 0.0, 0.0
        for name, watts in (("idle", 5.0), *[("timed", 10.0), ("waiting", 50.0)] * 10):
            samples = []
            for _ in range(4):
                samples.append({"time": now, "read": {"package-0": {"energy": joules}}})
                now, joules = now + 0.1, joules + 0.1 * watts
            now, joules = now - 0.1, joules - 0.1 * watts
            recorded.append({"name": name, "samples": samples})
        package = {**PACKAGE, "span": None}

        values = numbers(list(device.device_measurements({"package-0": package}, recorded)))
        assert values["power", "package-0"] == pytest.approx(10.0)
        assert values["idle_power", "package-0"] == pytest.approx(5.0)

    def test_stages_that_nearly_touch_are_one_window(self) -> None:
        """Between the slices of a pass there is a moment of our own work: each end would cost a period."""
        recorded, now, joules = [], 0.0, 0.0
        for _ in range(5):
            samples = []
            for _ in range(5):
                samples.append({"time": now, "read": {"cuda:0": {"energy": joules, "ours": 1}}})
                now, joules = now + 0.1, joules + 20.0
            recorded.append({"name": "timed", "samples": samples})
            now, joules = now - 0.08, joules - 16.0
        yielded = list(device.device_measurements({"cuda:0": GPU}, recorded))

        assert numbers(yielded)["power", "cuda:0"] == pytest.approx(200.0)
        assert "short-window" not in doubts(yielded)

    def test_a_device_that_others_use_is_doubted(self) -> None:
        """With the share at its highest and the process; not below 5 %, nor if ours is unknown."""

        def doubts_at(share: float, **more: float) -> dict[str, str]:
            timed = [
                {"foreign": 0.01, "foreign_pid": 1},
                {"foreign": share, "foreign_pid": 2**22 + 1, **more},
            ]
            return doubts(list(device.device_measurements({"cuda:0": GPU}, stages(load=[{}], timed=timed))))

        assert doubts_at(0.47, ours=1) == {
            "shared-device": f"cuda:0 was kept busy up to 47% by others, mostly by process {2**22 + 1}"
        }
        assert doubts_at(0.04, ours=1) == {}
        assert doubts_at(0.47) == {}

    def test_each_stage_gives_what_it_is_about(self) -> None:
        """The floor is of the idle stage, memory of what came after the baseline, the rest of the pass."""
        recorded = stages(
            idle=[{"energy": 0.0, "used": 10}, {"energy": 50.0, "used": 10}],
            baseline=[{"energy": 50.0, "used": 10}, {"used": 12}],
            load=[{"used": 12, "memory": 5, "ours": 1}, {"used": 20, "memory": 8, "ours": 1}],
            timed=[
                {"energy": 100.0, "used": 20, "memory": 8, "ours": 1, "utilization": 0.1, "clock": 1e9},
                {"energy": 350.0, "used": 30, "memory": 9, "ours": 1, "utilization": 0.8, "clock": 2e9},
                {"energy": 600.0, "temperature": 60.0, "utilization": 0.9, "memory_clock": 3e9},
            ],
            after=[{"energy": 600.0}, {"used": 40, "memory": 7, "clock": 9e9}],
        )

        assert numbers(device.device_measurements({"cuda:0": GPU}, recorded)) == {
            ("device_memory", "cuda:0"): [5, 8, 8, 9, 7],
            ("device_used", "cuda:0"): [12, 20, 20, 30, 40],
            ("device_used", "cuda:0 baseline"): 12,
            ("gpu_utilization", "cuda:0"): [0.8, 0.9],
            ("clock", "cuda:0"): [1e9, 2e9],
            ("memory_clock", "cuda:0"): [3e9],
            ("temperature", "cuda:0"): [60.0],
            ("power", "cuda:0"): 250.0,
            ("idle_power", "cuda:0"): 50.0,
        }

    def test_free_is_what_no_process_uses(self) -> None:
        """The smallest of it is what was left: of one device its own total, less what all use of it."""
        recorded = stages(
            baseline=[{"used": 12, "total": 90}],
            load=[{"used": 20, "total": 90, "ours": 1}],
            timed=[{"used": 50, "total": 90, "ours": 1}, {"used": 40, "total": 90}],
        )
        yielded = numbers(device.device_measurements({"cuda:0": GPU}, recorded))

        assert yielded["device_free", "cuda:0"][-3:] == [70, 40, 50]

    def test_nothing_told_is_nothing_said(self) -> None:
        """A device that answers no question has no measurement, and never 0."""
        recorded = stages(baseline=[{}], load=[{"ours": 1}], timed=[{"ours": 1}, {}])

        assert list(device.device_measurements({"cuda:0": GPU}, recorded)) == []

    def test_a_pass_that_is_too_short_gives_no_power(self) -> None:
        """The doubt says how long it takes."""
        recorded = stages(timed=[{"energy": 0.0, "ours": 1}, {"energy": 5.0}])
        yielded = list(device.device_measurements({"cuda:0": {**GPU, "period": 1.0}}, recorded))

        assert numbers(yielded) == {}
        assert doubts(yielded)["short-window"].startswith("cuda:0 was sampled during 1.0 s")

    def test_sampled_power_is_marked(self) -> None:
        """Without a counter the energy is an estimate, and says so."""
        recorded = stages(idle=[{"power": 40.0}] * 3, timed=[{"power": 100.0, "ours": 1}] * 12)
        yielded = list(device.device_measurements({"cuda:0": GPU}, recorded))

        assert numbers(yielded) == {("power", "cuda:0"): 100.0, ("idle_power", "cuda:0"): 40.0}
        assert "sampled-power" in doubts(yielded)

    def test_a_throttled_device_is_doubted_by_its_reasons(self) -> None:
        """Being idle, or at a clock that somebody set, is no throttling."""
        read = [{"reasons": 0x04, "ours": 1}, {"reasons": 0x24}, {"reasons": 0x01}, {"reasons": 0x02}]
        yielded = list(device.device_measurements({"cuda:0": GPU}, stages(timed=read)))

        assert doubts(yielded)["throttled"] == (
            "cuda:0 was throttled by its power limit (50% of the samples), "
            "its temperature (25% of the samples)"
        )

    def test_an_idle_device_is_not_throttled(self) -> None:
        """No doubt without a reason."""
        recorded = stages(timed=[{"reasons": 0x01, "ours": 1}, {"reasons": 0x02}])

        assert doubts(device.device_measurements({"cuda:0": GPU}, recorded)) == {}

    def test_a_processor_package_tells_its_power(self) -> None:
        """Through a wrap of its counter."""
        recorded = stages(
            idle=[{"package-0": {"energy": 230.0}}, {"package-0": {"energy": 250.0}}],
            timed=[{"package-0": {"energy": 255.0}}, {"package-0": {"energy": 33.0}}],
        )

        assert numbers(device.device_measurements({"package-0": PACKAGE}, recorded)) == {
            ("power", "package-0"): pytest.approx(40.0),
            ("idle_power", "package-0"): pytest.approx(20.0),
        }


class TestUsed:
    def test_the_driver_knows_who_uses_what(self) -> None:
        """Where our processes are listed on a device, the others are not ours, whatever happens there."""
        recorded = stages(
            baseline=[{"cuda:0": {"used": 0}, "cuda:1": {"used": 0}}],
            timed=[{"cuda:0": {"used": 900 * MIB}, "cuda:1": {"used": 5, "ours": 1}}],
        )

        assert device.used_devices({"cuda:0": GPU, "cuda:1": GPU, "package-0": PACKAGE}, recorded) == [
            "cuda:1",
            "package-0",
        ]

    def test_within_a_container_growth_tells(self) -> None:
        """Where no process is listed, the devices are ours whose memory in use has grown."""
        recorded = stages(
            baseline=[{"cuda:0": {"used": 70 * MIB}, "cuda:1": {"used": 70 * MIB}}] * 2,
            load=[{"cuda:0": {"used": 90 * MIB}, "cuda:1": {"used": 700 * MIB}}],
        )

        assert device.used_devices({"cuda:0": GPU, "cuda:1": GPU}, recorded) == ["cuda:1"]

    def test_a_model_on_the_processor_uses_no_card(self) -> None:
        """A card that nobody uses is left out, though it can be read."""
        recorded = stages(baseline=[{"used": 5, "power": 40.0}], timed=[{"used": 5, "power": 40.0}] * 20)

        assert list(device.device_measurements({"cuda:0": GPU}, recorded)) == []


class TestThere:
    @pytest.mark.parametrize("place", ["proc/driver/nvidia/gpus/0000:01", "dev/nvidiactl", "dev/dxg"])
    def test_a_driver_is_something_to_watch(self, tmp_path: Path, place: str) -> None:
        """Unless its devices are hidden."""
        (tmp_path / place).mkdir(parents=True)

        assert device.is_anything_to_watch(tmp_path, {})
        assert device.is_anything_to_watch(tmp_path, {"CUDA_VISIBLE_DEVICES": "1"})
        assert not device.is_anything_to_watch(tmp_path, {"CUDA_VISIBLE_DEVICES": ""})
        assert not device.is_anything_to_watch(tmp_path, {"CUDA_VISIBLE_DEVICES": "-1"})

    def test_nothing_to_watch_costs_nothing(self, tmp_path: Path) -> None:
        """No side process is started, and nothing is said."""
        watch = device.start((os.getpid(),), root=tmp_path)
        watch.mark("idle")

        assert watch.side is None
        assert watch.pids == ()
        assert list(watch.stop()) == []

    def test_deciding_imports_nothing_heavy(self) -> None:
        """The sampler itself needs neither NVML nor a framework."""
        code = (
            "import sys; from modeldyno.engine.samplers import device; device.start((1,));"
            "print([m for m in ('pynvml', 'numpy', 'torch', 'psutil') if m in sys.modules])"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

        assert done.stdout == "[]\n"


def zone(root: Path) -> None:
    """Make a counter that can be read, and stands still."""
    folder = root / "sys/class/powercap/intel-rapl:0"
    folder.mkdir(parents=True)
    for name, text in (("name", "package-0"), ("energy_uj", "1000000"), ("max_energy_range_uj", "9000000")):
        (folder / name).write_text(text)


def test_the_side_process_tells_of_a_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the mark of idleness to the end, by the real side process and a card that is made up."""
    card = {
        "name": "T", "uuid": "GPU-1", "parts": [], "used": 3 << 30, "utilization": 87, "watts": 1.0,
        "counted_watts": 240.0, "clocks": {"1": 1980, "2": 2619}, "temperature": 61, "reasons": 4,
        "processes": [["parent", 1 << 30]],
    }  # fmt: skip
    monkeypatch.setenv("FAKE_NVML", json.dumps([card]))
    monkeypatch.setenv("PYTHONPATH", str(FAKES))
    (tmp_path / "dev/nvidiactl").mkdir(parents=True)
    watch = device.start((os.getpid(), os.getppid()), root=tmp_path, environ={})
    begin = time.monotonic()
    watch.mark("idle")
    waited = time.monotonic() - begin
    for stage in ("baseline", "load", "timed"):
        watch.mark(stage)
    time.sleep(1.5)
    watch.mark("after")
    assert watch.side is not None
    assert watch.pids == (watch.side.pid,)
    yielded = list(watch.stop())
    values = numbers(yielded)

    assert watch.side.returncode == 0
    assert waited >= device_sidecar.FLOOR
    assert values["power", "cuda:0"] == pytest.approx(240.0, rel=0.01)
    assert values["idle_power", "cuda:0"] == pytest.approx(240.0, rel=0.01)
    assert values["gpu_utilization", "cuda:0"][0] == 0.87
    assert set(values["device_memory", "cuda:0"]) == {1 << 30}
    assert doubts(yielded).keys() == {"throttled"}


def test_a_run_finds_the_joules_of_a_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that moves the counter by 2 J at each call, and by nothing else, takes 2 J a call."""
    zone(tmp_path)
    counter = tmp_path / "sys/class/powercap/intel-rapl:0/energy_uj"
    made, next_one = ModuleType("made_up_model"), counter.with_name("next")

    def call() -> None:
        time.sleep(0.01)
        next_one.write_text(str((int(counter.read_text()) + 2_000_000) % 1_000_000_000))
        next_one.replace(counter)

    made.call = call  # type: ignore[attr-defined]
    counter.with_name("max_energy_range_uj").write_text("1000000000")
    monkeypatch.setitem(sys.modules, "made_up_model", made)
    monkeypatch.setattr(device.start, "__kwdefaults__", {"root": tmp_path, "environ": {}})
    result = run(
        Job(
            model=ModelRef(scheme="call", locator="made_up_model:call"),
            backend="python",
            probes=("latency",),
            plan=Plan(min_time=1.0, max_time=3.0),
        )
    )

    assert result.failures == ()
    assert result["idle_power@package-0"] == 0
    assert result["energy"] == result["energy@package-0"]
    # Steady calls and those of the warm-up take alike, but for what a busy machine does meanwhile.
    assert result["energy"] == pytest.approx(2.0, rel=0.5)


def test_without_a_counter_nobody_waits_for_idleness(tmp_path: Path) -> None:
    """A driver that tells nothing gives no floor, no measurement, and costs no second."""
    (tmp_path / "dev/nvidiactl").mkdir(parents=True)
    watch = device.start((os.getpid(),), root=tmp_path, environ={})
    watch.mark("baseline")
    begin = time.monotonic()
    watch.mark("idle")
    waited = time.monotonic() - begin
    yielded = list(watch.stop())

    assert watch.side is not None
    assert waited < device_sidecar.FLOOR
    assert yielded == []


def test_a_side_process_that_dies_is_a_doubt(tmp_path: Path) -> None:
    """Nothing is known then, and that is said."""
    zone(tmp_path)
    watch = device.start((os.getpid(),), root=tmp_path)
    assert watch.side is not None
    watch.side.kill()
    watch.side.wait()
    watch.mark("timed")

    assert doubts(watch.stop()).keys() == {"unwatched"}


def test_the_side_process_ends_with_its_parent(tmp_path: Path) -> None:
    """Nothing is orphaned when the run is killed."""
    zone(tmp_path)
    code = (
        "import os, sys; from pathlib import Path; from modeldyno.engine.samplers import device\n"
        "watch = device.start((os.getpid(),), root=Path(sys.argv[1])); watch.mark('load')\n"
        "print(watch.side.pid, flush=True); input()"
    )
    run = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert run.stdout is not None
    side = int(run.stdout.readline())
    assert Path(f"/proc/{side}").exists()
    run.kill()
    run.communicate()
    deadline = time.monotonic() + 60
    while alive(side) and time.monotonic() < deadline:
        time.sleep(0.02)

    assert not alive(side)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Steady:
    """A source that draws 1 W, and counts how often it was asked."""

    def __init__(self) -> None:
        self.devices: dict[str, dict[str, Any]] = {"package-0": PACKAGE}
        self.readings = 0

    def read(self, pids: frozenset[int]) -> dict[str, dict[str, float]]:
        """Count."""
        assert os.getpid() in pids
        self.readings += 1
        return {"package-0": {"energy": float(self.readings)}}

    def close(self) -> None:
        """Never to be called by a witness."""
        raise AssertionError


def test_the_edge_of_two_stages_belongs_to_both() -> None:
    """A counter loses nothing between them."""
    witness = DeviceRecorder([Steady()], os.getpid())
    witness.mark("load")
    witness.sample()
    witness.mark("timed")
    witness.sample()
    energies = [
        [s["read"]["package-0"]["energy"] for s in stage["samples"]] for stage in witness.report()["stages"]
    ]

    assert energies == [[1, 2, 3], [3, 4]]


def test_nothing_is_sampled_before_the_first_stage() -> None:
    """What belongs to no stage is not kept."""
    source = Steady()
    witness = DeviceRecorder([source], os.getpid())
    witness.sample()

    assert source.readings == 0
    assert witness.report() == {"devices": source.devices, "stages": []}
