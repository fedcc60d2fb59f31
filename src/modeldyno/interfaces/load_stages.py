"""What of loading a model is not loading it: a loader also imports, reads, hashes and inspects.

A loader does all of that in one function. What it does within `describing` is work of ours, neither load time
nor memory of the model; what it does within `importing` takes time, as in any program, but its memory belongs
to the libraries.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from modeldyno.interfaces import WatchStage

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(slots=True, kw_only=True)
class Loading:
    """A model that is being loaded."""

    mark: Callable[[WatchStage], None]
    """Tells those who watch from outside which stage begins."""
    described: float = 0.0
    """Seconds spent on describing it, so far."""
    inside: bool = False


_LOADING: ContextVar[Loading | None] = ContextVar("loading", default=None)


@contextmanager
def loading(mark: Callable[[WatchStage], None]) -> Iterator[Loading]:
    """Load a model within the block; `mark` is told of each stage of it."""
    account = Loading(mark=mark)
    token = _LOADING.set(account)
    mark(WatchStage.LOAD)
    try:
        yield account
    finally:
        _LOADING.reset(token)


@contextmanager
def describing() -> Iterator[None]:
    """Do what no program would do that only loads and calls the model."""
    begin = perf_counter()
    with _apart(WatchStage.OURS) as account:
        yield
    if account is not None:
        account.described += perf_counter() - begin


@contextmanager
def importing() -> Iterator[None]:
    """Import what the model needs, where it is known only now."""
    with _apart(WatchStage.IMPORT):
        yield


@contextmanager
def _apart(stage: WatchStage) -> Iterator[Loading | None]:
    """Be in another stage until the end of the block; None where nobody watches, or within another one."""
    account = _LOADING.get()
    if account is None or account.inside:
        yield None
        return
    account.mark(stage)
    account.inside = True
    try:
        yield account
    finally:
        account.inside = False
        account.mark(WatchStage.LOAD)
