"""Makes the sample reports of this directory: measures the digit classifier of the examples anew.

make gallery, or: python docs/gallery/generate.py [REPORT ...]; `modeldyno engine install triton` once before,
and a Chromium for the PDFs of the sweeps.
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
    "sweep-offline": (
        *("sweep", DIGITS, "--input", IMAGES, "--mode", "offline", "--set", "protocol=grpc"),
        *("--space", "instances=1,2", "--space", "batch_size=1,8,64", "--max-time", "90s", "--curves", "2"),
    ),
    "compare": (
        *("compare", DIGITS, DIGITS, "--input", IMAGES, "-b", "32"),
        *("--candidate-set", "threads=1", "--max-time", "60s"),
    ),
}
"""Name of a report to the command that measures it."""
PRINTED = ("sweep", "sweep-offline")
"""Reports that are printed as well, whole, and the best configuration and the default in detail."""
LARGEST = {".md": 400_000, ".svg": 400_000, ".pdf": 900_000}
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
            for path, options in files(name):
                written = subprocess.run(
                    [*command, "report", document, *options, "-o", str(path)], env=environment, check=False
                )
                assert written.returncode == 0, f"{path}: exit code {written.returncode}"
                assert path.stat().st_size < LARGEST[path.suffix], f"{path} is too large"


def files(name: str) -> list[tuple[Path, tuple[str, ...]]]:
    """Return the files of a report, each with the options that write it."""
    suffixes = (".md",) if name == "inspect" else (".md", ".svg")  # an inspection has no chart
    listed: list[tuple[Path, tuple[str, ...]]] = [(HERE / f"{name}{suffix}", ()) for suffix in suffixes]
    if name in PRINTED:
        listed.append((HERE / f"{name}.pdf", ()))
        listed.append((HERE / f"{name}-in-detail.pdf", ("--configuration", "1,default")))
    return listed


if __name__ == "__main__":
    main(sys.argv[1:])
