"""The document of a conversion: the source, and for each recipe what became of it, with its agreement."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from modeldyno.base.document import Conclusion
from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.job.model_ref import ModelIdentity
from modeldyno.base.result.result import Fact
from modeldyno.conversion.agreement.agreement import ModelAgreement
from modeldyno.conversion.agreement.rule import Equivalence, Tolerance

SCHEMA = 1
"""Number of the schema of a Conversion."""


class ConversionFailureKind(StrEnum):
    """Why there is no converted model that can be used."""

    UNSUPPORTED_OPERATOR = "unsupported-operator"
    UNSUPPORTED_SOURCE = "unsupported-source"
    """No recipe leads from this kind of model to that form."""
    DYNAMIC_SHAPE = "dynamic-shape"
    """The export is bound to the sizes of its example, or the exporter refused free sizes."""
    MISSING_EXTRA = "missing-extra"
    OUT_OF_MEMORY = "out-of-memory"
    OUTPUT_DIFFERS = "output-differs"
    NO_DEVICE = "no-device"
    """It is made, or compared, on a device that this machine does not have."""
    TIMED_OUT = "timed-out"
    CRASHED = "crashed"
    SOURCE = "source-invalid"
    """The source itself returns NaN or only infinities, or fails: nothing can be compared with it."""
    ERROR = "error"
    """The exporter failed in another way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionFailure:
    """How a recipe failed."""

    kind: ConversionFailureKind
    message: str
    """One sentence without a full stop."""
    advice: str = ""
    """What to do about it."""
    operators: tuple[str, ...] = ()
    """Names of the operators that are not supported."""
    log: str = ""
    """The end of what the exporter printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """What one recipe made of the source."""

    recipe: str
    """The name of the converter, such as ``onnx``."""
    options: dict[str, Fact] = field(default_factory=dict)
    """What was asked of it, such as the opset."""
    converter: str = ""
    """The program and its version, such as ``torch.onnx 2.13.0``."""
    path: str = ""
    """The file or folder; with the suffix ``.unchecked`` if its outputs differ; empty if there is none."""
    digest: str = ""
    """Of its content, as its loader computes it."""
    size: int = 0
    """Bytes on disk."""
    seconds: float = 0.0
    """For loading the source, converting and checking."""
    agreement: ModelAgreement | None = None
    failure: ConversionFailure | None = None
    reproduce: str = ""
    """The script beside the file that makes it again; empty for a live object."""
    inputs: tuple[InputSpec, ...] = ()
    """What it is measured with to be compared with its source: the source's sizes, ranges and samples, by its
    own names. ``source`` names a file of samples beside its own; empty if the request named files."""

    @property
    def usable(self) -> bool:
        """Whether it is the model, or as close as it was declared to be."""
        return self.failure is None and self.agreement is not None

    @property
    def verdict(self) -> str:
        """``agrees``, ``close``, ``differs``, or the kind of failure."""
        if self.agreement is not None and (
            self.failure is None or self.failure.kind is ConversionFailureKind.OUTPUT_DIFFERS
        ):
            return str(self.agreement.verdict)
        return "" if self.failure is None else str(self.failure.kind)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Conversion(Conclusion):
    """A model, and what each recipe made of it."""

    KIND = "conversion"
    id: str
    created: str
    """ISO 8601, UTC."""
    source: str
    """The reference of the model; of one that could not be loaded, as it was typed."""
    model: ModelIdentity | None
    """The source as it was loaded; None if it could not be."""
    inputs: tuple[InputSpec, ...] = ()
    """The inputs that were compared, as the source declares them; ``source`` names a file of real data."""
    first: bool = False
    """Whether the first form that is still the model was asked for, so that those after it were not made."""
    seed: int = 0
    tolerance: Tolerance | None = None
    """A wider bound that was asked for, and by whom."""
    verify: str = ""
    """The user's own function that judged in place of the bounds."""
    software: dict[str, Fact] = field(default_factory=dict)
    converted: tuple[Converted, ...] = ()
    schema: int = SCHEMA

    @property
    def name(self) -> str:
        """Name of the model; its reference if it could not be loaded."""
        return self.source if self.model is None else self.model.name

    def __getitem__(self, recipe: str) -> Converted:
        """Return what a recipe made; KeyError if it was not asked for."""
        for made in self.converted:
            if made.recipe == recipe:
                return made
        raise KeyError(recipe)

    def __bool__(self) -> bool:
        """Whether it is usable."""
        return self.usable

    @property
    def usable(self) -> bool:
        """Whether every recipe made a model that can be used; or one did, if the first was asked for."""
        return (any if self.first else all)(made.usable for made in self.converted)

    @property
    def agreeing(self) -> tuple[Converted, ...]:
        """Those that are still the model, without those that are only close."""
        return tuple(m for m in self.converted if m.usable and m.verdict == Equivalence.AGREES)
