"""How long after `registry add --wait` has a model its first figure, with ONNX and TorchScript checked?

Registers all-MiniLM-L6-v2 (``make setup`` installs it) by one command under the built-in policy, and looks
into the store whenever the command says something, until the model has a fresh figure whose median is
certified, and both conversions a verdict. The command, which goes on to measure all variants, is then
interrupted. Exits with 1 if that takes longer than a minute, or a conversion does not agree.

    python bench/registry_first_figure.py [--limit 300]
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from minilm import directory

from modeldyno.base import plugins
from modeldyno.base.errors import ModelDynoError
from modeldyno.base.job.version_name import SOURCE, VersionName
from modeldyno.registry.records.records import FigureState, VariantState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.registry.interface import Registry

GOAL = 60.0
NAME = "minilm"
RECIPES = ("onnx", "torchscript")
UNFINISHED = {VariantState.WANTED, VariantState.CONVERTING}
FIRST = "first figure"


def steps(registry: Registry) -> Iterator[tuple[str, str]]:
    """Yield each step that has been reached, and how it ended."""
    for figure in registry.figures(NAME):
        result = registry.result(figure.result) if figure.state is FigureState.FRESH else None
        if figure.recipe == SOURCE and result is not None:
            median = result.ask("latency.p50").value
            if median is not None:
                yield FIRST, f"certified median {1000 * median:.1f} ms"
    for variant in registry.variants(registry.version(VersionName.parse(NAME))):
        if variant.recipe in RECIPES and variant.state not in UNFINISHED:
            yield variant.recipe, str(variant.state)


def main() -> None:
    """Register, watch, interrupt, and print when each step was reached."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds after which it gives up")
    options = parser.parse_args()
    expected = {FIRST, *RECIPES}
    reached: dict[str, tuple[float, str]] = {}
    with tempfile.TemporaryDirectory(prefix="first-figure-") as folder:
        os.environ["MODELDYNO_STORE"] = f"sqlite:///{folder}/store.db"
        arguments = ["registry", "add", f"hf:{directory()}", "--name", NAME, "--wait"]
        begin = time.monotonic()
        command = subprocess.Popen(
            [sys.executable, "-m", "modeldyno", *arguments], stdout=subprocess.PIPE, text=True
        )
        limit = threading.Timer(options.limit, command.send_signal, (signal.SIGINT,))
        limit.start()
        assert command.stdout is not None
        # It looks when a step is told: looking all the time would be a neighbour that disturbs the figures.
        for line in command.stdout:
            sys.stderr.write(line)
            with suppress(ModelDynoError), plugins.store() as store:  # it may not be registered yet
                for step, how in steps(store.registry):
                    reached.setdefault(step, (time.monotonic() - begin, how))
            if not expected - reached.keys():
                command.send_signal(signal.SIGINT)
                break
        limit.cancel()
        command.communicate()
    for step in sorted(expected, key=lambda step: reached.get(step, (options.limit, ""))):
        seconds, how = reached.get(step, (options.limit, "NOT REACHED"))
        print(f"{step:14} {seconds:6.1f} s  {how}")
    last = max((seconds for seconds, _ in reached.values()), default=0.0)
    done = expected == reached.keys() and all(reached[recipe][1] == VariantState.AGREES for recipe in RECIPES)
    print(f"registered to first figure, conversions checked: {last:.1f} s (goal: at most {GOAL:.0f} s)")
    sys.exit(not done or last > GOAL)


if __name__ == "__main__":
    main()
