"""Running servers as tables of 80 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base.report.blocks import Block, Table, make_table, note
from modeldyno.base.stats.units import BYTES
from modeldyno.base.views.text import format_known

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from modeldyno.engine.environment.containers import Container
    from modeldyno.engine.environment.running_servers import ServerRecord
    from modeldyno.engine.environment.server_usage import ServerUsage

_UNKNOWN = "—"


def blocks(
    servers: Sequence[ServerRecord],
    containers: Sequence[Container] = (),
    usage: Sequence[ServerUsage] = (),
) -> Iterator[Block]:
    """Lay out the servers and the containers, and below what each uses, if that was measured."""
    if not (servers or containers):
        yield note("No server runs; start one with: modeldyno serve MODEL --backend triton")
        return
    yield from _list(
        "Servers",
        ("model", "backend"),
        ((s.name, s.model, s.backend, s.url.partition(",")[0], s.started) for s in servers),
    )
    yield from _list(
        "Containers",
        ("image", "engine"),
        ((c.name, c.image, c.program, c.url or _UNKNOWN, c.started) for c in containers),
    )
    if usage:
        listed: tuple[ServerRecord | Container, ...] = (*servers, *containers)
        titles = (
            "name", "cores>", "memory>", "on GPUs>?", "threads>", "disk read>", "written>", "net received>",
            "sent>",
        )  # fmt: skip
        rows = ((server.name, *_figures(use)) for server, use in zip(listed, usage, strict=True))
        yield make_table("Use", titles, rows)
        yield note("Network traffic is that of the machine's interfaces, unless a server is in a container.")


def _list(
    title: str, titles: tuple[str, str], listed: Iterable[tuple[str, str, str, str, str]]
) -> Iterator[Table]:
    """Tabulate what runs: its name, what it serves, by what, where, and since when."""
    rows = [
        (name, _without_folder(served), by, url, since.replace("T", " ")[:16])
        for name, served, by, url, since in listed
    ]
    if rows:
        yield make_table(title, ("name", *titles, "url", "since (UTC)"), rows)


def _without_folder(served: str) -> str:
    """Leave out the folder of a file or an image; a registered version keeps its name, ``digits/1``."""
    folder, _, last = served.rpartition("/")
    if last.partition(" ")[0].isdigit():
        return f"{folder.rpartition('/')[2]}/{last}".removeprefix("/")
    return last


def _figures(use: ServerUsage) -> tuple[str, ...]:
    sizes = (use.disk_read, use.disk_written, use.network_received, use.network_sent)
    return (
        _UNKNOWN if use.cores is None else f"{use.cores:.2f}",
        format_known(use.memory, BYTES),
        format_known(use.device_memory, BYTES),
        _UNKNOWN if use.threads is None else f"{use.threads:,}",
        *(format_known(size, BYTES) for size in sizes),
    )
