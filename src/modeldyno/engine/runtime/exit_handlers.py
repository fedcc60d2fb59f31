"""What a child that runs a model does before it exits without tearing frameworks down."""

from __future__ import annotations

import atexit
import ctypes
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def own_exit_handlers() -> Iterator[None]:
    """Run at the end what a fork has registered for its exit, and nothing that the original process has.

    TensorFlow removes at the exit the files of Python that it has written.
    """
    atexit._clear()  # noqa: SLF001 - there is no public name for it
    try:
        yield
    finally:
        with suppress(Exception):
            atexit._run_exitfuncs()


def run_exit_handlers() -> None:
    """Run the exit handlers and flush what was printed."""
    with suppress(Exception):
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    with suppress(Exception):
        ctypes.CDLL(None).fflush(None)  # output of native code
