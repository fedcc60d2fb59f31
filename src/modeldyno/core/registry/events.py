"""The chain of events: each has the hash of the one before it, so that none can be changed or left out."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from modeldyno.core.registry.records import RegistryEvent


def event_hash(before: str, at: str, actor: str, kind: str, subject: str, detail: Mapping[str, str]) -> str:
    """Return the SHA-256 of an event and of the hash before it, in hexadecimal digits."""
    parts = json.dumps([before, at, actor, kind, subject, dict(sorted(detail.items()))], ensure_ascii=True)
    return hashlib.sha256(parts.encode()).hexdigest()


def first_broken(events: Iterable[RegistryEvent]) -> int | None:
    """Return the id of the first event whose hash is wrong, or that does not follow the one before it.

    What was cut off at the end leaves no trace in what is left.

    Args:
        events: all of them, the oldest first.
    """
    before = ""
    for event in events:
        expected = event_hash(before, event.at, event.actor, event.kind, event.subject, event.detail)
        if event.before != before or event.hash != expected:
            return event.id
        before = event.hash
    return None
