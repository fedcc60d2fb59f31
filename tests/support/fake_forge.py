"""A fake forge that keeps comments in memory: the parts of the GitHub and GitLab APIs that comments need."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKEN = "secret-of-the-test"


@dataclass
class Forge:
    """The comments that it stores, and the requests that it got."""

    comments: list[dict[str, Any]] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)
    """Method and path of each request that was granted."""
    url: str = ""

    def answer(self, method: str, path: str, body: dict[str, Any]) -> Any:
        """Carry out a request."""
        self.requests.append((method, urlsplit(path).path))
        if method == "GET":
            page, size = (int(parse_qs(urlsplit(path).query)[name][0]) for name in ("page", "per_page"))
            return self.comments[(page - 1) * size : page * size]
        if method == "POST":
            self.comments.append({"id": 1000 + len(self.comments), **body})
            return self.comments[-1]
        (comment,) = (stored for stored in self.comments if path.endswith(f"/{stored['id']}"))
        comment.update(body)
        return comment


@contextmanager
def serve_forge() -> Iterator[Forge]:
    """Serve a forge on this machine."""
    state = Forge()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            tokens = {self.headers.get("Authorization"), self.headers.get("PRIVATE-TOKEN")}
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            granted = bool({f"Bearer {TOKEN}", TOKEN} & tokens)
            answer = state.answer(self.command, self.path, json.loads(data or b"{}")) if granted else {}
            self.send_response(200 if granted else 403)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        do_GET = do_POST = do_PATCH = do_PUT = answer  # noqa: N815 - names that the library calls

        def log_message(self, *_words: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
