"""A client of a server's HTTP interface for metadata, statistics and model loading, apart from the load."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from modeldyno.errors import RequestError
from modeldyno.servers.tcp_ports import LOOPBACK

_MESSAGE_LIMIT = 300
"""Characters of a server's error message that are quoted."""


class AdminRequestRefused(OSError):
    """The server answered with an error status."""


@dataclass(slots=True, kw_only=True)
class AdminClient:
    """A client of a server's HTTP interface; the connection is kept open, and reopened when it breaks."""

    host: str = LOOPBACK
    port: int
    secure: bool = False
    path: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """May hold secrets."""
    timeout: float = 30.0
    _connection: http.client.HTTPConnection | None = field(default=None, repr=False)

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
        for fresh in (self._connection is None, True):
            try:
                status, text = self._exchange(method, path, body)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if fresh:  # a kept connection may have been closed by the server
                    raise OSError(
                        f"{self.host}:{self.port} does not answer: {str(error) or type(error).__name__}"
                    ) from error
                continue
            if status >= http.HTTPStatus.BAD_REQUEST:
                raise AdminRequestRefused(f"{status}: {_error_message(text)}")
            return text
        raise AssertionError

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _exchange(self, method: str, path: str, body: bytes | None) -> tuple[int, str]:
        if self._connection is None:
            kind = http.client.HTTPSConnection if self.secure else http.client.HTTPConnection
            self._connection = kind(self.host, self.port, timeout=self.timeout)
        headers = {"Content-Type": "application/json", **self.headers}
        self._connection.request(method, self.path + path, body, headers)
        response = self._connection.getresponse()
        return response.status, response.read().decode(errors="replace")


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
