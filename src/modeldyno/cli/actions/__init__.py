"""What the commands do, one module a command; each is imported when it is first used.

A declaration calls ``actions.profile.run(...)``, which imports ``profile``: ``--help`` imports none.
No action imports a declaration.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return import_module(f"{__name__}.{name}")
