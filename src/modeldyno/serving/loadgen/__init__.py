"""The load generator: sends a target's messages when they are due, and records the outcome of each.

The send loop runs in driver processes, so that neither our statistics nor garbage collection delays a
request; the drivers stream their records to the process that decides when to stop.
"""

from __future__ import annotations
