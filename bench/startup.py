"""How long ``modeldyno --help`` takes against ``python -c 'import click'``, in alternating runs.

python bench/startup.py [--rounds 30]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path


def seconds(command: list[str]) -> float:
    """Run a command and give its wall time."""
    begin = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def main() -> None:
    """Alternate the two and print the ratio of the medians."""
    parser = argparse.ArgumentParser(description="start-up of the command line")
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    ours = [str(Path(sys.executable).with_name("modeldyno")), "--help"]
    peer = [sys.executable, "-c", "import click"]
    pairs = [(seconds(ours), seconds(peer)) for _ in range(rounds + 2)][2:]
    ratio = statistics.median(a / b for a, b in pairs)
    medians = [statistics.median(column) * 1e3 for column in zip(*pairs, strict=True)]
    print(
        f"modeldyno --help {medians[0]:.0f} ms, import click {medians[1]:.0f} ms: x {ratio:.2f} (bound 1.5)"
    )


if __name__ == "__main__":
    main()
