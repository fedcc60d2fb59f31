# ruff: noqa: ARG005 - a loss takes outputs and labels, whether it uses them or not
"""Evaluation of a torch classifier as a metric: counted over samples, and the model left as it was."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from modeldyno.api.metric_profiler.evaluation_functions import (  # noqa: E402 - after the check
    ComputeEvalMetric,
    EvalLossFunction,
    get_accuracy,
    get_missclass,
    get_topk,
)
from modeldyno.api.metric_profiler.profiler import MetricProfiler  # noqa: E402 - after the check

INPUTS = torch.eye(3)
LABELS = torch.tensor([0, 1, 0])  # the identity says 0, 1, 2: two of three are right


def batches() -> Any:
    """Two batches of unlike size, from an iterator without a length."""
    return iter([(INPUTS[:2], LABELS[:2]), (INPUTS[2:], LABELS[2:])])


def test_accuracy_is_of_samples_not_of_batches() -> None:
    """Two of three are 66.7 %, not the mean of 100 % and 0 %."""
    assert get_accuracy(torch.nn.Identity(), batches()) == pytest.approx(200 / 3)
    assert get_missclass(torch.nn.Identity(), batches()) == pytest.approx(100 / 3)
    assert get_topk(torch.nn.Identity(), batches(), topk=(1, 3)) == pytest.approx(
        {"top-1": 200 / 3, "top-3": 100}
    )


def test_a_loss_is_weighed_by_samples() -> None:
    """A batch of two counts twice."""
    loss = EvalLossFunction(lambda outputs, labels: float(len(labels)))
    assert loss(torch.nn.Identity(), batches()) == pytest.approx(5 / 3)


def test_the_mode_of_each_module_is_restored() -> None:
    """Also where the evaluation fails."""
    model = torch.nn.Sequential(torch.nn.Identity(), torch.nn.Dropout())
    model.train()
    model[0].eval()
    get_accuracy(model, batches())
    with pytest.raises(ValueError, match="do not fit"):
        get_accuracy(model, [(INPUTS, LABELS[:, None])])

    assert [module.training for module in model.modules()] == [True, False, True]


def test_several_results_need_a_key() -> None:
    """With one, the others are secondary metrics, and the time is a metric, too."""
    unclear = ComputeEvalMetric(get_topk)
    with pytest.raises(TypeError, match="say which one is key="):
        unclear(torch.nn.Identity(), {"test": batches()})
    function = ComputeEvalMetric(get_topk, "top-1", unit_name="%")
    function.add_secondary_metric("top-5", "%")
    profiler = MetricProfiler(torch.nn.Identity(), {"test": list(batches())})
    profiler.register_profiler_function(function)
    status = profiler.compute_network_status(device="cpu")

    assert status["eval_metric"] == pytest.approx(200 / 3)
    assert status["top-5"] == pytest.approx(100)
    assert status["inference_time"] > 0


def test_an_unknown_split_and_empty_data_are_refused() -> None:
    """In a sentence."""
    with pytest.raises(ValueError, match="no split 'test'; known: train"):
        ComputeEvalMetric(get_accuracy)(torch.nn.Identity(), {"train": []})
    with pytest.raises(ValueError, match="no samples"):
        get_accuracy(torch.nn.Identity(), [])
