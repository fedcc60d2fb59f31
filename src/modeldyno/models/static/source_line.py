"""Find the line of the user's own code in a traceback, not one of a library or of ModelDyno.

A traceback of torch also says whether a recurrent layer ran on packed sequences, whose lengths are data.
"""

from __future__ import annotations

import sysconfig
import traceback
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from traceback import FrameSummary


_INSTALLED = frozenset({"site-packages", "dist-packages"})
_OURS = Path(__file__).parents[2]
_STANDARD = (_OURS, *(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "scripts")))


@cache
def is_user_file(filename: str) -> bool:
    """Whether a file is neither installed, nor of Python, nor of ModelDyno; code from a string is no file."""
    path = Path(filename)
    if filename.startswith("<") or not _INSTALLED.isdisjoint(path.parts):
        return False
    return not any(folder in path.parents for folder in _STANDARD)


def short_path(filename: str) -> str:
    """Return the path of a file, of an installed one from its package on: ``torch/nn/modules/linear.py``."""
    parts = Path(filename).parts
    places = [place for place, part in enumerate(parts) if part in _INSTALLED]
    return str(Path(*parts[places[-1] + 1 :])) if places else filename


def innermost_user_frame(frames: Iterable[FrameSummary]) -> FrameSummary | None:
    """Return the innermost frame of the user's code, the last in the list; None without one."""
    return next((frame for frame in reversed(list(frames)) if is_user_file(frame.filename)), None)


def format_frame_location(frame: FrameSummary) -> str:
    """Format the location of a frame: ``mynet.py:19``."""
    return f"{Path(frame.filename).name}:{frame.lineno}"


def format_error_location(error: BaseException) -> str:
    """Format the innermost line of the user's code that an error passed through; empty without one."""
    frame = innermost_user_frame(traceback.extract_tb(error.__traceback__))
    return "" if frame is None else format_frame_location(frame)


PADDED_INSTEAD = (
    "run the layer on the padded batch, without pack_padded_sequence, and take each sequence's output at its "
    "length; or convert to torchscript, which keeps packed sequences"
)
"""What to do instead."""


def packed_layer(error: BaseException) -> str:
    """Return the class of the recurrent layer that failed on packed sequences; empty if none did."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        packed = frame.f_locals.get("batch_sizes")
        if packed is not None and frame.f_code.co_filename.endswith("torch/nn/modules/rnn.py"):
            return type(frame.f_locals.get("self")).__name__
    return ""


def describe_packed_layer(error: BaseException) -> str:
    """Say which layer of packed sequences cannot be exported, in which line, and why; empty if none is."""
    layer, place = packed_layer(error), format_error_location(error)
    where = f" ({place})" if place else ""
    return layer and (
        f"{layer} of packed sequences cannot be exported{where}: how many of them are left at each step is "
        "known only from their lengths"
    )
