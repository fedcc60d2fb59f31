"""What stands before every route: who may ask, what a browser may do with the answer, and whose form it is.

A page of another site can send requests to this machine, and a name of its own can be made to lead here.
So a request has to name a host that is this one and the port, one with an Origin has to come from a page of
ours, and what writes has to carry the token of a page that was shown to the same browser. Where a token is
asked for, a request has to come from a browser that has logged in, or bring the token.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from modeldyno.base import codec
from modeldyno.dashboard.access import AccessRole

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, MutableMapping

    from modeldyno.dashboard.access import AccessTokens

    Scope = MutableMapping[str, Any]
    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]
    AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not no-referrer: with it, a browser sends the Origin of a form as null.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
"""Headers of every answer."""


API = "/api/v1"
LOGIN = "/login"
"""The form for a token; it and what it looks like are answered before one is given."""


TOKEN_NEEDED = "Refused: a token is needed, as Authorization: Bearer TOKEN."  # noqa: S105 - a sentence


class Guard:
    """Refuses what may not be asked, before any route is looked for, and adds headers."""

    def __init__(self, app: AsgiApp, port: int, sessions: Sessions, hosts: Iterable[str] = ()) -> None:
        self._app, self._sessions = app, sessions
        with_ports = {host.lower() if _has_port(host) else f"{host}:{port}".lower() for host in hosts}
        self._hosts = {f"{name}:{port}" for name in LOOPBACK} | (set(LOOPBACK) if port == _HTTP else set())
        self._hosts |= with_ports | {host.lower() for host in hosts if not _has_port(host)}
        self._encrypted = {host.lower() for host in hosts}
        """Names that a server which encrypts may have for this one."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                names = {name.lower() for name, _ in message["headers"]}
                added = [(k.encode(), v.encode()) for k, v in HEADERS.items() if k.encode() not in names]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            await _say(403, refusal, scope, send_guarded)
        elif self._is_known(scope):
            await self._app(scope, receive, send_guarded)
        elif scope["method"] == "GET" and "text/html" in "".join(_values(scope, b"accept")):
            where = quote(
                scope["path"] + ("?" + scope["query_string"].decode("latin-1")).rstrip("?"), safe=""
            )
            headers = [(b"location", f"{LOGIN}?next={where}".encode()), (b"cache-control", b"no-store")]
            await _say(303, "A token is needed.\n", scope, send_guarded, headers)
        else:
            headers = [(b"www-authenticate", b"Bearer"), (b"cache-control", b"no-store")]
            await _say(401, f"{TOKEN_NEEDED}\n", scope, send_guarded, headers)

    def _is_known(self, scope: Scope) -> bool:
        """Return whether who asks may: by a token, by having logged in, or because nobody has to."""
        path = scope["path"]
        if not self._sessions.asks_for_token or path == LOGIN or path.startswith("/static/"):
            return True
        if self._sessions.of("; ".join(_values(scope, b"cookie"))) is not None:
            return True
        reads = scope["method"] in {"GET", "HEAD"}
        role = self._sessions.role_sent((_values(scope, b"authorization") or [""])[0])
        return role is not None and (reads or path.startswith(f"{API}/"))

    def _refusal(self, scope: Scope) -> str | None:
        """Say why a request is refused; None if it is not."""
        hosts = _values(scope, b"host")
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return f"Refused: the dashboard answers to {min(self._hosts)} alone.\n"
        host = hosts[0].lower()
        own = {f"http://{host}"} | ({f"https://{host}"} if host in self._encrypted else set())
        if any(origin.lower() not in own for origin in _values(scope, b"origin")):
            return "Refused: the request comes from a page of another origin.\n"
        if scope["method"] not in {"GET", "HEAD"} and _values(scope, b"sec-fetch-site") not in (
            [],
            ["same-origin"],
        ):
            return "Refused: the request comes from a page of another site.\n"
        return None


async def _say(
    status: int, text: str, scope: Scope, send: Send, headers: Iterable[tuple[bytes, bytes]] = ()
) -> None:
    """Answer with a sentence: to who asks the API as JSON, like every problem there."""
    is_api = scope["path"].startswith(f"{API}/")
    body = codec.encode_document({"error": text.strip()}) if is_api else text.encode()
    kind = b"application/json" if is_api else b"text/plain; charset=utf-8"
    length = (b"content-length", b"%d" % len(body))
    all_headers = [(b"content-type", kind), length, *headers]
    await send({"type": "http.response.start", "status": status, "headers": all_headers})
    await send({"type": "http.response.body", "body": body})


def _has_port(host: str) -> bool:
    return ":" in host.rpartition("]")[2]


_HTTP = 80


def _values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key.lower() == name]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserSession:
    """A browser that pages are shown to."""

    id: str
    role: AccessRole


class Sessions:
    """The browsers that pages are shown to, by a signed cookie; tokens of forms are bound to it."""

    def __init__(self, port: int, tokens: AccessTokens | None = None) -> None:
        self._secret = secrets.token_bytes(32)
        self._tokens = tokens
        self.cookie = f"modeldyno-{port}"
        """Name of the cookie; browsers share cookies among the ports of a host."""

    @property
    def asks_for_token(self) -> bool:
        """Whether who asks has to give a token first."""
        return self._tokens is not None

    def role_of(self, token: str) -> AccessRole | None:
        """Return the role that a token gives; None if it is none."""
        return None if self._tokens is None else self._tokens.role_of(token)

    def role_sent(self, header: str) -> AccessRole | None:
        """Return the role that an Authorization header gives; None if it has no token of ours."""
        word, _, token = header.partition(" ")
        return self.role_of(token.strip()) if word.lower() == "bearer" else None

    def of(self, header: str) -> BrowserSession | None:
        """Return the session of a Cookie header; None if it has none of this server."""
        try:
            cookie = SimpleCookie(header).get(self.cookie)
        except CookieError:
            return None
        identity, _, proof = (cookie.value if cookie is not None else "").rpartition(".")
        if not identity or not hmac.compare_digest(proof.encode(), self._sign("session", identity)):
            return None
        role, _, session = identity.partition(".")
        return BrowserSession(id=session, role=AccessRole(role))

    def new(self, role: AccessRole = AccessRole.OPERATOR) -> BrowserSession:
        """Return a new session."""
        return BrowserSession(id=secrets.token_hex(16), role=role)

    def cookie_value(self, session: BrowserSession) -> str:
        """Return what the cookie of a session holds."""
        identity = f"{session.role}.{session.id}"
        return f"{identity}.{self._sign('session', identity).decode()}"

    def token(self, session: BrowserSession) -> str:
        """Return the token of the forms that are shown to a session."""
        return self._sign("form", session.id).decode()

    def holds(self, session: BrowserSession | None, token: str) -> bool:
        """Return whether a token is that of a session."""
        return session is not None and hmac.compare_digest(token.encode(), self.token(session).encode())

    def _sign(self, purpose: str, session: str) -> bytes:
        return hmac.new(self._secret, f"{purpose}:{session}".encode(), hashlib.sha256).hexdigest().encode()
