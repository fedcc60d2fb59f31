"""Names of devices."""

from __future__ import annotations

import pytest

from modeldyno.base.job.devices import is_cpu
from modeldyno.base.result.result import Environment
from modeldyno.testing.sample_results import a_result


@pytest.mark.parametrize(
    ("device", "held"),
    [
        ("cpu", True),
        ("cpu:0", True),
        ("CPU:0", True),
        ("TFRT_CPU_0", True),
        ("cuda:0", False),
        ("GPU:1", False),
        ("mps", False),
        ("", False),
    ],
)
def test_the_processor_is_known_by_the_name_of_every_framework(device: str, held: bool) -> None:
    """Torch, TensorFlow and JAX write it differently; the peaks of a Result are those of this device."""
    result = a_result(environment=Environment(conditions={"device": device}))

    assert is_cpu(device) is result.environment.on_cpu is held
    assert result.peaks_scope == ("here" if held else device)


def test_a_result_without_a_device_is_of_the_processor() -> None:
    """No backend of several devices leaves it out."""
    assert Environment().on_cpu
    assert Environment().device == "cpu"
