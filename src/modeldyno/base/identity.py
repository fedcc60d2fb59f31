"""The id and the time of a new document, and who acts."""

from __future__ import annotations

import getpass
import os
from datetime import UTC, datetime
from typing import Any

ACTOR = "MODELDYNO_ACTOR"
"""Names who acts for the user of the process, such as a person for whom a job runs."""


def new_identity() -> dict[str, Any]:
    """Return the fields `id`, twelve hexadecimal digits, and `created`, UTC in ISO 8601."""
    return {"id": os.urandom(6).hex(), "created": datetime.now(UTC).isoformat(timespec="milliseconds")}


def actor() -> str:
    """Return who acts, for the history: the user of this process, which no variable changes.

    Who MODELDYNO_ACTOR names is written before it, as ``ada (ci)``.
    """
    name = os.environ.get(ACTOR, "").strip()
    return f"{name} ({_user()})" if name else _user()


def _user() -> str:
    if not hasattr(os, "getuid"):  # pragma: no cover - Windows has no such number
        return getpass.getuser()
    import pwd  # not on Windows

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a user id without a name
        return str(os.getuid())
