from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from modeldyno import processes
from modeldyno.core.doubt import Doubt
from modeldyno.core.measurement import Distribution, Measurement
from modeldyno.samplers import process, watcher

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
ZERO = {
    "time": 0.0,
    "processor": 0.0,
    "ours": 0.0,
    "voluntary": 0,
    "involuntary": 0,
    "busy": 0.0,
    "stolen": 0.0,
}


def stage(name: str, memory: list[int], **end: float) -> dict[str, object]:
    return {"name": name, "begin": ZERO, "end": {**ZERO, "time": 2.0, **end}, "memory": memory, "cores": 2}


def by_key(found: object) -> dict[tuple[str, str], Measurement]:
    return {(m.metric, m.scope): m for m in found if isinstance(m, Measurement)}  # type: ignore[attr-defined]


def test_the_baseline_is_subtracted_and_shown() -> None:
    """Memory counts from what the process took before loading."""
    found = by_key(
        process.memory([stage("baseline", [100, 90]), stage("load", [150]), stage("timed", [300])])
    )
    above = found["process_memory", ""].value

    assert found["process_memory", "baseline"].value == 100
    assert isinstance(above, Distribution)
    assert above.samples().tolist() == [50.0, 200.0]


def test_unavailable_memory_is_not_zero() -> None:
    """Where nothing was sampled, nothing is said."""
    assert list(process.memory([stage("timed", [])])) == []


def test_foreign_load_is_what_is_neither_ours_nor_the_models() -> None:
    """Busy time less the model's, less our own, over the timed pass."""
    seen = [stage("load", [], busy=50.0), stage("timed", [], busy=3.0, processor=1.0, ours=0.5, stolen=0.2)]
    found = list(process.noise(seen))
    values = by_key(found)

    assert values["foreign_cpu", ""].value == 0.75
    assert values["cpu_utilization", ""].value == 0.5
    assert values["steal", ""].value == 0.1
    assert {d.code for d in found if isinstance(d, Doubt)} == {"interference", "steal"}


def test_a_process_that_leaves_its_cores_is_doubted() -> None:
    """More processor time than its cores have means threads elsewhere, where nobody watched."""
    found = process.noise([stage("timed", [], busy=5.0, processor=5.0)])

    assert "outside-pin" in {d.code for d in found if isinstance(d, Doubt)}


def test_no_timed_pass_gives_no_noise() -> None:
    """A run that failed before it was timed says nothing about noise."""
    assert list(process.noise([stage("load", [])])) == []


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
        found = by_key(watch.stop())
    finally:
        subject.kill()
        subject.communicate()
    memory = found["process_memory", ""].value

    assert isinstance(memory, Distribution)
    assert memory.statistic("max") == pytest.approx(64 << 20, rel=0.1)
    assert found["cpu_utilization", ""].value > 0.05  # type: ignore[operator]


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
    watch = process.ProcessWatch(side=None)
    watch.mark("timed")

    assert [d.code for d in watch.stop() if isinstance(d, Doubt)] == ["unwatched"]


def test_a_process_that_is_gone_takes_nothing() -> None:
    """Numbers of processes that ended read as nothing."""
    gone = 2**22 + 1

    assert (
        processes.proportional_size(gone),
        watcher.processor_time(gone),
        watcher.switches(gone),
    ) == (0, 0.0, (0, 0))


def test_the_witness_keeps_stages_apart() -> None:
    """Counters are read at the edges, memory inside."""
    witness = watcher.Witness(os.getppid(), [])
    witness.mark("one")
    witness.sample()
    witness.mark("two")
    witness.close()

    assert [s["name"] for s in witness.stages] == ["one", "two"]
    assert len(witness.stages[0]["memory"]) == 2  # type: ignore[arg-type]
    assert witness.stages[0]["end"] == witness.stages[1]["begin"]
