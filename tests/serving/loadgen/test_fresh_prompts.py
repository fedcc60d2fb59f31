"""A prompt that is sent again begins with other words."""

from __future__ import annotations

from dataclasses import replace

from modeldyno.engine.data.first_words import find_first_words
from modeldyno.engine.interfaces.request_target import Target, Transport
from modeldyno.serving.loadgen.arrivals import LoadShare
from modeldyno.serving.loadgen.fresh_prompts import FreshWords, mark_first_words

TEXTS = ("big bird", "red rain", "quick run")


def a_target(*messages: bytes) -> Target:
    return Target(protocol="openai", transport=Transport.HTTP, host="", port=1, messages=messages)


def marked() -> Target:
    first_words = find_first_words(TEXTS, alike=False)
    assert first_words is not None
    return mark_first_words(a_target(*(b'{"prompt": "%b"}' % text.encode() for text in TEXTS)), first_words)


def test_the_first_words_of_each_message_is_marked() -> None:
    """Where it is in the bytes."""
    target = marked()
    assert target.marks == (12, 12, 12)


def test_a_message_without_its_text_leaves_all_as_they_are() -> None:
    """As one that is compressed, or when bodies of the user are sent."""
    first_words = find_first_words(TEXTS, alike=False)
    assert first_words is not None
    for messages in (
        (b"big bird", b"red rain", b"\x1f\x8b"),
        (b"big bird",),
        (*map(str.encode, TEXTS), b"more"),
    ):
        target = a_target(*messages)
        assert mark_first_words(target, first_words) is target or len(messages) == 1


def test_a_short_text_is_not_looked_for_in_the_path_and_headers() -> None:
    """Only where it stands in quotes; if that is at two places, as in the name of the model, nowhere."""
    texts = ("at", "is", "on")
    first_words = find_first_words(texts, alike=False)
    assert first_words is not None
    message = b'POST /v1/chat/completions HTTP/1.1\r\n\r\n{"model": "base", "content": "%b"}'
    target = mark_first_words(a_target(*(message % text.encode() for text in texts)), first_words)
    assert target.marks == (len(message) - len('%b"}'),) * 3

    named = a_target(*(message.replace(b"base", b"on") % text.encode() for text in texts))
    assert mark_first_words(named, first_words) is named


def test_other_marks_stay() -> None:
    """As those of ids that each request has."""
    first_words = find_first_words(TEXTS, alike=False)
    assert first_words is not None
    numbered = replace(a_target(*(b'"%b"' % text.encode() for text in TEXTS)), marks=(1, 1, 1), numbered=True)
    assert mark_first_words(numbered, first_words) is numbered


def test_a_message_begins_with_its_own_words_and_then_with_all_others() -> None:
    """No two times with the same until all were there."""
    fresh = FreshWords(marked(), LoadShare())
    words = [fresh.next(1) for _ in range(2000)]
    assert words[0] == b"red rain"
    assert len(set(words)) == 2000
    assert {(len(word), word.count(b" ")) for word in words} == {(8, 1)}
    assert fresh.next(2) == b"quick run"


def test_several_drivers_begin_a_message_with_different_words() -> None:
    """Each knows which are its own."""
    drivers = [FreshWords(marked(), LoadShare(index=index, of=3)) for index in range(3)]
    words = [driver.next(0) for _ in range(200) for driver in drivers]
    assert len(set(words)) == 600
