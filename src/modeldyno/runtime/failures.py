"""What a framework, a model or a server raised, as a Failure."""

from __future__ import annotations

import traceback
from pathlib import Path

from modeldyno.core.result.result import Failure, FailureKind
from modeldyno.core.trace.source_line import users_line, written


def failure_of(error: BaseException, where: str) -> Failure:
    """Classify what a framework, a model or a server raised.

    It names the innermost line of the user's code, and one of a library where there is none of that.
    """
    from modeldyno.servers.server_process import ServerFailed  # noqa: PLC0415 - only a failure needs it

    if isinstance(error, ServerFailed):
        return Failure(where=where, kind=FailureKind.SERVER, message=str(error), log=error.log)
    lines = str(error).strip().splitlines() or [""]
    text = f"{type(error).__name__}: {lines[0]}".rstrip(": ")
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not _is_ours(Path(f.filename))]
    memory = isinstance(error, MemoryError) or any(sign in str(error).lower() for sign in _OUT_OF_MEMORY)
    kind = FailureKind.OOM if memory else FailureKind.ERROR
    users = users_line(frames)
    shown = (
        frames[-_FRAMES:] if users is None or users in frames[-_FRAMES:] else [users, *frames[1 - _FRAMES :]]
    )
    if frames:
        text += f" ({written(users or frames[-1])})"
    places = [f"{f.filename}:{f.lineno} {f.line}" for f in shown]
    return Failure(where=where, kind=kind, message=text, log="\n".join([*lines[1:], *places])[:2000])


def _is_ours(path: Path) -> bool:
    """Say whether a line is of this package, or of what opens and closes its contexts."""
    return _OURS in path.parents or path.name == "contextlib.py"


_OURS = Path(__file__).parent.parent
_FRAMES = 3
"""Lines of the model's code that a Failure shows."""
_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "failed to allocate", "bad_alloc")
