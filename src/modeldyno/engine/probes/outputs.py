"""The probe ``outputs``: writes inputs and outputs of one call to a file, for comparison with another run."""

from __future__ import annotations

from hashlib import file_digest
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError
from modeldyno.base.result.result import Artifact
from modeldyno.engine.data import outputs
from modeldyno.engine.interfaces.probe import Pass
from modeldyno.engine.interfaces.session import LocalSession

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.base.metrics.measurement_plan import Plan
    from modeldyno.engine.interfaces.probe import ProbeContext

needs = LocalSession
pass_ = Pass.SECOND


def measure(subject: ProbeContext, plan: Plan) -> Iterator[Artifact]:
    """Write the named input and output arrays of a call with the first payload.

    Raises:
        RequestError: no file was named, it cannot be written, or the output holds no arrays.
    """
    del plan
    import numpy as np  # slow to import

    if subject.observation.outputs is None:
        raise RequestError("The probe 'outputs' needs a file; name one, such as `outputs=answers.npz`.")
    session, path = subject.session, Path(subject.observation.outputs)
    assert isinstance(session, LocalSession)
    arrays = session.arrays(subject.calls[0]())
    if not arrays:
        raise RequestError("The model returned no arrays; omit `outputs`.")
    try:
        with path.open("wb") as file:
            np.savez(file, **outputs.named_arrays(subject.feeds[0], arrays))  # type: ignore[arg-type]
        with path.open("rb") as file:
            digest = file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise RequestError(f"Cannot write {path}: {error.strerror or error}.") from error
    yield Artifact(name="outputs", path=str(path), digest=f"sha256:{digest}")
