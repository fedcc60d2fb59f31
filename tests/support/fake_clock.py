"""A clock that only a test advances, in every module of the package that reads the real one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from modeldyno.base.clock import monotonic

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


def replace_monotonic(monkeypatch: pytest.MonkeyPatch, read: Callable[[], float]) -> None:
    """Have each imported module of the package read the monotonic clock by `read`."""
    replace_everywhere(monkeypatch, "monotonic", monotonic, read)


def replace_everywhere(monkeypatch: pytest.MonkeyPatch, name: str, old: Any, new: Any) -> None:
    """Replace what each imported module of the package knows by a name."""
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith("modeldyno.") and getattr(module, name, None) is old:
            monkeypatch.setattr(module, name, new)
