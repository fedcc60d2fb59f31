"""What a server says of itself while it is measured."""

from __future__ import annotations
