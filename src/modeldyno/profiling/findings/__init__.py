"""What limits a measured model, and what may help: findings from one Result."""

from __future__ import annotations
