"""``repository:DIR#MODEL``: a model of a Triton repository; an ensemble with all its parts.

Only configurations are read; nothing is executed or changed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError
from modeldyno.base.job.model_ref import ModelIdentity
from modeldyno.models.interface import Executes, Form, Model
from modeldyno.models.load_stages import describing
from modeldyno.models.loaders import digest
from modeldyno.serving.servers import triton_repository_reader

if TYPE_CHECKING:
    from modeldyno.base.job.model_ref import ModelRef

requires: tuple[str, ...] = ()
executes = Executes.NOTHING
backend = "triton"


def claims(path: Path) -> bool:
    """Claim a directory of models as Triton has them, with or without a model name."""
    return triton_repository_reader.is_repository(Path(str(path).partition("#")[0]))


def load(ref: ModelRef, *, seed: int, trust: bool) -> Model:
    """Read the configurations.

    Raises:
        RequestError: there is no such model, or it does not declare its inputs.
    """
    del seed, trust
    directory, _, name = ref.locator.partition("#")
    folder = Path(directory).expanduser().absolute()
    if not triton_repository_reader.is_repository(folder):
        raise RequestError(
            f"'{directory}' is not a model repository: no directory in it has a config.pbtxt, or a version "
            "with a model.onnx."
        )
    model = triton_repository_reader.read_repository(folder, name)
    if not (model.config.get("input") and model.config.get("output")):
        raise RequestError(
            f"The config.pbtxt of '{model.name}' does not declare its inputs and outputs; write them "
            "into it, as Triton returns them by GET /v2/models/NAME/config."
        )
    files = list(model.files())
    with describing():
        content = digest.digest_parts(
            part for path in files for part in (str(path.relative_to(folder)), digest.digest_files([path]))
        )
    return Model(
        identity=ModelIdentity(name=model.name, digest=content, framework="triton"),
        form=Form.REPOSITORY,
        value=model,
        inputs=model.inputs(),
        file_bytes=sum(path.stat().st_size for path in files),
    )


look = load
