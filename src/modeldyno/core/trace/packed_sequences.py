"""Why a recurrent layer of torch cannot be exported: it runs on packed sequences, whose lengths are data."""

from __future__ import annotations

import traceback

from modeldyno.core.trace.source_line import format_error_location

PADDED_INSTEAD = (
    "run the layer on the padded batch, without pack_padded_sequence, and take each sequence's output at its "
    "length; or convert to torchscript, which keeps packed sequences"
)
"""What to do instead."""


def packed_layer(error: BaseException) -> str:
    """Return the class of the recurrent layer that failed on packed sequences; empty if none did."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        packed = frame.f_locals.get("batch_sizes")
        if packed is not None and frame.f_code.co_filename.endswith("torch/nn/modules/rnn.py"):
            return type(frame.f_locals.get("self")).__name__
    return ""


def describe_packed_layer(error: BaseException) -> str:
    """Say which layer of packed sequences cannot be exported, in which line, and why; empty if none is."""
    layer, place = packed_layer(error), format_error_location(error)
    where = f" ({place})" if place else ""
    return layer and (
        f"{layer} of packed sequences cannot be exported{where}: how many of them are left at each step is "
        "known only from their lengths"
    )
