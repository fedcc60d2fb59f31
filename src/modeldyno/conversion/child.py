"""Runs orders in child processes, within a time limit, and explains an end without an answer."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from modeldyno.clock import monotonic
from modeldyno.codec import conversion as codec_conversion
from modeldyno.conversion.failures import failure
from modeldyno.conversion.recipe import ConversionOrder, OrderAnswer
from modeldyno.core.agreement.conversion import ConversionFailureKind
from modeldyno.core.result.result import FailureKind
from modeldyno.environment import machine
from modeldyno.environment.process_tree import list_process_tree, tree_memory
from modeldyno.runtime.exit_cause import ExitObserver

_COMMAND = (sys.executable, "-X", "faulthandler", "-m", "modeldyno.conversion.worker")
_STAGE = b'{"stage"'
"""How a line begins that is no answer."""
_LOOK = 0.25
"""Seconds between two looks at a silent child."""
_READ = 1 << 16
_LOG = 4000
"""Bytes kept from the end of the log."""


Watch = Callable[[str], None]
"""Is told each stage."""


@contextmanager
def order_processes(timeout: float) -> Iterator[Callable[[ConversionOrder, Watch], OrderAnswer]]:
    """Yield a function that carries out an order in a child process; its failure is an answer, too.

    The process that ran the source goes on with the first recipe, since it has imported what that needs.
    Every other recipe has a process of its own.

    Args:
        timeout: seconds that an order may take.
    """
    kept: list[_Child] = []

    def run(order: ConversionOrder, watch: Watch) -> OrderAnswer:
        child = kept.pop() if kept else _Child()
        try:
            answer = child.run(order, timeout, watch)
            if answer.reference is not None:
                kept.append(child)
            return answer
        finally:
            if child not in kept:
                child.end()

    try:
        yield run
    finally:
        for child in kept:
            child.end()


class _Child:
    """A process that carries out orders, one at a time."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            _COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._observer = ExitObserver.begin(machine.memory_limit())
        self._gone = False

    def run(self, order: ConversionOrder, timeout: float, watch: Watch) -> OrderAnswer:
        """Hand in an order, and wait for its answer, the end of the process, or the time limit."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(codec_conversion.encode_part(order) + b"\n")
            self._process.stdin.flush()
        answer, log, late = self._collect(timeout, watch)
        text = log.decode(errors="replace")
        if late:
            message = f"it was still {late} after {timeout:g} s"
            return OrderAnswer(failure=failure(ConversionFailureKind.TIMED_OUT, message, log=text))
        if answer:
            return codec_conversion.decode_part(OrderAnswer, answer)
        kind, message = self._observer.outcome(self.end())
        out_of_memory = kind is FailureKind.OOM
        return OrderAnswer(
            failure=failure(
                ConversionFailureKind.OUT_OF_MEMORY if out_of_memory else ConversionFailureKind.CRASHED,
                message,
                log=text,
            )
        )

    def end(self) -> int:
        """End the process and all that it has started; return its exit code."""
        if self._gone:  # let it end by itself: how it did is what is asked for
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(1)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        code = self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()
        return code

    def _collect(self, timeout: float, watch: Watch) -> tuple[bytes, bytes, str]:
        """Read what the child says; return its answer, the end of its log, and its stage if it is late."""
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        output, log, stage = bytearray(), bytearray(), "starting"
        deadline = monotonic() + timeout
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ, output)
            selector.register(self._process.stderr, selectors.EVENT_READ, log)
            while selector.get_map():
                for key, _ in selector.select(_LOOK):
                    data = os.read(key.fd, _READ)
                    if not data:
                        selector.unregister(key.fileobj)
                    key.data.extend(data)
                del log[:-_LOG]
                while b"\n" in output:
                    line, _, rest = bytes(output).partition(b"\n")
                    output[:] = rest
                    if not line.startswith(_STAGE):
                        return line, bytes(log), ""
                    stage = str(json.loads(line)["stage"])
                    watch(stage)
                with suppress(OSError, ValueError):
                    self._observer.note(self._process.pid, tree_memory(list_process_tree(self._process.pid)))
                if monotonic() > deadline:
                    return b"", bytes(log), stage
        self._gone = True
        return b"", bytes(log), ""
