"""What is to be done."""

from __future__ import annotations

from modeldyno.base.job.job import DEFAULT_PROBES, SERVED_PROBES, TRAINING_PROBES, default_probes
from modeldyno.base.job.static_options import Mode


def test_what_is_measured_by_default_depends_on_how_a_model_is_used() -> None:
    """Calls, training steps, or a load."""
    assert default_probes(Mode.INFERENCE) == DEFAULT_PROBES
    assert default_probes(Mode.TRAIN) == TRAINING_PROBES
    assert default_probes(Mode.INFERENCE, served=True) == SERVED_PROBES
