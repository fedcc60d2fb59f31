from __future__ import annotations

import signal

import pytest

from modeldyno.runtime.interrupts import (
    Insisted,
    Terminated,
    counted_interrupts,
    terminable,
    told_to_end,
)


def test_sigterm_is_counted_where_a_program_has_it_so() -> None:
    """While measuring, SIGTERM counts as an interruption like Ctrl-C, but ends a measurement at once."""
    with terminable():
        with counted_interrupts() as seen:
            insisted = Insisted(lambda: len(seen))
            signal.raise_signal(signal.SIGINT)

            assert (seen, len(insisted), told_to_end()) == ([signal.SIGINT], 0, False)
            signal.raise_signal(signal.SIGTERM)
            assert (seen, len(insisted), told_to_end()) == ([signal.SIGINT, signal.SIGTERM], 2, True)
        with pytest.raises(Terminated):
            signal.raise_signal(signal.SIGTERM)


def test_the_first_sigterm_ends_one_of_several_measurements_in_order() -> None:
    """It counts once: the child is asked to finish, not killed."""
    with terminable(), counted_interrupts() as seen:
        signal.raise_signal(signal.SIGTERM)

        assert len(Insisted(lambda: len(seen))) == 1


def test_a_library_leaves_sigterm_to_its_program() -> None:
    """Unless the program asks for it, the handler stays unchanged before, during and after."""
    before = signal.getsignal(signal.SIGTERM)
    with counted_interrupts():
        assert signal.getsignal(signal.SIGTERM) is before
    with terminable(), counted_interrupts():
        pass
    assert signal.getsignal(signal.SIGTERM) is before


def test_each_command_begins_anew() -> None:
    """A signal counts neither after the command nor for the next one."""
    with terminable(), counted_interrupts() as seen:
        signal.raise_signal(signal.SIGTERM)

    assert (len(seen), told_to_end(), len(Insisted(lambda: 1))) == (1, False, 0)
    with terminable():
        assert not told_to_end()
