from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Distribution, Measurement
from modeldyno.base.system import process_tree
from modeldyno.engine.samplers import process, process_sidecar
from modeldyno.engine.samplers.sidecar import SideWatch

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
ZERO: dict[str, float] = {
    "time": 0.0,
    "processor": 0.0,
    "ours": 0.0,
    "voluntary": 0,
    "involuntary": 0,
    "busy": 0.0,
    "stolen": 0.0,
    "faults": 0,
    "read": 0,
    "written": 0,
}


def stage(name: str, memory: list[int], **end: float) -> dict[str, object]:
    held = [memory[0], memory[-1]] if memory else []
    end = {**ZERO, "time": 2.0, **end}
    return {"name": name, "begin": ZERO, "end": end, "memory": memory, "held": held, "cores": 2}


def by_key(yielded: object) -> dict[tuple[str, str], Measurement]:
    return {(m.metric, m.scope): m for m in yielded if isinstance(m, Measurement)}  # type: ignore[attr-defined]


def counted(begin: float, end: float, readings: list[tuple[float, float]]) -> dict[str, object]:
    """Return a stage of the timed pass that used half a core, with readings of (time, processor time)."""
    ends = ({**ZERO, "time": when, "processor": when / 2} for when in (begin, end))
    return {**stage("timed", []), **dict(zip(("begin", "end"), ends, strict=True)), "processor": readings}


def test_the_utilization_has_the_interval_of_its_windows() -> None:
    """Readings during the timed pass cut it into windows, which add up to the whole; others have no say."""
    uneven = [(t / 100, t / 200 + 0.01 * (t % 2)) for t in range(221, 350, 21)]
    passes = [
        counted(0.0, 0.5, [(-1.0, 9.0), (0.1, 0.05), (0.3, 0.16), (0.5, 0.25)]),
        stage("ours", []),
        counted(2.0, 3.5, uneven),
    ]
    utilization = by_key(process.noise(passes))["cpu_utilization", ""]
    assert utilization.value == pytest.approx(0.5)
    assert utilization.interval is not None
    assert utilization.interval.low < 0.5 < utilization.interval.high
    assert len(utilization.windows[0].counts) == 8 * 9


def test_a_short_pass_and_a_counter_that_falls_have_no_interval() -> None:
    """Too few windows say nothing, and neither do those of processes that ended in between."""
    short = [counted(0.0, 0.5, [(0.25, 0.1)])]
    falling = [counted(0.0, 2.0, [(0.4, 0.3), (0.8, 0.2), (1.2, 0.6), (1.6, 0.8)])]
    for passes in (short, falling):
        utilization = by_key(process.noise(passes))["cpu_utilization", ""]
        assert utilization.value == pytest.approx(0.5)
        assert (utilization.interval, utilization.windows) == (None, ())


def test_the_baseline_is_subtracted_and_shown() -> None:
    """Memory counts from what the process took before loading."""
    measurements = by_key(
        process.memory([stage("baseline", [100, 90]), stage("load", [150]), stage("timed", [300])])
    )
    above = measurements["process_memory", ""].value

    assert measurements["process_memory", "baseline"].value == 100
    assert isinstance(above, Distribution)
    assert above.samples().tolist() == [50.0, 200.0]


def test_what_the_machine_has_left_is_read_while_the_model_is_there() -> None:
    """Not before it was loaded, and not in passes of the profiler's own."""
    left = {"baseline": [9], "load": [7, 5], "ours": [1], "timed": [6], "second": [2]}
    stages = [{**stage(name, [100]), "available": sizes} for name, sizes in left.items()]
    value = by_key(process.available(stages))["memory_available", ""].value

    assert isinstance(value, Distribution)
    assert value.samples().tolist() == [7.0, 5.0, 6.0]
    assert value.statistic("min") == 5.0


def test_what_the_profiler_takes_is_not_the_models() -> None:
    """Growth during work of ours is taken off what follows, libraries are baseline, a second pass is out."""
    stages = [
        stage("baseline", [100]),
        stage("import", [100, 130]),
        stage("load", [130, 180]),
        stage("ours", [180, 900, 680]),
        stage("timed", [680, 700]),
        stage("ours", [700, 690]),
        stage("timed", [690, 710]),
        stage("second", [710, 5000]),
    ]
    measurements = by_key(process.memory(stages))
    above = measurements["process_memory", ""].value

    assert measurements["process_memory", "baseline"].value == 130
    assert isinstance(above, Distribution)
    assert above.samples().tolist() == [0.0, 50.0, 50.0, 70.0, 70.0, 90.0]


def test_no_model_takes_less_than_nothing() -> None:
    """Memory from before the baseline that is given back later makes no size negative."""
    measurements = by_key(
        process.memory([stage("baseline", [100]), stage("load", [102]), stage("timed", [97])])
    )
    above = measurements["process_memory", ""].value

    assert isinstance(above, Distribution)
    assert above.samples().tolist() == [2.0, 0.0]


def test_unavailable_memory_is_not_zero() -> None:
    """Where nothing was sampled, nothing is said."""
    assert list(process.memory([stage("timed", [])])) == []


def test_a_run_that_failed_before_it_grew_shows_no_memory_of_its_model() -> None:
    """What is not there is not 0 B; what it had grown by is told, and so is a model that takes nothing."""
    begun = [stage("baseline", [100]), stage("load", [100, 98])]

    assert set(by_key(process.memory(begun))) == {("process_memory", "baseline")}
    assert ("process_memory", "") in by_key(process.memory([*begun, stage("load", [130])]))
    assert ("process_memory", "") in by_key(process.memory([*begun, stage("timed", [100])]))


def test_foreign_load_is_what_is_neither_ours_nor_the_models() -> None:
    """Busy time less the model's, less our own, over the timed pass."""
    stages = [stage("load", [], busy=50.0), stage("timed", [], busy=3.0, processor=1.0, ours=0.5, stolen=0.2)]
    yielded = list(process.noise(stages))
    values = by_key(yielded)

    assert values["foreign_cpu", ""].value == 0.75
    assert values["cpu_utilization", ""].value == 0.5
    assert values["steal", ""].value == 0.1
    assert {d.code for d in yielded if isinstance(d, Doubt)} == {"interference", "steal"}


def test_a_process_that_leaves_its_cores_is_doubted() -> None:
    """More processor time than its cores have means threads elsewhere, where nobody watched."""
    yielded = process.noise([stage("timed", [], busy=5.0, processor=5.0)])

    assert "outside-pin" in {d.code for d in yielded if isinstance(d, Doubt)}


def test_no_timed_pass_gives_no_noise() -> None:
    """A run that failed before it was timed says nothing about noise."""
    assert list(process.noise([stage("load", [])])) == []


def test_what_a_waiting_process_grows_by_is_not_the_models() -> None:
    """While another process has its turn, the model is not called."""
    stages = [
        stage("baseline", [100]),
        stage("timed", [300]),
        stage("waiting", [300, 360]),
        stage("timed", [360, 370]),
    ]
    value = by_key(process.memory(stages))["process_memory", ""].value
    assert isinstance(value, Distribution)
    assert value.statistic("max") == 210


def test_idleness_before_the_baseline_is_no_use_of_memory() -> None:
    """What was there before loading counts for nothing, in whichever stage it was seen."""
    measurements = by_key(
        process.memory([stage("idle", [400]), stage("baseline", [100]), stage("timed", [150])])
    )
    above = measurements["process_memory", ""].value

    assert isinstance(above, Distribution)
    assert above.samples().tolist() == [50.0]


def test_a_server_has_a_size_at_idle() -> None:
    """It was loaded before it was watched: nothing is subtracted, and what it held then is told."""
    measurements = by_key(process.memory([stage("idle", [400, 410]), stage("timed", [450])]))
    peak = measurements["process_memory", ""].value

    assert isinstance(peak, Distribution)
    assert (peak.samples().max(), measurements["process_memory", "idle"].value) == (450.0, 400)
    assert ("process_memory", "baseline") not in measurements


def test_traffic_is_that_of_the_timed_pass() -> None:
    """What was read while loading is no part of it; what cannot be known is left out."""
    stages = [stage("load", [], read=9000.0), stage("timed", [], read=4096.0, faults=1)]
    yielded = list(process.traffic(stages))

    assert {key: m.value for key, m in by_key(yielded).items()} == {
        ("major_faults", ""): 1,
        ("disk_read", ""): 4096,
        ("disk_written", ""): 0,
    }
    assert len(yielded) == 3


def test_a_counter_that_fell_is_left_out() -> None:
    """A process that ended unwaited for takes what it had read with it."""
    stages = [{**stage("timed", []), "begin": {**ZERO, "read": 500}}]

    assert ("disk_read", "") not in by_key(process.traffic(stages))


def test_waiting_for_pages_is_a_doubt() -> None:
    """More than one a second tells of a disk, and not of the model."""
    yielded = process.traffic([stage("timed", [], faults=5)])

    assert [d.code for d in yielded if isinstance(d, Doubt)] == ["paging"]


def test_no_timed_pass_gives_no_traffic() -> None:
    """A run that failed before it was timed says nothing about it."""
    assert list(process.traffic([stage("load", [])])) == []


@pytest.fixture
def disk() -> Iterator[Path]:
    """Give a folder that is no memory, as /tmp may be."""
    with TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(folder)


def test_what_a_process_writes_is_seen_from_outside(disk: Path) -> None:
    """A process that writes 8 MiB through to a disk, and one that it waits for, are seen to do so."""
    write = (
        "import os, sys; f = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)\n"
        "os.write(f, bytes(8 << 20)); os.fsync(f)"
    )
    code = (
        "import subprocess, sys; input()\n"
        "subprocess.run([sys.executable, '-c', sys.argv[2], sys.argv[1]], check=True)\n"
        "print('done', flush=True); input()"
    )
    subject = subprocess.Popen(
        [sys.executable, "-c", code, str(disk / "file"), write],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert subject.stdin is not None
    assert subject.stdout is not None
    try:
        before = process_tree.disk_traffic(subject.pid)
        subject.stdin.write(b"\n")
        subject.stdin.flush()
        subject.stdout.readline()
        after = process_tree.disk_traffic(subject.pid)
    finally:
        subject.kill()
        subject.communicate()
    if before is None or after is None or _no_disk(disk):
        pytest.skip("this system does not count what is written to its disks")

    assert after[1] - before[1] >= 8 << 20


def _no_disk(path: Path) -> bool:
    """Say whether a folder lies in memory, where nothing is written to a disk."""
    return os.stat(path).st_dev >> 8 == 0  # noqa: PTH116 - the number of its device


def test_side_processes_are_no_load_of_the_model() -> None:
    """Those that are named as ours are left out of the tree, with all that they have started."""
    code = (
        "import subprocess, sys; side = subprocess.Popen(['sh', '-c', 'sleep 60 & echo; wait'], "
        "stdout=subprocess.PIPE)\nside.stdout.readline(); print('ready', flush=True); input()"
    )
    root = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert root.stdout is not None
    root.stdout.readline()
    family = process_tree.list_process_tree(root.pid)
    try:
        watched = process_sidecar.ProcessRecorder(root.pid, [family[1]])._watched()
        untold = process_sidecar.ProcessRecorder(root.pid, [])._watched()
    finally:
        for pid in family:
            os.kill(pid, signal.SIGKILL)
        root.communicate()

    assert len(family) == 3
    assert watched == [root.pid]
    assert untold == family


def test_a_real_process_is_watched_from_outside() -> None:
    """A process that takes 64 MiB and a core is seen to do so."""
    code = (
        "print('ready', flush=True)\ninput()\nkept = bytearray(b'x') * (64 << 20)\n"
        "print('taken', flush=True)\nwhile True: pass"
    )
    subject = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert subject.stdin is not None
    assert subject.stdout is not None
    try:
        subject.stdout.readline()
        watch = process.start((subject.pid,))
        watch.mark("baseline")
        subject.stdin.write(b"\n")
        subject.stdin.flush()
        subject.stdout.readline()
        watch.mark("timed")
        time.sleep(1.0)
        watch.mark("after")
        measurements = by_key(watch.stop())
    finally:
        subject.kill()
        subject.communicate()
    memory = measurements["process_memory", ""].value

    assert isinstance(memory, Distribution)
    assert memory.statistic("max") == pytest.approx(64 << 20, rel=0.1)
    assert measurements["cpu_utilization", ""].value > 0.05  # type: ignore[operator]


def test_memory_that_was_given_back_before_the_end_counts_once() -> None:
    """The peak of a stage stands above what is held at its end, not above a sample from its height."""
    code = (
        "import sys\nfor line in sys.stdin:\n    kept = bytearray(b'x') * (int(line) << 20)\n"
        "    print('ready', flush=True)\n"
    )
    subject = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert subject.stdin is not None
    assert subject.stdout is not None

    def hold(size: int) -> None:
        assert subject.stdin is not None
        assert subject.stdout is not None
        subject.stdin.write(b"%d\n" % size)
        subject.stdin.flush()
        subject.stdout.readline()

    try:
        hold(0)
        witness = process_sidecar.ProcessRecorder(subject.pid, [])
        witness.mark("baseline")
        witness.mark("timed")
        hold(64)
        witness.sample()
        hold(0)
        witness.close()
        measurements = by_key(process.memory(witness.stages))
    finally:
        subject.kill()
        subject.communicate()
    memory = measurements["process_memory", ""].value

    assert isinstance(memory, Distribution)
    assert memory.statistic("max") == pytest.approx(64 << 20, rel=0.1)


def test_a_side_process_that_dies_is_a_doubt() -> None:
    """Nothing is known then, and that is said."""
    watch = process.start((os.getpid(),))
    assert watch.side is not None
    watch.side.kill()
    watch.side.wait()
    watch.mark("timed")

    assert [d.code for d in watch.stop() if isinstance(d, Doubt)] == ["unwatched"]


def test_no_side_process_is_a_doubt() -> None:
    """On a system without /proc the run goes on without one."""
    watch = SideWatch(side=None, judge=process.judge)
    watch.mark("timed")

    assert [d.code for d in watch.stop() if isinstance(d, Doubt)] == ["unwatched"]


def test_a_process_that_is_gone_takes_nothing() -> None:
    """Numbers of processes that ended read as nothing."""
    gone = 2**22 + 1

    assert (
        process_tree.tree_memory([gone]),
        process_tree.cpu_seconds(gone),
        process_sidecar.switches(gone),
        process_sidecar.major_faults(gone),
        process_tree.disk_traffic(gone),
        process_tree.network_traffic(gone),
    ) == (0, 0.0, {}, 0, (0, 0), None)


def test_context_switches_of_threads_that_ended_stay_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that ends during a load takes its switches along; the sum neither falls nor turns negative."""
    alive = {(7, 7): (10, 2), (7, 8): (5000, 900)}
    monkeypatch.setattr(process_sidecar, "switches", lambda _pid: dict(alive))
    monkeypatch.setattr(process_sidecar.ProcessRecorder, "_own_pids", lambda *_: set())
    recorder = process_sidecar.ProcessRecorder(os.getpid(), [])
    before = recorder._counters()
    del alive[7, 8]
    alive[7, 7], alive[7, 9] = (15, 4), (3, 1)
    after = recorder._counters()

    assert after["voluntary"] - before["voluntary"] == 8
    assert after["involuntary"] - before["involuntary"] == 3


_MAPPING = """
import mmap, sys
file = open(sys.argv[1], "rb")
room = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
sum(room[place] for place in range(0, len(room), 4096))
print("mapped", flush=True)
sys.stdin.read()
"""


def test_what_a_stranger_shares_changes_no_size(tmp_path: Path) -> None:
    """A file that another process maps, too, counts in full; in a family it counts once."""
    size = 64 * 2**20
    weights = tmp_path / "weights"
    weights.write_bytes(bytes(size))
    command = [sys.executable, "-c", _MAPPING, str(weights)]
    with ExitStack() as stack:
        sizes, pids = [], []
        for _ in range(2):
            mapping = stack.enter_context(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            )
            assert mapping.stdout is not None
            assert mapping.stdout.readline() == b"mapped\n"
            pids.append(mapping.pid)
            sizes.append(process_tree.tree_memory(pids[:1]))
        both = process_tree.tree_memory(pids)

    assert sizes[0] > size
    assert sizes[1] == pytest.approx(sizes[0], rel=0.02)
    assert both < 1.5 * sizes[0]


def test_the_witness_keeps_stages_apart() -> None:
    """Counters are read at the edges, memory inside."""
    witness = process_sidecar.ProcessRecorder(os.getppid(), [])
    witness.mark("one")
    witness.sample()
    witness.mark("two")
    witness.close()

    assert [s["name"] for s in witness.stages] == ["one", "two"]
    assert len(witness.stages[0]["memory"]) >= 3  # type: ignore[arg-type]  # at its edges, and between them
    assert witness.stages[0]["end"] == witness.stages[1]["begin"]
