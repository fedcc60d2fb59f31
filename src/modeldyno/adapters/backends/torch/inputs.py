"""How inputs reach a torch module: in which order, on which device, in which dtype."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from numpy import ndarray
    from torch import Tensor, device, dtype  # noqa: TC004 - a dataclass, but no document

_IMAGES = 4
"""Dimensions of a batch of images, to which channels_last applies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where and how inputs are kept."""

    place: device
    kind: dtype | None
    """Of floating-point inputs; None leaves them as they come."""
    channels_last: bool = False

    def tensor(self, array: ndarray) -> Tensor:
        """Copy an array to the device; of a list or dict of arrays, which an array may wrap, each of them."""
        import torch  # noqa: PLC0415 - heavy

        if array.dtype == object and not array.ndim:
            from torch.utils import _pytree as pytree  # noqa: PLC0415 - heavy

            inner = pytree.tree_map(
                lambda leaf: self.tensor(leaf) if hasattr(leaf, "ndim") else leaf, array.item()
            )
            return cast("Tensor", inner)
        tensor = torch.tensor(array)  # a copy of its own
        if not tensor.is_floating_point():
            return tensor.to(self.place)
        last = self.channels_last and tensor.ndim == _IMAGES
        form = torch.channels_last if last else torch.preserve_format
        return tensor.to(self.place, self.kind, memory_format=form)
