"""Webhooks: told of each event that they want, signed, again where nobody answers, whoever dies."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import psutil
import pytest
from tests.support.sample_registry import a_version

from modeldyno.base.errors import RequestError
from modeldyno.registry import webhooks as sending
from modeldyno.registry.records.records import RegistryEvent
from modeldyno.registry.records.webhooks import MOST_ATTEMPTS, Delivery, Webhook, signature
from modeldyno.registry.views import lists
from modeldyno.registry.webhooks import post_message, read_hooks, run_hook, send_due
from modeldyno.stores import sql

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from modeldyno.stores.sql import SqlStore


class Receiver:
    """A server that keeps what it was told, and answers as it is asked to."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.status: Callable[[], int] = lambda: 204
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = receiver.status()
                if status < 300:
                    receiver.bodies.append(body)
                    receiver.headers.append(dict(self.headers))
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook?x=1"

    @property
    def subjects(self) -> list[str]:
        """Of what it was told."""
        return [json.loads(body)["subject"] for body in self.bodies]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Give a receiver that listens."""
    receiver = Receiver()
    thread = threading.Thread(
        target=receiver.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
    )
    thread.start()
    yield receiver
    receiver.server.shutdown()
    receiver.server.server_close()
    thread.join()


@pytest.fixture
def store(url: str) -> Iterator[SqlStore]:
    """Give an empty store, in a file and then on a server."""
    with sql.open(url) as opened:
        yield opened


def test_it_is_told_of_what_it_wants_from_then_on(store: SqlStore, receiver: Receiver) -> None:
    """Signed, once, in order, and not of other kinds or models."""
    registry = store.registry
    registry.add_version(a_version("before"))
    hook = registry.add_webhook(Webhook(url=receiver.url, secret="s", kinds=("version.*",)), "ada")
    registry.add_webhook(Webhook(url=receiver.url, model="other"), "ada")
    for model in ("digits", "other"):
        registry.add_version(a_version(model))
    registry.move_alias("digits", "champion", 1, "ada")

    assert registry.webhooks()[0] == hook
    assert send_due(registry) == (3, 0)
    assert send_due(registry) == (0, 0)
    assert receiver.subjects == ["digits/1", "other/1", "other/1"]
    assert receiver.headers[0]["X-ModelDyno-Signature"] == signature("s", receiver.bodies[0])
    assert "X-ModelDyno-Signature" not in receiver.headers[2]
    assert receiver.headers[0]["X-ModelDyno-Event"] == "version.added"
    assert registry.deliveries() == {(1, "done"): 2, (2, "done"): 1}


def test_a_change_that_fails_tells_nobody(store: SqlStore, receiver: Receiver) -> None:
    """The message is in the event's own transaction."""
    registry = store.registry
    registry.add_webhook(Webhook(url=receiver.url, kinds=("version.*",)), "ada")
    registry.add_version(a_version())
    with pytest.raises(RequestError):
        registry.add_version(a_version(number=2), number=1)
    assert registry.deliveries() == {(1, "waiting"): 1}


def test_it_is_told_again_later(store: SqlStore, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """After pauses that grow, until it answers well."""
    from modeldyno.stores import clock

    passed = [0.0]
    monkeypatch.setattr(clock, "now", lambda _connection: (1000.0 + passed[0], "boot"))
    registry = store.registry
    registry.add_webhook(Webhook(url=receiver.url, kinds=("version.*",)), "ada")
    registry.add_version(a_version())
    answers = [503, 302, 404, 200]
    receiver.status = lambda: answers.pop(0)
    for pause in (9.0, 19.0, 39.0):
        assert send_due(registry) == (0, 1)
        passed[0] += pause
        assert send_due(registry) == (0, 0)
        passed[0] += 2.0
    assert send_due(registry) == (1, 0)
    assert receiver.subjects == ["digits/1"]


def test_it_is_given_up_at_last(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is told in the count."""
    from modeldyno.stores import clock

    passed = [0.0]
    monkeypatch.setattr(clock, "now", lambda _connection: (1000.0 + passed[0], "boot"))
    registry = store.registry
    registry.add_webhook(Webhook(url="https://a.example", kinds=("version.*",)), "ada")
    registry.add_version(a_version())
    for _ in range(MOST_ATTEMPTS):
        assert send_due(registry, post=lambda _delivery: "no") == (0, 1)
        passed[0] += 7 * 3600.0
    assert send_due(registry, post=lambda _delivery: "no") == (0, 0)
    assert registry.deliveries() == {(1, "failed"): 1}


def test_a_receiver_that_is_not_there_is_told_in_a_line(store: SqlStore) -> None:
    """Nothing is raised."""
    registry = store.registry
    registry.add_webhook(Webhook(url="http://127.0.0.1:1/x", kinds=("version.*",)), "ada")
    registry.add_version(a_version())
    delivery = registry.claim_delivery()
    assert delivery is not None
    why = post_message(delivery)
    assert why.startswith("http://127.0.0.1:1/x does not answer: ")
    assert registry.finish_delivery(delivery, why)
    assert registry.claim_delivery() is None


def test_a_removed_webhook_is_told_nothing(store: SqlStore, receiver: Receiver) -> None:
    """Not even what was waiting; removing it twice is refused."""
    registry = store.registry
    hook = registry.add_webhook(Webhook(url=receiver.url), "ada")
    registry.add_version(a_version())
    registry.remove_webhook(hook.id, "ada")
    assert send_due(registry) == (0, 0)
    with pytest.raises(RequestError, match="There is no webhook 1"):
        registry.remove_webhook(hook.id, "ada")
    assert [event.kind for event in registry.events()] == [
        "webhook.added",
        "version.added",
        "webhook.removed",
    ]
    assert registry.first_broken_event() is None


def test_a_bad_address_is_refused(store: SqlStore) -> None:
    """Before anything is stored."""
    with pytest.raises(RequestError, match="is no address of a webhook"):
        store.registry.add_webhook(Webhook(url="ftp://host"), "ada")
    assert store.registry.webhooks() == []


WRITE = """
import os, sys
open(sys.argv[1], "a").write(os.environ["MODELDYNO_EVENT"] + " " + sys.stdin.read() + chr(10))
"""


@pytest.fixture
def hooked(store: SqlStore) -> SqlStore:
    """Give a store with one event that the hook `tell` waits for."""
    store.registry.add_webhook(Webhook(url="hook:tell", kinds=("version.*",)), "ada")
    store.registry.add_version(a_version())
    return store


def test_a_command_gets_the_event_as_json(hooked: SqlStore, tmp_path: Path) -> None:
    """On standard input, and its kind in the environment; once."""
    hooks = {"tell": (sys.executable, "-c", WRITE, str(tmp_path / "told"))}
    assert send_due(hooked.registry, hooks=hooks) == (1, 0)
    assert send_due(hooked.registry, hooks=hooks) == (0, 0)

    kind, _, body = (tmp_path / "told").read_text().partition(" ")
    assert kind == "version.added"
    assert json.loads(body)["subject"] == "digits/1"


def test_a_command_that_is_not_declared_here_is_left_to_others(hooked: SqlStore) -> None:
    """It waits, and counts as no attempt."""
    assert send_due(hooked.registry) == (0, 0)
    assert send_due(hooked.registry, hooks={"other": ("true",)}) == (0, 0)
    assert hooked.registry.deliveries() == {(1, "waiting"): 1}
    delivery = hooked.registry.claim_delivery(("tell",))
    assert delivery is not None
    assert delivery.attempts == 1


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (
            ("sh", "-c", "echo first >&2; echo no room >&2; exit 3"),
            "hook:tell ended with exit code 3: no room",
        ),
        (("false",), "hook:tell ended with exit code 1"),
        (("/nowhere/tell",), "hook:tell cannot run /nowhere/tell: No such file or directory"),
        (("sh", "-c", "sleep 60 & wait"), "hook:tell was still running after 0.2 s"),
    ],
)
def test_a_command_that_fails_is_told_again_later(
    hooked: SqlStore, command: tuple[str, ...], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an address that does not answer is; it says why."""
    monkeypatch.setattr(sending, "_HOOK_PATIENCE", 0.2 if "sleep" in command[-1] else 30.0)
    delivery = hooked.registry.claim_delivery(("tell",))
    assert delivery is not None
    assert run_hook(command, delivery) == why
    assert hooked.registry.finish_delivery(delivery, why)
    assert hooked.registry.deliveries() == {(1, "waiting"): 1}


@pytest.mark.parametrize(
    "command",
    [
        "sleep 60 & exit 0",
        "sleep 60 >/dev/null 2>&1 & exit 0",
        "(trap '' HUP TERM; sleep 60) & exit 0",
        "yes >&2 & exit 0",
        "yes >&2",
        "exec 2>&-; sleep 60",
        "setsid sleep 3 & exit 0",
    ],
)
def test_what_a_command_leaves_does_not_hold_the_worker(
    hooked: SqlStore, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a daemon that keeps its output open nor output without end."""
    monkeypatch.setattr(sending, "_HOOK_PATIENCE", 0.5)
    delivery = hooked.registry.claim_delivery(("tell",))
    assert delivery is not None
    begin = time.monotonic()

    why = run_hook(("sh", "-c", f"echo $$ >&2; {command}"), delivery)

    assert time.monotonic() - begin < 1.5
    assert why == ("" if "exit 0" in command else "hook:tell was still running after 0.5 s")


def test_what_a_command_leaves_in_its_group_is_ended(hooked: SqlStore, tmp_path: Path) -> None:
    """A process in the background of a hook ends with it."""
    delivery = hooked.registry.claim_delivery(("tell",))
    assert delivery is not None
    file = tmp_path / "pid"

    run_hook(("sh", "-c", f"sleep 60 & echo $! > {file}"), delivery)

    deadline = time.monotonic() + 5
    with suppress(psutil.NoSuchProcess):
        while psutil.Process(int(file.read_text())).status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_a_token_in_an_address_is_not_shown() -> None:
    """What follows a question mark may be a secret: it is in no list and no sentence."""
    hook = Webhook(url="http://127.0.0.1:1/hook?token=s3cret")
    event = RegistryEvent(id=1, at="", actor="", kind="a", subject="b", detail={}, before="", hash="")
    why = post_message(Delivery(id=1, webhook=hook, event=event, attempts=1, token=1))

    assert why.startswith("http://127.0.0.1:1/hook?*** does not answer: ")
    assert "s3cret" not in str(lists.webhooks([hook], {}))


def test_a_command_is_run_without_a_shell() -> None:
    """Its words are split as a shell does."""
    assert read_hooks(["tell=notify-send 'a model' $HOME"]) == {"tell": ("notify-send", "a model", "$HOME")}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tell", "'tell' is no hook; write NAME='command'"),
        ("tell=", "is no hook"),
        ("a b=true", "'a b' is no name of a hook"),
        ("tell='", "The command of the hook 'tell' cannot be read: No closing quotation"),
    ],
)
def test_a_hook_that_cannot_be_read_is_refused(text: str, message: str) -> None:
    """In one sentence."""
    with pytest.raises(RequestError, match=message):
        read_hooks([text])


PATIENCE = 120.0
"""Seconds without a message after which no more are waited for."""
SEND = """
import sys, time
from pathlib import Path
from modeldyno.stores import database
from modeldyno.registry.store.sql_registry import SqlRegistry
from modeldyno.registry.webhooks import send_due
registry = SqlRegistry(database.connect(sys.argv[1])[0], Path("."), lease=0.3)
print(flush=True)
while True:
    send_due(registry)
    time.sleep(0.01)
"""


@pytest.mark.parametrize("kills", [2, pytest.param(100, marks=pytest.mark.slow)])
def test_senders_that_are_killed_lose_nothing(url: str, receiver: Receiver, kills: int) -> None:
    """Each event arrives at least once, and is told apart by its delivery."""
    chance = random.Random(1)

    def slowly() -> int:
        time.sleep(0.005)
        return 204

    receiver.status = slowly
    with sql.open(url) as store:
        store.registry.add_webhook(Webhook(url=receiver.url, kinds=("version.*",)), "ada")
        added = 0
        for _ in range(kills):
            for _ in range(20):
                added += 1
                store.registry.add_version(a_version(digest=f"sha256:{added}"))
            sender = subprocess.Popen([sys.executable, "-c", SEND, url], stdout=subprocess.PIPE)
            assert sender.stdout is not None
            sender.stdout.readline()
            time.sleep(chance.uniform(0.0, 0.3))
            os.kill(sender.pid, signal.SIGKILL)
            sender.communicate()
        sender = subprocess.Popen([sys.executable, "-c", SEND, url], stdout=subprocess.PIPE)
        came, since = 0, time.monotonic()
        while (1, "waiting") in store.registry.deliveries() and time.monotonic() - since < PATIENCE:
            if len(receiver.bodies) > came:
                came, since = len(receiver.bodies), time.monotonic()
            time.sleep(0.1)
        sender.kill()
        sender.communicate()
        delivered = {headers["X-ModelDyno-Delivery"] for headers in receiver.headers}
        print(
            f"{kills} kills, {added} events, {len(receiver.bodies)} messages, {added - len(delivered)} lost"
        )
        assert len(delivered) == added == len(set(receiver.subjects))
        # One that arrived while its sender waited too long, or was killed, may still be sent again.
        assert store.registry.deliveries().keys() <= {(1, "done"), (1, "waiting")}
