"""``tensorrt:model.engine``: an engine of TensorRT or TensorRT for RTX, for the GPU it was built for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError
from modeldyno.base.job.model_ref import ModelIdentity
from modeldyno.models import tensorrt_engine
from modeldyno.models.interface import Executes, Form, Model
from modeldyno.models.load_stages import describing
from modeldyno.models.loaders import digest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from modeldyno.base.job.model_ref import ModelRef

requires: tuple[str, ...] = ()
executes = Executes.NOTHING
backend = "tensorrt"


def claims(path: Path) -> bool:
    """Claim a file that begins as an engine does, and has one of its usual endings."""
    return path.suffix.lower() in tensorrt_engine.SUFFIXES and tensorrt_engine.package_of(path) is not None


@describing()
def load(ref: ModelRef, *, seed: int, trust: bool) -> Model:
    """Read which package runs the engine, and its inputs if a conversion described them beside it.

    Raises:
        RequestError: there is no such file, or it is no engine.
    """
    del seed, trust  # nothing in it is random, and nothing is executed
    path = Path(ref.locator)
    if not path.is_file():
        raise RequestError(f"There is no file '{path}'; check the path of the engine.")
    if tensorrt_engine.package_of(path) is None:
        raise RequestError(f"'{path}' is no engine of TensorRT, or is damaged; build it again.")
    inputs = tensorrt_engine.read_inputs(path)
    return Model(
        identity=ModelIdentity(name=path.stem, digest=digest.digest_files([path]), framework="tensorrt"),
        form=Form.TENSORRT,
        value=path,
        inputs=inputs or (),
        undeclared=inputs is None,
        file_bytes=path.stat().st_size,
    )


look = load
"""The engine is digested only."""


def files(ref: ModelRef) -> Iterable[Path]:
    """Return the engine, and the file that describes its inputs."""
    return tensorrt_engine.described_files(Path(ref.locator))
