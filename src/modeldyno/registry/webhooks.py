"""Send what webhooks are still to be told: at least once, signed, and again later where nobody answers."""

from __future__ import annotations

import http.client
import ssl
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from modeldyno.core.registry.webhooks import message, signature

if TYPE_CHECKING:
    from collections.abc import Callable

    from modeldyno.core.registry.webhooks import Delivery
    from modeldyno.interfaces.registry import Registry

_PATIENCE = 10.0
"""Seconds that a receiver has to answer."""
_GOOD = range(200, 300)


def send_due(
    registry: Registry, *, most: int = 100, post: Callable[[Delivery], str] | None = None
) -> tuple[int, int]:
    """Send the messages that are due; return how many arrived, and how many did not.

    A sender that is killed loses none: its message is sent again when its lease is over, so that a receiver
    may get one twice. It tells them apart by the header ``X-ModelDyno-Delivery``.

    Args:
        registry: with the outbox.
        most: messages to send before returning.
        post: sends one, and returns why it has not arrived, or nothing; by default over HTTP.
    """
    arrived = missed = 0
    for _ in range(most):
        delivery = registry.claim_delivery()
        if delivery is None:
            break
        why = (post or post_message)(delivery)
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


def _connected(scheme: str, host: str, port: int | None) -> http.client.HTTPConnection:
    if scheme == "https":
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(host, port, timeout=_PATIENCE, context=context)
    return http.client.HTTPConnection(host, port, timeout=_PATIENCE)
