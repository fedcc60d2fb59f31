"""What a command takes before it does anything, against what it cannot do without, in alternating runs.

``modeldyno --help``, and that of every command, against ``import click``, in wall time. With --torch,
``modeldyno inspect`` of two layers against ``import torch``, in CPU time of all its processes.

python bench/startup.py [--rounds 30] [--torch]
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.cli import COMMANDS

if TYPE_CHECKING:
    from collections.abc import Callable

# Users start what is compiled once, not at each start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
MODELDYNO = str(Path(sys.executable).with_name("modeldyno"))
TWO_LAYERS = """from torch import nn

def make():
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
"""


def wall_time(command: list[str]) -> float:
    """Run a command and give its wall time, in seconds."""
    begin = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def cpu_time(command: list[str]) -> float:
    """Run a command and give the CPU time of it and its children, in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def compare(
    ours: list[str], peer: list[str], rounds: int, measure: Callable[[list[str]], float]
) -> tuple[float, str]:
    """Alternate the two; give the median of the ratios, and a line with both medians; two rounds warm up."""
    pairs = [(measure(ours), measure(peer)) for _ in range(rounds + 2)][2:]
    ratio = statistics.median(a / b for a, b in pairs)
    one, other = (statistics.median(column) * 1e3 for column in zip(*pairs, strict=True))
    return ratio, f"{one:.0f} ms against {other:.0f} ms: x {ratio:.2f}"


def compare_helps(rounds: int) -> None:
    """Print the ratio of every help, and the worst of the commands."""
    peer = [sys.executable, "-c", "import click"]
    _, line = compare([MODELDYNO, "--help"], peer, rounds, wall_time)
    print(f"modeldyno --help, import click: {line} (bound 1.5)")
    ratios = {}
    for command in COMMANDS:
        ratios[command], line = compare([MODELDYNO, command, "--help"], peer, rounds, wall_time)
        print(f"modeldyno {command} --help, import click: {line}")
    worst = max(ratios, key=lambda command: ratios[command])
    print(f"worst help of a command: {worst}, x {ratios[worst]:.2f} (bound 2.0)")


def main() -> None:
    """Print the ratios."""
    parser = argparse.ArgumentParser(description="start-up of the command line")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--torch", action="store_true", help="inspect two layers, against import torch")
    options = parser.parse_args()
    if not options.torch:
        compare_helps(options.rounds)
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "two_layers.py"
        file.write_text(TWO_LAYERS, encoding="utf-8")
        ours = [MODELDYNO, "inspect", f"{file}:make", "--input", "input=1x8", "--no-store", "-q"]
        _, line = compare(ours, [sys.executable, "-c", "import torch"], options.rounds, cpu_time)
    print(f"modeldyno inspect of two layers, import torch, CPU time: {line} (aim 1.15)")


if __name__ == "__main__":
    main()
