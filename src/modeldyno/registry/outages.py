"""Outages of a store, and of the place of models' files, are waited for, with growing pauses.

Every method of a store and of its registry is one transaction that may be repeated: a task is ended by its
lease only, and queued by its key only. So each of them is called again until it answers, and nothing that
has been measured meanwhile is lost or counted twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sized
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from modeldyno.base.clock import monotonic
from modeldyno.base.errors import StoreUnavailable

if TYPE_CHECKING:
    from modeldyno.stores.interface import Store

LONGEST_PAUSE = 60.0
"""Seconds that a pause grows to."""


def pause_after(tries: int) -> float:
    """Return the seconds to wait after so many tries in a row that have failed: 1, 2, 4, and 60 at most."""
    return min(2.0 ** min(tries - 1, 10), LONGEST_PAUSE)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutagePatience:
    """How an outage is waited for."""

    pause: Callable[[float, Sized], None]
    """Sleeps for some seconds, or until interrupted."""
    tell: Callable[[str], None]
    """Called once when an outage begins, and once when it is over."""
    interrupts: Sized
    most: float = math.inf
    """Seconds after which it is an error."""


def patient_store(store: Store, patience: OutagePatience) -> Store:
    """Return a store each method of which, and of its registry's, waits while the store is unavailable.

    A call raises StoreUnavailable when the patience is over, or it is interrupted.
    """
    return cast("Store", _Patient(store, patience))


class _Patient:
    """Stands for a store or a registry."""

    def __init__(self, inner: object, patience: OutagePatience) -> None:
        self._inner, self._patience = inner, patience

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if name == "registry":
            return _Patient(value, self._patience)
        return partial(_call, value, self._patience) if callable(value) else value


def _call(method: Callable[..., Any], patience: OutagePatience, /, *args: Any, **options: Any) -> Any:
    began, tries = monotonic(), 0
    while True:
        try:
            value = method(*args, **options)
        except StoreUnavailable as error:
            tries += 1
            if patience.interrupts or monotonic() - began >= patience.most:
                raise
            if tries == 1:
                patience.tell(f"{error} It is waited for.")
            patience.pause(pause_after(tries), patience.interrupts)
        else:
            if tries:
                patience.tell(f"The store answers again, after {monotonic() - began:.0f} s.")
            return value
