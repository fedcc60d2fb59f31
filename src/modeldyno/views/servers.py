"""Running servers as tables of 80 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.core.report.blocks import Block, Table, clean, make_table, note
from modeldyno.core.stats.units import BYTES, format_quantity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.environment.containers import Container
    from modeldyno.environment.running_servers import ServerRecord
    from modeldyno.environment.server_usage import ServerUsage

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
    if servers:
        yield _servers(servers)
    if containers:
        yield _containers(containers)
    if usage:
        listed: tuple[ServerRecord | Container, ...] = (*servers, *containers)
        on_device = any(use.device_memory is not None for use in usage)
        titles = (
            "name", "cores>", "memory>", *(("on GPUs>",) if on_device else ()), "threads>", "disk read>",
            "written>", "net received>", "sent>",
        )  # fmt: skip
        yield make_table(
            "Use",
            titles,
            (
                (clean(server.name), *_figures(use, on_device=on_device))
                for server, use in zip(listed, usage, strict=True)
            ),
        )
        yield note("Network traffic is that of the machine's interfaces, unless a server is in a container.")


def _servers(servers: Sequence[ServerRecord]) -> Table:
    return make_table(
        "Servers",
        ("name", "model", "backend", "url", "since (UTC)"),
        (
            (
                clean(server.name),
                clean(server.model.rpartition("/")[2]),
                clean(server.backend),
                clean(server.url.partition(",")[0]),
                clean(server.started.replace("T", " ")[:16]),
            )
            for server in servers
        ),
    )


def _containers(containers: Sequence[Container]) -> Table:
    return make_table(
        "Containers",
        ("name", "image", "engine", "url", "since (UTC)"),
        (
            (
                clean(container.name),
                clean(container.image.rpartition("/")[2]),
                clean(container.program),
                clean(container.url or _UNKNOWN),
                clean(container.started.replace("T", " ")[:16]),
            )
            for container in containers
        ),
    )


def _figures(use: ServerUsage, *, on_device: bool) -> tuple[str, ...]:
    return (
        _UNKNOWN if use.cores is None else f"{use.cores:.2f}",
        _bytes(use.memory),
        *((_bytes(use.device_memory),) if on_device else ()),
        _UNKNOWN if use.threads is None else f"{use.threads:,}",
        _bytes(use.disk_read),
        _bytes(use.disk_written),
        _bytes(use.network_received),
        _bytes(use.network_sent),
    )


def _bytes(number: int | None) -> str:
    return _UNKNOWN if number is None else format_quantity(number, BYTES, 3)
