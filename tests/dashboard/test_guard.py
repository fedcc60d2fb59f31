"""Who may ask the dashboard, and what a browser may do with its answers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.dashboard.conftest import PORT
from tests.dashboard.test_app import example

from modeldyno.dashboard.app import PAGES, WRITES
from modeldyno.dashboard.guard import API, Sessions

if TYPE_CHECKING:
    from tests.dashboard.conftest import Visitor

FOREIGN_HOSTS = (
    "evil.example", f"evil.example:{PORT}", f"127.0.0.1.evil.example:{PORT}", "127.0.0.1", "127.0.0.1:80",
    f"localhost.:{PORT}", f"0.0.0.0:{PORT}", f"169.254.169.254:{PORT}", f"[::]:{PORT}", f"127.1:{PORT}", "",
    f"localhost:{PORT}, evil.example",
)  # fmt: skip
FOREIGN_ORIGINS = (
    "http://evil.example", f"http://evil.example:{PORT}", "null", "", f"https://127.0.0.1:{PORT}",
    "http://127.0.0.1", f"http://127.0.0.1:{PORT}.evil.example", f"http://localhost:{PORT}",
)  # fmt: skip
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY")
ROUTES = sorted(
    {
        *(example(route.path) for route in PAGES),
        *(API + example(route.path) for route in PAGES if route.path != "/"),
        *(writing.path.replace("{id}", "0" * 12).replace("{name}", "digits") for writing in WRITES),
        f"{API}/home", f"{API}/openapi.json", "/changes", "/static/echarts.js", "/nothing",
    }
)  # fmt: skip


def refused(visitor: Visitor, host: str, origin: str | None = None) -> list[tuple[str, str, int]]:
    """Ask every route by every method; return those whose answer was not 403, with what it was."""
    headers = [(b"host", host.encode())] + ([] if origin is None else [(b"origin", origin.encode())])
    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"do=add"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    async def ask() -> list[tuple[str, str, int]]:
        for route, method in calls:
            path, _, query = route.partition("?")
            scope = {
                "type": "http", "http_version": "1.1", "method": method, "path": path, "headers": headers,
                "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
                "scheme": "http", "server": ("127.0.0.1", PORT), "client": ("127.0.0.1", 1),
            }  # fmt: skip
            await visitor.client.app(scope, receive, send)
        return [(*one, status) for one, status in zip(calls, statuses, strict=True) if status != 403]

    calls = [(route, method) for route in ROUTES for method in METHODS]
    return asyncio.run(ask())


@pytest.mark.parametrize("host", FOREIGN_HOSTS)
def test_a_foreign_host_is_refused(visitor: Visitor, host: str) -> None:
    """A name that was made to lead here gets nothing, at any route, by any method."""
    before = visitor.store.change_mark()

    assert refused(visitor, host) == []
    assert visitor.store.change_mark() == before


@pytest.mark.parametrize("origin", FOREIGN_ORIGINS)
def test_a_foreign_origin_is_refused(visitor: Visitor, origin: str) -> None:
    """A page of another origin gets nothing, also when it only reads."""
    before = visitor.store.change_mark()

    assert refused(visitor, f"127.0.0.1:{PORT}", origin) == []
    assert visitor.store.change_mark() == before


@pytest.mark.parametrize(
    "host", [f"127.0.0.1:{PORT}", f"localhost:{PORT}", f"[::1]:{PORT}", f"LOCALHOST:{PORT}"]
)
def test_this_machine_is_answered(visitor: Visitor, host: str) -> None:
    """By each of its names, and with its own origin."""
    assert visitor.get("/", host=host).status_code == 200
    assert visitor.get("/", host=host, origin=f"http://{host}").status_code == 200


def test_two_hosts_are_refused(visitor: Visitor) -> None:
    """A request that names two does not mean this one."""
    headers = [("host", f"127.0.0.1:{PORT}"), ("host", "evil.example")]

    assert visitor.client.get("/", headers=headers).status_code == 403


@pytest.mark.parametrize(
    "path", ["/", "/results/010101010101", f"{API}/home", "/static/dashboard.css", "/nothing"]
)
def test_every_answer_says_what_a_browser_may_do(visitor: Visitor, path: str) -> None:
    """Load scripts and styles of this server alone, and show the page in no frame."""
    headers = visitor.get(path).headers

    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"


def test_the_cookie_is_for_this_server_alone(newcomer: Visitor) -> None:
    """No script reads it, and no other site's page makes a browser send it."""
    cookie = newcomer.get("/").headers["set-cookie"].lower()

    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "set-cookie" not in newcomer.get("/").headers


def test_a_token_is_of_one_session() -> None:
    """That of another browser, of another server or none at all is not taken."""
    here, there = Sessions(PORT), Sessions(PORT)
    session = here.new()

    assert here.holds(session, here.token(session))
    assert not here.holds(here.new(), here.token(session))
    assert not here.holds(session, there.token(session))
    assert not here.holds(session, "")
    assert not here.holds(None, here.token(session))
    assert here.of(f"{here.cookie}={here.cookie_value(session)}") == session
    assert here.of(f"{here.cookie}={there.cookie_value(session)}") is None
    assert here.of(f"{here.cookie}={session}") is None
    assert here.of("") is None
