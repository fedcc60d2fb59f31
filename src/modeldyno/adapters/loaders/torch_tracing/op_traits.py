"""Static properties of torch's operators, read from their schemas."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import Tensor


META = torch.device("meta")
MAX_KNOWN_ELEMENTS = 2**20
"""Maximum number of elements of a tensor whose values are kept."""


@dataclass(frozen=True, slots=True)
class OpTraits:
    """Static properties of an operator."""

    name: str
    """Name without the overload: ``aten.addmm``."""
    arguments: tuple[str, ...]
    written: tuple[int, ...]
    """Positions of the arguments that it writes into."""
    written_names: tuple[str, ...]
    reshapes_in_place: bool
    random: bool


@cache
def traits_of(func: Any) -> OpTraits:
    """Read the properties of an operator from its schema, cached."""
    schema = func._schema  # noqa: SLF001 - the only handle that has it
    write = [a.alias_info is not None and a.alias_info.is_write for a in schema.arguments]
    return OpTraits(
        name=schema.name.replace("::", "."),
        arguments=tuple(a.name for a in schema.arguments),
        written=tuple(i for i, w in enumerate(write) if w),
        written_names=tuple(a.name for a, w in zip(schema.arguments, write, strict=True) if w),
        reshapes_in_place=torch.Tag.inplace_view in func.tags,
        random=torch.Tag.nondeterministic_seeded in func.tags,
    )


def is_small(tensor: Tensor) -> bool:
    """Whether a tensor is small enough for its values to be kept."""
    return tensor.numel() <= MAX_KNOWN_ELEMENTS and tensor.layout is torch.strided
