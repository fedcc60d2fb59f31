"""``repository:DIR#MODEL``: a model of a repository of Triton's, an ensemble with all that it is made of.

Configurations are read; nothing is executed, and nothing in the directory is changed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.adapters.loaders import digest
from modeldyno.core.spec.model_ref import ModelIdentity
from modeldyno.errors import RequestError
from modeldyno.interfaces import Executes, Form, Model
from modeldyno.interfaces.load_stages import describing
from modeldyno.servers import triton_repository_reader

if TYPE_CHECKING:
    from modeldyno.core.spec.model_ref import ModelRef

requires: tuple[str, ...] = ()
tools: tuple[str, ...] = ()
executes = Executes.NOTHING
backend = "triton"


def claims(path: Path) -> bool:
    """Claim a directory whose directories have a ``config.pbtxt``, with or without the name of a model."""
    return triton_repository_reader.is_repository(Path(str(path).partition("#")[0]))


def load(ref: ModelRef, *, seed: int, trust: bool) -> Model:
    """Read the configurations.

    Raises:
        RequestError: there is no such model, or it does not tell its inputs.
    """
    del seed, trust
    place, _, name = ref.locator.partition("#")
    folder = Path(place).expanduser().absolute()
    if not triton_repository_reader.is_repository(folder):
        raise RequestError(f"'{place}' is no repository of models: no directory in it has a config.pbtxt.")
    found = triton_repository_reader.read(folder, name)
    if not (found.config.get("input") and found.config.get("output")):
        raise RequestError(
            f"The config.pbtxt of '{found.name}' does not tell what it takes and returns; write its input "
            "and output into it, as Triton tells them by GET /v2/models/NAME/config."
        )
    files = list(found.files())
    with describing():
        content = digest.of_parts(
            part for path in files for part in (str(path.relative_to(folder)), digest.of_files([path]))
        )
    return Model(
        identity=ModelIdentity(name=found.name, digest=content, framework="triton"),
        form=Form.REPOSITORY,
        value=found,
        inputs=found.inputs(),
        file_bytes=sum(path.stat().st_size for path in files),
    )


look = load
