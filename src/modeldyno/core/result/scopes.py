"""The parts of a model that a Result speaks of: its modules and phases."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from modeldyno.core.result.result import Result


def scopes(result: Result) -> frozenset[str]:
    """Give the scopes that are modules or phases; a dtype or a device is none."""
    modules = (module.path for module in result.outline.modules) if result.outline else ()
    counted = (m.scope for m in result.measurements if m.metric in {"parameters", "macs", "flops"})
    watched = (layer.path for layer in result.activity.layers) if result.activity else ()
    return frozenset(filter(None, (*modules, *counted, *watched)))
