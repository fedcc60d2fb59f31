"""The probe ``outputs``: a file with what one call was given and returned."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from modeldyno.base.errors import RequestError
from modeldyno.base.job.probe_options import ProbeOptions
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.result.result import Artifact
from modeldyno.engine.data.outputs import load_call
from modeldyno.engine.interfaces.probe import ProbeContext
from modeldyno.engine.interfaces.session import LocalSession
from modeldyno.engine.probes import outputs
from modeldyno.testing.fakes import a_model

if TYPE_CHECKING:
    from pathlib import Path

GIVEN = np.arange(8, dtype=np.float32).reshape(2, 4)


class Doubling(LocalSession):
    """A session of a model that doubles."""

    def prepare(self, feed: dict[str, Any]) -> Any:
        """Give a call."""
        return lambda: 2 * feed["x"]

    def arrays(self, output: Any) -> dict[str, Any]:
        """Show what came out."""
        return {} if output is None else {"y": output}


def subject(path: Path | None, session: Doubling | None = None) -> ProbeContext:
    """Make what the probe looks at."""
    made, feed = session or Doubling(), {"x": GIVEN}
    observation = ProbeOptions(outputs=None if path is None else str(path))
    return ProbeContext(
        model=a_model(), session=made, calls=(made.prepare(feed),), feeds=(feed,), observation=observation
    )


def test_what_was_given_and_returned_is_in_the_file(tmp_path: Path) -> None:
    """The artifact names it, with its digest."""
    path = tmp_path / "o.npz"

    (artifact,) = outputs.measure(subject(path), Plan())

    assert isinstance(artifact, Artifact)
    assert (artifact.name, artifact.path) == ("outputs", str(path))
    assert artifact.digest.startswith("sha256:")
    inputs, returned = load_call(path)
    assert np.array_equal(inputs["x"], GIVEN)
    assert np.array_equal(returned["y"], 2 * GIVEN)


def test_it_needs_a_file_that_can_be_written(tmp_path: Path) -> None:
    """Each is one sentence."""
    with pytest.raises(RequestError, match="needs a file; name one, such as `outputs="):
        list(outputs.measure(subject(None), Plan()))
    with pytest.raises(RequestError, match=r"Cannot write .*absent"):
        list(outputs.measure(subject(tmp_path / "absent" / "o.npz"), Plan()))


def test_what_returns_no_arrays_has_no_outputs(tmp_path: Path) -> None:
    """There is nothing to be held against another's."""
    nothing = replace(subject(tmp_path / "o.npz"), calls=(lambda: None,))

    with pytest.raises(RequestError, match="returned no arrays"):
        list(outputs.measure(nothing, Plan()))
