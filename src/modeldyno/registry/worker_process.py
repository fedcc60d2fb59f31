"""Workers in processes of their own: one for what a command has queued, or one for each device."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError
from modeldyno.engine.environment.running_servers import state_folder
from modeldyno.engine.runtime.interrupts import counted_interrupts
from modeldyno.registry.targets import CPU, devices_here, named_device
from modeldyno.registry.worker import WorkerOptions, run_worker

if TYPE_CHECKING:
    from collections.abc import Callable


ALL = "all"
"""Stands for every device of this machine."""
VARIABLE = "MODELDYNO_WORKER"
"""Set to ``no``, commands start no worker by themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedWorker:
    """A worker that goes on after the command which started it."""

    pid: int
    log: Path
    """What it says."""


def start_worker() -> StartedWorker | None:
    """Start a worker for this machine's processor, which ends when all is done; None if that is unwanted.

    Raises:
        RequestError: its log cannot be written.
    """
    if os.environ.get(VARIABLE, "").lower() in {"no", "0"}:
        return None
    folder = state_folder().parents[1] / "workers"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        log = folder / "worker.log"
        with log.open("ab") as stream:
            process = subprocess.Popen(
                [sys.executable, "-m", "modeldyno", "worker", "--until-done"],
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
            )
    except OSError as error:
        raise RequestError(f"No worker can be started: {error}; start one with modeldyno worker.") from error
    return StartedWorker(pid=process.pid, log=log)


def worker_device(text: str) -> str:
    """Return the device of a worker by its name; of ``all``, the first of them.

    Raises:
        RequestError: no device has such a name.
    """
    if text == ALL:
        return CPU
    try:
        return named_device(text)
    except RequestError:
        raise RequestError(
            f"'{text}' is no name of a device; write cpu, gpu:0, or all for a worker for each."
        ) from None


def check_ray_device(device: str) -> None:
    """Refuse every device on a cluster: a task of Ray has the processors of a machine, or one GPU.

    Raises:
        RequestError: it is every device.
    """
    if device == ALL:
        raise RequestError("On Ray, a worker has one kind of device: cpu, or cuda:0; start one for each.")


def run_on_each_device(options: WorkerOptions, work: Callable[[WorkerOptions], int]) -> int:
    """Run a worker for each device of this machine, each in a process; return the largest of their codes.

    The first Ctrl-C in a terminal reaches all of them, and they are waited for.

    Args:
        options: of each of them, but for the device.
        work: runs a worker, and returns its exit code; a function of a module.
    """
    context = multiprocessing.get_context("spawn")
    devices = [device for device in devices_here() if device not in options.never_on]
    workers = [
        context.Process(target=_exit_with, args=(work, replace(options, device=device))) for device in devices
    ]
    for worker in workers:
        worker.start()
    with counted_interrupts():
        for worker in workers:
            worker.join()
    return max((worker.exitcode or 0 for worker in workers), default=0)


def run_quietly(options: WorkerOptions) -> int:
    """Run a worker that prints nothing; return 0."""
    run_worker(options)
    return 0


def _exit_with(work: Callable[[WorkerOptions], int], options: WorkerOptions) -> None:
    sys.exit(work(options))
