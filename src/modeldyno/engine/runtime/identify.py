"""Load a model in a child process and say what it is: loading may run the model's code."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from modeldyno.base import plugins
from modeldyno.base.errors import RequestError
from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.job.model_ref import ModelIdentity, ModelRef
from modeldyno.engine.runtime.order import answer, run_order
from modeldyno.models.interface import Executes, source_kind

if TYPE_CHECKING:
    from modeldyno.engine.runtime.supervised_child import ChildLimits
    from modeldyno.models.interface import Loader


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentifiedModel:
    """What a model is, and which files it consists of."""

    identity: ModelIdentity
    inputs: tuple[InputSpec, ...]
    kind: str
    """What conversions start from, as `source_kind` gives it."""
    backend: str
    """The backend that runs it unless another is named."""
    files: tuple[str, ...]
    """Absolute paths of all its files; empty if it is no file, or code that may need others."""


def identify_model(ref: ModelRef, *, trust: bool, limits: ChildLimits | None = None) -> IdentifiedModel:
    """Load a model in a child process, which is ended with all that it started.

    Raises:
        RequestError: it cannot be loaded, or takes too long or too much memory.
        TrustRequired: its file runs code, and `trust` was not given.
        MissingExtra: an optional package is not installed.
    """
    identified = run_order(
        "modeldyno.engine.runtime.identify",
        {"ref": msgspec.to_builtins(ref), "trust": trust},
        limits=limits,
        failed=lambda how: RequestError(f"{ref} cannot be loaded: {how}."),
    )
    return msgspec.convert(identified, IdentifiedModel)


def _identify(order: dict[str, Any]) -> Any:
    ref = msgspec.convert(order["ref"], ModelRef)
    loader = plugins.loader(ref.scheme)
    plugins.require(loader.requires, f"model {ref}")
    model = loader.load(ref, seed=0, trust=order["trust"])
    identified = IdentifiedModel(
        identity=model.identity,
        inputs=model.inputs,
        kind=source_kind(model),
        backend=loader.backend,
        files=tuple(str(path.absolute()) for path in _files(loader, ref)),
    )
    return msgspec.to_builtins(identified)


def _files(loader: Loader, ref: ModelRef) -> list[Path]:
    """Return the files of a model that is data; code may import others, and stays where it is."""
    path = Path(ref.locator).expanduser()
    if loader.executes is Executes.NAMED or not path.exists():
        return []
    return list(loader.files(ref))


if __name__ == "__main__":
    answer(_identify)
