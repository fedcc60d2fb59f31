"""A command that answers as ``docker`` and ``podman`` do, about one container."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PROGRAM = """#!{python}
import json, sys
document, identity = json.loads({document!r}), "4f1c0de"
ports = [b["HostPort"] for bound in document["NetworkSettings"]["Ports"].values() for b in bound or ()]
words = sys.argv[1:]
if words[0] == "inspect" and words[1:3] == ["--type", "container"]:
    if words[3] not in (document["Name"].lstrip("/"), identity):
        print("[]")
        sys.exit("Error: No such container: " + words[3])
    print(json.dumps([document]))
elif words[:2] == ["ps", "--quiet"] and words[2] == "--filter":
    if words[3].removeprefix("publish=").removesuffix("/tcp") in ports:
        print(identity)
else:
    sys.exit("unknown command: " + " ".join(words))
"""


def write_container_engine(path: Path, container: Mapping[str, Any]) -> None:
    """Write the command: the container has a name, a pid, ports, env, and runs unless it says otherwise."""
    host = container.get("host")
    document: dict[str, Any] = {
        "Name": f"/{container['name']}" if path.name == "docker" else container["name"],
        "State": {
            "Running": container.get("running", True),
            "Pid": container["pid"] if container.get("running", True) else 0,
        },
        "Config": {
            "Env": container.get("env"),
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
    path.write_text(PROGRAM.format(python=sys.executable, document=json.dumps(document)))
    path.chmod(0o755)
