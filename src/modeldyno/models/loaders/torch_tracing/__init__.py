"""The operators that a torch module calls, on meta tensors: shapes and costs, no arithmetic."""

from __future__ import annotations
