"""The probe ``outputs``: what one call was given and returned, in a file, to be held against another's."""

from __future__ import annotations

from hashlib import file_digest
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.core.result.result import Artifact
from modeldyno.data import outputs
from modeldyno.errors import RequestError
from modeldyno.interfaces import CanCall, Pass

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.core.metrics.measurement_plan import Plan
    from modeldyno.interfaces import Subject

needs = CanCall
pass_ = Pass.SECOND


def measure(subject: Subject, plan: Plan) -> Iterator[Artifact]:
    """Write the arrays that a call of the first payload returns, under their names, and those it was given.

    Raises:
        RequestError: no file was named, it cannot be written, or the output holds no arrays.
    """
    del plan
    import numpy as np  # noqa: PLC0415 - dear at start-up

    if subject.observation.outputs is None:
        raise RequestError("The probe 'outputs' needs a file for them; name one with --outputs FILE.npz.")
    session, path = subject.session, Path(subject.observation.outputs)
    assert isinstance(session, CanCall)
    found = session.arrays(subject.calls[0]())
    if not found:
        raise RequestError("What the model returned holds no arrays; leave --outputs away.")
    try:
        with path.open("wb") as file:
            np.savez(file, **outputs.arrays(subject.feeds[0], found))  # type: ignore[arg-type]
        with path.open("rb") as file:
            digest = file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise RequestError(f"Cannot write {path}: {error.strerror or error}.") from error
    yield Artifact(name="outputs", path=str(path), digest=f"sha256:{digest}")
