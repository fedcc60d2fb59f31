from __future__ import annotations

import signal

import pytest

from modeldyno.engine.runtime.interrupts import (
    ForcedInterrupts,
    Terminated,
    counted_interrupts,
    sigterm_as_interrupt,
    sigterm_received,
)


def test_sigterm_is_counted_where_a_program_has_it_so() -> None:
    """While measuring, SIGTERM counts as an interruption like Ctrl-C, but ends a measurement at once."""
    with sigterm_as_interrupt():
        with counted_interrupts() as signals:
            insisted = ForcedInterrupts(lambda: len(signals))
            signal.raise_signal(signal.SIGINT)

            assert (signals, len(insisted), sigterm_received()) == ([signal.SIGINT], 0, False)
            signal.raise_signal(signal.SIGTERM)
            assert (signals, len(insisted), sigterm_received()) == ([signal.SIGINT, signal.SIGTERM], 2, True)
        with pytest.raises(Terminated):
            signal.raise_signal(signal.SIGTERM)


def test_the_first_sigterm_ends_one_of_several_measurements_in_order() -> None:
    """It counts once: the child is asked to finish, not killed."""
    with sigterm_as_interrupt(), counted_interrupts() as signals:
        signal.raise_signal(signal.SIGTERM)

        assert len(ForcedInterrupts(lambda: len(signals))) == 1


def test_a_library_leaves_sigterm_to_its_program() -> None:
    """Unless the program asks for it, the handler stays unchanged before, during and after."""
    before = signal.getsignal(signal.SIGTERM)
    with counted_interrupts():
        assert signal.getsignal(signal.SIGTERM) is before
    with sigterm_as_interrupt(), counted_interrupts():
        pass
    assert signal.getsignal(signal.SIGTERM) is before


def test_each_command_begins_anew() -> None:
    """A signal counts neither after the command nor for the next one."""
    with sigterm_as_interrupt(), counted_interrupts() as signals:
        signal.raise_signal(signal.SIGTERM)

    assert (len(signals), sigterm_received(), len(ForcedInterrupts(lambda: 1))) == (1, False, 0)
    with sigterm_as_interrupt():
        assert not sigterm_received()
