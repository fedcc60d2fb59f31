"""What is said of other documents, and of files of other tools, as kinds of documents."""

from __future__ import annotations

from modeldyno.base import codec
from modeldyno.base.document_kind import plain_kind
from modeldyno.base.report.figure_checks import Recomputation
from modeldyno.exchange.reconciliation import Reconciliation
from modeldyno.exchange.views import recomputation, reconciliation

RECOMPUTATION = plain_kind(
    Recomputation, recomputation.blocks, encode=codec.encode_document, command="verify"
)
RECONCILIATION = plain_kind(
    Reconciliation, reconciliation.blocks, encode=codec.encode_document, command="reconcile"
)
