"""Installed plugins, as ``modeldyno plugins`` lists them; whoever writes one imports `modeldyno.plugin`."""

from __future__ import annotations

from modeldyno.exchange.api import list_plugins as list

__all__ = ["list"]
