"""What is known of torch's operators before they are called."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import Tensor


META = torch.device("meta")
MOST_KNOWN = 2**20
"""Elements of a tensor whose values are kept."""


@dataclass(frozen=True, slots=True)
class Trait:
    """What is known of an operator before it is called."""

    name: str
    """Without its overload: ``aten.addmm``."""
    arguments: tuple[str, ...]
    written: tuple[int, ...]
    """Positions of the arguments that it changes."""
    written_names: tuple[str, ...]
    reshapes_in_place: bool
    random: bool


@cache
def trait(func: Any) -> Trait:
    """Read an operator's schema, once."""
    schema = func._schema  # noqa: SLF001 - the only place that has it
    write = [a.alias_info is not None and a.alias_info.is_write for a in schema.arguments]
    return Trait(
        name=schema.name.replace("::", "."),
        arguments=tuple(a.name for a in schema.arguments),
        written=tuple(i for i, w in enumerate(write) if w),
        written_names=tuple(a.name for a, w in zip(schema.arguments, write, strict=True) if w),
        reshapes_in_place=torch.Tag.inplace_view in func.tags,
        random=torch.Tag.nondeterministic_seeded in func.tags,
    )


def is_small(tensor: Tensor) -> bool:
    """Whether values of a tensor are kept."""
    return tensor.numel() <= MOST_KNOWN and tensor.layout is torch.strided
