"""Servers that run: list and stop them, as ``modeldyno servers`` does; `modeldyno.serve` starts one."""

from __future__ import annotations

from modeldyno.serving.api.serve import Server
from modeldyno.serving.api.serve import list_containers as containers
from modeldyno.serving.api.serve import list_servers as list
from modeldyno.serving.api.serve import stop_server as stop

__all__ = [
    "Server",
    "containers",
    "list",
    "stop",
]
