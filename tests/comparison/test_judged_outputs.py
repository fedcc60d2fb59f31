"""A candidate whose outputs will not do is worse, however fast it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import modeldyno
from modeldyno.base.errors import RequestError
from modeldyno.comparison.change.comparison import ChangeVerdict
from modeldyno.comparison.views.blocks import headline, quick_blocks

if TYPE_CHECKING:
    from modeldyno.comparison.change.comparison import Comparison

torch = pytest.importorskip("torch")


def compared(scale: float, **options: Any) -> Comparison:
    """Compare a module with one whose weights are scaled."""
    torch.manual_seed(0)
    module = torch.nn.Linear(16, 4).eval()
    other = torch.nn.Linear(16, 4).eval()
    other.load_state_dict({name: scale * value for name, value in module.state_dict().items()})
    return modeldyno.compare(
        module, other, example=torch.randn(2, 16), quick=True, store=False, progress=False, **options
    )


def test_a_candidate_beyond_the_tolerance_is_worse() -> None:
    """The first sentence says why, also of a quick look."""
    comparison = compared(1.1, tolerance=1e-3)
    contrast = comparison.contrasts[0]

    assert contrast.outcome is ChangeVerdict.WORSE
    assert "is off by 0.1 of its largest value, where 0.001 is allowed" in contrast.unlike
    assert "does not return what" in headline(comparison)
    assert "does not return what" in quick_blocks(comparison)[0].text  # type: ignore[union-attr]


def test_the_function_of_the_user_judges_the_outputs() -> None:
    """What it accepts is compared by its speed alone."""
    contrast = compared(1.1, verify=lambda outputs, expected: outputs.shape == expected.shape).contrasts[0]

    assert contrast.outputs_verdict is ChangeVerdict.SAME
    assert not contrast.unlike


def test_stored_results_have_no_outputs_to_judge() -> None:
    """They are refused with a tolerance."""
    result = compared(1.0).baseline

    with pytest.raises(RequestError, match="no outputs to judge"):
        modeldyno.compare(result, result, tolerance=1e-3)
