from __future__ import annotations

import pytest

from modeldyno.core.knob import BATCH_SIZE, Knob, KnobValue, configure
from modeldyno.errors import RequestError, UnknownName

THREADS = Knob(name="threads", kind=int, default=None, low=1, high=64, sentence="Threads.", aliases=("t",))
RATIO = Knob(name="ratio", kind=float, default=0.5, sentence="A ratio.")
FAST = Knob(name="fast", kind=bool, default=False, sentence="Fast.")
MODE = Knob(name="mode", kind=str, default="off", choices=("off", "default"), sentence="Mode.")
FREE = Knob(name="free", kind=str, default=None, sentence="Free text.")


@pytest.mark.parametrize(
    ("knob", "given", "value"),
    [
        (THREADS, "4", 4),
        (THREADS, 4, 4),
        (RATIO, "0.25", 0.25),
        (RATIO, 1, 1.0),
        (FAST, "yes", True),
        (FAST, "off", False),
        (FAST, True, True),
        (MODE, "default", "default"),
        (FREE, "x", "x"),
    ],
)
def test_a_value_gets_the_type_of_its_knob(knob: Knob, given: KnobValue, value: KnobValue) -> None:
    """Text is read, and a value of the right type stays."""
    parsed = knob.parse(given)

    assert (value, type(value)) == (parsed, type(parsed))


@pytest.mark.parametrize(
    ("knob", "given", "says"),
    [
        (THREADS, "many", "a whole number from 1 up to 64, not 'many'"),
        (THREADS, "2.5", "a whole number"),
        (THREADS, True, "a whole number"),
        (THREADS, 0, "from 1 up to 64, not 0"),
        (THREADS, 65, "not 65"),
        (FAST, "perhaps", "true or false"),
        (MODE, "defualt", "did you mean 'default'"),
    ],
)
def test_a_bad_value_is_refused(knob: Knob, given: KnobValue, says: str) -> None:
    """The sentence says what the knob takes."""
    with pytest.raises(RequestError, match=says):
        knob.parse(given)


def test_the_span_is_said_in_words() -> None:
    """Choices are listed, and a range has its ends."""
    assert [
        MODE.span(),
        RATIO.span(),
        BATCH_SIZE.span(),
        FREE.span(),
    ] == ["off | default", "a number", "a whole number from 1", "text"]


def test_a_configuration_is_complete_with_defaults() -> None:
    """Knobs that have a default get it; those without are left to the backend."""
    assert configure((THREADS, RATIO, FAST), {"t": "2"}) == {"ratio": 0.5, "fast": False, "threads": 2}


def test_an_unknown_knob_is_refused_with_the_nearest() -> None:
    """A misspelt knob is named with the one that was meant."""
    with pytest.raises(UnknownName, match="did you mean 'threads'"):
        configure((THREADS,), {"thraeds": 1})


def test_a_knob_set_by_two_names_is_refused() -> None:
    """An alias and the name are the same knob."""
    with pytest.raises(RequestError, match="set twice"):
        configure((THREADS,), {"threads": 1, "t": 2})
