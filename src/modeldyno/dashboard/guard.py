"""What stands before every route: who may ask, what a browser may do with the answer, and whose form it is.

A page of another site can send requests to this machine, and a name of its own can be made to lead here.
So a request has to name a loopback host and the port, one with an Origin has to come from a page of ours, and
what writes has to carry the token of a page that was shown to the same browser.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

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


class Guard:
    """Refuses with 403 what does not come from this machine's own browser pages, and adds headers."""

    def __init__(self, app: AsgiApp, port: int) -> None:
        self._app = app
        self._hosts = {f"{name}:{port}" for name in LOOPBACK} | (set(LOOPBACK) if port == _HTTP else set())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return
        refusal = self._refusal(scope)

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name.lower() for name, _ in message["headers"]}
                added = [(k.encode(), v.encode()) for k, v in HEADERS.items() if k.encode() not in given]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        if refusal is None:
            await self._app(scope, receive, send_guarded)
            return
        text = refusal.encode()
        headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(text))]
        await send_guarded({"type": "http.response.start", "status": 403, "headers": headers})
        await send_guarded({"type": "http.response.body", "body": text})

    def _refusal(self, scope: Scope) -> str | None:
        """Say why a request is refused; None if it is not."""
        hosts = _values(scope, b"host")
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return f"Refused: the dashboard answers to {min(self._hosts)} alone.\n"
        origins = _values(scope, b"origin")
        if any(origin.lower() != f"http://{hosts[0].lower()}" for origin in origins):
            return "Refused: the request comes from a page of another origin.\n"
        if scope["method"] not in {"GET", "HEAD"} and _values(scope, b"sec-fetch-site") not in (
            [],
            ["same-origin"],
        ):
            return "Refused: the request comes from a page of another site.\n"
        return None


_HTTP = 80


def _values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key.lower() == name]


class Sessions:
    """Tokens of forms: each is bound to the cookie of the browser that the form was shown to."""

    def __init__(self, port: int) -> None:
        self._secret = secrets.token_bytes(32)
        self.cookie = f"modeldyno-{port}"
        """Name of the cookie; browsers share cookies among the ports of a host."""

    def of(self, header: str) -> str | None:
        """Return the session of a Cookie header; None if it has none of this server."""
        try:
            cookie = SimpleCookie(header).get(self.cookie)
        except CookieError:
            return None
        session, _, proof = (cookie.value if cookie is not None else "").partition(".")
        return (
            session
            if session and hmac.compare_digest(proof.encode(), self._sign("session", session))
            else None
        )

    def new(self) -> str:
        """Return a new session."""
        return secrets.token_hex(16)

    def cookie_value(self, session: str) -> str:
        """Return what the cookie of a session holds."""
        return f"{session}.{self._sign('session', session).decode()}"

    def token(self, session: str) -> str:
        """Return the token of the forms that are shown to a session."""
        return self._sign("form", session).decode()

    def holds(self, session: str | None, token: str) -> bool:
        """Return whether a token is that of a session."""
        return session is not None and hmac.compare_digest(token.encode(), self.token(session).encode())

    def _sign(self, purpose: str, session: str) -> bytes:
        return hmac.new(self._secret, f"{purpose}:{session}".encode(), hashlib.sha256).hexdigest().encode()
