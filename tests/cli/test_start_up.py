"""The help of a command imports little, and its literals are what the owners of the values have."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from modeldyno.base.job.static_options import OPTIMIZERS, Mode
from modeldyno.base.stats.schedule import FEWEST_ROUNDS, MOST_ROUNDS
from modeldyno.cli import COMMANDS, defaults
from modeldyno.cli.actions import job_schema, schema
from modeldyno.comparison.advise import TOLERANCE
from modeldyno.comparison.change.trend import LONGEST
from modeldyno.profiling.views import SORTS
from modeldyno.stores import catalog
from modeldyno.sweeps.schema import KEYS

if TYPE_CHECKING:
    from pathlib import Path

HEAVY = ("msgspec", "numpy", "psutil", "rich", "sqlalchemy", "yaml", "torch", "onnx", "onnxruntime")
OWN_MODULES = (
    "modeldyno.cli",
    "modeldyno.base",
    "modeldyno.base.result",
    "modeldyno.engine",
    "modeldyno.base.options",
    "modeldyno.base.document",
    "modeldyno.base.lazy_names",
    "modeldyno.base.errors",
    "modeldyno.engine.runtime",
    "modeldyno.engine.runtime.interrupts",
)
"""What a help may import of the package, besides the declarations in ``modeldyno.cli``."""


ASKS_FOR_HELP = """
import json, sys
from contextlib import redirect_stdout, suppress
from io import StringIO
from modeldyno.cli import main

loaded, seen = {}, set()
for command in sys.argv[1:]:
    with suppress(SystemExit), redirect_stdout(StringIO()):
        main([command, "--help"])
    loaded[command] = sorted(sys.modules.keys() - seen)
    seen |= sys.modules.keys()
print(json.dumps(loaded))
"""


@pytest.fixture(scope="module")
def loaded_by_help() -> dict[str, list[str]]:
    """What each command's help imports beyond those before it, in one interpreter."""
    command = [sys.executable, "-c", ASKS_FOR_HELP, *COMMANDS]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {name: list(modules) for name, modules in json.loads(done.stdout).items()}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_imports_little(loaded_by_help: dict[str, list[str]], command: str) -> None:
    """No heavy package, no action, and of the package only the declarations."""
    loaded = loaded_by_help[command]
    own = [name for name in loaded if name.startswith("modeldyno.")]

    assert [name for name in loaded if name in HEAVY] == []
    assert [name for name in own if name.startswith("modeldyno.cli.actions.")] == []
    assert [name for name in own if name not in OWN_MODULES and not name.startswith("modeldyno.cli.")] == []


CHILD_MODULES = (
    "modeldyno.engine.runtime.engine",
    "modeldyno.models.static.analysis",
    "modeldyno.engine.trace.allocations",
    "modeldyno.engine.backends.torch.operators",
    "modeldyno.comparison.change.comparison",
    "modeldyno.sweeps.study.study",
    "modeldyno.base.report.charts",
    "modeldyno.base.kinds",
)
"""What only a child process, a comparison, a sweep, a page or the store needs."""
INSPECTS = """import sys
from pathlib import Path
from modeldyno.cli import main
Path("net.py").write_text("from torch import nn\\ndef make():\\n    return nn.Linear(8, 2)\\n")
try: main(["inspect", "net.py:make", "--input", "input=1x8", "--no-store", "-q"])
finally: print("LOADED", *sorted(sys.modules))
"""


def test_an_inspection_imports_only_what_it_uses(tmp_path: Path) -> None:
    """The parent of a run measures and analyses nothing itself."""
    command = [sys.executable, "-c", INSPECTS]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    output, _, loaded = done.stdout.rpartition("LOADED ")

    assert "18 parameters" in output
    assert set(loaded.split()).intersection(CHILD_MODULES) == set()


def test_the_choices_that_the_help_shows_are_those_of_their_owners() -> None:
    """They are literals, because their owners are slow to import."""
    assert tuple(map(str, Mode)) == defaults.MODES
    assert defaults.OPTIMIZERS == OPTIMIZERS
    assert list(defaults.SERVER_MODES) == KEYS["mode"]["enum"]
    assert list(defaults.RANKS) == KEYS["rank"]["enum"]
    assert defaults.MODULE_ORDERS == SORTS
    assert tuple(schema.SCHEMAS) == defaults.SCHEMAS
    assert job_schema.job_commands() == defaults.JOB_COMMANDS


def test_the_defaults_that_the_help_shows_are_those_of_their_owners() -> None:
    """They are literals, because their owners are slow to import."""
    assert (defaults.FEWEST_ROUNDS, defaults.MOST_ROUNDS) == (FEWEST_ROUNDS, MOST_ROUNDS)
    assert f"{TOLERANCE:.0%}" == defaults.TOLERANCE
    assert defaults.KEPT_OF_NAME == catalog.KEPT_OF_NAME
    assert defaults.LONGEST_TREND == LONGEST
