"""How reconciliations, verifications and job files are shown."""

from __future__ import annotations
