"""The inputs that a request adds to those that a model needs: optional ones, and any others that it takes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base.job.input_spec import InputSpec
from modeldyno.engine.data import data_files, request_data
from modeldyno.models.interface import Form

if TYPE_CHECKING:
    from collections.abc import Iterable

    from modeldyno.models.interface import Model

_UNNAMED = "input"
"""Name of an input that neither the model nor the user names."""


def with_requested_inputs(model: Model, requested: Iterable[InputSpec], base: Path | None = None) -> Model:
    """Return the model with the optional inputs that are requested, in place of those that they stand for.

    A request without a name is for the inputs that the model needs; where it needs none, for those that a
    file has by name, or else for the first one. ``batch.ids`` is the entry `ids` of an input `batch`, a dict.
    """
    requested = tuple(requested)
    named = tuple(dict.fromkeys(request.name for request in requested if request.name))
    if not model.inputs:
        unnamed = [request for request in requested if not request.name]
        named += tuple(name for request in unnamed for name in _names_of(model, request, base or Path()))
    return with_named_inputs(model, named)


def with_named_inputs(model: Model, names: Iterable[str]) -> Model:
    """Return the model with those of its optional inputs; names that it does not know are left out."""
    inputs = {spec.name: spec for spec in model.inputs}
    optional = {spec.name: spec for spec in model.optional}
    for name in names:
        if name in inputs:
            continue
        parameter = _dict_of(model, name)
        if name in optional:
            inputs[name] = optional.pop(name)
            inputs.pop(model.instead.get(name, ""), None)
        elif parameter:
            inputs.pop(parameter, None)
            inputs[name] = InputSpec(name=name)
        elif model.undeclared:
            inputs[name] = InputSpec(name=name)
    return replace(model, inputs=tuple(inputs.values()), optional=tuple(optional.values()))


def _dict_of(model: Model, name: str) -> str:
    """Return the input that is a dict of which `name` names an entry; empty if there is none."""
    parameter, separator, entry = name.partition(".")
    if model.form != Form.TORCH or not separator or not entry:
        return ""
    begun = any(spec.name.startswith(f"{parameter}.") for spec in model.inputs)
    free = {spec.name for spec in (*model.inputs, *model.optional) if spec.shape is None}
    return parameter if parameter in free or begun else ""


def _names_of(model: Model, request: InputSpec, base: Path) -> tuple[str, ...]:
    """Return the inputs that a request without a name is for, of a model that needs none."""
    known = tuple(spec.name for spec in model.optional)
    first = known[:1] or ((_UNNAMED,) if model.undeclared else ())
    if request.source is None:
        return first
    path = base / Path(request.source).expanduser()
    if path.suffix.lower() == request_data.SUFFIX:
        names = tuple(request_data.read_request_data(path).steps[0])
    else:
        names = tuple(data_files.row_counts(path))
    return tuple(name for name in names if model.undeclared or name in known) or first
