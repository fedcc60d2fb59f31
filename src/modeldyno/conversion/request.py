"""What a user asks to be converted, checked before anything is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base import plugins
from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.base.identity import actor
from modeldyno.base.job.input_spec import InputSpec, parse_input
from modeldyno.base.job.probe_options import check_evaluations, evaluation_name
from modeldyno.base.stats.units import parse_quantity
from modeldyno.conversion.agreement.rule import OutputCheck, Tolerance
from modeldyno.engine.data import labelled_samples
from modeldyno.profiling.request import parse_function
from modeldyno.profiling.resolve_model import resolve_model

if TYPE_CHECKING:
    from modeldyno.base.job.model_ref import ModelRef
    from modeldyno.conversion.interface import Converter

ALL = "all"
"""Stands for every form that the source can become here."""
LOWER_PRECISIONS = ("int8", "fp16")
"""Endings of recipes that lose precision on purpose, after a dash."""
MAX_TIME = 600.0
"""Seconds that one recipe may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionRequest:
    """What a user asked for, as text and values."""

    model: str
    registered: str | None = None
    """Its name in the registry, where `model` is the reference of what is kept under that name."""
    to: tuple[str, ...] = ("onnx",)
    """Recipes, or ``all``."""
    first: bool = False
    """Whether to stop at the first form that is still the model."""
    int8: bool = False
    """Whether to add the int8 recipe of each form that has one."""
    fp16: bool = False
    """Whether to add the recipe in half precision of each form that has one."""
    output: str | Path | None = None
    """The folder; None for one beside the caller that is named for the model."""
    opset: int | None = None
    inputs: tuple[str | InputSpec, ...] = ()
    data: str | Path | None = None
    """A file of real samples (.npz, .npy, .jsonl)."""
    evaluate: tuple[str, ...] = ()
    """Metrics of labelled samples, in which no lossy form may be inferior."""
    evaluated_on: str | Path | None = None
    """The file of these samples; by default `data`, whose samples are then compared as well."""
    max_time: float = MAX_TIME
    """Seconds that one recipe may take."""
    tolerance: TolerancePerOutput = None
    """The share of a sample's largest value by which outputs may be off, as `parse_tolerance` reads it; None
    for what the rule allows."""
    tolerated_by: str = ""
    """Who asked for that tolerance; by default the user of this process."""
    verify: str | None = None
    """The user's own function that judges in place of the bounds, ``file.py:name``."""
    seed: int = 0
    name: str | None = None
    trust: bool = False

    def resolve(self) -> tuple[ConversionRequest, ModelRef]:
        """Resolve the model, and check the recipes and the file of samples.

        Returns:
            The request with the name and inputs of a registered model, unless others are given, and the
            reference of the model.

        Raises:
            RequestError: something is wrong with them.
        """
        model = resolve_model(self.model)
        resolved = replace(self, inputs=self.inputs or model.inputs, name=self.name or model.name)
        resolved.check()
        ref = model.ref if self.registered is None else replace(model.ref, registered=self.registered)
        return resolved, ref

    def check(self) -> None:
        """Check the recipes, the limits and the file of samples.

        Raises:
            RequestError: something is wrong with them.
        """
        if not self.to:
            raise RequestError("Nothing to convert to; name a form, such as onnx.")
        recipes = (*plugins.names("converter"), ALL)
        for recipe in self.to:
            if recipe not in recipes:
                raise UnknownName.among("form to convert to", recipe, recipes)
        self._check_data()
        if self.max_time <= 0:
            raise RequestError("A recipe needs a time limit above 0 s.")
        make_output_check(self.tolerance, self.verify)

    def _check_data(self) -> None:
        """Check the file of samples, and its labels if something is evaluated."""
        check_evaluations(self.metrics())
        labelled = self.evaluated_on or self.data
        if self.evaluate and labelled is None:
            raise RequestError("`evaluate` needs labelled samples; name them with `data`, such as test.npz.")
        if self.evaluate:
            labelled_samples.read_labels(str(labelled))
        elif self.data is not None and not Path(self.data).expanduser().is_file():
            raise RequestError(f"There is no data file {self.data}; check the path given to `data`.")

    def metrics(self) -> tuple[str, ...]:
        """Return what is evaluated, by the metrics' own names."""
        return tuple(dict.fromkeys(evaluation_name(name) for name in self.evaluate))

    def samples(self) -> Path | None:
        """Return the file of samples, without the name of its labels."""
        if self.data is None:
            return None
        path = labelled_samples.read_labels(str(self.data))[0] if self.evaluate else Path(self.data)
        return path.expanduser().absolute()

    def labelled(self) -> str:
        """Return the labelled samples, with an absolute path; empty if nothing is evaluated."""
        source = str(self.evaluated_on or self.data or "")
        if not source or not self.evaluate:
            return ""
        path = labelled_samples.read_labels(source)[0]
        name = source.removeprefix(str(path))
        return f"{path.expanduser().absolute()}{name if name.startswith(':') else ''}"

    def wider(self) -> Tolerance | None:
        """Return the tolerance that was asked for, and who did."""
        return parse_tolerance(self.tolerance, by=self.tolerated_by)

    def requested_inputs(self) -> tuple[InputSpec, ...]:
        """Parse the inputs, and add the file of samples."""
        inputs = tuple(parse_input(item) if isinstance(item, str) else item for item in self.inputs)
        path = self.samples()
        return inputs if path is None else (*inputs, InputSpec(source=str(path)))

    def recipes(self, kind: str) -> tuple[str, ...]:
        """Return the recipes for a source of this kind, each once.

        ``all`` leaves out those that are not for this kind, or whose packages are not installed. What
        has a form already is not converted to it where a lower precision is asked for.
        """
        names, possible = plugins.names("converter"), possible_recipes(kind)
        chosen: list[str] = []
        for recipe in self.to:
            if recipe != ALL:
                chosen.append(recipe)
                continue
            chosen += [name for name in possible if not _precision(name)]
        added: list[str] = []
        for precision in (name for name in LOWER_PRECISIONS if getattr(self, name)):
            added += [f"{name}-{precision}" for name in chosen if f"{name}-{precision}" in names]
            if ALL in self.to:
                added += [name for name in possible if _precision(name) == precision]
            elif kind == "onnx" and f"onnx-{precision}" in possible:
                added.append(f"onnx-{precision}")
        full = [name for name in chosen if name != kind or not added]
        return tuple(dict.fromkeys((*full, *added)))


def possible_recipes(kind: str) -> list[str]:
    """Return the recipes that convert a source of this kind here."""
    return [name for name, converter in plugins.usable("converter") if _is_possible(converter, kind)]


TolerancePerOutput = float | str | Mapping[str, float | str] | None
"""A tolerance as users give it: of all outputs, or by the names of outputs."""


def parse_tolerance(tolerance: TolerancePerOutput, *, by: str = "") -> Tolerance | None:
    """Read a tolerance: ``1e-3``, ``scores=1e-3,boxes=1%`` or a mapping; None if there is none.

    Args:
        tolerance: of all outputs, or by the names of outputs; one without a name is that of all others.
        by: who asks for it; by default the user of this process.

    Raises:
        RequestError: a share is not between 0 and 1, or an output is named twice.
    """
    if tolerance is None:
        return None
    pairs = (
        tolerance.items()
        if isinstance(tolerance, Mapping)
        else map(_share_of_output, str(tolerance).split(","))
    )
    shares: dict[str, float] = {}
    for output, share in pairs:
        if output in shares:
            raise RequestError(
                f"tolerance gives {f'the output {output!r}' if output else 'all outputs'} twice."
            )
        shares[output] = parse_quantity(str(share), "1")
        check_tolerance(shares[output])
    return Tolerance(relative=shares.pop("", 0.0), outputs=shares, by=by or actor())


def make_output_check(tolerance: TolerancePerOutput, verify: str | None) -> OutputCheck | None:
    """Return what outputs must hold; None if nothing is asked.

    Args:
        tolerance: as `parse_tolerance` reads it.
        verify: a function, as `parse_function` reads it.

    Raises:
        RequestError: both are given, or one is wrong.
    """
    shares, function = parse_tolerance(tolerance), parse_function(verify, "verify") or ""
    if shares is not None and function:
        raise RequestError("A function judges in place of a tolerance; give one of verify and tolerance.")
    return OutputCheck(tolerance=shares, verify=function) if shares is not None or function else None


def _share_of_output(text: str) -> tuple[str, str]:
    output, _, share = text.rpartition("=")
    return output.strip(), share.strip()


def check_tolerance(tolerance: float | None) -> float | None:
    """Return a tolerance.

    Raises:
        RequestError: it is no share.
    """
    if tolerance is not None and not 0 < tolerance < 1:
        raise RequestError(
            f"A tolerance of {tolerance:g} is none: give the share of an output's largest value by which it "
            "may be off, such as 1e-3."
        )
    return tolerance


def _precision(recipe: str) -> str:
    """Return the lower precision that a recipe is named for; empty if it is for none."""
    ending = recipe.rpartition("-")[2]
    return ending if ending in LOWER_PRECISIONS else ""


def _is_possible(converter: Converter, kind: str) -> bool:
    return kind in converter.sources and not plugins.missing(converter.sources[kind])
