"""What ``modeldyno servers`` does."""

from __future__ import annotations

from dataclasses import asdict

import click

from modeldyno.base import codec
from modeldyno.cli.actions.output_options import OutputTargets
from modeldyno.engine.environment import running_servers as running
from modeldyno.engine.environment.server_usage import read_usage
from modeldyno.serving.views import servers as view


def list_servers(json_path: str | None, *, stats: bool) -> None:
    """List the servers that run."""
    targets = OutputTargets.of_document(json_path)
    servers = running.list_running()
    containers = running.list_other_containers(servers)
    usage = read_usage((*servers, *containers)) if stats else ()
    documents = [asdict(server) for server in servers]
    others = [
        {
            "name": container.name,
            "program": container.program,
            "image": container.image,
            "url": container.url,
            "ports": {inside: f"{host}:{port}" for inside, (host, port) in container.ports.items()},
            "pid": container.pid,
            "started": container.started,
        }
        for container in containers
    ]
    for entry, use in zip((*documents, *others), usage, strict=False):
        entry["usage"] = asdict(use)
    targets.write(codec.encode_document({"servers": documents, "containers": others}))
    targets.print_report(view.blocks(servers, containers, usage))


def stop(names: tuple[str, ...], *, all_servers: bool) -> None:
    """Stop servers by name."""
    for server in running.named(names, all_servers=all_servers):
        running.stop_running(server)
        click.echo(f"{server.name} is stopped.")
