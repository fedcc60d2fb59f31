"""The scopes of a Result that are parts of the model: modules and phases."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from modeldyno.core.result.result import Result


def scopes(result: Result) -> frozenset[str]:
    """Return the scopes that are modules or phases, not dtypes or devices."""
    modules = (module.path for module in result.outline.modules) if result.outline else ()
    measured = (m.scope for m in result.measurements if m.metric in {"parameters", "macs", "flops"})
    traced = (layer.path for layer in result.activity.layers) if result.activity else ()
    return frozenset(filter(None, (*modules, *measured, *traced)))
