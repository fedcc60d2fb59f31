"""Documents: their JSON, where they are found, files in and out."""

from __future__ import annotations
