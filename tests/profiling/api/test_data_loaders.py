"""A DataLoader as the example of every function that takes a live model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import modeldyno
from modeldyno.base.metrics.measurement_plan import Plan

if TYPE_CHECKING:
    from pathlib import Path

torch = pytest.importorskip("torch")
BRIEF = Plan(min_time=0.05, min_runs=5, max_time=0.3, precision=0.5)

pytestmark = pytest.mark.usefixtures("brief_measurements")


@pytest.fixture
def net() -> Any:
    """A layer of four inputs."""
    return torch.nn.Linear(4, 2).eval()


@pytest.fixture
def loader() -> Any:
    """Batches of two, each with its labels."""
    data = torch.utils.data.TensorDataset(torch.ones(8, 4), torch.zeros(8, dtype=torch.long))
    return torch.utils.data.DataLoader(data, batch_size=2)


@pytest.mark.slow
def test_a_comparison(net: Any, loader: Any) -> None:
    """Both sides get its batches."""
    compared = modeldyno.compare(
        net, torch.nn.Linear(4, 2).eval(), example=loader, max_time=1, store=False, progress=False
    )

    assert {result.job.config["batch_size"] for result in compared.results} == {2}


@pytest.mark.parametrize(
    ("space", "sizes"), [pytest.param("threads=1", {2}, marks=pytest.mark.slow), ("batch_size=1,4", {1, 4})]
)
def test_a_sweep(net: Any, loader: Any, space: str, sizes: set[int]) -> None:
    """Its size of a batch is that of every trial, unless it is an axis."""
    study = modeldyno.sweep(
        net, example=loader, space=space, max_trials=2, plan=BRIEF, progress=False, store=False
    )
    results = [trial for trial in study.trials if trial.answers]

    assert results
    assert {trial.point.get("batch_size", study.job.config.get("batch_size")) for trial in results} <= sizes


def test_a_conversion(net: Any, loader: Any, tmp_path: Path) -> None:
    """Into another form."""
    assert modeldyno.convert(net, loader, to="torchscript", output=tmp_path / "forms", store=False)


@pytest.mark.slow
def test_an_explanation(net: Any, loader: Any) -> None:
    """Of the call in this process."""
    assert modeldyno.explain(net, example=loader, max_time=2, rounds=1, store=False, progress=False).hops
