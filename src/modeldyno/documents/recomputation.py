"""What is said of other documents, and of files of other tools, as kinds of documents."""

from __future__ import annotations

from modeldyno import codec
from modeldyno.core.load.reconciliation import Reconciliation
from modeldyno.core.recompute.checks import Recomputation
from modeldyno.interfaces.document import plain_kind
from modeldyno.views import recomputation
from modeldyno.views.load import reconciliation

RECOMPUTATION = plain_kind(
    "recomputation", Recomputation, recomputation.blocks, encode=codec.encode_document, command="verify"
)
RECONCILIATION = plain_kind(
    "reconciliation", Reconciliation, reconciliation.blocks, encode=codec.encode_document, command="reconcile"
)
