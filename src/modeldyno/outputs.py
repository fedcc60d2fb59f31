"""Whether what a model returned can be an answer at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.ports import Feed


def faults(output: Feed) -> Iterator[str]:
    """Name what is wrong with the arrays of an output: NaN, or infinite values."""
    import numpy as np  # noqa: PLC0415 - dear at start-up

    for name, values in output.items():
        if values.dtype.kind not in "fc":
            continue
        nans = int(np.isnan(values).sum())
        infinite = int(np.isinf(values).sum())
        if nans:
            yield f"output '{name}' has {nans:,} NaN of {values.size:,} values"
        # Masks are filled with -inf on purpose; a positive one is no such mask.
        if infinite and bool(np.isposinf(values).any()):
            yield f"output '{name}' has {infinite:,} infinite of {values.size:,} values"
