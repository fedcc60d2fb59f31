"""The id and the time of a new document, and who acts."""

from __future__ import annotations

import getpass
import os
from datetime import UTC, datetime
from typing import Any


def new_identity() -> dict[str, Any]:
    """Return the fields `id`, twelve hexadecimal digits, and `created`, UTC in ISO 8601."""
    return {"id": os.urandom(6).hex(), "created": datetime.now(UTC).isoformat(timespec="milliseconds")}


def actor() -> str:
    """Return who acts, for the history."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name
        return str(os.getuid())
