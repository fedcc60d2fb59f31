"""Evaluation of a torch classifier as a metric: counted over samples, and the model left as it was."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from modeldyno.compat.deeplite.evaluation_functions import (
    ComputeEvalMetric,
    EvalLossFunction,
    EvaluationFunction,
    get_accuracy,
    get_missclass,
    get_topk,
)
from modeldyno.compat.deeplite.profiler import MetricProfiler
from modeldyno.compat.deeplite.profiler_functions import ExternalProfilerFunction
from modeldyno.compat.deeplite.status_metrics import Comparative, EvalMetric

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


def test_targets_that_would_broadcast_are_refused() -> None:
    """Three outputs in a column against three numbers in a row would be nine differences."""
    loss = EvalLossFunction(torch.nn.functional.mse_loss)
    assert loss(torch.nn.Identity(), [(INPUTS[:, :1], torch.ones(3, 1))]) == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match=r"shape \(3,\) do not fit outputs of shape \(3, 1\)"):
        loss(torch.nn.Identity(), [(INPUTS[:, :1], torch.ones(3))])


def test_the_mode_of_each_module_is_restored() -> None:
    """Also where the evaluation fails."""
    model = torch.nn.Sequential(torch.nn.Identity(), torch.nn.Dropout())
    model.train()
    model[0].eval()
    get_accuracy(model, batches())
    with pytest.raises(ValueError, match="do not fit"):
        get_accuracy(model, [(INPUTS, LABELS[:2])])

    assert [module.training for module in model.modules()] == [True, False, True]


def test_several_results_need_a_key() -> None:
    """With one, the others are secondary metrics, and the time is a metric, too."""
    unclear = ComputeEvalMetric(get_topk)
    with pytest.raises(ValueError, match="say which one is key="):
        unclear(torch.nn.Identity(), {"test": batches()})
    function = ComputeEvalMetric(get_topk, "top-1", unit_name="%")
    function.add_secondary_metric("top-5", "%")
    profiler = MetricProfiler(torch.nn.Identity(), {"test": list(batches())})
    profiler.register_profiler_function(function)
    status = profiler.compute_network_status(device="cpu")

    assert status["eval_metric"] == pytest.approx(200 / 3)
    assert status["top-5"] == pytest.approx(100)
    assert status["inference_time"] > 0


def test_secondary_metrics_can_be_added_later() -> None:
    """In the unit of the main one unless told; a name that comes twice stands for the later one."""
    profiler = MetricProfiler(torch.nn.Identity(), {"test": list(batches())})
    with pytest.raises(ValueError, match="computes 'eval_metric'; known: none"):
        profiler.add_secondary_eval_metric("top-5")
    profiler.register_profiler_function(ComputeEvalMetric(get_topk, "top-1", unit_name="%"))
    profiler.compute_network_status()
    profiler.add_secondary_eval_metric("top-5", "parts")
    profiler.add_secondary_eval_metric("top-5")

    assert profiler.compute_status("top-5") == 100
    metric = profiler.status_to_dict(to_value=False)["top-5"]
    assert (metric.get_units(), metric.get_comparative()) == ("%", Comparative.DIFF)
    other = MetricProfiler(torch.nn.Identity(), {})
    other.register_profiler_function(ExternalProfilerFunction(lambda m, d: 1, EvalMetric()))
    with pytest.raises(ValueError, match="no ComputeEvalMetric"):
        other.add_secondary_eval_metric("top-5")


def test_an_accuracy_carries_the_interval_of_a_proportion() -> None:
    """Wilson's: 2 of 3 may be 21 to 94 %; what is wrong has its mirror image."""
    right, wrong = (f(torch.nn.Identity(), batches()) for f in (get_accuracy, get_missclass))

    assert (right.low, right.high) == pytest.approx((20.77, 93.85), abs=0.01)
    assert (wrong.low, wrong.high) == pytest.approx((100 - right.high, 100 - right.low))


def test_what_an_evaluation_returned_is_given_as_the_caller_wants_it() -> None:
    """As a dict or as one value, by the key where there are several."""
    filtered = EvaluationFunction.filter_call_rval
    both = {"a": 1, "b": 2}

    assert (filtered(3), filtered(both)) == (3, both)
    assert (filtered(3, return_dict=False), filtered({"a": 1}, return_dict=False)) == (3, 1)
    assert filtered(both, return_dict=False, return_keys="b") == 2
    assert filtered(both, return_dict=True) == both
    assert filtered(both, return_dict=True, return_keys=("b",)) == {"b": 2}
    assert filtered(3, return_dict=True, key_for_non_dict="a") == {"a": 3}
    for returned, more, kind, message in (
        (3, {"return_dict": True}, ValueError, "name it by key_for_non_dict="),
        (both, {"return_dict": False}, ValueError, "a, b; say which one is key="),
        (both, {"return_dict": False, "return_keys": "c"}, KeyError, "^The evaluation returned no 'c'"),
    ):
        with pytest.raises(kind, match=message):
            filtered(returned, **more)


def test_labels_may_be_rows_of_scores() -> None:
    """The largest is the label, be the row one-hot or of a teacher; a column of numbers serves as well."""
    teacher = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.5, 0.3, 0.2]])
    for labels in (teacher, torch.nn.functional.one_hot(LABELS, 3), LABELS[:, None]):
        assert get_accuracy(torch.nn.Identity(), [(INPUTS, labels)]) == pytest.approx(200 / 3)
    assert get_topk(torch.nn.Identity(), [(INPUTS, teacher)], topk=1).keys() == {"top-1"}
    with pytest.raises(ValueError, match="must be one-hot"):
        get_accuracy(torch.nn.Identity(), [(INPUTS, torch.ones(3, 3))])


def test_one_hot_rows_may_be_of_fewer_classes_than_outputs() -> None:
    """With a warning; rows of so many scores do not fit, and neither do rows of more classes."""
    outputs = torch.eye(3)
    rows = torch.tensor([[1, 0], [0, 1], [0, 1]])
    with pytest.warns(UserWarning, match="Labels are of 2 classes, outputs of 3"):
        assert get_accuracy(torch.nn.Identity(), [(outputs, rows)]) == pytest.approx(200 / 3)
    for others in (rows * 0.5, torch.nn.functional.one_hot(torch.arange(3), 4)):
        with pytest.raises(ValueError, match="do not fit outputs"):
            get_accuracy(torch.nn.Identity(), [(outputs, others)])


def test_a_model_that_takes_the_dict_itself_gets_it() -> None:
    """Its only parameter is no key of the batch; one that is a key, or takes any, is called by name."""

    class Whole(torch.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, batch: dict[str, Any]) -> Any:
            return batch["scores"]

    class Named(torch.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, scores: Any) -> Any:
            return scores

    class Anything(torch.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, **batch: Any) -> Any:
            return batch["scores"]

    for model in (Whole(), Named(), Anything()):
        assert get_accuracy(model, [({"scores": INPUTS}, LABELS)]) == pytest.approx(200 / 3)


def test_a_function_gets_only_arguments_that_it_has() -> None:
    """One of the model and the data alone serves, as does one that takes anything, or a class with a call."""

    class Count(EvaluationFunction):
        def __call__(self, _model: Any, loader: Any) -> int:
            return len(list(loader))

    def names(_model: Any, _loader: Any, **more: Any) -> int:
        return len(more)

    for function, value in ((Count(), 2), (names, 1)):
        computed = ComputeEvalMetric(function)(torch.nn.Identity(), {"test": batches()}, device="cpu")
        assert computed["eval_metric"] == value


def test_a_batch_may_be_transformed_before_it_counts() -> None:
    """By a function of its parts, in every evaluation and by the name `transform` of a profiler."""

    def relabel(inputs: Any, labels: Any) -> Any:
        return inputs, torch.zeros_like(labels)

    profiler = MetricProfiler(torch.nn.Identity(), {"test": list(batches())})
    profiler.register_profiler_function(ComputeEvalMetric(get_accuracy))
    assert profiler.compute_network_status(transform=relabel)["eval_metric"] == pytest.approx(100 / 3)
    assert get_missclass(torch.nn.Identity(), batches(), transform=relabel) == pytest.approx(200 / 3)


def test_a_loss_with_a_device_of_its_own_gets_the_model_and_the_batch() -> None:
    """As deeplite-profiler calls it; a dict of losses adds up, and a batch of two counts twice."""

    class Loss:
        moved_to = ""

        def to_device(self, device: Any) -> None:
            self.moved_to = device

        def __call__(self, model: Any, batch: Any) -> Any:
            inputs, labels = batch
            return {"size": float(len(labels)), "outputs": model(inputs).mean() * 0}

    loss = Loss()
    assert EvalLossFunction(loss)(torch.nn.Identity(), batches(), "cpu") == pytest.approx(5 / 3)
    assert loss.moved_to == "cpu"


def test_batches_by_name_are_evaluated() -> None:
    """The labels are the item of that name; a batch without one is refused."""

    class Named(torch.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any) -> Any:
            return x

    assert get_accuracy(Named(), [{"x": INPUTS, "labels": LABELS}]) == pytest.approx(200 / 3)
    with pytest.raises(ValueError, match="batch has x, but no labels"):
        get_accuracy(Named(), [{"x": INPUTS}])


def test_an_unknown_split_and_empty_data_are_refused() -> None:
    """In a sentence."""
    with pytest.raises(ValueError, match="no split 'test'; known: train"):
        ComputeEvalMetric(get_accuracy)(torch.nn.Identity(), {"train": []})
    with pytest.raises(ValueError, match="no samples"):
        get_accuracy(torch.nn.Identity(), [])


def test_further_arguments_of_an_evaluation_are_given_by_name() -> None:
    """`topk` reaches `get_topk`; one that no function has is refused."""
    profiler = MetricProfiler(torch.nn.Identity(), {"test": [(INPUTS, LABELS)]})
    profiler.register_profiler_function(ComputeEvalMetric(get_topk, "top-3"))
    assert profiler.compute_network_status(topk=(1, 3), batch_size=1)["eval_metric"] == 100
    with pytest.raises(ValueError, match="takes 'topc'; they take: device, split, topk, transform"):
        profiler.compute_network_status(topc=1)


@pytest.mark.parametrize(
    "samples",
    [
        [(torch.ones(3, 4, 4) * i, i % 3) for i in range(3)],
        [(torch.ones(3, 4, 4) * i, torch.tensor(i % 3)) for i in range(3)],
        [(torch.ones(3, 4, 4) * i, torch.tensor([i % 3])) for i in range(3)],
        [{"x": torch.ones(3, 4, 4) * i, "label": i % 3} for i in range(3)],
    ],
)
def test_samples_without_a_batch_axis_are_batches_of_one(samples: Any) -> None:
    """As a dataset yields them; two axes of one image are never taken for samples."""

    def first_pixels(x: Any) -> Any:
        assert x.shape == (1, 3, 4, 4)
        return torch.nn.functional.one_hot(x[:, 0, 0, 0].long(), 3).float()

    accuracy = get_accuracy(first_pixels, samples)
    assert float(accuracy) == 100
    assert accuracy.low == pytest.approx(43.85, abs=0.01)  # Wilson's of three samples
