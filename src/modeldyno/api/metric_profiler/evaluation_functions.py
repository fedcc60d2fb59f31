"""Functions that evaluate a torch classifier on labelled data, counted over samples."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from modeldyno.api.metric_profiler.profiler_functions import ProfilerFunction
from modeldyno.api.metric_profiler.status_metrics import (
    Comparative,
    DynamicEvalMetric,
    EvalMetric,
    InferenceTime,
    InvalidFunction,
    InvalidStatus,
    StatusKey,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


class EvaluationFunction(ABC):
    """Evaluates a model: ``__call__(model, loader, device="cpu", <named arguments>)``."""

    @abstractmethod
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return a number, or a dict of numbers by name."""


class EvalLossFunction(EvaluationFunction):
    """The mean of a loss over samples; `loss_fn(outputs, labels)` gives the mean of a batch."""

    def __init__(self, loss_fn: Callable[[Any, Any], Any]) -> None:
        self.loss_fn = loss_fn

    def __call__(self, model: Any, loader: Iterable[Any], device: Any = "cpu") -> float:
        """Compute them."""
        total, count = 0.0, 0
        for outputs, labels in _predictions(model, loader, device):
            total += float(self.loss_fn(outputs, labels)) * len(labels)
            count += len(labels)
        return total / _some(count)


class ComputeEvalMetric(ProfilerFunction):
    """Computes `eval_metric` by a function ``func(model, loader, device=)``, and the time that it took."""

    def __init__(
        self,
        func: Callable[..., Any],
        key: str | None = None,
        default_split: str = "test",
        unit_name: str = "",
        comparative: Comparative | str = Comparative.DIFF,
    ) -> None:
        self._function, self._key, self._split = func, key, default_split
        self._main = EvalMetric(unit_name, comparative)
        self._secondary: list[DynamicEvalMetric] = []

    def add_secondary_metric(
        self,
        key: str,
        unit_name: str = "",
        description: str = "",
        comparative: Comparative | str = Comparative.DIFF,
    ) -> None:
        """Take a further key of the dict that the function returns as a metric of that name."""
        self._secondary.append(DynamicEvalMetric(key, unit_name, description, comparative))

    def get_bounded_status_keys(self) -> tuple[StatusKey, ...]:
        """Return the keys that it computes."""
        return (self._main, InferenceTime(), *self._secondary)

    def __call__(
        self, model: Any, data_splits: Any, split: str | None = None, device: Any = "cpu"
    ) -> dict[str, Any]:
        """Compute them."""
        name = split or self._split
        if name not in data_splits:
            raise InvalidStatus(f"There is no split '{name}'; known: {', '.join(data_splits) or 'none'}.")
        start = time.perf_counter()
        value = self._function(model, data_splits[name], device=device)
        _synchronize(device)
        taken = time.perf_counter() - start
        values = value if isinstance(value, dict) else {}
        main = value
        if values:
            if self._key is None and len(values) > 1:
                raise InvalidFunction(
                    f"The evaluation returned {', '.join(map(str, values))}; say which one is key=."
                )
            main = _value_of(values, next(iter(values)) if self._key is None else self._key)
        return {
            "eval_metric": main,
            "inference_time": taken,
            **{metric.NAME: _value_of(values, metric.NAME) for metric in self._secondary},
        }


def get_accuracy(model: Any, loader: Iterable[Any], device: Any = "cpu") -> float:
    """Return the share of samples whose largest output is at the label, in percent."""
    return get_topk(model, loader, device, topk=(1,))["top-1"]


def get_missclass(model: Any, loader: Iterable[Any], device: Any = "cpu") -> float:
    """Return the share of samples that are classified wrongly, in percent."""
    return 100.0 - get_accuracy(model, loader, device)


def get_topk(
    model: Any, loader: Iterable[Any], device: Any = "cpu", topk: tuple[int, ...] = (1, 5)
) -> dict[str, float]:
    """Return the share of samples whose label is among the k largest outputs, in percent, as ``top-k``.

    Raises:
        InvalidStatus: outputs are not (samples, classes), labels not (samples,), or there are no samples.
    """
    hits, count = dict.fromkeys(topk, 0), 0
    for outputs, labels in _predictions(model, loader, device):
        if outputs.ndim != 2 or tuple(labels.shape) != (len(outputs),):  # noqa: PLR2004 - samples, classes
            raise InvalidStatus(
                f"Labels of shape {tuple(labels.shape)} do not fit outputs of shape {tuple(outputs.shape)}; "
                "they must be (samples,) and (samples, classes)."
            )
        order = outputs.topk(min(max(topk), outputs.shape[1]), dim=1).indices
        for k in topk:
            hits[k] += int((order[:, :k] == labels[:, None]).any(dim=1).sum())
        count += len(labels)
    return {f"top-{k}": 100.0 * right / _some(count) for k, right in hits.items()}


def _predictions(model: Any, loader: Iterable[Any], device: Any) -> Iterator[tuple[Any, Any]]:
    """Yield outputs and labels of every batch (inputs, labels) on the device of the model's parameters."""
    import torch  # noqa: PLC0415 - slow to import

    place = torch.device(str(device))
    with _evaluation_mode(model, place):
        for inputs, labels in loader:
            with torch.no_grad():
                outputs = model(inputs.to(place))
            yield outputs, labels.to(place)


@contextmanager
def _evaluation_mode(model: Any, place: Any) -> Iterator[None]:
    """Set every module to evaluation on a device, and restore the mode and the device of each."""
    modes = [(module, module.training) for module in model.modules()]
    before = next((tensor.device for tensor in model.parameters()), place)
    model.eval().to(place)
    try:
        yield
    finally:
        model.to(before)
        for module, training in modes:
            module.training = training


def _synchronize(device: Any) -> None:
    if str(device).startswith("cuda"):
        import torch  # noqa: PLC0415 - slow to import

        torch.cuda.synchronize(torch.device(str(device)))


def _some(count: int) -> int:
    if not count:
        raise InvalidStatus("The data have no samples, so there is nothing to evaluate.")
    return count


def _value_of(values: dict[str, Any], key: str) -> Any:
    if key not in values:
        raise InvalidFunction(
            f"The evaluation returned no '{key}'; it returned {', '.join(map(str, values)) or 'one number'}."
        )
    return values[key]
