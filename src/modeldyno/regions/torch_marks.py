"""Blocks of ``torch.profiler.record_function`` in a user's code are regions, while a script is followed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_DECORATOR = "torch.utils._contextlib"
"""What calls the block of a decorated function."""
_FRAME = "_modeldyno_frame"


def follow_record_function(begin: Callable[[str], Any], end: Callable[[Any], None]) -> Callable[[], None]:
    """Call `begin` with the name of each block that is entered, and `end` with what it returned.

    Those of torch's own code, such as that of an optimizer's step, are left out.

    Returns:
        A function that ends it.
    """
    from torch.autograd.profiler import record_function  # heavy

    enter: Any = record_function.__enter__
    leave: Any = record_function.__exit__

    def entered(block: Any) -> Any:
        opened = enter(block)
        if _is_of_user():
            setattr(block, _FRAME, begin(str(block.name)))
        return opened

    def left(block: Any, *error: Any) -> None:
        frame = block.__dict__.pop(_FRAME, None)
        if frame is not None:
            end(frame)
        leave(block, *error)

    def stop() -> None:
        record_function.__enter__, record_function.__exit__ = enter, leave  # type: ignore[method-assign]

    record_function.__enter__, record_function.__exit__ = entered, left  # type: ignore[method-assign]
    return stop


def _is_of_user() -> bool:
    """Return whether the code that enters a block is not torch's own."""
    frame = sys._getframe(2)
    if frame.f_globals.get("__name__") == _DECORATOR and frame.f_back is not None:
        frame = frame.f_back
    name = str(frame.f_globals.get("__name__", ""))
    return name.partition(".")[0] != "torch"
