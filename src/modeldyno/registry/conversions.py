"""Variants of a version: what `modeldyno.conversion` makes of it, kept beside the copies of its files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.core.registry.records import Variant, VariantState
from modeldyno.profiling.resolve_model import resolve_reference

if TYPE_CHECKING:
    from modeldyno.core.registry.records import Version
    from modeldyno.core.spec.model_ref import ModelRef
    from modeldyno.interfaces.registry import Registry


def convert_version(version: Version, ref: ModelRef, recipe: str, registry: Registry) -> Variant:
    """Convert a version by a recipe, and check whether it is still the model."""
    del ref, registry
    return Variant(
        model=version.model,
        number=version.number,
        recipe=recipe,
        state=VariantState.UNSUPPORTED,
        why="conversions are not installed",
    )


def located(variant: Variant) -> ModelRef:
    """Return the reference by which a variant is loaded on this machine."""
    return resolve_reference(variant.reference)
