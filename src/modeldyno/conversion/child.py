"""Runs an order in a child process, within a time limit, and explains an end without an answer."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING

from modeldyno.codec import conversion as codec_conversion
from modeldyno.conversion.failures import failure
from modeldyno.conversion.recipe import ConversionOrder, OrderAnswer
from modeldyno.core.agreement.conversion import ConversionFailureKind
from modeldyno.core.result.result import FailureKind
from modeldyno.environment import machine
from modeldyno.environment.process_tree import list_process_tree, tree_memory
from modeldyno.runtime.exit_cause import ExitObserver

if TYPE_CHECKING:
    from collections.abc import Callable

_COMMAND = (sys.executable, "-X", "faulthandler", "-m", "modeldyno.conversion.worker")
_LOOK = 0.25
"""Seconds between two looks at a silent child."""
_READ = 1 << 16
_LOG = 4000
"""Bytes kept from the end of the log."""


def run_order(order: ConversionOrder, *, timeout: float, watch: Callable[[str], None]) -> OrderAnswer:
    """Carry out an order in a child process; a failure of the process is an answer, too."""
    child = subprocess.Popen(
        _COMMAND,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert child.stdin is not None
    observer = ExitObserver.begin(machine.memory_limit())
    try:
        with suppress(BrokenPipeError):
            child.stdin.write(codec_conversion.encode_part(order))
            child.stdin.close()
        lines, log, late = _collect(child, observer, timeout, watch)
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        code = child.wait()
        for pipe in (child.stdout, child.stderr):
            assert pipe is not None
            pipe.close()
    text = log.decode(errors="replace")
    if late:
        message = f"it was still {late} after {timeout:g} s"
        return OrderAnswer(failure=failure(ConversionFailureKind.TIMED_OUT, message, log=text))
    if lines and b'"stage"' not in lines[-1][:8]:
        return codec_conversion.decode_part(OrderAnswer, lines[-1])
    kind, message = observer.outcome(code)
    out_of_memory = kind is FailureKind.OOM
    return OrderAnswer(
        failure=failure(
            ConversionFailureKind.OUT_OF_MEMORY if out_of_memory else ConversionFailureKind.CRASHED,
            message,
            log=text,
        )
    )


def _collect(
    child: subprocess.Popen[bytes], observer: ExitObserver, timeout: float, watch: Callable[[str], None]
) -> tuple[list[bytes], bytes, str]:
    """Read what the child says until it ends; return its lines, the end of its log, its stage if late."""
    assert child.stdout is not None
    assert child.stderr is not None
    said, log, stage, told = bytearray(), bytearray(), "starting", 0
    deadline = monotonic() + timeout
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ, said)
        selector.register(child.stderr, selectors.EVENT_READ, log)
        while selector.get_map():
            for key, _ in selector.select(_LOOK):
                data = os.read(key.fd, _READ)
                if not data:
                    selector.unregister(key.fileobj)
                key.data.extend(data)
            del log[:-_LOG]
            lines = bytes(said).split(b"\n")[:-1]
            for line in lines[told:]:
                with suppress(ValueError, AttributeError):
                    if found := json.loads(line).get("stage"):
                        stage = str(found)
                        watch(stage)
            told = len(lines)
            with suppress(OSError, ValueError):
                observer.note(child.pid, tree_memory(list_process_tree(child.pid)))
            if monotonic() > deadline:
                return [], bytes(log), stage
    with suppress(subprocess.TimeoutExpired):
        child.wait(1)
    return [line for line in bytes(said).split(b"\n") if line], bytes(log), ""
