"""A connection to a server's own interface, beside the load: metadata, statistics, loading of models."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from modeldyno.errors import RequestError
from modeldyno.servers.tcp_ports import LOOPBACK

_SHOWN = 300
"""Characters of a server's own words that are repeated."""


class Refused(OSError):
    """The server answered, with an error."""


@dataclass(slots=True, kw_only=True)
class Control:
    """A server's HTTP interface; the connection is kept open, and opened anew where it broke."""

    host: str = LOOPBACK
    port: int
    secure: bool = False
    path: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """May hold secrets."""
    timeout: float = 30.0
    _open: http.client.HTTPConnection | None = field(default=None, repr=False)

    @classmethod
    def at(cls, url: str, headers: Mapping[str, str] | None = None) -> Control:
        """Read ``http://host:8000`` or ``https://host/path``.

        Raises:
            RequestError: it is no such address.
        """
        parts = urlsplit(url if "://" in url else f"http://{url}")
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in {"http", "https"} or not parts.hostname or port == -1:
            raise RequestError(f"'{url}' is no address of a server; write http://host:8000.")
        secure = parts.scheme == "https"
        return cls(
            host=parts.hostname,
            port=port or (443 if secure else 80),
            secure=secure,
            path=parts.path.rstrip("/"),
            headers=headers or {},
        )

    def get(self, path: str) -> Any:
        """Ask for JSON."""
        return _parsed(self.text("GET", path))

    def post(self, path: str, body: Any = None) -> Any:
        """Send JSON, and read what comes back."""
        return _parsed(self.text("POST", path, json.dumps({} if body is None else body).encode()))

    def text(self, method: str, path: str, body: bytes | None = None) -> str:
        """Make a request; give the answer.

        Raises:
            Refused: the server answered with an error.
            OSError: it did not answer.
        """
        for fresh in (self._open is None, True):
            try:
                status, text = self._exchange(method, path, body)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if fresh:  # one that was left open may have been closed in the meantime
                    raise OSError(
                        f"{self.host}:{self.port} does not answer: {str(error) or type(error).__name__}"
                    ) from error
                continue
            if status >= http.HTTPStatus.BAD_REQUEST:
                raise Refused(f"{status}: {_words(text)}")
            return text
        raise AssertionError

    def close(self) -> None:
        """Close the connection."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def _exchange(self, method: str, path: str, body: bytes | None) -> tuple[int, str]:
        if self._open is None:
            kind = http.client.HTTPSConnection if self.secure else http.client.HTTPConnection
            self._open = kind(self.host, self.port, timeout=self.timeout)
        headers = {"Content-Type": "application/json", **self.headers}
        self._open.request(method, self.path + path, body, headers)
        answer = self._open.getresponse()
        return answer.status, answer.read().decode(errors="replace")


def _parsed(text: str) -> Any:
    try:
        return json.loads(text) if text.strip() else None
    except ValueError as error:
        raise OSError(f"the server answered with what is no JSON: {text[:_SHOWN]!r}") from error


def _words(text: str) -> str:
    """Take the message out of an error."""
    try:
        found = json.loads(text)
        text = str(found.get("error") or found.get("message") or found.get("detail") or text)
    except (ValueError, AttributeError):
        pass
    return " ".join(text.split())[:_SHOWN] or "no words"
