"""What a child that runs a model does before it exits without tearing frameworks down."""

from __future__ import annotations

import atexit
import ctypes
import sys
from contextlib import suppress


def run_exit_handlers() -> None:
    """Run the exit handlers and flush what was printed."""
    with suppress(Exception):
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    with suppress(Exception):
        ctypes.CDLL(None).fflush(None)  # output of native code
