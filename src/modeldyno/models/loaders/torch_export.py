"""``exported:m.pt2``: programs of torch.export.

Every such archive needs trust: torch.export.load unpickles the sample inputs and any weights saved as
pickles, and evaluates the symbolic expressions of the program as Python (by sympy).
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError, TrustRequired
from modeldyno.base.job.input_spec import BATCH, SEQUENCE, InputSpec
from modeldyno.base.job.size_guesses import guess_sizes
from modeldyno.models.interface import Executes, Model
from modeldyno.models.load_stages import describing
from modeldyno.models.loaders import torch_archive, torch_inputs, torch_module, torch_weights

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch.export import ExportedProgram

    from modeldyno.base.job.model_ref import ModelRef

requires: tuple[str, ...] = ("torch",)
executes = Executes.PICKLE
backend = "torch"


def claims(path: Path) -> bool:
    """Claim an archive of torch.export, by its suffix and list of members."""
    return path.suffix == ".pt2" and path.is_file() and _is_exported(torch_archive.archive_members(path))


def load(ref: ModelRef, *, seed: int, trust: bool) -> Model:
    """Load the program and its module."""
    del seed  # its weights are in the file
    path = Path(ref.locator)
    _check(path, trust=trust)
    program = _load_program(path)
    module = program.module()
    for part in module.modules():
        part.training = False  # the export fixed the mode, and eval() is rejected
    with describing():
        content = torch_archive.content_digest(path, leave_out=("data/sample_inputs", "serialized_example"))
        names: dict[str, str] = {}
        inputs = tuple(_inputs(program, torch_inputs.forward_parameters(module), names))
        model = torch_module.describe_module(module, path.stem, content, inputs)
        return replace(
            model, guesses=partial(_guesses, inputs, _bounds(program, names)), file_bytes=path.stat().st_size
        )


look = load
"""Nothing is known of such a model without loading it."""


def _check(path: Path, *, trust: bool) -> None:
    if not path.is_file():
        raise RequestError(f"There is no file '{path}'; give the path of a .pt2 archive.")
    if not _is_exported(torch_archive.archive_members(path)):
        raise RequestError(
            f"'{path}' is not an archive of torch.export, or is damaged; save it again with "
            "torch.export.save."
        )
    if not trust:
        raise TrustRequired(
            f"'{path}' is a torch.export archive, whose pickles and expressions run as code when it is "
            "loaded; give `trust` if you know where it comes from."
        )


def _is_exported(names: tuple[str, ...]) -> bool:
    current = any(name.startswith("models/") and name.endswith(".json") for name in names)
    return current or "serialized_exported_program.json" in names


def _load_program(path: Path) -> ExportedProgram:
    import torch  # heavy

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # archives of other releases warn, but load all the same
        try:
            return torch.export.load(path)
        except Exception as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise RequestError(
                f"torch {torch.__version__} cannot load '{path}': {reason}; export it again with it."
            ) from error


def _inputs(
    program: ExportedProgram, names: tuple[str, ...], dynamic_names: dict[str, str]
) -> Iterator[InputSpec]:
    """Declare the user inputs; a dynamic dimension has a name, which is added to `dynamic_names`."""
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    user_inputs = program.graph_signature.user_inputs
    labels = names if len(names) == len(user_inputs) else tuple(map(str, user_inputs))
    for label, placeholder in zip(labels, user_inputs, strict=True):
        value = values.get(str(placeholder))
        if value is not None and hasattr(value, "dtype"):
            yield InputSpec(
                name=label,
                shape=tuple(_dimension(value, axis, dynamic_names) for axis in range(value.ndim)),
                dtype=torch_weights.dtype_name(value.dtype),
            )


def _bounds(program: ExportedProgram, dynamic_names: Mapping[str, str]) -> dict[str, tuple[int, int]]:
    """Return the smallest and largest size that the export allows of each dynamic dimension."""
    return {
        dynamic_names[str(symbol)]: (max(1, int(allowed.lower)), int(min(allowed.upper, sys.maxsize)))
        for symbol, allowed in program.range_constraints.items()
        if str(symbol) in dynamic_names
    }


def _guesses(
    inputs: tuple[InputSpec, ...], bounds: Mapping[str, tuple[int, int]], known: Mapping[str, int]
) -> Iterator[Mapping[str, int]]:
    """Yield guesses within the bounds, or at the next of them."""
    for guess in guess_sizes(inputs, known):
        limits = [bounds.get(name, (1, sys.maxsize)) for name in guess]
        yield {
            name: min(max(size, low), high)
            for (name, size), (low, high) in zip(guess.items(), limits, strict=True)
        }


def _dimension(value: Any, axis: int, dynamic_names: dict[str, str]) -> int | str:
    """Name a dynamic dimension: the archive has only symbols such as s31; equal ones are one dimension."""
    size = value.shape[axis]
    if isinstance(size, int):
        return size
    label = str(size)
    if axis == 0 and BATCH not in dynamic_names.values():
        label = BATCH
    elif axis == 1 and not value.is_floating_point() and SEQUENCE not in dynamic_names.values():
        label = SEQUENCE
    return dynamic_names.setdefault(str(size), label)
