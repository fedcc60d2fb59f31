"""What a Failure tells of an exception."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.engine.runtime.failures import failure_of

if TYPE_CHECKING:
    import pytest


def raised() -> ValueError:
    """Return an error with a traceback of several frames."""
    try:
        nested(3)
    except ValueError as error:
        return error
    raise AssertionError


def nested(depth: int) -> None:
    """Raise from a depth."""
    if not depth:
        raise ValueError("too deep")
    nested(depth - 1)


def test_a_failure_shows_the_last_frames_and_in_debugging_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """The option --debug sets the variable for all processes."""
    short = failure_of(raised(), "load")
    monkeypatch.setenv("MODELDYNO_DEBUG", "1")
    whole = failure_of(raised(), "load")

    assert short.message == whole.message
    assert short.log.count("nested(depth - 1)") == 2
    assert whole.log.count("in nested") == 4
    assert whole.log.endswith("ValueError: too deep")
