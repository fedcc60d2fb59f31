"""No address leads out of the dashboard: identifiers and names are looked up, and become no path."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

from tests.dashboard.conftest import PORT

if TYPE_CHECKING:
    from tests.dashboard.conftest import Visitor

_UP = ("../", "..%2f", "%2e%2e/", "%2e%2e%2f", "..%252f", "..%c0%af", "....//", "..;/", "..\\", "..%5c",
       "%2e%2e%5c", "..%00/", "/..", "//")  # fmt: skip
_FILES = ("etc/passwd", "%65tc/passwd", "etc/passwd%00.js", "etc/./passwd", "proc/self/environ", "app.py",
          "guard.py", "static/../guard.py", "C:/windows/win.ini", "etc/passwd?.css",
          "etc%2fpasswd")  # fmt: skip
_BEFORE = ("/static/", "/results/", "/models/", "/studies/", "/loads/", "/comparisons/", "/api/v1/results/",
           "/results/010101010101/")  # fmt: skip
PATHS = [
    start + up * depth + file for start, up, file, depth in itertools.product(_BEFORE, _UP, _FILES, (1, 3))
]


def answered(visitor: Visitor, paths: list[str]) -> list[tuple[int, bytes]]:
    """Ask for paths as they are, without a client that tidies them."""

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def ask(path: str) -> tuple[int, bytes]:
        messages: list[Any] = []

        async def send(message: Any) -> None:
            messages.append(message)

        plain, _, query = path.partition("?")
        scope = {
            "type": "http", "http_version": "1.1", "method": "GET", "scheme": "http", "root_path": "",
            "path": unquote_to_bytes(plain).decode("utf-8", "replace"), "raw_path": plain.encode(),
            "query_string": query.encode(), "headers": [(b"host", f"127.0.0.1:{PORT}".encode())],
            "server": ("127.0.0.1", PORT), "client": ("127.0.0.1", 1),
        }  # fmt: skip
        await visitor.client.app(scope, receive, send)
        return messages[0]["status"], b"".join(message.get("body", b"") for message in messages[1:])

    async def ask_all() -> list[tuple[int, bytes]]:
        return [await ask(path) for path in paths]

    return asyncio.run(ask_all())


def test_no_path_leads_to_a_file(visitor: Visitor) -> None:
    """A thousand ways up are refused in a sentence, and show nothing of a file."""
    chosen = PATHS[:: max(1, len(PATHS) // 1000)][:1200]
    assert len(chosen) >= 1000

    for path, (status, body) in zip(chosen, answered(visitor, chosen), strict=True):
        assert status in {400, 404}, path
        assert b"root:" not in body, path
        assert b"import annotations" not in body, path
        assert b"PATH=" not in body, path
