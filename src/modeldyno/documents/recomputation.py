"""A Recomputation as a kind of document."""

from __future__ import annotations

from modeldyno import codec
from modeldyno.core.recompute.checks import Recomputation
from modeldyno.interfaces.document import plain_kind
from modeldyno.views import recomputation

RECOMPUTATION = plain_kind(
    "recomputation", Recomputation, recomputation.blocks, encode=codec.encode_document, command="verify"
)
