"""Functions that evaluate a classifier on labelled data, counted over samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Any

from modeldyno.base.clock import perf_counter
from modeldyno.base.stats.statistics import share_interval
from modeldyno.compat.deeplite.device_name import Device
from modeldyno.compat.deeplite.forward_pass import DataLoader, synchronize
from modeldyno.compat.deeplite.frameworks import (
    class_numbers,
    evaluation_mode,
    is_loss_of_keras,
    without_gradients,
)
from modeldyno.compat.deeplite.profiler_functions import ProfilerFunction
from modeldyno.compat.deeplite.status_metrics import (
    Comparative,
    DynamicEvalMetric,
    EvalMetric,
    InferenceTime,
    InvalidStatus,
    MissingKey,
    NumberWithInterval,
    StatusKey,
)
from modeldyno.profiling.api.arrays import LABELS, to_array

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    Transform = Callable[..., Any]
    """Makes a batch of the parts of another: ``transform(inputs, labels)``."""


class EvaluationFunction(ABC):
    """Evaluates a model: ``__call__(model, loader, device="cpu", <named arguments>)``."""

    @abstractmethod
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return a number, or a dict of numbers by name."""

    @staticmethod
    def filter_call_rval(
        rval: Any,
        return_dict: bool | None = None,
        return_keys: str | Sequence[str] | None = None,
        key_for_non_dict: str | None = None,
    ) -> Any:
        """Return what was returned as a dict or as one value, whichever a caller wants.

        Args:
            rval: what the function returned: a value, or a dict of values.
            return_dict: whether a dict is wanted; None takes `rval` as it is.
            return_keys: the key of the value that is wanted, or keys of the dict; None takes the only one,
                or all.
            key_for_non_dict: the key of a value that is wanted as a dict.

        Raises:
            InvalidStatus: the value has no key, or there are several and none is named.
            MissingKey: the named one is missing.
        """
        if return_dict is None:
            return rval
        if not isinstance(rval, dict):
            if return_dict and key_for_non_dict is None:
                raise InvalidStatus("The evaluation returned one value; name it by key_for_non_dict=.")
            return {key_for_non_dict: rval} if return_dict else rval
        keys = tuple(rval) if return_keys is None else return_keys
        keys = (keys,) if isinstance(keys, str) else tuple(keys)
        if not return_dict and len(keys) != 1:
            raise InvalidStatus(
                f"The evaluation returned {', '.join(map(str, rval))}; say which one is key=."
            )
        values = {key: _value_of(rval, key) for key in keys}
        return values if return_dict else values[keys[0]]


class EvalLossFunction(EvaluationFunction):
    """The mean of a loss over samples; `loss_fn(outputs, labels)` gives the mean of a batch.

    A loss of Keras gets labels and outputs in its own order, and may give a value for each sample. A loss
    with a method `to_device`, as deeplite-profiler wants it, is called with the model and the batch; of a
    dict of losses the sum counts.

    Raises:
        InvalidStatus: labels that are no whole numbers have another shape than the outputs, which would
            otherwise broadcast into a number.
    """

    def __init__(self, loss_fn: Callable[[Any, Any], Any]) -> None:
        self.loss_fn = loss_fn

    def __call__(
        self,
        model: Any,
        loader: Iterable[Any],
        device: Any = Device.CPU,
        transform: Transform | None = None,
    ) -> float:
        """Compute it."""
        if hasattr(self.loss_fn, "to_device"):
            return self._loss_of_batches(model, loader, device, transform)
        total, count = 0.0, 0
        for outputs, labels in predictions(model, loader, device, transform):
            if "float" in str(labels.dtype) and tuple(labels.shape) != tuple(outputs.shape):
                raise InvalidStatus(
                    f"Labels of shape {tuple(labels.shape)} do not fit outputs of shape "
                    f"{tuple(outputs.shape)}; give one for each output."
                )
            pair = (labels, outputs) if is_loss_of_keras(self.loss_fn) else (outputs, labels)
            total += float(to_array(self.loss_fn(*pair)).mean()) * len(labels)
            count += len(labels)
        return total / _some(count)

    def _loss_of_batches(
        self, model: Any, loader: Iterable[Any], device: Any, transform: Transform | None
    ) -> float:
        self.loss_fn.to_device(device)  # type: ignore[attr-defined]  # its caller has looked
        total, count = 0.0, 0
        with evaluation_mode(model, Device(device)) as called:
            for batch in _transformed(loader, transform):
                with without_gradients():
                    loss: Any = self.loss_fn(called, batch)
                parts = loss.values() if isinstance(loss, Mapping) else (loss,)
                samples = len(_labels_in(batch))
                total += sum(float(to_array(part).mean()) for part in parts) * samples
                count += samples
        return total / _some(count)


class ComputeEvalMetric(ProfilerFunction):
    """Computes `eval_metric` by a function ``func(model, loader)``, and the time that it took.

    The function gets `device`, `transform` and whatever else it has parameters for, if given by name:
    ``profiler.compute_network_status(topk=(1, 3))``.
    """

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
        self.__signature__ = _with_parameters_of(func, signature(type(self).__call__))

    def add_secondary_metric(
        self,
        key: str,
        unit_name: str = "",
        description: str = "",
        comparative: Comparative | str = Comparative.DIFF,
    ) -> DynamicEvalMetric:
        """Return a metric for a further key of the dict that the function returns."""
        self._secondary = [metric for metric in self._secondary if key != metric.NAME]
        self._secondary.append(DynamicEvalMetric(key, unit_name, description, comparative))
        return self._secondary[-1]

    def get_bounded_status_keys(self) -> tuple[StatusKey, ...]:
        """Return the keys that it computes."""
        return (self._main, InferenceTime(), *self._secondary)

    def __call__(
        self,
        model: Any,
        data_splits: Any,
        split: str | None = None,
        device: Any = Device.CPU,
        transform: Transform | None = None,
        **more: Any,
    ) -> dict[str, Any]:
        """Compute them.

        Args:
            model: whatever the function takes.
            data_splits: loaders by name.
            split: by default that which the metric was made with.
            device: where the model runs.
            transform: makes of the parts of a batch those that count; for functions that take one.
            **more: further arguments of the function.
        """
        name = split or self._split
        if name not in data_splits:
            raise InvalidStatus(f"There is no split '{name}'; known: {', '.join(data_splits) or 'none'}.")
        start = perf_counter()
        taken = _accepted(self._function, {"device": device, "transform": transform, **more})
        value = self._function(model, data_splits[name], **taken)
        synchronize(device)
        seconds = perf_counter() - start
        values = value if isinstance(value, dict) else {}
        main = EvaluationFunction.filter_call_rval(value, return_dict=False, return_keys=self._key)
        return {
            "eval_metric": main,
            "inference_time": seconds,
            **{metric.NAME: _value_of(values, metric.NAME) for metric in self._secondary},
        }


def _with_parameters_of(function: Callable[..., Any], call: Signature) -> Signature:
    """Return the signature of a bound call with the parameters of a function beyond model and loader."""
    try:
        further = list(signature(function).parameters.values())[2:]
    except ValueError:  # a function of C that tells none
        further = []
    _, *own = (p for p in call.parameters.values() if p.kind is not Parameter.VAR_KEYWORD)
    names = {parameter.name for parameter in own}
    kinds = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    added = [
        p.replace(kind=Parameter.KEYWORD_ONLY) for p in further if p.kind in kinds and p.name not in names
    ]
    return Signature([*own, *added])


def _accepted(function: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return those arguments that a function has parameters for; all, if it takes any."""
    try:
        parameters = signature(function).parameters
    except ValueError:  # a function of C that tells none
        return {}
    takes_any = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values())
    return {
        name: value
        for name, value in arguments.items()
        if name in parameters or (takes_any and value is not None)
    }


def get_accuracy(
    model: Any,
    loader: Iterable[Any],
    device: Any = Device.CPU,
    transform: Transform | None = None,
) -> NumberWithInterval:
    """Return the share of samples whose largest output is at the label, in percent, with its interval."""
    return get_topk(model, loader, device, topk=1, transform=transform)["top-1"]


def get_missclass(
    model: Any,
    loader: Iterable[Any],
    device: Any = Device.CPU,
    transform: Transform | None = None,
) -> NumberWithInterval:
    """Return the share of samples that are classified wrongly, in percent, with its interval."""
    right = get_accuracy(model, loader, device, transform)
    return NumberWithInterval(100.0 - right, 100.0 - right.high, 100.0 - right.low)


def get_topk(
    model: Any,
    loader: Iterable[Any],
    device: Any = Device.CPU,
    topk: int | tuple[int, ...] = (1, 5),
    transform: Transform | None = None,
) -> dict[str, NumberWithInterval]:
    """Return the share of samples whose label is among the k largest outputs, in percent, as ``top-k``.

    Each has the 95 % interval of a proportion (Wilson). Labels are those of `class_numbers`; `transform`
    makes of the parts of a batch those that count.

    Raises:
        InvalidStatus: outputs are not (samples, classes), labels do not fit, or there are no samples.
    """
    from modeldyno.base.stats.evaluation import correct_within  # numpy is slow to import

    ks = (topk,) if isinstance(topk, int) else topk
    hits, count = dict.fromkeys(ks, 0), 0
    for native_outputs, native_labels in predictions(model, loader, device, transform):
        outputs, labels = to_array(native_outputs), to_array(native_labels)
        numbers = class_numbers(labels, outputs)
        for k in ks:
            hits[k] += int(correct_within(outputs, numbers, min(k, max(2, outputs.shape[-1]))).sum())
        count += len(labels)
    return {f"top-{k}": _percentage(right, _some(count)) for k, right in hits.items()}


def _percentage(right: int, count: int) -> NumberWithInterval:
    low, high = share_interval(right, count)
    return NumberWithInterval(100.0 * right / count, 100.0 * low, 100.0 * high)


def predictions(
    model: Any, loader: Iterable[Any], device: Any, transform: Transform | None = None
) -> Iterator[tuple[Any, Any]]:
    """Yield outputs and labels of every batch (inputs, labels), which may be transformed, on the device."""
    place = Device(device)
    wrapped = loader if isinstance(loader, DataLoader) else DataLoader(loader)
    with evaluation_mode(model, place) as called:
        for batch in _transformed(wrapped, transform):
            with without_gradients():
                outputs = wrapped.forward_pass.perform(called, batch, place)
            labels = _labels_in(batch)
            yield outputs, labels.to(place) if hasattr(labels, "to") else labels


def _transformed(loader: Iterable[Any], transform: Transform | None) -> Iterator[Any]:
    batches = loader.batches() if isinstance(loader, DataLoader) else DataLoader(loader).batches()
    return batches if transform is None else (transform(*batch) for batch in batches)


def _labels_in(batch: Any) -> Any:
    """Return the last part of a batch, or its item named as labels are."""
    if not isinstance(batch, Mapping):
        return batch[-1]
    for name in LABELS:
        if name in batch:
            return batch[name]
    raise InvalidStatus(f"The batch has {', '.join(map(str, batch))}, but no labels; name them 'labels'.")


def _some(count: int) -> int:
    if not count:
        raise InvalidStatus("The data have no samples, so there is nothing to evaluate.")
    return count


def _value_of(values: dict[str, Any], key: str) -> Any:
    if key not in values:
        raise MissingKey(
            f"The evaluation returned no '{key}'; it returned {', '.join(map(str, values)) or 'one number'}."
        )
    return values[key]
