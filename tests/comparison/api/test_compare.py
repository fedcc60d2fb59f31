"""``modeldyno.compare``."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import modeldyno
from modeldyno.base.errors import RequestError
from modeldyno.base.metrics.measurement import Distribution, Measurement
from modeldyno.comparison.change.comparison import ChangeVerdict
from modeldyno.comparison.change.default_metrics import ALL
from modeldyno.testing.sample_results import a_result

if TYPE_CHECKING:
    from pathlib import Path

    from modeldyno.base.result.result import Result

pytestmark = pytest.mark.usefixtures("brief_measurements")
QUICK = modeldyno.Plan(max_time=0.3, min_time=0.05, precision=0.2)


def measured(latency: float) -> Result:
    """Make the Result of five processes."""
    random = np.random.default_rng(1)
    runs = [latency * luck * (1 + random.normal(0, 1e-3, 60)) for luck in (1.0, 1.001, 0.999, 1.002, 0.998)]
    return a_result(measurements=(Measurement(metric="latency", value=Distribution.of(*runs)),))


def test_results_are_compared_as_they_are() -> None:
    """The smallest change that matters may be given in any form."""
    before, after = measured(1.0), measured(1.1)

    assert modeldyno.compare(before, after).contrasts[0].outcome is ChangeVerdict.WORSE
    for smallest in (0.2, "20%", {"latency": "20%"}, {ALL: 0.2}):
        assert modeldyno.compare(before, after, smallest=smallest).contrasts[0].outcome is ChangeVerdict.SAME
    assert (
        modeldyno.compare(before, after, after, metrics="latency").contrasts[1].outcome is ChangeVerdict.WORSE
    )


def test_a_comparison_is_saved_and_read(tmp_path: Path) -> None:
    """A comparison is saved to a file and read again."""
    comparison = modeldyno.compare(measured(1.0), measured(1.1))

    modeldyno.save(comparison, tmp_path / "c.json")

    assert modeldyno.read(tmp_path / "c.json") == comparison
    with pytest.raises(RequestError, match="is a comparison, which cannot be compared"):
        modeldyno.compare(comparison, measured(1.0))


def test_wrong_words_are_refused_in_the_words_of_python() -> None:
    """A field of the plan as a knob, or a missing model, is refused."""
    with pytest.raises(RequestError, match="add run="):
        modeldyno.compare(measured(1.0), "call:modeldyno.testing.known_latency:steady")


@pytest.mark.timeout(300)
def test_live_functions_are_compared_inside_this_process() -> None:
    """Functions are measured in turns, like models; that they were not isolated is a doubt."""

    def short(x: np.ndarray) -> Any:
        time.sleep(0.0005)  # a neighbour slows a product of matrices ten times, and a sleep hardly
        return x @ x

    def long(x: np.ndarray) -> Any:
        time.sleep(0.005)
        return x @ x

    comparison = modeldyno.compare(
        short,
        long,
        example=np.ones((8, 8)),
        min_rounds=3,
        max_rounds=3,
        metrics="latency",
        probes="latency",
        plan=replace(QUICK, max_time=0.1, min_time=0.02),
        tags="turns",
    )

    assert modeldyno.store.show(comparison.id) == comparison
    assert len(modeldyno.store.list(tag="turns")) == 2
    assert comparison.contrasts[0].outcome is ChangeVerdict.WORSE
    assert comparison.sequence == (0, 1, 1, 0, 0, 1)
    assert comparison.contrasts[0].outputs[0].largest == 0.0
    assert "not-isolated" in [doubt.code for doubt in comparison.baseline.doubts]
