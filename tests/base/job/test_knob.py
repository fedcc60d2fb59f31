from __future__ import annotations

import pytest

from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.base.job.knob import BATCH_SIZE, Knob, KnobValue, configure

THREADS = Knob(name="threads", kind=int, default=None, low=1, high=64, sentence="Threads.", aliases=("t",))
RATIO = Knob(name="ratio", kind=float, default=0.5, sentence="A ratio.")
FAST = Knob(name="fast", kind=bool, default=False, sentence="Fast.")
MODE = Knob(name="mode", kind=str, default="off", choices=("off", "default"), sentence="Mode.")
FREE = Knob(name="free", kind=str, default=None, sentence="Free text.")


@pytest.mark.parametrize(
    ("knob", "raw", "value"),
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
def test_a_value_gets_the_type_of_its_knob(knob: Knob, raw: KnobValue, value: KnobValue) -> None:
    """Text is read, and a value of the right type stays."""
    parsed = knob.parse(raw)

    assert (value, type(value)) == (parsed, type(parsed))


@pytest.mark.parametrize(
    ("knob", "raw", "says"),
    [
        (THREADS, "many", "a whole number from 1 up to 64, not 'many'"),
        (THREADS, "2.5", "a whole number"),
        (THREADS, True, "a whole number"),
        (THREADS, 0, "from 1 up to 64, not 0"),
        (THREADS, 65, "not 65"),
        (FAST, "perhaps", "true or false"),
        (THREADS, "1,2", "to try several values, put them into the space of a sweep: threads=1,2"),
        (MODE, "defualt", "did you mean 'default'"),
    ],
)
def test_a_bad_value_is_refused(knob: Knob, raw: KnobValue, says: str) -> None:
    """The sentence says what the knob takes."""
    with pytest.raises(RequestError, match=says):
        knob.parse(raw)


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


FAMILY = Knob(name="config", kind=str, default=None, sentence="Any field.", family=True, aliases=("field",))


def test_a_family_takes_every_name_below_its_own() -> None:
    """A family of knobs keeps what is set below its name, each under its own path."""
    settings: dict[str, KnobValue] = {"config.a.b": 2, "field.c": "x"}

    assert configure([FAMILY], settings) == {"config.a.b": "2", "config.c": "x"}


@pytest.mark.parametrize("name", ["config", "config.", "other.a", "threads.a"])
def test_a_family_is_no_knob_itself(name: str) -> None:
    """Neither the family's own name nor a path below an ordinary knob can be set."""
    threads = Knob(name="threads", kind=int, default=None, sentence="Threads.")

    with pytest.raises(UnknownName):
        configure([FAMILY, threads], {name: 1})


def test_a_member_of_a_family_is_set_once() -> None:
    """A member that is set by two names of its family is refused."""
    with pytest.raises(RequestError, match=r"config\.a is set twice"):
        configure([FAMILY], {"config.a": 1, "field.a": 2})
