"""A command that answers as ``docker`` and ``podman`` do, about some containers."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PROGRAM = """#!{python}
import json, sys
documents = json.loads({documents!r})
words = sys.argv[1:]
if words[0] == "inspect" and words[1:3] == ["--type", "container"]:
    known = {{**{{document["Name"].lstrip("/"): document for document in documents}},
             **{{document["Id"]: document for document in documents}}}}
    print(json.dumps([known[word] for word in words[3:] if word in known]))
    missing = [word for word in words[3:] if word not in known]
    if missing:
        sys.exit("Error: No such container: " + missing[0])
elif words[:2] == ["ps", "--quiet"]:
    wanted = words[3].removeprefix("publish=").removesuffix("/tcp") if words[2:] else None
    for document in documents:
        bound = [b["HostPort"] for some in document["NetworkSettings"]["Ports"].values() for b in some or ()]
        if document["State"]["Running"] and wanted in (None, *bound):
            print(document["Id"])
else:
    sys.exit("unknown command: " + " ".join(words))
"""


def write_container_engine(path: Path, *containers: Mapping[str, Any]) -> None:
    """Write the command: each container has a name, a pid, ports, env, and runs unless it says otherwise."""
    documents = [_document(path.name, number, container) for number, container in enumerate(containers)]
    path.write_text(PROGRAM.format(python=sys.executable, documents=json.dumps(documents)))
    path.chmod(0o755)


def _document(program: str, number: int, container: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ``inspect`` says of a container."""
    host = container.get("host")
    return {
        "Id": f"4f1c0de{number}",
        "Name": f"/{container['name']}" if program == "docker" else container["name"],
        "State": {
            "Running": container.get("running", True),
            "Pid": container["pid"] if container.get("running", True) else 0,
            "StartedAt": container.get("started", "2026-01-02T03:04:05.123456789Z"),
        },
        "Config": {
            "Env": container.get("env"),
            "Image": container.get("image", "tensorflow/serving"),
            **({"ExposedPorts": {port: {} for port in host}} if host else {}),
        },
        "HostConfig": {"NetworkMode": "host" if host else "bridge"},
        "NetworkSettings": {
            "Ports": {
                port: None if bound is None else [{"HostIp": bound[0], "HostPort": str(bound[1])}]
                for port, bound in container.get("ports", {}).items()
            }
        },
    }
