"""Who may look and who may change something, where a token is asked for."""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING

import pytest
from starlette.testclient import TestClient
from tests.dashboard.conftest import PORT, Visitor, fill_registry, put
from tests.dashboard.test_guard import ROUTES

from modeldyno.base import plugins
from modeldyno.base.errors import RequestError
from modeldyno.dashboard import app as application
from modeldyno.dashboard import server
from modeldyno.dashboard.access import AccessRole, AccessTokens, read_or_make_tokens
from modeldyno.dashboard.app import make_app
from modeldyno.dashboard.guard import API
from modeldyno.testing.sample_results import a_result

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RESULT = "0123456789ab"
READER, OPERATOR = "r" * 24, "o" * 24
TOKENS = AccessTokens(roles=((READER, AccessRole.READER), (OPERATOR, AccessRole.OPERATOR)))
HTML = {"accept": "text/html,*/*"}


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Visitor]:
    """Look at a dashboard that asks for a token, and has another name as well."""
    monkeypatch.setattr(application, "_PAUSE", 0.0)
    with plugins.store(f"sqlite:///{tmp_path}/store.db") as store:
        put(store, a_result(id=RESULT))
        fill_registry(store)
        app = make_app(store, PORT, tokens=TOKENS, hosts=("lab", "proxy.example:443"), moment=0.0)
        yield Visitor(store, TestClient(app, base_url=f"http://lab:{PORT}", follow_redirects=False))


def log_in(visitor: Visitor, token: str, following: str = "/") -> str:
    answer = visitor.client.post("/login", data={"access": token, "next": following})
    return str(answer.headers.get("location", answer.status_code))


def test_nothing_is_shown_to_a_stranger(stranger: Visitor) -> None:
    """Every page leads to the form for a token, everything else is refused; only style and script are not."""
    for path in ROUTES:
        if path.startswith("/static/"):
            assert stranger.get(path).status_code == 200
            continue
        answer = stranger.client.get(path, headers=HTML)
        assert answer.status_code == 303
        assert answer.headers["location"].startswith("/login?next=")
        assert stranger.get(path).status_code == 401
        assert stranger.client.post(path, data={"do": "add"}).status_code == 401


def test_a_token_leads_to_the_page_that_was_asked_for(stranger: Visitor) -> None:
    """Its cookie is read by no script and sent from no other site, and ends with logging out."""
    address = stranger.client.get("/results?name=x&where=not+failed", headers=HTML).headers["location"]
    form = stranger.read(address)
    following = re.search(r'name="next" value="([^"]*)"', form)
    assert following is not None
    assert 'type="password"' in form

    answer = stranger.client.post(
        "/login", data={"access": READER, "next": following[1].replace("&amp;", "&")}
    )

    assert answer.headers["location"] == "/results?name=x&where=not+failed"
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "You are here as reader" in stranger.read("/results")
    assert stranger.get("/login").headers["location"] == "/"
    stranger.send("/logout", "/")
    assert stranger.get("/results").status_code == 401


def test_a_wrong_token_opens_nothing(stranger: Visitor) -> None:
    """It is said, and no cookie is given."""
    for token in ("", "r" * 23, "é" * 24, READER + "x", "\0"):
        answer = stranger.client.post("/login", data={"access": token})

        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers
        assert stranger.get("/").status_code == 401


def test_logging_in_leads_to_pages_of_ours_only(stranger: Visitor) -> None:
    """Anything else is the first page."""
    for following in (
        "//evil.example", "https://evil.example", "/\\evil.example", "/static/x", "javascript:alert(1)",
        "/results\r\nset-cookie: x=y", "", "/nothing",
    ):  # fmt: skip
        assert log_in(stranger, READER, following) == "/"


def test_a_reader_sees_everything_and_changes_nothing(stranger: Visitor) -> None:
    """No page shows a form that writes, and none is taken."""
    log_in(stranger, READER)
    for path in (
        "/",
        f"/results/{RESULT}",
        "/models",
        "/models/digits",
        "/models/digits/2",
        "/tasks?all=yes",
    ):
        text = stranger.read(path)
        assert 'class="writes"' not in text
        assert 'form="tasks"' not in text
    before = stranger.store.change_mark()

    answer = stranger.send("/tasks", "/tasks", do="cancel", task="2")

    assert answer.status_code == 403
    assert "operator" in answer.text
    assert stranger.store.change_mark() == before


def test_an_operator_changes_what_a_reader_cannot(stranger: Visitor) -> None:
    """With the token of the form, as ever."""
    log_in(stranger, OPERATOR)

    answer = stranger.send(f"/results/{RESULT}/tags", f"/results/{RESULT}", do="add", tag="nightly")

    assert answer.status_code == 303
    assert stranger.store.find()[0].tags == ("nightly",)
    assert stranger.client.post("/tasks", data={"do": "cancel", "task": "2"}).status_code == 403


def test_a_reader_cannot_make_himself_an_operator(stranger: Visitor) -> None:
    """The cookie is signed with its role."""
    log_in(stranger, READER)
    name, value = next(iter(stranger.client.cookies.items()))
    stranger.client.cookies.clear()
    stranger.client.cookies.set(name, value.replace("reader", "operator"))

    assert stranger.get("/").status_code == 401


def test_a_script_brings_its_token(stranger: Visitor) -> None:
    """It reads with it, and sends no forms: it writes by the API."""
    bearer = {"authorization": f"Bearer {OPERATOR}"}

    assert stranger.client.get(f"{API}/results", headers=bearer).json()["items"][0]["id"] == RESULT
    assert stranger.client.get(f"{API}/results", headers={"authorization": "Bearer x"}).status_code == 401
    assert stranger.client.post("/tasks", data={"do": "cancel"}, headers=bearer).status_code == 401


def test_it_answers_to_the_names_that_it_was_given(stranger: Visitor) -> None:
    """A server that encrypts may stand before a name that was given; others are refused."""
    bearer = {"authorization": f"Bearer {READER}"}

    def status(host: str, origin: str) -> int:
        answer = stranger.client.get("/", headers={**bearer, "host": host, "origin": origin})
        return int(answer.status_code)

    assert status(f"lab:{PORT}", f"http://lab:{PORT}") == 200
    assert status("lab", "https://lab") == 200
    assert status(f"127.0.0.1:{PORT}", f"https://127.0.0.1:{PORT}") == 403
    assert status("proxy.example:443", "https://proxy.example:443") == 200
    assert status(f"evil.example:{PORT}", f"http://evil.example:{PORT}") == 403
    assert status(f"lab:{PORT}", f"http://evil.example:{PORT}") == 403


def test_a_link_of_another_site_finds_who_has_logged_in(stranger: Visitor) -> None:
    """A browser sends no cookie with it: the form is loaded again from itself, and leads on."""
    answer = stranger.client.get("/login?next=/tasks", headers={"sec-fetch-site": "cross-site"})

    assert answer.headers["refresh"] == "0"
    assert "refresh" not in stranger.client.get("/login?next=/tasks").headers


# --- the file --------------------------------------------------------------------------------------


def test_a_token_file_is_made(tmp_path: Path) -> None:
    """With a long token for each role, that nobody else can read; then it is read again."""
    path = tmp_path / "tokens"
    made, new = read_or_make_tokens(path)

    assert new
    assert read_or_make_tokens(path) == (made, False)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert {role for _, role in made.roles} == set(AccessRole)
    assert min(len(token) for token, _ in made.roles) >= 32
    assert [made.role_of(token) for token, _ in made.roles] == [role for _, role in made.roles]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f"admin {'x' * 24}", "Line 1"),
        (f"# ours\n\nreader {'x' * 24}\noperator", "Line 4"),
        ("reader short", "fewer than 20"),
        ("# nothing\n", "has no token"),
        (b"\xff\xfe", "is no text"),
    ],
)
def test_a_wrong_token_file_is_said_without_its_tokens(tmp_path: Path, text: str | bytes, says: str) -> None:
    """In a sentence that names the line."""
    path = tmp_path / "tokens"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(0o600)

    with pytest.raises(RequestError, match=says) as caught:
        read_or_make_tokens(path)

    assert "x" * 24 not in str(caught.value)
    assert "short" not in str(caught.value)


@pytest.mark.skipif(os.name != "posix", reason="files have no mode there")
def test_a_token_file_that_everybody_reads_is_refused(tmp_path: Path) -> None:
    """It says how to mend it."""
    path = tmp_path / "tokens"
    read_or_make_tokens(path)
    path.chmod(0o644)

    with pytest.raises(RequestError, match="chmod 600"):
        read_or_make_tokens(path)
    with pytest.raises(RequestError, match="cannot be used"):
        read_or_make_tokens(tmp_path / "none" / "tokens")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org", ""])
def test_others_are_not_answered_without_tokens(host: str) -> None:
    """Any address but a loopback one needs a token file, before anything listens."""
    with pytest.raises(RequestError, match="`token_file`"):
        server.serve(host=host, port=0)
