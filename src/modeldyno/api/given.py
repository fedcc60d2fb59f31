"""Inputs as people have them at hand, brought to the host and, for another process, into files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from modeldyno.core.inputs import InputSpec
from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy import ndarray


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
