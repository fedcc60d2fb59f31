"""Files that run inside a server, in its own environment: copied there, they import nothing of ours."""

from __future__ import annotations
