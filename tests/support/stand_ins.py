"""Objects that stand in for plugins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base import plugins
from modeldyno.base.plugins.contract import complete

if TYPE_CHECKING:
    import pytest


def use_plugin(monkeypatch: pytest.MonkeyPatch, kind: str, stand_in: object) -> None:
    """Have an object stand in for every plugin of a kind, with the defaults of the kind."""
    plugin = complete(kind, stand_in)
    monkeypatch.setattr(plugins, kind, lambda _name: plugin)
