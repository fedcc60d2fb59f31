"""A real browser, and what it did with a page; a dashboard to look at: `make test-browser`."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from modeldyno.base import plugins
from modeldyno.base.errors import MissingExtra
from modeldyno.dashboard.server import listen
from modeldyno.reports import pdf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from modeldyno.stores.interface import Store

_WATCH = """
window.broken = [];
document.addEventListener("securitypolicyviolation", (event) =>
  window.broken.push(event.violatedDirective + event.sample));
"""


@dataclass
class Opened:
    """A page in the browser, and what came of it."""

    page: Any
    messages: list[str] = field(default_factory=list)
    """Errors and warnings of the console, exceptions, dialogs."""
    requests: list[str] = field(default_factory=list)
    """Addresses that were asked for beyond the page itself."""

    @property
    def broken(self) -> list[str]:
        """Violations of the policy."""
        broken = self.page.evaluate("window.broken")
        assert isinstance(broken, list)
        return broken

    def dismissed(self, dialog: Any) -> None:
        """Note a dialog, and go on."""
        self.messages.append(dialog.message)
        dialog.dismiss()

    def count(self, selector: str) -> int:
        """Count elements."""
        return int(self.page.locator(selector).count())

    def scroll(self) -> None:
        """Go through the page, so that everything comes into view."""
        self.page.evaluate(
            "async () => { for (let y = 0; y < document.body.scrollHeight; y += 500) {"
            " scrollTo(0, y); await new Promise((done) => setTimeout(done, 30)); } }"
        )
        self.page.wait_for_timeout(200)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store with something of everything."""
    from tests.dashboard.conftest import fill  # needs optional packages

    with plugins.store(f"sqlite:///{tmp_path_factory.mktemp('browser')}/store.db") as opened:
        fill(opened)
        yield opened


@pytest.fixture(scope="module")
def address(store: Store) -> Iterator[str]:
    """Serve it."""
    uvicorn = pytest.importorskip("uvicorn")
    from modeldyno.dashboard.app import make_app  # an optional package, too

    with listen(0) as listener:
        port = listener.getsockname()[1]
        app = make_app(store, port, ending=lambda: server.should_exit)
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off", ws="none"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        yield f"http://127.0.0.1:{port}"
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """Chromium, by Playwright; none of it is needed elsewhere."""
    playwright = pytest.importorskip("playwright.sync_api")
    try:
        program = pdf.find_browser()
    except MissingExtra as error:
        pytest.skip(str(error))
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium: Any, tmp_path: Path) -> Callable[..., AbstractContextManager[Opened]]:
    """Give what opens the text of a page, with options of Playwright's context."""

    @contextmanager
    def open_(text: str, **how: Any) -> Iterator[Opened]:
        path = tmp_path / "page.html"
        path.write_text(text, encoding="utf-8")
        context = chromium.new_context(**how)
        tab = Opened(page=context.new_page())
        page = tab.page
        page.add_init_script(_WATCH)
        page.on(
            "console", lambda message: tab.messages.append(message.text) if message.type != "log" else None
        )
        page.on("pageerror", lambda error: tab.messages.append(str(error)))
        page.on("dialog", tab.dismissed)
        page.on("request", lambda request: tab.requests.append(request.url))
        page.goto(path.as_uri())
        assert tab.requests.pop(0) == path.as_uri()
        yield tab
        context.close()

    return open_
