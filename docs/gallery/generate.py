"""Makes the sample reports of this directory: measures the digit classifier of the examples anew.

make gallery, or: python docs/gallery/generate.py [REPORT ...]; `modeldyno engine install triton` once before.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
DIGITS, IMAGES = "examples/digits/digits.onnx", "examples/digits/test.npz"
REPORTS = {
    "inspect": ("inspect", DIGITS, "-b", "32"),
    "profile": ("profile", DIGITS, "--input", IMAGES, "-b", "32", "--probe", "latency,throughput,memory,ops"),
    "load": ("load", DIGITS, "--input", IMAGES, "-c", "8", "--max-time", "10s"),
    "sweep": (
        *("sweep", DIGITS, "--input", IMAGES, "--backend", "triton", "--set", "protocol=grpc"),
        *("--space", "instances=1,2", "--space", "concurrency=1..16*2"),
        *("--require", "latency.p99 <= 25ms", "--max-time", "90s", "--curves", "2"),
    ),
    "compare": (
        *("compare", DIGITS, DIGITS, "--input", IMAGES, "-b", "32"),
        *("--candidate-set", "threads=1", "--max-time", "60s"),
    ),
}
"""Name of a report to the command that measures it."""
LARGEST = 400_000
"""Most bytes of a file of the gallery."""


def main(names: list[str]) -> None:
    """Measure, and write a page in Markdown and its first chart for each report."""
    os.chdir(ROOT)  # so that reports have relative paths
    for name in names or REPORTS:
        with TemporaryDirectory() as folder:
            environment = {**os.environ, "MODELDYNO_STORE": f"sqlite:///{folder}/store.db"}
            command = [sys.executable, "-m", "modeldyno"]
            document = f"{folder}/document.json"
            measured = subprocess.run(
                [*command, *REPORTS[name], "--json", document], env=environment, check=False
            )
            assert measured.returncode in {0, 1, 5}, f"{name}: exit code {measured.returncode}"
            for suffix in (".md",) if name == "inspect" else (".md", ".svg"):  # an inspection has no chart
                path = HERE / f"{name}{suffix}"
                subprocess.run([*command, "report", document, "-o", str(path)], env=environment, check=True)
                assert path.stat().st_size < LARGEST, f"{path} is too large"


if __name__ == "__main__":
    main(sys.argv[1:])
