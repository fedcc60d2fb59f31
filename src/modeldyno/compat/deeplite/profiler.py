"""A model with registered functions, the values that they computed, and comparisons of two such models."""

from __future__ import annotations

import warnings
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import ModelDynoError
from modeldyno.compat.deeplite.profiler_functions import (
    COMMON_ARGUMENTS,
    ProfilerFunction,
    call_function,
    describe_function,
    named_parameters,
)
from modeldyno.compat.deeplite.status_metrics import (
    Comparative,
    ConflictingOverride,
    EvalMetric,
    InvalidFunction,
    InvalidStatus,
    Metric,
    NumberWithInterval,
    StatusKey,
)
from modeldyno.compat.deeplite.status_table import (
    DefaultDisplay,
    StatusChange,
    StatusComparison,
    describe_metric,
    doubt_of,
    make_table,
    write_table,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


@dataclass(slots=True)
class _Entry:
    """A registered key: its function, and what came out of it with which arguments."""

    status: StatusKey
    function: ProfilerFunction
    overriding: bool
    computed: bool = False
    arguments: dict[str, Any] = field(default_factory=dict)
    failure: str = ""

    def clear(self) -> None:
        self.status.value = None
        self.computed, self.arguments, self.failure = False, {}, ""

    def fail(self, reason: str) -> None:
        self.clear()
        self.failure = reason


class _KeyLeftOut(InvalidFunction):
    """A function of several keys returned others, but not this one."""


class MetricProfiler:
    """Computes metrics of a model by the functions that a user registers.

    Args:
        model: whatever the functions take.
        data_splits: data by name of split, such as ``{"train": loader, "test": loader}``.
        name: name of the model in tables.
        display: maps the metrics by key to those that tables show, in their order.
    """

    backend = "<None>"

    def __init__(
        self,
        model: Any,
        data_splits: Mapping[str, Any] | None,
        name: str = "<UnNamedModel>",
        display: Callable[[dict[str, StatusKey]], dict[str, StatusKey]] | None = None,
    ) -> None:
        self.model, self.data_splits, self.name = model, data_splits, name
        self.display = display or DefaultDisplay()
        self._entries: dict[str, _Entry] = {}

    def register_profiler_function(
        self, profiler_func: ProfilerFunction, override: bool = False
    ) -> ProfilerFunction:
        """Register a function for each key that it computes; for all of them or, if it fails, for none.

        A plain function replaces a plain one with a warning and leaves an overriding one in place with a
        warning; an overriding function replaces a plain one.

        Raises:
            InvalidFunction: its call takes ``*args`` or ``**kwargs``.
            ConflictingOverride: two overriding functions compute the same key.
            InvalidStatus: two unlike classes have the same NAME and the new one does not override.
        """
        named_parameters(profiler_func)
        keys = profiler_func.get_bounded_status_keys()
        new = describe_function(profiler_func)
        taken: dict[str, _Entry] = {}
        for key in (keys,) if isinstance(keys, StatusKey) else keys:
            old = self._entries.get(key.NAME)
            if old and old.overriding:
                if override:
                    raise ConflictingOverride(
                        f"Both {describe_function(old.function)} and {new} override '{key.NAME}'; "
                        "register one of them without override."
                    )
                warnings.warn(
                    f"{describe_function(old.function)} overrides '{key.NAME}'; {new} does not compute it.",
                    stacklevel=2,
                )
                continue
            if not override:
                same_name = taken.get(key.NAME, old)
                check_same_metric(key, same_name.status if same_name else None)
            if old and not override:
                warnings.warn(
                    f"{new} replaces {describe_function(old.function)} for '{key.NAME}'.", stacklevel=2
                )
            taken[key.NAME] = _Entry(key, profiler_func, override)
        self._entries |= taken
        return profiler_func

    def compute_status(self, key: str, recompute: bool = False, **kwargs: Any) -> Any:
        """Return the value of a key; a kept one if it was computed with the same arguments or none are given.

        Raises:
            InvalidStatus: the key or an argument is unknown to every registered function.
            InvalidFunction: a function of several keys returned no value for this one.
        """
        entry = self._entry(key)
        self._check_arguments(kwargs)
        names = named_parameters(entry.function)
        arguments = {name: value for name, value in kwargs.items() if name in names}
        if (
            entry.computed
            and not recompute
            and all(
                name in entry.arguments and _same(entry.arguments[name], value)
                for name, value in arguments.items()
            )
        ):
            return entry.status.value
        value = call_function(entry.function, self.model, self.data_splits, arguments)
        values = value if isinstance(value, dict) else {key: value}
        for name, part in values.items():
            other = self._entries.get(name)
            if other and other.function is entry.function:
                other.status.value = part
                other.computed, other.arguments, other.failure = True, arguments, ""
        if key not in values:
            raise _KeyLeftOut(
                f"{describe_function(entry.function)} computes '{key}', but its dict has no such key."
            )
        return values[key]

    def compute_network_status(
        self,
        print_mode: str | None = None,
        recompute: bool = False,
        short_print: bool = True,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Compute what is missing, in order of registration; a failing one is None, and its failure shown.

        Raises:
            InvalidStatus: no registered function takes one of the arguments, and it is none of
                `COMMON_ARGUMENTS`.
        """
        self._check_arguments(kwargs)
        if recompute:
            self.reset_status()
        failures: dict[int, str] = {}
        for key, entry in self._entries.items():
            if id(entry.function) not in failures:
                try:
                    self.compute_status(key, **kwargs)
                except _KeyLeftOut as error:
                    entry.fail(str(error))
                except Exception as error:  # noqa: BLE001 - the other metrics are computed in any case
                    own = isinstance(error, ModelDynoError)  # a sentence by itself
                    failures[id(entry.function)] = str(error) if own else f"{type(error).__name__}: {error}"
            if id(entry.function) in failures:
                entry.fail(failures[id(entry.function)])
        if print_mode:
            self.display_status(print_mode=print_mode, short_print=short_print)
        return self.status_to_dict()

    def compare(
        self,
        other: MetricProfiler,
        print_mode: str = "info",
        recompute: bool = False,
        short_print: bool = True,
        **kwargs: Any,
    ) -> StatusComparison:
        """Compute both with the same arguments; print and return the metrics side by side.

        What varies from call to call, such as a time, is measured once more in turns: the value is the mean
        of both, and its interval covers both.

        Raises:
            InvalidStatus: the other is no profiler.
        """
        if not isinstance(other, MetricProfiler):
            raise InvalidStatus(f"Only a profiler can be compared with, not {type(other).__name__}.")
        self.compute_network_status(recompute=recompute, **kwargs)
        other.compute_network_status(recompute=recompute, **kwargs)
        for key in self._entries.keys() & other._entries.keys():  # a change of the machine meets both
            for profiler in (self, other):
                profiler._compute_again(key)
        comparison = self._comparison(other, short=short_print)
        write_table(str(comparison), print_mode)
        return comparison

    def _compute_again(self, key: str) -> None:
        """Compute a kept value that varies once more, and keep it together with the first."""
        entry = self._entries[key]
        before = entry.status.value
        if not (entry.computed and entry.function.varies and isinstance(before, NumberWithInterval)):
            return
        again = self.compute_status(key, recompute=True, **entry.arguments)
        entry.status.value = before.together(again)

    def display_status(
        self, other: MetricProfiler | None = None, print_mode: str = "debug", short_print: bool = True
    ) -> None:
        """Print the metrics of this model, or of two side by side."""
        if other is not None:
            write_table(str(self._comparison(other, short=short_print)), print_mode)
            return
        metrics = self._chosen_metrics()
        rows: list[tuple[str, ...]] = [(f"Backend: {self.backend}", "")]
        rows += [self._row(key, metric) for key, metric in metrics.items()]
        lines = [make_table((f"Param Name ({self.name})", "Value"), rows)]
        doubts = ((metric.friendly_name(), doubt_of(metric)) for metric in metrics.values())
        lines += [f"{label}: {doubt}" for label, doubt in doubts if doubt]
        if not short_print:
            lines += [f"* {metric.friendly_name()}: {metric.description()}" for metric in metrics.values()]
            summary = self._entries.get("layerwise_summary")
            lines += [str(summary.status.value)] if summary and summary.computed else []
        lines += [f"{key} failed: {e.failure}" for key, e in self._entries.items() if e.failure]
        write_table("\n".join(lines), print_mode)

    def add_secondary_eval_metric(
        self,
        key: str,
        unit_name: str | None = None,
        description: str | None = None,
        comparative: Comparative | str | None = None,
    ) -> None:
        """Keep a further key of the dict that the evaluation returns, by default in the main unit.

        Raises:
            InvalidStatus: no registered function computes `eval_metric` by an evaluation.
        """
        main = self._entry("eval_metric")
        if not isinstance(main.status, EvalMetric) or not hasattr(main.function, "add_secondary_metric"):
            raise InvalidStatus(
                "The function of eval_metric is no ComputeEvalMetric, which has secondary ones."
            )
        added = main.function.add_secondary_metric(
            key,
            main.status.get_units() if unit_name is None else unit_name,
            description or "",
            main.status.get_comparative() if comparative is None else comparative,
        )
        self._entries[key] = _Entry(added, main.function, main.overriding)

    def clone(
        self, model: Any = None, data_splits: Mapping[str, Any] | None = None, retain_status: bool = False
    ) -> MetricProfiler:
        """Return a profiler with the same functions, another model or data, and no values unless retained."""
        new = type(self)(
            self.model if model is None else model,
            self.data_splits if data_splits is None else data_splits,
            name=f"{self.name} (clone)",
            display=self.display,
        )
        new.backend = self.backend
        for key, entry in self._entries.items():
            copied = _Entry(copy(entry.status), entry.function, entry.overriding)
            if retain_status:
                copied.computed, copied.arguments = entry.computed, dict(entry.arguments)
                copied.failure = entry.failure
            else:
                copied.clear()
            new._entries[key] = copied
        return new

    def status_get(self, key: str) -> Any:
        """Return the kept value of a key; None if it was not computed."""
        return self._entry(key).status.value

    def status_contains(self, key: str) -> bool:
        """Return whether a function computes this key."""
        return key in self._entries

    def status_keys(self) -> Iterator[str]:
        """Return the keys in order of registration."""
        return iter(tuple(self._entries))

    def status_values(self, to_value: bool = True) -> Iterator[Any]:
        """Return the kept values, or copies of the status keys."""
        return iter(self.status_to_dict(to_value).values())

    def status_items(self, to_value: bool = True) -> Iterator[tuple[str, Any]]:
        """Return keys with values, or with copies of the status keys."""
        return iter(self.status_to_dict(to_value).items())

    def status_to_dict(self, to_value: bool = True) -> dict[str, Any]:
        """Return a dict of the kept values, or of copies of the status keys."""
        return {k: e.status.value if to_value else copy(e.status) for k, e in self._entries.items()}

    def load_from_dict(self, status_dict: Mapping[str, Any], to_value: bool = True) -> None:
        """Replace all kept values by those of `status_to_dict`; keys without a function are left out."""
        self.reset_status()
        for key, value in status_dict.items():
            if key in self._entries:
                entry = self._entries[key]
                entry.status.value, entry.computed = value if to_value else value.value, True

    def reset_status(self) -> None:
        """Forget all kept values."""
        for entry in self._entries.values():
            entry.clear()

    def _entry(self, key: str) -> _Entry:
        if key not in self._entries:
            keys = ", ".join(self._entries) or "none"
            raise InvalidStatus(f"No registered function computes '{key}'; known: {keys}.")
        return self._entries[key]

    def _check_arguments(self, arguments: Mapping[str, Any]) -> None:
        parameters = {name for e in self._entries.values() for name in named_parameters(e.function)}
        for name in arguments:
            if name not in parameters | COMMON_ARGUMENTS:
                listed = ", ".join(sorted(parameters)) or "none"
                raise InvalidStatus(f"No registered function takes '{name}'; they take: {listed}.")

    def _chosen_metrics(self) -> dict[str, Metric]:
        statuses = {key: entry.status for key, entry in self._entries.items()}
        chosen = self.display(statuses)
        return {key: status for key, status in chosen.items() if isinstance(status, Metric)}

    def _row(self, key: str, metric: Metric) -> tuple[str, str]:
        entry = self._entries[key]
        return describe_metric(metric, computed=entry.computed, failure=entry.failure)

    def _comparison(self, other: MetricProfiler, *, short: bool) -> StatusComparison:
        mine, theirs = self._chosen_metrics(), other._chosen_metrics()
        changes = []
        for key in {**mine, **theirs}:
            pair = (mine.get(key), theirs.get(key))
            metric = pair[0] or pair[1]
            assert metric is not None
            check_same_metric(*pair)
            texts = [
                profiler._row(key, side) if side else ("", "-")
                for profiler, side in zip((self, other), pair, strict=True)
            ]
            label, values = metric.friendly_name(), (texts[0][1], texts[1][1])
            if texts[0][0] == texts[1][0] or not all(pair):
                label = texts[0][0] or texts[1][0]
            else:  # of other scales, so that each value has its own unit
                values = tuple(  # type: ignore[assignment]
                    f"{text} {side.get_units()}" if side and side.value is not None else text
                    for text, side in zip(values, pair, strict=True)
                )
            changes.append(
                StatusChange(
                    key=key,
                    label=label,
                    x=pair[0].value if pair[0] else None,
                    y=pair[1].value if pair[1] else None,
                    shown=values,
                    comparative=_comparative_of(metric),
                    description=metric.description(),
                    timed_once=metric.timed_once,
                )
            )
        failures = tuple(
            f"{key} of {profiler.name} failed: {entry.failure}"
            for profiler in (self, other)
            for key, entry in profiler._entries.items()
            if entry.failure
        )
        return StatusComparison(
            name=self.name, other=other.name, changes=tuple(changes), failures=failures, short=short
        )


def _comparative_of(metric: Metric) -> Comparative:
    """Return how a metric is compared; with a warning not at all, if it names no way that there is."""
    try:
        return Comparative.parse(metric.get_comparative())
    except InvalidStatus as error:
        warnings.warn(f"'{metric.NAME}' is not compared. {error}", stacklevel=4)
        return Comparative.NONE


def check_same_metric(one: StatusKey | None, other: StatusKey | None) -> None:
    """Refuse two status keys of one NAME whose classes have nothing to do with each other."""
    if one is None or other is None:
        return
    kinds = (type(one), type(other))
    if not (issubclass(*kinds) or issubclass(*reversed(kinds))):
        named = " and ".join(sorted(f"{kind.__module__}.{kind.__qualname__}" for kind in kinds))
        raise InvalidStatus(
            f"{named} are both named '{one.NAME}', but are unlike metrics; rename one, or register its "
            "function with override=True."
        )


def _same(a: Any, b: Any) -> bool:
    """Return whether two arguments are equal; arrays only if they are one object."""
    try:
        return a is b or bool(a == b)
    except (ValueError, RuntimeError):
        return False
