"""A clock that only a test advances, in every module of the package that reads the real one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from modeldyno.clock import monotonic

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


def replace_monotonic(monkeypatch: pytest.MonkeyPatch, read: Callable[[], float]) -> None:
    """Have each imported module of the package read the monotonic clock by `read`."""
    for name, module in list(sys.modules.items()):
        if name.startswith("modeldyno.") and getattr(module, "monotonic", None) is monotonic:
            monkeypatch.setattr(module, "monotonic", read)
