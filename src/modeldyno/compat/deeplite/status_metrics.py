"""What a profiler keeps by name: status keys, and metrics, which know how they are shown and compared."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

from modeldyno.base.errors import RequestError

if TYPE_CHECKING:
    from typing import Self


class InvalidStatus(RequestError, ValueError):
    """A status key or its value is not what the profiler can use."""


class InvalidFunction(RequestError, TypeError):
    """A profiler function, or what it returns, is not what the profiler can use."""


class MissingKey(InvalidStatus, KeyError):
    """A dict of values lacks the one that was asked for."""

    __str__ = Exception.__str__  # that of a KeyError quotes the sentence


class ConflictingOverride(InvalidStatus, RuntimeError):
    """Two overriding functions compute one key."""


class NumberWithInterval(float):
    """A number with its 95 % interval, from `low` to `high`, in the same unit.

    The interval is infinite where nothing bounds the number; `doubt` says what may have disturbed it.
    """

    def __new__(cls, value: float, low: float, high: float, doubt: str = "") -> Self:
        """Keep the number with the ends of its interval."""
        estimate = super().__new__(cls, value)
        estimate.low, estimate.high, estimate.doubt = low, high, doubt
        return estimate

    low: float
    high: float
    doubt: str

    def __getnewargs__(self) -> tuple[float, float, float, str]:  # type: ignore[override]  # a float has one
        """Return what a copy is made of."""
        return float(self), self.low, self.high, self.doubt

    def together(self, again: Self) -> Self:
        """Return the mean of two measurements of the same, with what both intervals cover."""
        ends = min(self.low, again.low), max(self.high, again.high)
        return type(self)((self + again) / 2, *ends, self.doubt or again.doubt)


class Comparative(Enum):
    """How the values x and y of two models are compared."""

    DIFF = "diff"
    """x - y"""
    DIV = "div"
    """x / y: more is better."""
    RECIPROCAL = "reciprocal"
    """y / x: fewer is better."""
    NONE = "none"

    @classmethod
    def parse(cls, value: Comparative | str) -> Comparative:
        """Return a Comparative of itself or of its name.

        Raises:
            InvalidStatus: there is none of that name.
        """
        if isinstance(value, cls):
            return value
        for member in cls:
            if str(value).lower() == member.value:
                return member
        names = ", ".join(member.value for member in cls)
        raise InvalidStatus(f"There is no comparative {value!r}; known: {names}.")


class StatusKey(ABC):
    """A value by the name NAME; None until its function has run."""

    NAME: ClassVar[str]

    def __init__(self) -> None:
        self.value: Any = None


class Metric(StatusKey):
    """A status key with a name for people, a unit, and a way to be compared."""

    timed_once: ClassVar[bool] = False
    """Whether its value is the time of one run, which another run would not have."""

    @abstractmethod
    def description(self) -> str:
        """Return what it is, in a sentence."""

    @abstractmethod
    def friendly_name(self) -> str:
        """Return its name for people."""

    @abstractmethod
    def get_units(self) -> str:
        """Return the unit of `get_value`; empty if it has none."""

    @abstractmethod
    def get_comparative(self) -> Comparative | str:
        """Return how two values are compared: a Comparative, or its name."""

    def get_value(self) -> Any:
        """Return the value in the unit of `get_units`, for display; `value` is in base units."""
        return self.value


class _Described(Metric):
    """A metric whose words stand in an attribute."""

    _texts: tuple[str, str]
    """Its name for people, and what it is."""

    def description(self) -> str:
        """Return what it is, in a sentence."""
        return self._texts[1]

    def friendly_name(self) -> str:
        """Return its name for people."""
        return self._texts[0]


class _BuiltIn(_Described):
    """A metric of which fewer is better, shown in a unit of its size."""

    _scales: ClassVar[tuple[tuple[float, str], ...]] = ((1, ""),)
    """Divisors from the largest one, each with its unit; the last one serves smaller values."""

    def get_comparative(self) -> Comparative | str:
        """Return how two values are compared."""
        return Comparative.RECIPROCAL

    def _scale(self) -> tuple[float, str]:
        size = abs(self.value) if isinstance(self.value, int | float) else 0
        return next((scale for scale in self._scales if size >= scale[0]), self._scales[-1])

    def get_units(self) -> str:
        """Return the unit of `get_value`."""
        return self._scale()[1]

    def get_value(self) -> Any:
        """Return the value in the unit of `get_units`."""
        return self.value / self._scale()[0] if isinstance(self.value, int | float) else self.value


class Flops(_BuiltIn):
    """Multiply-accumulates (MACs) of one sample."""

    NAME = "flops"
    _texts = ("Computational Complexity", "Multiply-accumulates (MACs) of matrix products, per sample")
    _scales = ((1e9, "GigaMACs"), (1e6, "MegaMACs"), (1e3, "KiloMACs"), (1, "MACs"))


class TotalParams(_BuiltIn):
    """Number of parameters, frozen ones included."""

    NAME = "total_params"
    _texts = ("Total Parameters", "Number of parameters, trainable or not, shared ones counted once")
    _scales = ((1e6, "Millions"), (1e3, "Thousands"), (1, ""))


class ModelSize(_BuiltIn):
    """Bytes of the parameters."""

    NAME = "model_size"
    _texts = ("Model Size", "Memory of the parameters, each in its own data type")
    _scales = ((2**20, "MiB"), (2**10, "KiB"), (1, "B"))


class MemoryFootprint(ModelSize):
    """Bytes at the peak of one call."""

    NAME = "memory_footprint"
    _texts = (
        "Memory Footprint",
        "Most memory that one call holds: weights, inputs and activations of its batch",
    )


class ExecutionTime(_BuiltIn):
    """Milliseconds of a sample."""

    NAME = "execution_time"
    _texts = ("Execution Time", "Time of the forward pass on the device, per sample")
    _scales = ((0, "ms"),)

    def get_value(self) -> Any:
        """Return the value in the unit of `get_units`."""
        return self.value


class InferenceTime(ExecutionTime):
    """Seconds of the evaluation."""

    NAME = "inference_time"
    timed_once = True
    _texts = ("Inference Time", "Time of the evaluation on the device")
    _scales = ((0, "s"),)


class LayerwiseSummary(StatusKey):
    """A table of layers as text."""

    NAME = "layerwise_summary"


class LayerwiseData(StatusKey):
    """A table of layers as data."""

    NAME = "layerwise_data"


class EvalMetric(_Described):
    """What an evaluation function returned."""

    NAME = "eval_metric"
    _texts = ("Evaluation Metric", "What the evaluation of the model on the data gave")

    def __init__(self, unit_name: str = "", comparative: Comparative | str = Comparative.DIFF) -> None:
        super().__init__()
        self._unit, self._comparative = unit_name, Comparative.parse(comparative)

    def get_units(self) -> str:
        """Return the unit of `get_value`."""
        return self._unit

    def get_comparative(self) -> Comparative | str:
        """Return how two values are compared."""
        return self._comparative


class DynamicEvalMetric(EvalMetric):
    """A metric of an evaluation function that is named when it is made."""

    def __init__(
        self,
        name: str,
        unit_name: str = "",
        description: str = "",
        comparative: Comparative | str = Comparative.DIFF,
    ) -> None:
        super().__init__(unit_name, comparative)
        self.NAME = name  # type: ignore[misc]  # an instance stands for a class of its own
        self._texts = (name, description or f"{name} of the model on the data")
