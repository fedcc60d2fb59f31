"""What memory is used for."""

from __future__ import annotations

from enum import StrEnum


class Category(StrEnum):
    """What memory is used for."""

    WEIGHTS = "weights"
    """Parameters and buffers."""
    INPUTS = "inputs"
    ACTIVATIONS = "activations"
    """Outputs of operators, in training also those saved for the backward pass."""
    WORKSPACE = "workspace"
    """Freed within the operator, or the optimiser step, that allocated it."""
    GRADIENTS = "gradients"
    """Of parameters; those of activations are activations."""
    OPTIMIZER = "optimizer"
    """The optimiser's state."""


GIVEN = frozenset({Category.WEIGHTS, Category.INPUTS})
"""What a call is given; not part of its own peak, even where the call itself copies it to the device."""
ROOM = "room="
"""Prefix of the scope of a largest batch that was predicted for a number of bytes."""
