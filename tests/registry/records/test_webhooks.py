from __future__ import annotations

import json

import pytest

from modeldyno.base.errors import RequestError
from modeldyno.registry.records.records import RegistryEvent
from modeldyno.registry.records.webhooks import (
    MOST_ATTEMPTS,
    Webhook,
    check_webhook,
    message,
    pause_after,
    signature,
)

EVENT = RegistryEvent(
    id=7,
    at="now",
    actor="ada",
    kind="alias.moved",
    subject="digits",
    detail={"after": "2"},
    before="",
    hash="ab",
)


@pytest.mark.parametrize(
    ("kinds", "model", "expected"),
    [
        (("*",), "", True),
        (("alias.moved",), "digits", True),
        (("variant.*", "alias.*"), "", True),
        (("variant.*",), "", False),
        (("Alias.moved",), "", False),
        (("*",), "digit", False),
    ],
)
def test_a_webhook_wants_kinds_and_a_model(kinds: tuple[str, ...], model: str, expected: bool) -> None:
    """Kinds by name or pattern; without a model, those of all."""
    assert Webhook(url="https://a", kinds=kinds, model=model).wants("alias.moved", "digits") == expected


@pytest.mark.parametrize(
    ("url", "name"), [("hook:tell", "tell"), ("hook:a.b-2", "a.b-2"), ("https://hook:1", "")]
)
def test_a_command_has_a_name_and_an_address_has_none(url: str, name: str) -> None:
    """It is what follows hook:."""
    assert check_webhook(Webhook(url=url)).hook == name


@pytest.mark.parametrize("url", ["https://host/path?x=1", "http://127.0.0.1:8080"])
def test_an_address_of_http_is_good(url: str) -> None:
    """It is returned unchanged."""
    assert check_webhook(Webhook(url=url)).url == url


@pytest.mark.parametrize(
    ("webhook", "message"),
    [
        (Webhook(url=""), "is no address of a webhook; write https://host/path"),
        (Webhook(url="hook:"), "'' is no name of a hook; use letters"),
        (Webhook(url="hook:rm -rf"), "'rm -rf' is no name of a hook"),
        (Webhook(url="hook:tell", secret="s"), "is not signed; leave out the secret"),
        (Webhook(url="hook:tell", kinds=()), "at least one kind of event"),
        (Webhook(url="file:///etc/passwd"), "is no address"),
        (Webhook(url="https:///path"), "is no address"),
        (Webhook(url="https://host/\r\nX: y"), "is no address"),
        (Webhook(url="https://me:secret@host"), "holds no password"),
        (Webhook(url="https://host", kinds=()), "at least one kind of event"),
    ],
)
def test_any_other_is_refused(webhook: Webhook, message: str) -> None:
    """In one sentence, without the secret."""
    with pytest.raises(RequestError, match=message) as caught:
        check_webhook(webhook)
    assert "secret@" not in str(caught.value)


def test_a_message_is_the_event() -> None:
    """With its place in the chain."""
    assert json.loads(message(EVENT)) == {
        "id": 7, "at": "now", "actor": "ada", "kind": "alias.moved", "subject": "digits",
        "detail": {"after": "2"}, "before": "", "hash": "ab",
    }  # fmt: skip


def test_a_signature_is_that_of_the_rfc() -> None:
    """The second test case of RFC 4231."""
    assert signature("Jefe", b"what do ya want for nothing?") == (
        "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
    )


def test_pauses_grow_to_six_hours() -> None:
    """Twice as long each time; all attempts take a day or two."""
    assert [pause_after(n) for n in (1, 2, 3)] == [10.0, 20.0, 40.0]
    assert pause_after(40) == 6 * 3600.0
    assert 3600 * 5 < sum(pause_after(n) for n in range(1, MOST_ATTEMPTS)) < 48 * 3600


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://host/a?token=s3cret&x=1", "https://host/a?***"),
        ("https://host/a", "https://host/a"),
        ("hook:tell", "hook:tell"),
    ],
)
def test_what_may_be_a_token_is_not_shown(url: str, shown: str) -> None:
    """All that follows a question mark."""
    assert Webhook(url=url).shown == shown


def test_that_a_task_was_put_off_is_told_to_who_asks_for_it() -> None:
    """It is half of all events, and nothing that anybody has to do."""
    patterns = ("*", "task.*", "task.deferred", "alias.*", "*.deferred")
    wanting = [
        each for each in patterns if Webhook(url="https://a", kinds=(each,)).wants("task.deferred", "m")
    ]
    assert wanting == ["task.*", "task.deferred"]
    assert Webhook(url="https://a").wants("task.done", "m")
