"""Files that are copied into a server and run in its environment; they import nothing of modeldyno."""

from __future__ import annotations
