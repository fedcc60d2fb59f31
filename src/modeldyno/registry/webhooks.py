"""Send what webhooks are still to be told: at least once, signed, and again later where nobody answers.

A command is run only where it was declared, on the command line of a worker; the database has but its name.
"""

from __future__ import annotations

import os
import select
import shlex
import signal
import subprocess
import tempfile
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING

from modeldyno.base.clock import monotonic, sleep
from modeldyno.base.errors import RequestError
from modeldyno.base.system.timed_answer import exchange
from modeldyno.registry.records.webhooks import check_hook, message, signature

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from modeldyno.registry.interface import Registry
    from modeldyno.registry.records.webhooks import Delivery

_PATIENCE = 10.0
"""Seconds that a receiver has to answer."""
_HOOK_PATIENCE = 30.0
"""Seconds that a command has; less than the lease of its message."""
_GOOD = range(200, 300)


def read_hooks(texts: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Read commands by name from ``NAME=command``; each is split like a shell does, and run without one.

    Raises:
        RequestError: one is no name and a command.
    """
    hooks: dict[str, tuple[str, ...]] = {}
    for text in texts:
        name, _, command = text.partition("=")
        try:
            arguments = tuple(shlex.split(command))
        except ValueError as error:
            raise RequestError(f"The command of the hook '{name}' cannot be read: {error}.") from None
        if not arguments:
            raise RequestError(
                f"'{text}' is no hook; write NAME='command', such as tell='notify-send model'."
            )
        hooks[check_hook(name.strip())] = arguments
    return hooks


def send_due(
    registry: Registry,
    *,
    most: int = 100,
    hooks: Mapping[str, Sequence[str]] = MappingProxyType({}),
    post: Callable[[Delivery], str] | None = None,
) -> tuple[int, int]:
    """Send the messages that are due; return how many arrived, and how many did not.

    A sender that is killed loses none: its message is sent again when its lease is over, so that a receiver
    may get one twice. It tells them apart by the header ``X-ModelDyno-Delivery``.

    Args:
        registry: with the outbox.
        most: messages to send before returning.
        hooks: the words of the commands that may be run here, by name.
        post: sends one, and returns why it has not arrived, or nothing; by default over HTTP or to a command.
    """

    def send(delivery: Delivery) -> str:
        name = delivery.webhook.hook
        return run_hook(hooks[name], delivery) if name else post_message(delivery)

    arrived = missed = 0
    for _ in range(most):
        delivery = registry.claim_delivery(tuple(hooks))
        if delivery is None:
            break
        why = (post or send)(delivery)
        registry.finish_delivery(delivery, why)
        arrived, missed = arrived + (not why), missed + bool(why)
    return arrived, missed


def post_message(delivery: Delivery) -> str:
    """POST a message; return why it has not arrived, or nothing. Redirections are not followed."""
    body = message(delivery.event)
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "modeldyno",
        "X-ModelDyno-Event": delivery.event.kind,
        "X-ModelDyno-Delivery": str(delivery.id),
    }
    if delivery.webhook.secret:
        headers["X-ModelDyno-Signature"] = signature(delivery.webhook.secret, body)
    try:
        status, _ = exchange("POST", delivery.webhook.url, body, headers, seconds=_PATIENCE)
    except OSError as error:
        return f"{delivery.webhook.shown} does not answer: {str(error) or type(error).__name__}"
    return "" if status in _GOOD else f"{delivery.webhook.shown} answered {status}"


def run_hook(command: Sequence[str], delivery: Delivery) -> str:
    """Run a command with a message on its standard input; return why it has failed, or nothing.

    What it prints to standard output is dropped, and of its standard error the end is kept. When it ends, or
    its time is over, all that it has started ends with it, unless that has left its group of processes.
    """
    variables = {"MODELDYNO_EVENT": delivery.event.kind, "MODELDYNO_DELIVERY": str(delivery.id)}
    with tempfile.TemporaryFile() as words:  # no pipe, which a command that does not read would fill
        words.write(message(delivery.event))
        words.seek(0)
        try:
            process = subprocess.Popen(
                command,
                stdin=words,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=os.environ | variables,
                start_new_session=True,  # Ctrl-C is for the worker
            )
        except OSError as error:
            return f"{delivery.webhook.shown} cannot run {command[0]}: {error.strerror}"
    assert process.stderr is not None
    with process.stderr as complaints:
        ended, complaint = _watch(process.pid, complaints.fileno(), _HOOK_PATIENCE)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
    if not ended:
        return f"{delivery.webhook.shown} was still running after {_HOOK_PATIENCE:g} s"
    last = complaint.decode("utf-8", "replace").strip().rpartition("\n")[2]
    return f"{delivery.webhook.shown} ended with exit code {code}{last and f': {last}'}" if code else ""


def _watch(pid: int, complaints: int, seconds: float) -> tuple[bool, bytes]:
    """Wait for a process to end, whoever keeps its output open; return whether it did, and its last words.

    The process is not reaped, so that its group can still be named.
    """
    end, last, is_open = monotonic() + seconds, b"", True
    os.set_blocking(complaints, False)
    while True:
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        if is_open and select.select([complaints], [], [], 0.0 if ended else _TICK)[0]:
            data = os.read(complaints, _KEPT)
            last, is_open = (last + data)[-_KEPT:], bool(data)
        elif not ended and not is_open:
            sleep(_TICK)
        if ended or monotonic() > end:
            return ended, last


_TICK = 0.02
"""Seconds between two looks at a command."""
_KEPT = 1 << 16
"""Bytes of a command's standard error that are kept, as many as a pipe holds."""
