"""Payloads: model inputs, random or real."""

from __future__ import annotations

from modeldyno.data.assumed_sizes import assume_sizes
from modeldyno.data.batches import (
    Payload,
    ResolvedInputs,
    assumption_doubts,
    build_payloads,
    given_sizes,
    resolve_inputs,
)
from modeldyno.data.requested_inputs import with_named_inputs, with_requested_inputs

__all__ = [
    "Payload",
    "ResolvedInputs",
    "assume_sizes",
    "assumption_doubts",
    "build_payloads",
    "given_sizes",
    "resolve_inputs",
    "with_named_inputs",
    "with_requested_inputs",
]
