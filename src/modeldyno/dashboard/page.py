"""What a page of the dashboard is made of, and what is asked of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, NamedTuple, Protocol, TypeVar
from urllib.parse import quote, urlencode

from modeldyno.base.errors import RequestError
from modeldyno.base.report.blocks import Block, Severity
from modeldyno.dashboard.diagram import Diagram, TimeChart
from modeldyno.reports.interface import TableLinks
from modeldyno.stores.interface import Store

if TYPE_CHECKING:
    from collections.abc import Iterable


class _HasMark(Protocol):
    """An entry of a list that is shown by pages."""

    @property
    def mark(self) -> str:
        """Where the list goes on behind it."""


Marked = TypeVar("Marked", bound=_HasMark)

PAGE = 25
"""Rows of a list on one page."""
LARGEST_NUMBER = 2**31 - 1
"""Of what a database counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentFile:
    """A file that was sent with a form."""

    name: str
    """As the browser told it; it is no path."""
    content: IO[bytes]


class Attention(NamedTuple):
    """Something that a person should look at."""

    state: str
    of: str
    target: str
    """Name of the target; empty where it is not of one."""
    why: str
    address: str
    change: str = ""
    """By how much it has changed, such as ``+24.7%``; empty where nothing was compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """What a request asks for."""

    store: Store
    path: Mapping[str, str] = field(default_factory=dict)
    """Parts of the path by name."""
    query: tuple[tuple[str, str], ...] = ()
    """Names and values of the query, in their order."""
    form: tuple[tuple[str, str], ...] = ()
    """Names and values of the form that was sent."""
    file: SentFile | None = None
    """The file that was sent with it."""
    body: bytes = b""
    """What was sent to the API instead of a form."""
    regressions: Callable[[], Sequence[Attention] | None] | None = None
    """Returns what has become worse, as far as that is known; None: a page searches by itself."""

    def text(self, name: str) -> str:
        """Return a value of the query without surrounding space; empty if it was not given."""
        return next((value.strip() for key, value in reversed(self.query) if key == name), "")

    def texts(self, name: str) -> tuple[str, ...]:
        """Return all values of a name that are not empty, each once."""
        return tuple(
            dict.fromkeys(value.strip() for key, value in self.query if key == name and value.strip())
        )

    def form_value(self, name: str) -> str:
        """Return a field of the form that was sent; empty if it was not filled in."""
        return next((value.strip() for key, value in self.form if key == name), "")

    def numbers(self, name: str) -> tuple[int, ...]:
        """Return the numbers that were ticked.

        Raises:
            RequestError: something else was sent.
        """
        return tuple(as_number(value) for key, value in self.form if key == name)


def as_number(text: str) -> int:
    """Return a number from 0 of what a database counts.

    Raises:
        RequestError: it is none.
    """
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(LARGEST_NUMBER))):
        raise RequestError(f"'{text[:20]}' is no number.")
    return min(int(text), LARGEST_NUMBER)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageLink:
    """A link of a page."""

    text: str
    address: str
    """Empty for this page itself, where it is the end of a trail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormField:
    """A field of a form, with its label."""

    name: str
    label: str
    value: str = ""
    hint: str = ""
    """An example of what is written there."""
    options: tuple[tuple[str, str], ...] = ()
    """Values and what they are called, to choose from; empty for a text."""
    lines: int = 1
    hidden: bool = False
    secret: bool = False
    """Whether nobody should read along while it is filled in."""
    ticked: bool | None = None
    """Whether its box is ticked; None for what is no box."""
    slides: tuple[float, float] | None = None
    """Ends of the slider beside a number; None for what is no number."""
    accept: str = ""
    """Suffixes of the file to be sent; empty for a text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageForm:
    """A form: one that asks is sent with the address, one that writes with a token."""

    id: str
    action: str
    buttons: tuple[tuple[str, str], ...]
    """Values of the field ``do`` and what their buttons say; of a form that asks, the value is empty."""
    fields: tuple[FormField, ...] = ()
    title: str = ""
    writes: bool = False
    live: bool = False
    """Whether what stands below it follows its fields while they are changed, where scripts run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageBlocks:
    """Blocks of a document or a list."""

    blocks: tuple[Block, ...]
    links: TableLinks = field(default_factory=TableLinks)
    listed: bool = True
    """Whether its first table may be that of the list, for a spreadsheet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageText:
    """A paragraph, and commands to type."""

    text: str
    commands: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PageLinks:
    """Links beside each other, such as to the next page."""

    links: tuple[PageLink, ...]
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PageDiagram:
    """A drawing, and blocks that tell the same beside it."""

    diagram: Diagram | TimeChart
    blocks: tuple[Block, ...]
    title: str = ""
    links: TableLinks = field(default_factory=TableLinks)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """A model on the wall: its newest figure, how it came to it, and whether it is well."""

    name: str
    address: str
    figure: str
    """Such as ``1.50 ms``."""
    what: str = ""
    """What the figure is, such as ``median``."""
    about: str
    """How it was measured."""
    rate: str = ""
    when: str
    """UTC, as in lists."""
    state: str = ""
    """Such as ``worse``; empty if there is nothing to say."""
    change: str = ""
    """Of the figure, such as ``+24.7%``."""
    curve: tuple[float, ...] = ()
    """The figure over its latest results, the oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageWall:
    """Cards of models beside each other."""

    title: str
    cards: tuple[ModelCard, ...]


Part = PageForm | PageBlocks | PageDiagram | PageText | PageLinks | PageWall


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardPage:
    """A page: its answer as the heading, its parts, and the same as JSON."""

    title: str
    """Its answer in a sentence, or of a list what is in it."""
    parts: tuple[Part, ...]
    data: object
    """Its JSON twin: bytes that are JSON, or any value of records."""
    room: str
    """Address of the room or tab that it belongs to."""
    lead: str = ""
    """What the heading leaves out of its answer."""
    chips: tuple[tuple[str, Severity], ...] = ()
    """Verdict and doubts in a few words, beside the heading."""
    actions: tuple[PageLink, ...] = ()
    """What can be done with what the page shows."""
    trail: tuple[PageLink, ...] = ()
    """Links to the pages above it, and the name of the page itself."""
    status: int = 200
    reload: int = 0
    """Seconds after which a browser without scripts loads it again; 0: it does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """A room of the dashboard: an entry of the navigation, with tabs if several pages are in it."""

    text: str
    more: str = ""
    """Words of its name that a phone has no room for."""
    tabs: tuple[PageLink, ...]

    @property
    def address(self) -> str:
        """The address of its first page."""
        return self.tabs[0].address

    def has(self, address: str) -> bool:
        """Whether a page is in it."""
        return any(tab.address == address for tab in self.tabs)


ROOMS = (
    Room(text="Overview", tabs=(PageLink(text="Overview", address="/"),)),
    Room(text="Models", tabs=(PageLink(text="Models", address="/models"),)),
    Room(
        text="Measurements",
        tabs=(
            PageLink(text="Results", address="/results"),
            PageLink(text="Loads", address="/loads"),
            PageLink(text="Sweeps", address="/studies"),
            PageLink(text="Comparisons", address="/comparisons"),
            PageLink(text="Conversions", address="/conversions"),
        ),
    ),
    Room(
        text="Trends",
        more="and alerts",
        tabs=(
            PageLink(text="Trends", address="/trends"),
            PageLink(text="Alerts", address="/alerts"),
            PageLink(text="Events", address="/events"),
        ),
    ),
    Room(
        text="Queue",
        tabs=(
            PageLink(text="Tasks", address="/tasks"),
            PageLink(text="Workers and devices", address="/targets"),
        ),
    ),
)
"""The rooms in the order of the navigation; settings are behind a gear."""
SETTINGS = PageLink(text="Settings", address="/settings")


CHIPS: Mapping[str, Severity] = {
    "fresh": Severity.HELD,
    "agrees": Severity.HELD,
    "held": Severity.HELD,
    "done": Severity.HELD,
    "close": Severity.UNDECIDED,
    "stable": Severity.HELD,
    "better": Severity.HELD,
    "same": Severity.NOTE,
    "worse": Severity.BROKEN,
    "changed": Severity.NOTE,
    "too few": Severity.NOTE,
    "undecided": Severity.UNDECIDED,
    "unknown": Severity.UNDECIDED,
    "stale": Severity.UNDECIDED,
    "doubtful": Severity.UNDECIDED,
    "deferred": Severity.UNDECIDED,
    "unsupported": Severity.UNDECIDED,
    "DIFFERS": Severity.BROKEN,
    "differs": Severity.BROKEN,
    "broken": Severity.BROKEN,
    "failed": Severity.BROKEN,
    "cancelled": Severity.NOTE,
    "queued": Severity.NOTE,
    "leased": Severity.NOTE,
    "running": Severity.NOTE,
    "wanted": Severity.NOTE,
    "converting": Severity.NOTE,
}
"""Words that are states, shown as chips."""


def address(*parts: str | int, **query: str) -> str:
    """Return the address of a page; the parts may be any text."""
    path = "/" + "/".join(quote(str(part), safe="") for part in parts)
    filled = {name: value for name, value in query.items() if value}
    return f"{path}?{urlencode(filled)}" if filled else path


def search_form(action: str, *fields: FormField) -> PageForm:
    """Return the form that asks for a part of a list."""
    return PageForm(id="search", action=action, fields=fields, buttons=(("", "Show"),))


def cut_page(entries: Sequence[Marked]) -> tuple[Sequence[Marked], str]:
    """Return the entries of a page, and the mark at which the next one begins: empty if there is none."""
    listed = entries[:PAGE]
    return listed, listed[-1].mark if len(entries) > PAGE else ""


def older_links(
    room: str, mark: str, *, first: bool, older: str = "Older", newest: str = "Newest", **query: str
) -> tuple[PageLinks, ...]:
    """Return the links to the first page of a list and to the next; an empty `mark`: there is none."""
    links = () if first else (PageLink(text=newest, address=address(room, **query)),)
    if mark:
        links = (*links, PageLink(text=older, address=address(room, **query, before=mark)))
    return (PageLinks(links=links, label="More of this list"),) if links else ()


def list_data(items: Iterable[object], room: str, mark: str, **query: str) -> dict[str, object]:
    """Return the JSON twin of a page of a list: its items, and the address of the next page or None."""
    following = "/api/v1" + address(room, **query, before=mark) if mark else None
    return {"items": list(items), "next": following}
