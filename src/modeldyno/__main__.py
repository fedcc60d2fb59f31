"""``python -m modeldyno``."""

from __future__ import annotations

from modeldyno.cli import main

main()
