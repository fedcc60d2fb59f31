"""Send what webhooks are still to be told: at least once, signed, and again later where nobody answers.

A command is run only where it was declared, on the command line of a worker; the database has but its name.
"""

from __future__ import annotations

import http.client
import os
import shlex
import signal
import ssl
import subprocess
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from modeldyno.core.registry.webhooks import check_hook, message, signature
from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from modeldyno.core.registry.webhooks import Delivery
    from modeldyno.interfaces.registry import Registry

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
    parts = urlsplit(delivery.webhook.url)
    path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    try:
        connection = _connected(parts.scheme, parts.hostname or "", parts.port)
        try:
            connection.request("POST", path, body, headers)
            status = connection.getresponse().status
        finally:
            connection.close()
    except (OSError, http.client.HTTPException, ValueError) as error:
        return f"{delivery.webhook.url} does not answer: {str(error) or type(error).__name__}"
    return "" if status in _GOOD else f"{delivery.webhook.url} answered {status}"


def run_hook(command: Sequence[str], delivery: Delivery) -> str:
    """Run a command with a message on its standard input; return why it has failed, or nothing.

    What it prints to standard output is dropped.
    """
    variables = {"MODELDYNO_EVENT": delivery.event.kind, "MODELDYNO_DELIVERY": str(delivery.id)}
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=os.environ | variables,
            start_new_session=True,  # Ctrl-C is for the worker
        )
    except OSError as error:
        return f"{delivery.webhook.url} cannot run {command[0]}: {error.strerror}"
    try:
        _, complaint = process.communicate(message(delivery.event), timeout=_HOOK_PATIENCE)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return f"{delivery.webhook.url} was still running after {_HOOK_PATIENCE:g} s"
    last = complaint.decode("utf-8", "replace").strip().rpartition("\n")[2]
    code = process.returncode
    return f"{delivery.webhook.url} ended with exit code {code}{last and f': {last}'}" if code else ""


def _connected(scheme: str, host: str, port: int | None) -> http.client.HTTPConnection:
    if scheme == "https":
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(host, port, timeout=_PATIENCE, context=context)
    return http.client.HTTPConnection(host, port, timeout=_PATIENCE)
