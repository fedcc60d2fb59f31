"""A configuration whose outputs are not those of the default is excluded from a sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import modeldyno
from modeldyno.base.errors import RequestError
from modeldyno.sweeps.study.study import TrialState

if TYPE_CHECKING:
    from modeldyno.sweeps.study.study import Study

torch = pytest.importorskip("torch")


def swept(**options: Any) -> Study:
    """Sweep the precision of a module of this process."""
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.Tanh(), torch.nn.Linear(256, 16)).eval()
    return modeldyno.sweep(
        module,
        example=torch.randn(8, 256),
        space={"precision": ("fp32", "bf16")},
        strategy="grid",
        max_trials=2,
        store=False,
        progress=False,
        **options,
    )


def states(study: Study) -> dict[Any, TrialState]:
    """Return the state of each precision."""
    return {trial.point["precision"]: trial.state for trial in study.trials}


def test_a_configuration_beyond_the_tolerance_has_failed() -> None:
    """The reason names the output, by how much it is off and what is allowed."""
    study = swept(tolerance=1e-5)

    assert states(study)["bf16"] is TrialState.FAILED
    failed = next(trial for trial in study.trials if trial.state is TrialState.FAILED)
    assert "they are not those of the default: output '" in failed.failure
    assert failed.failure.endswith("1e-05 is allowed")
    best = modeldyno.sweeps.ranking(study).best
    assert best is not None
    assert best.point["precision"] != "bf16"


def test_the_function_of_the_user_decides() -> None:
    """One of this process judges a model of this process."""
    study = swept(verify=lambda outputs, expected: abs(outputs - expected).max() < 1)

    assert set(states(study).values()) == {TrialState.DONE}


def test_what_refuses_the_default_itself_is_wrong() -> None:
    """It is said before the first trial, as is the name of an output that there is not."""
    with pytest.raises(RequestError, match="do not pass beside themselves: <lambda> refuses them"):
        swept(verify=lambda outputs, expected: outputs is expected)
    with pytest.raises(RequestError, match="no output 'nothing'"):
        swept(tolerance={"nothing": 1e-3})


def test_reuse_knows_no_outputs() -> None:
    """A stored measurement has none, so both together are refused."""
    with pytest.raises(RequestError, match="without their outputs"):
        modeldyno.sweep(
            "examples/digits/digits.onnx", space={"threads": (1, 2)}, tolerance=1e-3, reuse="24h", max_time=1
        )
