"""The listings of deeplite-profiler's guide run with other imports, and so does the page that says which."""

from __future__ import annotations

import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from modeldyno.compat import deeplite as api
from modeldyno.compat.deeplite import (
    ComputeComplexity,
    ComputeEvalMetric,
    ComputeExecutionTime,
    Device,
    TorchProfiler,
    get_accuracy,
)

PAGE = Path(__file__).parents[3] / "docs" / "howto" / "come-from-deeplite.md"
TEXT = PAGE.read_text(encoding="utf-8")


def net() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 5)
    )


def splits() -> dict[str, Any]:
    samples = torch.utils.data.TensorDataset(torch.rand(20, 3, 8, 8), torch.arange(20) % 5)
    loader = torch.utils.data.DataLoader(samples, batch_size=8)
    return {"train": loader, "test": loader}


@pytest.mark.pages
def test_the_listing_of_the_usage_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """Loaders as they are: what was asked for is computed and shown, then compared with a clone."""
    model, data_splits = net(), splits()
    profiler = TorchProfiler(model, data_splits, name="Original Model")
    profiler.register_profiler_function(ComputeComplexity())
    profiler.register_profiler_function(ComputeExecutionTime())
    profiler.register_profiler_function(ComputeEvalMetric(get_accuracy, "accuracy", unit_name="%"))
    status = profiler.compute_network_status(
        batch_size=1, device=Device.CPU, short_print=False, include_weights=True, print_mode="debug"
    )
    printed = capsys.readouterr().out
    profiler2 = profiler.clone(model=deepcopy(model))
    profiler2.name = "Clone Model"
    profiler.compare(profiler2, short_print=False, batch_size=1, device=Device.CPU, print_mode="debug")
    compared = capsys.readouterr().out

    assert status["flops"] == 36 * 4 * 27 + 144 * 5
    assert status["total_params"] == 4 * 27 + 4 + 144 * 5 + 5
    for line in (
        "Param Name (Original Model)",
        "Backend: TorchBackend",
        "Evaluation Metric (%)",
        "Model Size (KiB)",
        "Computational Complexity (KiloMACs) |",
        "Total Parameters",
        "Memory Footprint (KiB)",
        "Execution Time (ms)",
        "* Memory Footprint: Most memory that one call holds",
        "Conv2d",
    ):
        assert line in printed
    assert "failed" not in printed + compared
    assert "Value (Original Model)" in compared
    assert "Value (Clone Model)" in compared
    assert re.search(r"Computational Complexity \(KiloMACs\) \| +1\.00x \| +4\.6080 \| +4\.6080 \|", compared)


@pytest.mark.pages
def test_the_listing_of_the_example_runs_as_the_page_has_it(capsys: pytest.CaptureFixture[str]) -> None:
    """Loaders with a forward pass, names by a star import, and a metric of one's own after it."""
    script, _, own = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    names = {"model": net(), "data_splits": splits()}
    exec(compile(script + own, str(PAGE), "exec"), names)

    printed = capsys.readouterr().out
    assert "failed" not in printed
    assert "Value (Clone Model)" in printed
    profiler: Any = names["profiler"]
    assert profiler.status_get("depth") == 4


ROWS = re.findall(r"^\| `(.+?)` \| `(.+?)` \|$", TEXT, re.MULTILINE)


@pytest.mark.parametrize("line", [new for _, new in ROWS])
def test_each_line_of_the_table_can_be_written(line: str) -> None:
    """It imports, or calls, what is there."""
    names = {
        "TorchProfiler": TorchProfiler,
        "model": net(),
        "splits": splits(),
        "chosen": api.DefaultDisplay(),
    }
    exec(line, names)


def test_the_table_keeps_the_names() -> None:
    """Each name that a line imports there is imported here."""
    for old, new in ROWS:
        if old.startswith("from"):
            there = re.sub(r"from .* import ", "", old).split(", ")
            here = [name.split(" as ")[-1] for name in re.sub(r"from .* import ", "", new).split(", ")]
            assert here == there
    assert len(ROWS) > 10


def test_every_public_name_of_metrics_can_be_imported() -> None:
    """A star import gives all of them."""
    assert {name for name in api.__all__ if not hasattr(api, name)} == set()
