"""A container engine that contains nothing: it starts the fake tritonserver at the published ports."""

from __future__ import annotations

import os
import sys
from pathlib import Path

FAKE = Path(__file__).parent / "fake_triton.py"


def run(arguments: list[str]) -> None:
    """Become the server, with what is inside named as it is outside."""
    published: dict[str, str] = {}
    for word in arguments:
        if word.startswith("--publish="):
            port, _, inside = word.removeprefix("--publish=127.0.0.1:").partition(":")
            published[inside] = port
    repository = arguments[arguments.index("--volume") + 1].partition(":")[0]
    server = arguments[arguments.index("tritonserver") + 1 :]
    flags = [f"--model-repository={repository}" if f == "--model-repository=/models" else f for f in server]
    flags += [f"--{part}-address=127.0.0.1" for part in ("http", "grpc", "metrics")]
    name = arguments[arguments.index("--name") + 1]
    (Path(os.environ["FAKE_DOCKER"]) / name).write_text(f"{os.getpid()}\n{' '.join(arguments)}")
    os.execv(sys.executable, [sys.executable, str(FAKE), *flags, f"--http-port={published['8000']}"])


if sys.argv[1] == "run":
    run(sys.argv[2:])
print((Path(os.environ["FAKE_DOCKER"]) / sys.argv[-1]).read_text().partition("\n")[0])
