"""The example of docs/howto/write-a-plugin.md works as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from modeldyno.core.metrics.measurement import observed_number
from modeldyno.core.result.result import Found
from modeldyno.errors import RequestError
from modeldyno.runtime.events import event_of

PAGE = (Path(__file__).parent.parent / "docs" / "howto" / "write-a-plugin.md").read_text(encoding="utf-8")
NET = "import torch\n\n\ndef make():\n    return torch.nn.Linear(8, 2), torch.zeros(4, 8)\n"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The package of the page, installed in a directory of its own."""
    site = tmp_path / "site"
    (site / "my_package").mkdir(parents=True)
    for text in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        if named := re.match(r"# (my_package/\w+\.py)\n", text):
            (site / named[1]).write_text(text, encoding="utf-8")
    tables = [tomllib.loads(text) for text in re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)]
    (groups,) = [table["project"]["entry-points"] for table in tables if "modeldyno.metrics" in str(table)]
    lines = [
        f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in each.items()) for group, each in groups.items()
    ]
    info = site / "my_package-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: my_package\nVersion: 0.1\n", encoding="utf-8"
    )
    (info / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "net.py").write_text(NET, encoding="utf-8")
    return tmp_path


def test_a_plugin_brings_a_metric(package: Path) -> None:
    """It is measured in the child, printed, asked for and bounded; without the plugin nobody knows it."""
    pytest.importorskip("torch")

    def modeldyno(*words: str, plugged: bool = True) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"PYTHONPATH": str(package / "site") if plugged else ""}
        command = [sys.executable, "-m", "modeldyno", *words]
        return subprocess.run(
            command, cwd=package, env=environment, capture_output=True, text=True, check=False
        )

    measured = modeldyno("profile", "net.py:make", "--probe", "sparsity", "--require", "sparsity >= 50%",
                         "--json", "r.json", "-o", "r.md", "--no-store")  # fmt: skip

    assert measured.returncode == 1, measured.stderr
    assert "sparsity >= 50%: broken (0%)" in measured.stdout
    assert modeldyno("show", "r.json", "--get", "sparsity").stdout == "0\n"
    assert "| sparsity | 0% |" in (package / "r.md").read_text(encoding="utf-8")
    assert "a plugin that is not installed" in modeldyno("show", "r.json", plugged=False).stderr


def test_a_metric_that_nobody_declares_is_told_with_what_to_do() -> None:
    """Not a mistake of ours, and not one that comes up in the report alone."""
    assert isinstance(event_of(observed_number("macs", 1)), Found)
    with pytest.raises(
        RequestError, match="'vibes', which is no declared metric; declare it by an entry point"
    ):
        event_of(observed_number("vibes", 1.0))
