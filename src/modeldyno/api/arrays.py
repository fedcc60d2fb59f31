"""Inputs as people have them at hand, brought to the host and, for another process, into files."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import replace
from inspect import Parameter, signature
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from modeldyno.core.spec.input_spec import InputSpec
from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy import ndarray

    from modeldyno.core.result.result import Result
    from modeldyno.core.spec.knob import KnobValue

_BATCHES = 8
"""Batches of a DataLoader that are used in turn, at most."""
_LABELS = ("label", "labels", "target", "targets")


def is_array(value: Any) -> bool:
    """Whether it is an array or a tensor."""
    return hasattr(value, "shape") and hasattr(value, "dtype")


def host(data: Any) -> Any:
    """Bring tensors to the host, in whatever holds them."""
    if hasattr(data, "detach"):
        return data.detach().cpu()
    if isinstance(data, Mapping):
        return {name: host(each) for name, each in data.items()}
    if isinstance(data, tuple | list) and all(map(is_array, data)):
        return tuple(map(host, data))
    return data


def array(value: Any) -> ndarray:
    """Give an array of numbers.

    Raises:
        RequestError: it is something else.
    """
    import numpy as np  # noqa: PLC0415 - dear at start-up

    found = host(value)
    if hasattr(found, "numpy"):
        found = (found.float() if "bfloat16" in str(found.dtype) else found).numpy()
    try:
        made = np.asarray(found)
    except (TypeError, ValueError):
        made = np.empty(0, dtype=object)
    if made.dtype.kind not in "biufc":
        raise RequestError(
            f"Inputs are arrays or tensors of numbers, not {type(value).__name__}; "
            "text is read from a file: input_data='texts.txt'."
        )
    return made


def saved(arrays: Mapping[str, ndarray], folder: Path) -> Iterator[InputSpec]:
    """Write a file for each, and say which input it is of."""
    import numpy as np  # noqa: PLC0415 - dear at start-up

    for place, (name, values) in enumerate(arrays.items()):
        path = folder / f"{place}.npy"
        np.save(path, values, allow_pickle=False)
        yield InputSpec(name=name, source=str(path))


_PREFIX = "modeldyno-"
_GIVEN = "an array given in Python"


@contextmanager
def array_folder() -> Iterator[Path]:
    """Give a directory for arrays that another process reads; it is gone afterwards."""
    with TemporaryDirectory(prefix=_PREFIX) as folder:
        yield Path(folder)


def without_files(result: Result) -> Result:
    """Replace files that are gone by what was in them: where it came from, and the shape to ask for again."""
    used = {spec.name: spec for spec in result.inputs}
    return replace(
        result,
        job=replace(result.job, inputs=tuple(_asked_again(spec, used) for spec in result.job.inputs)),
        inputs=tuple(replace(spec, source=_GIVEN) if _is_gone(spec) else spec for spec in result.inputs),
    )


def _asked_again(spec: InputSpec, used: Mapping[str, InputSpec]) -> InputSpec:
    known = used.get(spec.name)
    if not _is_gone(spec) or known is None:
        return spec
    return replace(spec, source=None, shape=known.shape, dtype=known.dtype)


def _is_gone(spec: InputSpec) -> bool:
    path = Path(spec.source or "")
    return path.parent.name.startswith(_PREFIX) and not path.exists()


# --- batches of a DataLoader ---------------------------------------------------------------------


def with_batches(
    model: Any, example: Any, settings: Mapping[str, KnobValue], mode: str
) -> tuple[Any, dict[str, KnobValue]]:
    """Put the first batches of a DataLoader below each other, to be cut into batches of that size again.

    Of a batch of several parts, such as ``(images, labels)``, the model gets as many as it needs; of one by
    name those that it takes, without labels where it is not trained.

    Args:
        model: what they are for.
        example: what was given; anything but a DataLoader is left as it is.
        settings: knobs; the size of the batch is added to them unless they have one.
        mode: ``"inference"`` or ``"train"``.

    Raises:
        RequestError: the loader is empty, or its batches hold something else than arrays and tensors.
    """
    if not is_loader(example):
        return example, dict(settings)
    parts = [_inputs(model, batch, mode) for batch in islice(example, _BATCHES)]
    if not parts:
        raise RequestError("The DataLoader given as example= has no batches.")
    named = isinstance(parts[0], Mapping)
    shapes = [_shapes(part) for part in parts]
    alike = [
        part for part, shape in zip(parts, shapes, strict=True) if shape == shapes[0]
    ]  # no last, smaller
    keys: Sequence[Any] = list(alike[0]) if named else range(len(alike[0]))
    whole = {key: _stacked([part[key] for part in alike]) for key in keys}
    size = len(alike[0][keys[0]])
    knobs = {"batch_size": size} | dict(settings) if "batch" not in settings else dict(settings)
    return (whole if named else tuple(whole.values())), knobs


def is_loader(example: Any) -> bool:
    """Tell a DataLoader, which gives batches, from inputs themselves."""
    return hasattr(example, "__iter__") and hasattr(example, "dataset") and hasattr(example, "batch_size")


def _inputs(model: Any, batch: Any, mode: str) -> Any:
    """Give what of a batch is for the model: by name, or in order."""
    taken = _parameters(model)
    if isinstance(batch, Mapping):
        known = {each.name for each in taken}
        anything = any(each.kind is Parameter.VAR_KEYWORD for each in taken)
        hidden = () if mode == "train" else _LABELS
        return {
            str(name): _checked(value)
            for name, value in batch.items()
            if name not in hidden and (anything or name in known)
        }
    several = batch if isinstance(batch, tuple | list) else (batch,)
    if len(several) > 1 and isinstance(several[0], Mapping | tuple | list):  # ((ids, mask), labels)
        return _inputs(model, several[0], mode)
    needed = [each for each in taken if each.default is Parameter.empty and each.kind in _POSITIONAL]
    return tuple(map(_checked, several[: max(1, len(needed))]))


_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def _parameters(model: Any) -> list[Parameter]:
    """List what a module's forward, or a callable, takes."""
    try:
        return list(signature(getattr(model, "forward", model)).parameters.values())
    except (TypeError, ValueError):  # such as a function that is built in
        return []


def _checked(value: Any) -> Any:
    if not is_array(value):
        raise RequestError(
            f"The batches of the DataLoader hold {type(value).__name__}, not tensors; "
            "give example= the inputs of one call instead."
        )
    return value


def _shapes(part: Any) -> list[tuple[int, ...]]:
    return [tuple(each.shape) for each in (part.values() if isinstance(part, Mapping) else part)]


def _stacked(values: Sequence[Any]) -> Any:
    if hasattr(values[0], "detach"):
        import torch  # noqa: PLC0415 - it is there already, as these are its tensors

        return torch.cat([value.detach().cpu() for value in values])
    import numpy as np  # noqa: PLC0415 - dear at start-up

    return np.concatenate([np.asarray(value) for value in values])
