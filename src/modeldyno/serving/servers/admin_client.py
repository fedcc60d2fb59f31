"""A client of a server's HTTP interface for metadata, statistics and model loading, apart from the load."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from modeldyno.base.errors import RequestError
from modeldyno.base.system.timed_answer import exchange
from modeldyno.serving.servers.tcp_ports import LOOPBACK

_MESSAGE_LIMIT = 300
"""Characters of a server's error message that are quoted."""


class AdminRequestRefused(OSError):
    """The server answered with an error status."""


@dataclass(slots=True, kw_only=True)
class AdminClient:
    """A client of a server's HTTP interface; each answer has a time as a whole."""

    host: str = LOOPBACK
    port: int
    secure: bool = False
    path: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """May hold secrets."""
    timeout: float = 30.0
    """Seconds for an answer."""

    @classmethod
    def at(cls, url: str, headers: Mapping[str, str] | None = None) -> AdminClient:
        """Return the client of ``http://host:8000`` or ``https://host/path``.

        Raises:
            RequestError: the address is not valid.
        """
        parts = urlsplit(url if "://" in url else f"http://{url}")
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in {"http", "https"} or not parts.hostname or port == -1:
            raise RequestError(f"'{url}' is not a server's address; write for example http://host:8000.")
        secure = parts.scheme == "https"
        return cls(
            host=parts.hostname,
            port=port or (443 if secure else 80),
            secure=secure,
            path=parts.path.rstrip("/"),
            headers=headers or {},
        )

    def get(self, path: str) -> Any:
        """Return the JSON of a path."""
        return _parsed(self.text("GET", path))

    def post(self, path: str, body: Any = None) -> Any:
        """Post JSON and return the JSON of the answer."""
        return _parsed(self.text("POST", path, json.dumps({} if body is None else body).encode()))

    def text(self, method: str, path: str, body: bytes | None = None) -> str:
        """Send a request and return the text of the answer.

        Raises:
            Refused: the server answered with an error.
            OSError: the server did not answer.
        """
        host = f"[{self.host}]" if ":" in self.host else self.host
        url = f"http{'s' if self.secure else ''}://{host}:{self.port}{self.path}{path}"
        headers = {"Content-Type": "application/json", **self.headers}
        try:
            status, answer = exchange(method, url, body, headers, seconds=self.timeout)
        except OSError as error:
            why = str(error) or type(error).__name__
            raise OSError(f"{self.host}:{self.port} does not answer: {why}") from error
        text = answer.decode(errors="replace")
        if status >= HTTPStatus.BAD_REQUEST:
            raise AdminRequestRefused(f"{status}: {_error_message(text)}")
        return text


def _parsed(text: str) -> Any:
    try:
        return json.loads(text) if text.strip() else None
    except (ValueError, RecursionError) as error:
        raise OSError(f"the server's answer is not JSON: {text[:_MESSAGE_LIMIT]!r}") from error


def _error_message(text: str) -> str:
    """Return the message in the body of an error."""
    try:
        body = json.loads(text)
        text = str(body.get("error") or body.get("message") or body.get("detail") or text)
    except (ValueError, AttributeError, RecursionError):
        pass
    return " ".join(text.split())[:_MESSAGE_LIMIT] or "no message"
