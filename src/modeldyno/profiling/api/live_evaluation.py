"""Evaluate a live model by functions, or on a loader of batches, after it was profiled."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.base import plugins
from modeldyno.base.errors import RequestError
from modeldyno.base.job.probe_options import check_evaluations, evaluation_name
from modeldyno.base.metrics.constraints import Constraint
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Interval, Measurement
from modeldyno.base.metrics.metric import METRICS, Better, MetricRow
from modeldyno.base.stats.units import COUNT
from modeldyno.profiling.api.arrays import to_array
from modeldyno.profiling.run import JudgedResult, judge_result

if TYPE_CHECKING:
    from collections.abc import Container, Iterator


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveEvaluation:
    """What is evaluated in this process: named metrics and functions, on an iterable of batches."""

    metrics: tuple[str, ...]
    functions: tuple[Callable[..., Any], ...]
    data: Any
    bounds: tuple[str, ...] = ()
    """Bounds on what is evaluated here."""

    @classmethod
    def of(cls, model: Any, evaluate: Any, data: Any, require: tuple[str, ...]) -> LiveEvaluation | None:
        """Return what is to be evaluated here; None if a file and the names of metrics are given, or nothing.

        Raises:
            RequestError: a name is unknown, the model is no live object, or there is no loader.
        """
        criteria = tuple(evaluate) if isinstance(evaluate, tuple | list) else (evaluate,)
        functions = tuple(each for each in criteria if callable(each))
        if not functions and (data is None or isinstance(data, str | Path)):
            return None
        if isinstance(model, str | Path):
            raise RequestError(
                "Functions and loaders evaluate a live model; of a reference, give evaluate= names such as "
                "'accuracy', and data= a .npz file."
            )
        if isinstance(data, str | Path) or not (hasattr(data, "__iter__") or hasattr(data, "__getitem__")):
            raise RequestError(
                "Functions evaluate a loader: give data= an iterable of batches (inputs, labels), such as a "
                "DataLoader or a tf.data.Dataset."
            )
        texts = (text.strip() for each in criteria if not callable(each) for text in str(each).split(","))
        names = [evaluation_name(text) for text in texts if text]
        check_evaluations(names, needed=not functions)
        evaluated = {*names, *(_register(_name(function)) for function in functions)}
        bounds = (text for text in require if Constraint.parse(text).query.metric in evaluated)
        return cls(metrics=tuple(names), functions=functions, data=data, bounds=tuple(bounds))

    def judge(self, outcome: JudgedResult, model: Any, device: Any) -> JudgedResult:
        """Return the Result with what is evaluated, and the verdicts on bounds of it; a failed one unchanged.

        A function that fails becomes a doubt if anything else was evaluated.

        Raises:
            RequestError: the data do not fit the model or a metric.
        """
        if outcome.result.failures or outcome.result.interrupted:
            return outcome
        place = _place(model) if device is None else str(device)
        measured, doubts = [*self._named(model, place)], []
        for function in self.functions:
            try:
                taken = {m.metric for m in (*outcome.result.measurements, *measured)}
                measured += self._returned(function, model, place, taken)
            except Exception as error:  # what was measured before is kept
                if len(self.functions) == 1 and not measured:
                    raise
                doubts.append(_not_evaluated(function, error))
        result = replace(
            outcome.result,
            measurements=(*outcome.result.measurements, *measured),
            doubts=(*outcome.result.doubts, *doubts),
        )
        judged = judge_result(result, tuple(map(Constraint.parse, self.bounds)))
        return replace(judged, judgements=(*outcome.judgements, *judged.judgements))

    def _named(self, model: Any, device: str) -> Iterator[Measurement]:
        if not self.metrics:
            return
        import numpy as np  # slow at start-up

        from modeldyno.base.stats.evaluation import evaluate  # as above
        from modeldyno.compat.deeplite.evaluation_functions import predictions  # numpy is slow
        from modeldyno.compat.deeplite.frameworks import class_numbers  # as above

        pairs = [
            (to_array(outputs), to_array(labels)) for outputs, labels in predictions(model, self.data, device)
        ]
        if not pairs:
            raise RequestError("The data have no batches, so there is nothing to evaluate.")
        outputs, labels = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
        for name in self.metrics:
            fits = labels
            if name != "mean_absolute_error":
                fits = class_numbers(labels, outputs)
            evaluation = evaluate(name, outputs, fits)
            yield Measurement(
                metric=name,
                value=evaluation.value,
                interval=Interval(low=evaluation.low, high=evaluation.high),
            )
        yield Measurement(metric="evaluated_samples", value=len(labels))

    def _returned(
        self, function: Callable[..., Any], model: Any, device: str, taken: Container[str]
    ) -> list[Measurement]:
        takes = inspect.signature(function).parameters
        value = function(model, self.data, **({"device": device} if "device" in takes else {}))
        values = value if isinstance(value, Mapping) else {_name(function): value}
        named = {_metric_name(str(name)): part for name, part in values.items()}
        for name in named:
            if name in taken:
                raise RequestError(f"The evaluation '{name}' has the name of what was measured; rename it.")
        return [_measurement(_register(name), part) for name, part in named.items()]


def _not_evaluated(function: Callable[..., Any], error: Exception) -> Doubt:
    reason = str(error) if isinstance(error, RequestError) else f"{type(error).__name__}: {error}"
    return Doubt(
        code="not-evaluated",
        seen=f"{_name(function)} was not computed: {reason.rstrip('.')}",
        advice=f"mend {_name(function)}, or leave it out",
    )


def _name(function: Any) -> str:
    return _metric_name(getattr(function, "__name__", type(function).__name__))


def _metric_name(text: str) -> str:
    name = re.sub(r"\W+", "_", text).strip("_").lower()
    return name if name[:1].isalpha() else f"evaluation_{name}".rstrip("_")


def _register(name: str) -> str:
    """Add a metric of that name to the table unless it is there, and return the name."""
    if name not in METRICS:
        row = MetricRow(
            name=name,
            unit=COUNT,
            better=Better.NEITHER,
            sentence="Returned by an evaluation of the user; a single number has no interval.",
        )
        plugins.register_metric(row)
    return name


def _measurement(name: str, value: Any) -> Measurement:
    """Return a number with the interval that it has, or the mean of scores of samples with Student's.

    Raises:
        RequestError: it is neither, or no number.
    """
    import numpy as np  # slow at start-up

    from modeldyno.base.stats.evaluation import paired_mean_difference  # numpy is slow

    if hasattr(value, "low") and hasattr(value, "high"):
        return Measurement(metric=name, value=float(value), interval=Interval(low=value.low, high=value.high))
    try:
        scores = to_array(value).astype(float)
    except (RequestError, TypeError, ValueError):
        raise RequestError(
            f"The evaluation '{name}' returned {type(value).__name__}; return a number, a dict of numbers, "
            "or one score for each sample."
        ) from None
    if np.isnan(scores).any():
        raise RequestError(f"The evaluation '{name}' returned NaN; return numbers.")
    if scores.size == 1:
        return Measurement(metric=name, value=float(scores.reshape(())))
    if scores.ndim != 1 or not scores.size:
        raise RequestError(
            f"The evaluation '{name}' returned an array of shape {scores.shape}; return a number, a dict of "
            "numbers, or one score for each sample."
        )
    mean, low, high = paired_mean_difference(0 * scores, scores)
    return Measurement(metric=name, value=mean, interval=Interval(low=low, high=high))


def _place(model: Any) -> str:
    """Return the device of the parameters of a torch module; of anything else the processor."""
    parameters = getattr(model, "parameters", None)
    first = next(iter(parameters()), None) if callable(parameters) else None
    return str(getattr(first, "device", "cpu"))
