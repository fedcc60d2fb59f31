"""Measurements one after the other, each in a fresh process: one piece of work that a user may interrupt."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modeldyno.core.result import Event
from modeldyno.executors.interrupts import Insisted, counted_interrupts
from modeldyno.executors.isolated import isolated
from modeldyno.executors.together import Together
from modeldyno.ports import Executor

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """What whoever measures many times needs: how to run one Job, whom to tell, and whether to go on."""

    execute: Executor
    watch: Callable[[Event], None]
    interrupted: Callable[[], int]
    """How often the user has interrupted so far."""
    together: Together
    """How to run the sides of a round."""


@contextmanager
def campaign(watch: Callable[[Event], None] = lambda _event: None) -> Iterator[Campaign]:
    """Count each Ctrl-C while it is open: the first lets the measurement at work end, the second ends it."""
    with counted_interrupts() as interrupts:

        def interrupted() -> int:
            return len(interrupts)

        insisted = Insisted(interrupted)
        with isolated(insisted) as execute:
            together = Together(interrupts=insisted)
            yield Campaign(execute=execute, watch=watch, interrupted=interrupted, together=together)
