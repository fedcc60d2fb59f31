"""What a page is made of: blocks, tables, charts."""

from __future__ import annotations
