"""Faults of saved documents: truncation, damage, and failures while writing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.disk_faults import largest_file

from modeldyno.base import codec, yaml_file
from modeldyno.base.errors import DiskFull, RequestError, StoreError, UnreadableDocument
from modeldyno.base.metrics.measurement import Distribution, Measurement
from modeldyno.engine.data.trace_file import read_trace
from modeldyno.stores import database
from modeldyno.testing.sample_results import a_small_result

if TYPE_CHECKING:
    from collections.abc import Callable

    from modeldyno.base.result.result import Result

LATENCY = Measurement(metric="latency", value=Distribution.of([0.001, 0.002]))
DOCUMENT = codec.encode(a_small_result(measurements=(LATENCY,)))
OLD = b"what was there before"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a saved document."""
    saved = tmp_path / "result.json"
    saved.write_bytes(DOCUMENT)
    return saved


def understood(path: Path) -> Result | None:
    """Read a document; None if it is refused in one line that names the file."""
    try:
        return codec.read(path)
    except UnreadableDocument as error:
        output = str(error)
    assert "\n" not in output
    assert str(path) in output
    return None


def test_truncated(path: Path) -> None:
    """A document cut short anywhere is refused in one line that names the file."""
    size = len(DOCUMENT.rstrip())
    os.truncate(path, size)
    assert understood(path) is not None

    for end in reversed(range(size)):
        os.truncate(path, end)

        assert understood(path) is None


@pytest.mark.parametrize(
    "bit", [0, 5, *(pytest.param(bit, marks=pytest.mark.slow) for bit in (1, 2, 3, 4, 6, 7))]
)
def test_flipped(path: Path, bit: int) -> None:
    """A document with any one bit flipped is refused in one line, or still a whole Result."""
    _change_each(path, lambda byte: byte ^ (1 << bit))


@pytest.mark.parametrize("new", b'\0"0{]\xff')
def test_overwritten(path: Path, new: int) -> None:
    """A document with any one byte overwritten is refused in one line, or still a whole Result."""
    _change_each(path, lambda _byte: new)


def _change_each(path: Path, change: Callable[[int], int]) -> None:
    with path.open("r+b", buffering=0) as file:
        for place, byte in enumerate(DOCUMENT):
            os.pwrite(file.fileno(), bytes([change(byte)]), place)
            result = understood(path)
            os.pwrite(file.fileno(), bytes([byte]), place)

            assert result is None or result.job.backend


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\0" * 100, b"null", b"[]", b"{}", b"7", b'"text"', b"[" * 100_000, b"\xff\xfe",
        b'{"schema": 1}', b'{"schema": "1"}', b'{"schema": true}', b'{"schema": 0}', b'{"schema": -1}',
        b'{"schema": 1, "job": []}', b'{"schema": 1, "measurements": 7}',
        b'{"schema": 1, "measurements": [7]}',
        b'{"schema": 1, "measurements": [{"value": null, "interval": []}]}',
        b'{"schema": 1, "measurements": [{"value": 1, "runs": 7}]}',
    ],
)  # fmt: skip
def test_no_result(path: Path, data: bytes) -> None:
    """What is no result is refused in one line."""
    path.write_bytes(data)

    assert understood(path) is None


def test_huge_file(tmp_path: Path) -> None:
    """A file that is larger than any result is refused before it is read."""
    path = tmp_path / "huge.json"
    with path.open("wb") as file:
        file.truncate(3 * 2**30)

    with pytest.raises(UnreadableDocument, match="no document is that large"):
        codec.read(path)


def test_unreadable_place(tmp_path: Path) -> None:
    """A file that is not there, or is a directory, is refused in one line."""
    for path in (tmp_path, tmp_path / "absent.json"):
        with pytest.raises(RequestError, match="Cannot read"):
            codec.read(path)


def test_full_disk(tmp_path: Path) -> None:
    """With a full disk at each of 200 write points, the old file stays, without a temporary file."""
    path = tmp_path / "result.json"
    path.write_bytes(OLD)
    data = DOCUMENT * 10
    for point in range(200):
        with (
            largest_file(len(data) * point // 200),
            pytest.raises(RequestError, match="Cannot write") as caught,
        ):
            codec.write(path, data)

        assert "\n" not in str(caught.value)
        assert path.read_bytes() == OLD
        assert list(tmp_path.iterdir()) == [path]
    codec.write(path, data)
    assert path.read_bytes() == data


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_failing_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Whichever step of writing fails, the old file stays, without a temporary file."""
    path = tmp_path / "result.json"
    path.write_bytes(OLD)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, fail)
    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(DiskFull, match="No space left on device"):
        codec.write(path, DOCUMENT)

    assert path.read_bytes() == OLD
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("moments", [range(0, 20, 4), pytest.param(range(100), marks=pytest.mark.slow)])
def test_killed(tmp_path: Path, moments: range) -> None:
    """A writer killed at any of several moments leaves one whole document or the other."""
    path = tmp_path / "result.json"
    codec.write(path, b"0" * 1_000_000)
    code = (
        "import sys; from pathlib import Path; from modeldyno.base import codec as wire; print(flush=True)\n"
        "while True:\n"
        "    for digit in b'12': wire.write(Path(sys.argv[1]), bytes([digit]) * 1_000_000)\n"
    )
    for moment in moments:
        writer = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE)
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(moment * 0.003)
        writer.kill()
        writer.communicate()

        assert writer.returncode == -signal.SIGKILL
        assert path.read_bytes() in {bytes([digit]) * 1_000_000 for digit in b"012"}


READERS: tuple[Callable[[Path], object], ...] = (
    codec.read,
    yaml_file.read_yaml_file,
    lambda path: read_trace(str(path)),
    lambda path: database.connect(f"sqlite:///{path}"),
)


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/full", "/dev/null"])
def test_a_device_is_read_by_nothing(device: str) -> None:
    """It may have no end, and has the size 0: as a store it was said to be empty."""
    for read in READERS:
        with pytest.raises(RequestError, match=f"{device} is a device; name a file"):
            read(Path(device))


def test_links_that_lead_nowhere_are_not_written(tmp_path: Path) -> None:
    """One that leads to itself, or to a directory that is not there, which is named; nor is a store."""
    circle, dangling = tmp_path / "circle", tmp_path / "dangling"
    circle.symlink_to(circle)
    dangling.symlink_to("/nowhere/at/all")

    with pytest.raises(RequestError, match=r"Cannot write .*circle: it is a link that leads to itself"):
        codec.write(circle, b"{}")
    with pytest.raises(RequestError, match=r"the directory /nowhere/at does not exist"):
        codec.write(dangling, b"{}")
    with pytest.raises(RequestError, match="File name too long"):
        codec.write(tmp_path / ("x" * 300), b"{}")
    with pytest.raises(StoreError, match="Too many levels of symbolic links"):
        database.connect(f"sqlite:///{circle}")
    assert circle.is_symlink()


def test_a_named_pipe_is_waited_for_by_nothing(tmp_path: Path) -> None:
    """Neither as a store, nor as a document, a configuration, a trace or an output without a reader."""
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)

    for read in READERS:
        with pytest.raises(RequestError, match=r"pipe\.yaml is a pipe; name a file"):
            read(pipe)
    with pytest.raises(RequestError, match=r"Cannot write .*: No such device or address"):
        codec.write(pipe, b"{}")


def test_the_pipe_of_a_shell_is_read(tmp_path: Path) -> None:
    """As bash makes it of <(command)."""
    del tmp_path
    reading, writing = os.pipe()
    os.write(writing, b"max_time: 5s\n")
    os.close(writing)

    assert yaml_file.read_yaml_file(Path(f"/dev/fd/{reading}")).tree == {"max_time": "5s"}
    os.close(reading)
