"""Variants of a version: what `modeldyno.conversion` makes of it, kept beside the copies of its files."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.base import plugins
from modeldyno.base.codec import plain
from modeldyno.base.errors import StoreError
from modeldyno.base.system.temporary_folder import own_folder
from modeldyno.conversion.agreement.conversion import Conversion, ConversionFailureKind
from modeldyno.conversion.agreement.rule import Equivalence
from modeldyno.conversion.request import ConversionRequest
from modeldyno.conversion.run import convert
from modeldyno.registry import evaluation_data, weights
from modeldyno.registry.policies import find_policy
from modeldyno.registry.records.records import Variant, VariantState

if TYPE_CHECKING:
    import tempfile
    from collections.abc import Callable

    from modeldyno.base.job.model_ref import ModelRef
    from modeldyno.conversion.agreement.conversion import Converted
    from modeldyno.registry.interface import Registry
    from modeldyno.registry.records.records import Version

_UNSUPPORTED = frozenset(
    {
        ConversionFailureKind.UNSUPPORTED_OPERATOR,
        ConversionFailureKind.UNSUPPORTED_SOURCE,
        ConversionFailureKind.MISSING_EXTRA,
        ConversionFailureKind.NO_DEVICE,
    }
)
_STATES = {
    Equivalence.AGREES: VariantState.AGREES,
    Equivalence.CLOSE: VariantState.CLOSE,
    Equivalence.DIFFERS: VariantState.DIFFERS,
}


def takes(recipe: str, kind: str) -> bool:
    """Return whether a recipe converts models of a kind; UnknownName if there is no such recipe."""
    return kind in plugins.converter(recipe).sources


def convert_version(
    version: Version,
    ref: ModelRef,
    recipe: str,
    registry: Registry,
    watch: Callable[[str, str], None] = lambda _recipe, _stage: None,
) -> tuple[Variant, Conversion]:
    """Convert a version by a recipe, and check whether it is still the model.

    Only what is still the model is kept, with the script that makes it again. The document names no files, as
    the registry keeps them.
    """
    variant = Variant(
        model=version.model, number=version.number, recipe=recipe, state=VariantState.CONVERTING
    )
    with own_folder("variant") as folder:
        policy = find_policy(registry, version.policy)
        request = ConversionRequest(
            model=str(ref),
            registered=ref.registered,
            to=(recipe,),
            output=folder,
            tolerance=policy.tolerance,
            tolerated_by=policy.tolerated_by,
            name=version.model,
            inputs=version.measured_with,
            trust=version.trust,
            **_evaluation_options(version, registry),
        )
        conversion = convert(request, kept=_reference_folder(version), watch=watch)
        if conversion.model is not None and conversion.model.digest != version.digest:
            raise StoreError(f"{ref} has changed since {version.name} was registered; register it again.")
        made = conversion[recipe]
        variant = replace(
            variant,
            state=_state(made),
            why=_why(made),
            conversion=plain.encode(conversion).decode(),
            conversion_id=conversion.id,
        )
        if variant.usable:
            variant = _kept(variant, made, Path(folder) / recipe, weights.place(registry.weights))
    gone = tuple(replace(made, path="", reproduce="") for made in conversion.converted)
    return variant, replace(conversion, converted=gone)


def _evaluation_options(version: Version, registry: Registry) -> dict[str, Any]:
    if version.evaluation is None:
        return {}
    data = evaluation_data.located(version, registry)
    return {"evaluate": version.evaluation.metrics, "evaluated_on": data}


def _reference_folder(version: Version) -> Path:
    """Return where this process keeps what the version returned, of one version at a time.

    The conversions of a version are queued in a row, so it runs once for all of them.
    """
    key = hashlib.sha256(f"{version.name} {version.digest} {version.evaluation}".encode()).hexdigest()[:16]
    folder = Path(_references().name)
    for other in folder.iterdir():
        if other.name != key:
            shutil.rmtree(other, ignore_errors=True)
    return folder / key


@cache
def _references() -> tempfile.TemporaryDirectory[str]:
    """Return a folder that ends with this process."""
    return own_folder("references")


def _kept(variant: Variant, made: Converted, folder: Path, where: str) -> Variant:
    """Keep the files of a variant."""
    converter = plugins.converter(variant.recipe)
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    return replace(
        variant,
        reference=converter.loader,
        backend=converter.backend,
        digest=made.digest,
        files=weights.keep(files, folder, where),
        entry=str(Path(made.path).relative_to(folder)),
    )


def _state(made: Converted) -> VariantState:
    if made.agreement is not None and made.verdict in set(_STATES):
        return _STATES[Equivalence(made.verdict)]
    if made.failure is not None and made.failure.kind in _UNSUPPORTED:
        return VariantState.UNSUPPORTED
    return VariantState.FAILED


def _why(made: Converted) -> str:
    if made.agreement is not None:
        return made.agreement.full_sentence
    return "" if made.failure is None else f"{made.failure.kind}: {made.failure.message}"
