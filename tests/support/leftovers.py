"""What the code of a model may leave behind: ``call:tests/support/leftovers.py:answer``.

The environment variable MODELDYNO_TEST_LEFTOVER names one of the functions, which runs when this is imported.
"""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from multiprocessing.shared_memory import SharedMemory

_LONG = 3600.0
_SLEEP = [sys.executable, "-c", f"import time; time.sleep({_LONG})"]
_FOR_EVER = 1 << 30
KEPT: list[object] = []
"""What must not be collected."""


def fork() -> None:
    """A fork, which keeps every descriptor of this process open."""
    if os.fork() == 0:
        time.sleep(_LONG)
        os._exit(0)


def two_forks_in_sessions() -> None:
    """Two of them, each the leader of a session."""
    for _ in range(2):
        if os.fork() == 0:
            os.setsid()
            time.sleep(_LONG)
            os._exit(0)


def daemon() -> None:
    """A process in no tree, session or group of this one, which holds none of its files."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.closerange(0, 256)
            time.sleep(_LONG)
        os._exit(0)


def stubborn_daemon() -> None:
    """A daemon that ignores every signal that can be ignored."""
    if os.fork() == 0:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        time.sleep(_LONG)
        os._exit(0)


def subprocess_of_python() -> None:
    """A process started as usual."""
    KEPT.append(subprocess.Popen(_SLEEP))


def process_in_a_session() -> None:
    """A process that leads a session."""
    KEPT.append(subprocess.Popen(_SLEEP, start_new_session=True))


def nohup() -> None:
    """What a shell leaves in the background."""
    subprocess.run(f"nohup sleep {_LONG:.0f} >/dev/null 2>&1 &", shell=True, check=True)


def pool() -> None:
    """Workers that wait for work."""
    KEPT.append(workers := multiprocessing.get_context("fork").Pool(3))
    workers.map(abs, [1, -2, 3])


def process_of_multiprocessing() -> None:
    """A process that Python itself waits for at its exit."""
    process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(_LONG,))
    process.start()
    KEPT.append(process)


def thread() -> None:
    """A thread that Python waits for at its exit."""
    threading.Thread(target=time.sleep, args=(_LONG,)).start()


def thread_that_forks() -> None:
    """A thread that starts processes again and again."""

    def start() -> None:
        while True:
            KEPT.append(subprocess.Popen(_SLEEP, start_new_session=True))
            time.sleep(0.2)

    threading.Thread(target=start, daemon=True).start()


def event_loop() -> None:
    """A server in a thread."""

    async def serve() -> None:
        server = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
        await server.serve_forever()

    threading.Thread(target=lambda: asyncio.run(serve())).start()


def listener() -> None:
    """A process that listens."""
    if os.fork() == 0:
        with socket.create_server(("127.0.0.1", 0)):
            time.sleep(_LONG)
        os._exit(0)


def stopped() -> None:
    """A process that has stopped itself."""
    if os.fork() == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0)


def shared_memory() -> None:
    """A segment that nobody removes; its name has the mark of the test."""
    name = f"leftover-{os.environ['MODELDYNO_TEST_MARK']}-{os.getpid()}"
    KEPT.append(SharedMemory(name, create=True, size=1 << 16))


def exit_handler() -> None:
    """Something that runs at the exit, and does not end."""
    atexit.register(time.sleep, _LONG)


def fork_at_exit() -> None:
    """A process that is started at the exit."""
    atexit.register(daemon)


def printer() -> None:
    """A process that prints without end."""
    if os.fork() == 0:
        for _ in range(_FOR_EVER):
            os.write(1, b"noise " * 1000)
        os._exit(0)


def flood() -> None:
    """Much on both streams, in one line and in many."""
    for _ in range(2000):
        os.write(1, b"x" * 60_000)
        os.write(2, b"noise\n" * 5_000)


def closed_descriptors() -> None:
    """Nothing but standard streams, and a process."""
    fork()
    os.closerange(3, 256)


def renamed() -> None:
    """A process under another name, as the kernel shows it."""
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(15, b"kworker/0:1")
        time.sleep(_LONG)
        os._exit(0)


def reproducing() -> None:
    """A process that replaces itself by a fork as long as it lives."""
    if os.fork() == 0:
        os.setsid()
        for _ in range(_FOR_EVER):
            if os.fork():
                os._exit(0)
            time.sleep(0.05)


KINDS = (
    fork, two_forks_in_sessions, daemon, stubborn_daemon, subprocess_of_python, process_in_a_session, nohup,
    pool, process_of_multiprocessing, thread, thread_that_forks, event_loop, listener, stopped, shared_memory,
    exit_handler, fork_at_exit, printer, flood, closed_descriptors, renamed, reproducing,
)  # fmt: skip


def answer() -> float:
    """Take a moment."""
    time.sleep(0.002)
    return 1.0


if _name := os.environ.get("MODELDYNO_TEST_LEFTOVER"):
    globals()[_name]()
