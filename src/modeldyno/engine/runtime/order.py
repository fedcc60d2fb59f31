"""Have one order carried out in a supervised child: loading a model may run its code.

The parent calls `run_order` with the module to run, which calls `answer`. Orders and answers are JSON.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from modeldyno.base.errors import ModelDynoError, error_named, with_trace
from modeldyno.base.system.process_tree import end_with_parent
from modeldyno.engine.runtime.exit_cause import UNTOLD
from modeldyno.engine.runtime.exit_handlers import run_exit_handlers
from modeldyno.engine.runtime.failures import failure_of, whole_traceback
from modeldyno.engine.runtime.supervised_child import ChildLimits, SupervisedChild

if TYPE_CHECKING:
    from collections.abc import Callable

_LAST_WORDS = 300
"""Characters of what a model says last that are repeated."""
FAILED = 1
"""Exit code of a child that did not do what was ordered."""


def run_order(
    module: str,
    order: dict[str, Any],
    *,
    limits: ChildLimits | None = None,
    leaves_servers: bool = False,
    failed: Callable[[str], ModelDynoError],
) -> Any:
    """Have a module carry out an order; return its answer.

    Args:
        module: runs in the child.
        order: what it is to do.
        limits: what it may take.
        leaves_servers: whether servers that it hands over stay.
        failed: makes the error of how the child ended without an answer, which is part of a sentence.

    Raises:
        ModelDynoError: what the child raised, or what `failed` made.
    """
    child, answer = SupervisedChild.start(module, leaves_servers=leaves_servers), None
    try:
        child.send(json.dumps(order).encode(), last=True)
        for line in child.lines(limits or ChildLimits()):
            if line is not None:
                answer = _decoded(line)
                break
    except BaseException:
        child.end(answered=False, patience=0)
        raise
    child.end(answered=answer is not None)
    if answer is None:
        _, how = child.outcome()
        last = last_line(child.printed)
        raise failed(f"{how}; it said: {last}" if last and child.ended is None else how)
    if "failed" in answer:
        raise with_trace(failed(answer["failed"]), answer["trace"])
    if "error" in answer:
        raise with_trace(error_named(answer["error"], answer["message"]), answer["trace"])
    return answer["answer"]


def answer(carry_out_here: Callable[[dict[str, Any]], Any]) -> NoReturn:
    """Carry out the order on standard input, write the answer to the descriptor in `sys.argv`, and exit.

    What the model prints goes to standard output and error, which the parent reads.
    """
    end_with_parent()
    write, leave = os.write, os._exit  # the model may change what os has
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)
    code = FAILED
    try:
        order = json.loads(sys.stdin.buffer.read())
        try:
            reply, code = {"answer": carry_out_here(order)}, 0
        except ModelDynoError as error:
            reply = {"error": type(error).__name__, "message": str(error), "trace": whole_traceback(error)}
        except Exception as error:  # noqa: BLE001 - whatever a model, its framework or a server raises
            message = failure_of(error, "").message.rstrip(".")
            reply = {"failed": message, "trace": whole_traceback(error)}
        data = memoryview(json.dumps(reply).encode() + b"\n")
        while data:
            data = data[write(descriptor, data) :]
    except SystemExit:
        raise  # the model ends its process, which the parent reports
    except BaseException:  # noqa: BLE001 - nothing can be reported any more
        leave(UNTOLD)
    run_exit_handlers()
    leave(code)  # a thread of the model would keep it alive


def last_line(text: str) -> str:
    """Return the last line that is not empty, and not more than its beginning."""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip()[:_LAST_WORDS] if lines else ""


def _decoded(line: bytes) -> dict[str, Any] | None:
    try:
        reply = json.loads(line)
    except ValueError:
        return None
    return reply if isinstance(reply, dict) and reply.keys() & {"answer", "failed", "error"} else None
