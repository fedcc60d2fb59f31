"""Convert an exception of a framework, a model or a server into a Failure."""

from __future__ import annotations

import os
import traceback
from pathlib import Path

from modeldyno.base.clock import WrongClock
from modeldyno.base.errors import PredictedOutOfMemory, is_out_of_memory
from modeldyno.base.result.result import Failure, FailureKind
from modeldyno.base.system.variables import DEBUG
from modeldyno.models.static.source_line import format_frame_location, innermost_user_frame, short_path


def failure_of(error: BaseException, where: str) -> Failure:
    """Classify an exception of a framework, a model or a server.

    The message names the innermost line of the user's code, or of a library if no user code is involved.
    """
    from modeldyno.base.errors import ServerFailed  # only a failure needs it

    if isinstance(error, ServerFailed):
        return Failure(where=where, kind=FailureKind.SERVER, message=str(error), log=error.log)
    if isinstance(error, PredictedOutOfMemory):
        return Failure(where=where, kind=FailureKind.OOM, message=str(error))
    if isinstance(error, WrongClock):
        return Failure(where=where, kind=FailureKind.CLOCK, message=str(error))
    lines = str(error).strip().splitlines() or [""]
    text = f"{type(error).__name__}: {lines[0]}".rstrip(": ")
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not _is_ours(Path(f.filename))]
    kind = FailureKind.OOM if is_out_of_memory(error) else FailureKind.ERROR
    user_frame = innermost_user_frame(frames)
    last_frames = (
        frames[-_FRAMES:]
        if user_frame is None or user_frame in frames[-_FRAMES:]
        else [user_frame, *frames[1 - _FRAMES :]]
    )
    if frames:
        text += f" ({format_frame_location(user_frame or frames[-1])})"
    if os.environ.get(DEBUG):
        return Failure(where=where, kind=kind, message=text, log=whole_traceback(error))
    places = [f"{short_path(f.filename)}:{f.lineno} {f.line}" for f in last_frames]
    return Failure(where=where, kind=kind, message=text, log="\n".join([*lines[1:], *places])[:2000])


def whole_traceback(error: BaseException) -> str:
    """Return an error's traceback and those of its causes, or the end of them if they are long."""
    return "".join(traceback.format_exception(error))[-_LONGEST:].rstrip()


def _is_ours(path: Path) -> bool:
    """Return whether a file is part of this package, or of contextlib, which enters its contexts."""
    return _OURS in path.parents or path.name == "contextlib.py"


_OURS = Path(__file__).parents[2]
_LONGEST = 20_000
"""Characters of a traceback."""
_FRAMES = 3
"""Stack frames that a Failure shows."""
