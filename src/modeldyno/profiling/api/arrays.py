"""Converts inputs (tensors, arrays, DataLoaders) to host arrays, and to files for another process."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import replace
from inspect import Parameter, signature
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError
from modeldyno.base.job.input_spec import InputSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy import ndarray

    from modeldyno.base.job.knob import KnobValue
    from modeldyno.base.result.result import Result

_BATCHES = 8
"""Maximum number of DataLoader batches that are used."""
LABELS = ("label", "labels", "target", "targets")
"""Names of what a batch holds for the loss only."""


def is_array(value: Any) -> bool:
    """Check whether a value is an array or a tensor."""
    return hasattr(value, "shape") and hasattr(value, "dtype")


def to_host(data: Any) -> Any:
    """Copy tensors to the host, also within mappings, tuples and lists."""
    if hasattr(data, "detach"):
        return data.detach().cpu()
    if isinstance(data, Mapping):
        return {name: to_host(item) for name, item in data.items()}
    if isinstance(data, tuple | list) and all(map(is_array, data)):
        return tuple(map(to_host, data))
    return data


def to_array(value: Any) -> ndarray:
    """Convert a value to a NumPy array of numbers.

    Raises:
        RequestError: it holds something other than numbers.
    """
    import numpy as np  # slow at start-up

    tensor = to_host(value)
    if hasattr(tensor, "numpy"):
        tensor = (tensor.float() if "bfloat16" in str(tensor.dtype) else tensor).numpy()
    try:
        result = np.asarray(tensor)
    except (TypeError, ValueError):
        result = np.empty(0, dtype=object)
    if result.dtype.kind not in "biufc":
        raise RequestError(
            f"Inputs are arrays or tensors of numbers, not {type(value).__name__}; "
            "put text into a file: input_data='texts.txt'."
        )
    return result


_PREFIX = "modeldyno-"
_IN_MEMORY = "an array given in Python"


@contextmanager
def arrays_in_files(arrays: Mapping[str, ndarray]) -> Iterator[tuple[InputSpec, ...]]:
    """Yield arrays as files for another process; errors do not name these, as the caller gave arrays."""
    import numpy as np  # slow at start-up

    with TemporaryDirectory(prefix=_PREFIX) as folder:
        paths = [Path(folder) / f"{index}.npy" for index in range(len(arrays))]
        for path, values in zip(paths, arrays.values(), strict=True):
            np.save(path, values, allow_pickle=False)
        try:
            yield tuple(
                InputSpec(name=name, source=str(path)) for name, path in zip(arrays, paths, strict=True)
            )
        except RequestError as error:
            text = re.sub(rf"{re.escape(folder)}/\d+\.npy: ", "", str(error))
            if text == str(error):
                raise
            raise type(error)(text[0].upper() + text[1:]) from error


def without_files(result: Result) -> Result:
    """Replace references to deleted input files by their shapes and dtypes."""
    used = {spec.name: spec for spec in result.inputs}
    return replace(
        result,
        job=replace(result.job, inputs=tuple(_without_source(spec, used) for spec in result.job.inputs)),
        inputs=tuple(replace(spec, source=_IN_MEMORY) if _is_gone(spec) else spec for spec in result.inputs),
    )


def _without_source(spec: InputSpec, used: Mapping[str, InputSpec]) -> InputSpec:
    used_spec = used.get(spec.name)
    if not _is_gone(spec) or used_spec is None:
        return spec
    return replace(spec, source=None, shape=used_spec.shape, dtype=used_spec.dtype)


def _is_gone(spec: InputSpec) -> bool:
    path = Path(spec.source or "")
    return path.parent.name.startswith(_PREFIX) and not path.exists()


# --- batches of a DataLoader ---------------------------------------------------------------------


def with_batches(
    model: Any, example: Any, settings: Mapping[str, KnobValue], mode: str
) -> tuple[Any, dict[str, KnobValue]]:
    """Concatenate the first batches of a DataLoader, to be split into batches of that size again.

    From a batch of several parts, such as ``(images, labels)``, the model gets as many as it needs; from a
    mapping, those that it accepts, without labels except in training.

    Args:
        model: the model that takes the inputs.
        example: the inputs; anything but a DataLoader is returned unchanged.
        settings: knobs; the size of the batch is added to them unless they have one.
        mode: ``"inference"`` or ``"train"``.

    Raises:
        RequestError: the loader is empty, or its batches hold something other than arrays and tensors.
    """
    if not is_loader(example):
        return example, dict(settings)
    parts = [_model_inputs(model, batch, mode) for batch in islice(example, _BATCHES)]
    if not parts:
        raise RequestError("The DataLoader given as example= has no batches.")
    named = isinstance(parts[0], Mapping)
    shapes = [_shapes(part) for part in parts]
    equal_shapes = [
        part for part, shape in zip(parts, shapes, strict=True) if shape == shapes[0]
    ]  # drops a smaller last batch
    keys: Sequence[Any] = list(equal_shapes[0]) if named else range(len(equal_shapes[0]))
    inputs = {key: _concatenate([part[key] for part in equal_shapes]) for key in keys}
    size = len(equal_shapes[0][keys[0]])
    knobs = {"batch_size": size} | dict(settings) if "batch" not in settings else dict(settings)
    return (inputs if named else tuple(inputs.values())), knobs


def is_loader(example: Any) -> bool:
    """Check whether a value is a DataLoader, which yields batches, rather than inputs."""
    return hasattr(example, "__iter__") and hasattr(example, "dataset") and hasattr(example, "batch_size")


def _model_inputs(model: Any, batch: Any, mode: str) -> Any:
    """Return the parts of a batch that the model takes: by name, or in order."""
    parameters = _parameters(model)
    if isinstance(batch, Mapping):
        names = {parameter.name for parameter in parameters}
        takes_any = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters)
        dropped = () if mode == "train" else LABELS
        return {
            str(name): _check_tensor(value)
            for name, value in batch.items()
            if name not in dropped and (takes_any or name in names)
        }
    items = batch if isinstance(batch, tuple | list) else (batch,)
    if len(items) > 1 and isinstance(items[0], Mapping | tuple | list):  # ((ids, mask), labels)
        return _model_inputs(model, items[0], mode)
    needed = [
        parameter
        for parameter in parameters
        if parameter.default is Parameter.empty and parameter.kind in _POSITIONAL
    ]
    return tuple(map(_check_tensor, items[: max(1, len(needed))]))


_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def _parameters(model: Any) -> list[Parameter]:
    """List the parameters of a module's forward, or of a callable."""
    try:
        return list(signature(getattr(model, "forward", model)).parameters.values())
    except (TypeError, ValueError):  # such as a built-in function
        return []


def _check_tensor(value: Any) -> Any:
    if not is_array(value):
        raise RequestError(
            f"The batches of the DataLoader hold {type(value).__name__}, not tensors; "
            "give example= the inputs of one call instead."
        )
    return value


def _shapes(part: Any) -> list[tuple[int, ...]]:
    return [tuple(item.shape) for item in (part.values() if isinstance(part, Mapping) else part)]


def _concatenate(values: Sequence[Any]) -> Any:
    if hasattr(values[0], "detach"):
        import torch  # already imported, as these are its tensors

        return torch.cat([value.detach().cpu() for value in values])
    import numpy as np  # slow at start-up

    return np.concatenate([np.asarray(value) for value in values])


@contextmanager
def labelled_file(data: Any) -> Iterator[str | Path | None]:
    """Give the path of labelled samples: a path as it is, an iterable of batches written to a temporary file.

    Args:
        data: a path, None, or batches (inputs, labels), where inputs are one array or arrays by name.

    Raises:
        RequestError: it is neither, or a batch is no such pair.
    """
    if data is None or isinstance(data, str | Path):
        yield data
        return
    import numpy as np  # slow at start-up

    parts: dict[str, list[ndarray]] = {}
    if not hasattr(data, "__iter__"):
        raise RequestError("`data` is a .npz file, or an iterable of batches (inputs, labels).")
    for batch in data:
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            raise RequestError(
                "A batch of `data` is no pair (inputs, labels); save other forms as a .npz file."
            )
        inputs, labels = batch
        named = inputs if isinstance(inputs, Mapping) else {"input": inputs}
        for name, value in (*named.items(), ("label", labels)):
            parts.setdefault(str(name), []).append(to_array(value))
    if not parts:
        raise RequestError("`data` has no batches, so there is nothing to evaluate.")
    with TemporaryDirectory(prefix="modeldyno-") as folder:
        path = Path(folder) / "samples.npz"
        np.savez(path, **{name: np.concatenate(arrays) for name, arrays in parts.items()})  # type: ignore[arg-type]  # its stub names allow_pickle
        yield path
