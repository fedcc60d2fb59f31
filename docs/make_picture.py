"""Draws docs/profile.svg, the picture of the README: what a profile of the digit classifier prints.

python docs/make_picture.py
"""

from __future__ import annotations

import io
import os
from pathlib import Path

from rich.console import Console

import modeldyno
from modeldyno.base import plugins
from modeldyno.base.metrics.constraints import Constraint
from modeldyno.profiling import views
from modeldyno.reports import terminal

ROOT = Path(__file__).parent.parent
DIGITS = "examples/digits"


def main() -> None:
    """Measure, draw, save."""
    os.chdir(ROOT)  # so that the picture has relative paths
    bound = Constraint.parse("latency.p99 <= 5ms")
    result = modeldyno.profile(
        f"{DIGITS}/digits.onnx", inputs=[f"{DIGITS}/test.npz"], batch_size=32, threads=1, percentiles=("p99",)
    )
    console = Console(record=True, width=80, file=io.StringIO(), force_terminal=True, highlight=False)
    console.print(
        "$ modeldyno profile digits.onnx --input test.npz \\\n"
        "    --set batch_size=32 --set threads=1 --require 'latency.p99 <= 5ms'\n",
        style="bold",
    )
    judgements = (bound.judge(result.measurements),)
    blocks = views.overview(result, views.ViewOptions(judgements=judgements, knobs=plugins.knobs))
    terminal.print_blocks(blocks, console=console)
    console.save_svg(str(ROOT / "docs" / "profile.svg"), title="modeldyno profile")


if __name__ == "__main__":
    main()
