"""Placement of a torch module's inputs: device, dtype and memory format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from numpy import ndarray
    from torch import Tensor, device, dtype

_IMAGES = 4
"""Number of dimensions of a batch of images, to which channels_last applies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Device, dtype and memory format of inputs."""

    place: device
    kind: dtype | None
    """Dtype of floating-point inputs; None keeps their own."""
    channels_last: bool = False

    def tensor(self, array: ndarray) -> Tensor:
        """Copy an array to the device; of a list or dict wrapped in an object array, each array in it."""
        import torch  # heavy

        if array.dtype == object and not array.ndim:
            from torch.utils import _pytree as pytree  # heavy

            inner = pytree.tree_map(
                lambda leaf: self.tensor(leaf) if hasattr(leaf, "ndim") else leaf, array.item()
            )
            return cast("Tensor", inner)
        tensor = torch.tensor(array)  # a copy of its own
        if not tensor.is_floating_point():
            return tensor.to(self.place)
        channels_last = self.channels_last and tensor.ndim == _IMAGES
        memory_format = torch.channels_last if channels_last else torch.preserve_format
        return tensor.to(self.place, self.kind, memory_format=memory_format)
