"""Writes the pages of the dashboard as files that a browser opens without a server.

The name of a file is a digest of the page's address: no name of a model becomes a path.
"""

from __future__ import annotations

import hashlib
import re
from html import escape, unescape
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base import codec
from modeldyno.base.errors import RequestError
from modeldyno.base.identity import actor
from modeldyno.dashboard.app import page_at
from modeldyno.dashboard.html import render_page, static_files

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from modeldyno.stores.interface import Store

_ADDRESS = re.compile(r'(?<=[ ])(?P<word>href|src|data-library)="(?P<address>/[^"]*)"')
_LEFT_OUT = ("/static/", "/api/", "/compare")
"""Beginnings of addresses that are no pages, or that a visitor chooses."""


def export_pages(store: Store, folder: Path) -> int:
    """Write every page that the first one leads to, and the files that they load; return how many pages.

    Raises:
        RequestError: the folder is not empty, or cannot be written.
        StoreError: the store cannot be read.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise RequestError(f"The folder {folder} is not empty; name another.")
        (folder / "static").mkdir()
    except OSError as error:
        raise RequestError(f"The folder {folder} cannot be written: {error.strerror}.") from error
    for name, file in static_files().items():
        codec.write(folder / "static" / name, file.content)
    pages = _pages(store)
    for address, text in pages.items():
        shared = _without_places(_ADDRESS.sub(_as_file(pages.keys()), text), store.place)
        codec.write(folder / _file_name(address), shared.encode())
    return len(pages)


def _without_places(text: str, store: str) -> str:
    """Return a page without what tells where and by whom it was made: it is for others.

    Folders of the store, of this command and of its user are written as ``.`` and ``~``, and the user's name
    is left out.
    """
    places = {str(Path(store).parent): ".", str(Path.cwd()): ".", str(Path.home()): "~"}
    for place in sorted(places, key=len, reverse=True):
        if place != "/":
            text = re.sub(rf"(?<![\w.~-]){re.escape(escape(place))}(?=[/\s<&\"']|$)", places[place], text)
    return re.sub(rf"(?<=[> ]){re.escape(escape(actor()))}(?=</)", "(a user)", text)


def _pages(store: Store) -> dict[str, str]:
    """Return the pages by their addresses: the first one, and whatever is linked from them."""
    pages: dict[str, str] = {}
    waiting, reached = ["/"], {"/"}
    while waiting:
        address = waiting.pop()
        page = page_at(store, address)
        if page is None or page.status != _FOUND:
            continue
        path, _, query = address.partition("?")
        pages[address] = render_page(page, path=path, query=query, token="", still=True)
        for link in _ADDRESS.finditer(pages[address]):
            target = unescape(link["address"])
            if target not in reached and not target.startswith(_LEFT_OUT):
                reached.add(target)
                waiting.append(target)
    return pages


_FOUND = 200


def _as_file(addresses: Collection[str]) -> Callable[[re.Match[str]], str]:
    """Return what writes an address as that of a file; what is no file leads nowhere."""

    def write(match: re.Match[str]) -> str:
        address = unescape(match["address"])
        if address.startswith("/static/"):
            return f'{match["word"]}="{address[1:].partition("?")[0]}"'
        return f'{match["word"]}="{_file_name(address)}"' if address in addresses else "data-elsewhere"

    return write


def _file_name(address: str) -> str:
    if address == "/":
        return "index.html"
    room = re.match("/([a-z]*)", address)
    assert room is not None
    return f"{room[1]}-{hashlib.sha256(address.encode()).hexdigest()[:16]}.html"
