"""The turn to measure: of several threads of a process one measures at a time.

Two measurements at once would each be told the time that the other takes: live objects as each waits for
Python within the calls of the other, child processes as both use the same cores.
"""

from __future__ import annotations

from threading import RLock

MEASURING = RLock()
"""Held by the thread that measures; a `watch` may measure within its own measurement."""
