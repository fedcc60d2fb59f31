"""``digits/3``, ``digits@champion`` and ``digits/3 onnx``: a registered version, or one of its variants."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base import plugins
from modeldyno.base.codec import plain
from modeldyno.base.errors import UnknownName
from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.base.job.version_name import SOURCE, parse_registered
from modeldyno.conversion.agreement.conversion import Conversion
from modeldyno.registry import weights
from modeldyno.registry.records.records import Version

if TYPE_CHECKING:
    from modeldyno.registry.interface import Registry
    from modeldyno.registry.records.records import Variant


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredModel:
    """What the name of a version or of a variant stands for."""

    reference: str
    """By which it is loaded on this machine."""
    inputs: tuple[InputSpec, ...]
    """What it is measured with; empty for its own."""
    name: str
    """Of the model."""
    registered: str
    """That of the version or variant, which goes on meaning it: ``digits/3``, ``digits/3 onnx``."""


def find_registered(text: str) -> RegisteredModel | None:
    """Return what a name in the store's registry stands for; None if no model has that name.

    Raises:
        RequestError: the model has no such version, alias or variant.
        StoreError: the store cannot be read, or the files of the version are gone or damaged.
    """
    parsed = parse_registered(text)
    if parsed is None:
        return None
    name, recipe = parsed
    with plugins.store() as store:
        registry = store.registry
        if not registry.find_versions(name.model, limit=1):
            return None
        version = registry.version(name)
        registered = version if recipe == SOURCE else find_variant(registry, version, recipe)
        reference = reference_here(registered, registry)
    return RegisteredModel(
        reference=reference,
        inputs=inputs_of(registered, reference),
        name=version.model,
        registered=registered.name,
    )


def find_variant(registry: Registry, version: Version, recipe: str) -> Variant:
    """Return a variant that is still the model.

    Raises:
        UnknownName: there is none of this recipe; those that there are are listed.
    """
    usable = {variant.recipe: variant for variant in registry.variants(version) if variant.usable}
    if recipe not in usable:
        raise UnknownName.among(f"usable variant of {version.name}", recipe, usable)
    return usable[recipe]


def reference_here(registered: Version | Variant, registry: Registry) -> str:
    """Return the reference by which a version or a variant is loaded on this machine.

    Raises:
        StoreError: its files are gone or damaged.
    """
    if not registered.files:
        return registered.reference
    path = weights.fetch(registered, weights.place(registry.weights))
    return f"{registered.reference.partition(':')[0]}:{path}"


def inputs_of(registered: Version | Variant, reference: str) -> tuple[InputSpec, ...]:
    """Return the inputs that a version or variant is measured with; empty for its own.

    Those of a version were given when it was registered; those of a variant are noted by its conversion, and
    their files lie beside its own.
    """
    if isinstance(registered, Version):
        return registered.measured_with
    if not registered.conversion:
        return ()
    document = registered.conversion.encode()
    made = plain.decode(Conversion, document, origin=registered.name)[registered.recipe]
    folder = Path(ModelRef.parse(reference).locator).parent
    return tuple(
        spec if spec.source is None else replace(spec, source=str(folder / spec.source))
        for spec in made.inputs
    )
