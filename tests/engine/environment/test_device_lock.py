"""The lock of a device: held by one process, told to others, and gone with its process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from modeldyno.base.errors import RequestError
from modeldyno.engine.environment import device_lock as device_locks
from modeldyno.engine.environment.device_lock import device_lock

if TYPE_CHECKING:
    from collections.abc import Iterator

HOLD = """
import os, sys, time
from pathlib import Path
from modeldyno.engine.environment.device_lock import device_lock
with device_lock("cpu", "a sweep", folder=Path(sys.argv[1])) as holder:
    {within}
    print(os.getpid() if holder is None else holder, flush=True)
    sys.stdin.readline()
"""


@contextmanager
def holding(folder: Path, within: str = "pass") -> Iterator[subprocess.Popen[str]]:
    """Yield a process that holds the lock until it is told to end."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD.format(within=within), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip() == str(process.pid)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def holder_of(folder: Path, device: str = "cpu", patience: float = 0.0) -> str | None:
    """Take the lock for a moment; return who has it instead."""
    with device_lock(device, "a test", folder=folder, patience=patience) as holder:
        return holder


def test_another_process_is_told_who_holds_it(tmp_path: Path) -> None:
    """By the words that the holder gave, and its process; and no longer once it has let go."""
    with holding(tmp_path) as process:
        assert holder_of(tmp_path) == f"a sweep (pid {process.pid})"
        process.communicate("go on\n")
        assert holder_of(tmp_path) is None


def test_each_device_has_its_own(tmp_path: Path) -> None:
    """Two GPUs can be measured at once; names never lead out of the folder."""
    names = ("cpu", "cuda:0", "cuda:1", "../../cpu")
    with holding(tmp_path):
        assert [holder_of(tmp_path, name) is None for name in names] == [False, True, True, True]
    assert {path.parent for path in tmp_path.rglob("*")} == {tmp_path}


def test_it_excludes_within_a_process(tmp_path: Path) -> None:
    """Two threads, or a block within a block."""
    with device_lock("cpu", "outer", folder=tmp_path) as outer:
        assert outer is None
        assert holder_of(tmp_path) == f"outer (pid {os.getpid()})"
    assert holder_of(tmp_path) is None


def test_an_error_within_lets_go(tmp_path: Path) -> None:
    """And passes through."""
    with pytest.raises(ZeroDivisionError), device_lock("cpu", "a", folder=tmp_path):
        raise ZeroDivisionError
    assert holder_of(tmp_path) is None


def test_kill_9_of_the_holder_frees_it(tmp_path: Path) -> None:
    """At once."""
    with holding(tmp_path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert holder_of(tmp_path) is None


@pytest.mark.parametrize(
    "child",
    [
        "os.fork() or (os.close(1), time.sleep(60), os._exit(0))",
        "import subprocess; subprocess.Popen(['sleep', '60'], stdout=-3, stdin=-3, close_fds=False)",
        "import multiprocessing as m; m.get_context('fork').Process(target=time.sleep, args=(60,)).start()",
    ],
)
def test_children_that_outlive_the_holder_do_not_keep_it(tmp_path: Path, child: str) -> None:
    """Neither a forked one, nor another program with all files that it can inherit."""
    with holding(tmp_path, f"{child}; open({str(tmp_path / 'ready')!r}, 'w').close()") as process:
        tree = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True, check=False
        )
        children = [int(pid) for pid in tree.stdout.split()]
        process.kill()
        process.wait()
        try:
            assert children
            assert all(Path(f"/proc/{pid}").exists() for pid in children)
            assert holder_of(tmp_path, patience=2.0) is None
        finally:
            for pid in children:
                os.kill(pid, signal.SIGKILL)


FORK_WITHIN_A_LOCK = """
import os, pathlib, sys
from modeldyno.engine.environment import device_lock as locks
folder = pathlib.Path(sys.argv[1])
with locks.device_lock("cpu", "parent", folder=folder):
    pid = os.fork()
    if pid == 0:
        with locks.device_lock("cuda:0", "child", folder=folder):
            pass
        locks._close(999)
    else:
        os.waitpid(pid, 0)
        with locks.device_lock("cpu", "another", folder=folder) as holder:
            print(holder == f"parent (pid {os.getpid()})")
"""


def test_a_forked_child_may_leave_the_block_as_well(tmp_path: Path) -> None:
    """The parent still holds the lock then, and its name stays."""
    command = [sys.executable, "-c", FORK_WITHIN_A_LOCK, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (ended.stdout, ended.stderr) == ("True\n", "")


def test_who_is_patient_gets_it(tmp_path: Path) -> None:
    """After saying once for whom it waits."""
    holders: list[str] = []
    with holding(tmp_path) as process:
        assert process.stdin is not None

        def let_go(holder: str) -> None:
            holders.append(holder)
            assert process.stdin is not None
            process.stdin.write("go on\n")
            process.stdin.flush()

        with device_lock("cpu", "a", folder=tmp_path, patience=30.0, waiting=let_go) as holder:
            assert holder is None
    assert holders == [f"a sweep (pid {process.pid})"]


def test_patience_ends(tmp_path: Path) -> None:
    """Then who holds it is told."""
    with holding(tmp_path):
        begin = time.monotonic()
        assert holder_of(tmp_path, patience=0.5) is not None
        assert time.monotonic() - begin >= 0.5


def test_a_file_that_was_removed_holds_nobody_apart(tmp_path: Path) -> None:
    """Who waited on it takes the lock of the file that is there now."""
    with holding(tmp_path) as process:
        (tmp_path / "cpu.lock").unlink()
        with device_lock("cpu", "new", folder=tmp_path) as holder:
            assert holder is None
            process.kill()
            assert holder_of(tmp_path) == f"new (pid {os.getpid()})"


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    """Nothing is written through it."""
    precious = tmp_path / "precious"
    precious.write_text("kept")
    (tmp_path / "cpu.lock").symlink_to(precious)
    with pytest.raises(RequestError, match=r"The lock .*cpu\.lock cannot be opened: .*; remove it"):
        holder_of(tmp_path)
    assert precious.read_text() == "kept"


def test_the_folder_is_the_same_for_every_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a service, which has no runtime directory, and in a login, which has one."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1")
    monkeypatch.setenv("TMPDIR", "/var/tmp")
    folder = device_locks._folder()
    assert str(folder) == f"/tmp/modeldyno-{os.getuid()}"
    assert folder.stat().st_mode & 0o077 == 0


def test_a_folder_of_somebody_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one sentence."""
    monkeypatch.setattr(os, "getuid", lambda: 4242)
    folder = Path(f"/tmp/modeldyno-{os.getuid()}")
    try:
        with pytest.raises(RequestError, match="is another user's; remove it"):
            device_locks._folder()
    finally:
        folder.rmdir()
