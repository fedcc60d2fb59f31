"""Functions that compute status keys, called with the arguments that their signatures name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, ClassVar

from modeldyno.compat.deeplite.status_metrics import DynamicEvalMetric, InvalidFunction, StatusKey

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


COMMON_ARGUMENTS = frozenset({"split", "batch_size", "device", "include_weights", "transform"})
"""Arguments of the functions of this package: one call may give them whichever are registered."""


class ProfilerFunction(ABC):
    """Computes one status key or several: ``__call__(model, data_splits, <named arguments>)``."""

    varies: ClassVar[bool] = False
    """Whether its value differs from call to call: a comparison then computes both models in turns."""

    def get_bounded_status_keys(self) -> StatusKey | tuple[StatusKey, ...]:
        """Return the keys that it computes; the older name `get_bounded_status_key` serves as well."""
        older = getattr(self, "get_bounded_status_key", None)
        if older is None:
            raise InvalidFunction(f"{type(self).__name__} has no get_bounded_status_keys; write one.")
        keys: StatusKey | tuple[StatusKey, ...] = older()
        return keys

    @abstractmethod
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the value of its key, or a dict of values by NAME."""


class ExternalProfilerFunction(ProfilerFunction):
    """A plain function ``func(model, data_splits, <named arguments>)``, by default a metric of its name."""

    def __init__(self, func: Callable[..., Any], key: StatusKey | None = None) -> None:
        self._key = key or DynamicEvalMetric(func.__name__, description=(func.__doc__ or "").strip())
        self.function = func

    def get_bounded_status_keys(self) -> StatusKey | tuple[StatusKey, ...]:
        """Return the keys that it computes."""
        return self._key

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compute them."""
        return self.function(*args, **kwargs)


def named_parameters(function: ProfilerFunction) -> dict[str, Parameter]:
    """Return the parameters after model and data splits.

    Raises:
        InvalidFunction: it takes ``*args`` or ``**kwargs``, or fewer than two arguments.
    """
    called = function.function if isinstance(function, ExternalProfilerFunction) else function
    parameters = list(signature(called).parameters.values())
    if any(p.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD) for p in parameters):
        raise InvalidFunction(
            f"The call of {describe_function(function)} takes *args or **kwargs; name its arguments."
        )
    if len(parameters) < 2:
        raise InvalidFunction(f"{describe_function(function)} must take the model and the data splits.")
    return {parameter.name: parameter for parameter in parameters[2:]}


def describe_function(function: ProfilerFunction) -> str:
    """Return its name for messages."""
    if isinstance(function, ExternalProfilerFunction):
        return getattr(function.function, "__name__", "function")
    return type(function).__name__


def call_function(function: ProfilerFunction, model: Any, data: Any, arguments: Mapping[str, Any]) -> Any:
    """Call it with those arguments that it names, positional-only ones by position."""
    by_position, by_name = [], {}
    for name, parameter in named_parameters(function).items():
        if parameter.kind is Parameter.POSITIONAL_ONLY:
            value = arguments.get(name, parameter.default)
            if value is Parameter.empty:
                raise InvalidFunction(f"{describe_function(function)} needs the argument '{name}'.")
            by_position.append(value)
        elif name in arguments:
            by_name[name] = arguments[name]
    return function(model, data, *by_position, **by_name)
