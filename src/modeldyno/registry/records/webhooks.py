"""Webhooks: who is told of which events, how a message is signed, and when it is sent again."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from modeldyno.base.errors import RequestError
from modeldyno.registry.records.records import RegistryEvent

MOST_ATTEMPTS = 12
"""Times that a message is sent, over about two days, before it is given up."""
_FIRST_PAUSE, _LONGEST_PAUSE = 10.0, 6 * 3600.0
_SHOWN = 60
PUT_OFF = "task.deferred"
"""The kind of event that ``*`` does not stand for."""
HOOK = "hook:"
"""What the address of a command begins with."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """An address that is told of events, or a command that a worker declares."""

    id: int = 0
    """0 before it is stored."""
    url: str
    """Of HTTP, or ``hook:`` and the name of a command, which only the worker's own machine knows."""
    secret: str = ""
    """What messages are signed with; empty for no signature."""
    kinds: tuple[str, ...] = ("*",)
    """Kinds of events, also as patterns such as ``variant.*``; ``*`` is all but ``task.deferred``."""
    model: str = ""
    """Only events of this model; empty for all."""

    @property
    def hook(self) -> str:
        """Name of the command; empty for an address."""
        return self.url.removeprefix(HOOK) if self.url.startswith(HOOK) else ""

    @property
    def shown(self) -> str:
        """Its address for people and events: what follows a ``?`` may be a secret."""
        address, mark, _ = self.url.partition("?")
        return f"{address}?***" if mark else address

    def wants(self, kind: str, model: str) -> bool:
        """Return whether it is told of an event of this kind and model.

        That a task was put off is told only where a pattern begins with its word: it happens by itself, and
        is half of all events.
        """
        patterns = [each for each in self.kinds if kind != PUT_OFF or each.startswith("task.")]
        return self.model in {"", model} and any(fnmatchcase(kind, pattern) for pattern in patterns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A message about an event that a webhook is still to be sent, leased to who sends it."""

    id: int
    webhook: Webhook
    event: RegistryEvent
    attempts: int
    """Times that it has been sent, this one included."""
    token: int
    """Grows with each lease; what is told with an older one is refused."""


def check_webhook(webhook: Webhook) -> Webhook:
    """Return a webhook, unchanged.

    Raises:
        RequestError: its address is none of HTTP and no name of a command, or it wants no events.
    """
    if not webhook.kinds:
        raise RequestError("A webhook needs at least one kind of event, such as 'alias.moved' or '*'.")
    if webhook.url.startswith(HOOK):
        check_hook(webhook.hook)
        if webhook.secret:
            raise RequestError("What a command is told is not signed; leave out the secret.")
        return webhook
    parts = urlsplit(webhook.url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or not webhook.url.isprintable():
        raise RequestError(
            f"'{webhook.url[:_SHOWN]}' is no address of a webhook; write https://host/path, or hook:NAME."
        )
    if parts.username or parts.password:
        raise RequestError("The address of a webhook holds no password; messages are signed with a secret.")
    return webhook


def check_hook(name: str) -> str:
    """Return the name of a command, unchanged.

    Raises:
        RequestError: it is none.
    """
    if _NAME.fullmatch(name) is None:
        raise RequestError(f"'{name[:_SHOWN]}' is no name of a hook; use letters, digits, '-', '_' and '.'.")
    return name


def message(event: RegistryEvent) -> bytes:
    """Return what is sent about an event, as JSON."""
    return json.dumps(asdict(event), sort_keys=True).encode()


def signature(secret: str, body: bytes) -> str:
    """Return ``sha256=`` and the HMAC-SHA256 (RFC 2104) of a message in hexadecimal digits."""
    return f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"


def pause_after(attempts: int) -> float:
    """Return the seconds until a message is sent again: 10 s, and twice as long each time, up to 6 h."""
    return min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** (attempts - 1))
