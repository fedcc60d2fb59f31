"""A container engine that contains nothing: it starts the ground-truth server at the published ports."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

RECORDS = Path(os.environ["FAKE_DOCKER"])


def run(command: list[str]) -> None:
    """Become the server."""
    published: dict[str, str] = {}
    for word in command:
        if word.startswith("--publish="):
            port, _, inside = word.removeprefix("--publish=127.0.0.1:").partition(":")
            published[inside] = port
    name = command[command.index("--name") + 1]
    (RECORDS / name).write_text(json.dumps({"pid": os.getpid(), "command": command}))
    arguments = ["--port", published["8501"], "--grpc", published["8500"]]
    os.execv(sys.executable, [sys.executable, "-m", "modeldyno.testing.server", *arguments])


def inspect(name: str) -> None:
    """Answer as ``inspect`` does."""
    if not (RECORDS / name).exists():
        print("[]")
        sys.exit(1)
    pid = json.loads((RECORDS / name).read_text())["pid"]
    print(json.dumps([{"Name": f"/{name}", "State": {"Running": True, "Pid": pid}, "Config": {"Env": []}}]))


run(sys.argv[2:]) if sys.argv[1] == "run" else inspect(sys.argv[-1])
