"""Figures go stale by what their backend names, and by nothing else."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from tests.support.sample_registry import a_task, a_version

from modeldyno.base import plugins
from modeldyno.registry.figures import figure_of
from modeldyno.registry.records.staleness import stale_because
from modeldyno.registry.targets import software_here
from modeldyno.testing.sample_results import a_result

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from modeldyno.registry.records.records import Fact, VariantFigure

BACKENDS = ("onnxruntime", "torch", "openvino", "tensorflow", "tflite", "jax")
OTHERS = (
    "numpy",
    "pip",
    "rich",
    "requests",
    "pandas",
    "scipy",
    "click",
    "setuptools",
    "safetensors",
    "psutil",
)
NAMED = sorted({package for name in BACKENDS for package in plugins.backend(name).requires})
INSTALLED: dict[str, Fact] = {
    **{name: f"1.{at}.0" for at, name in enumerate((*NAMED, *OTHERS))},
    "nvidia_driver": "550.54.14",
}
NOW = datetime(2026, 1, 3, tzinfo=UTC)


def figure(backend: str) -> VariantFigure:
    """Return the figure of a run of a backend on a machine with all of these packages."""
    result = a_result()
    environment = replace(result.environment, software=dict(INSTALLED))
    run = replace(result, job=replace(result.job, backend=backend), environment=environment, doubts=())
    return figure_of(a_task(a_version()), run)


def changed(package: str, chance: random.Random) -> dict[str, Fact]:
    """Return what is installed after an upgrade, a downgrade or a removal of a package."""
    software = {**INSTALLED, package: f"{chance.choice((0, 2))}.{chance.randrange(9)}.{chance.randrange(9)}"}
    if chance.random() < 0.2:
        del software[package]
    return software


@pytest.mark.parametrize("seed", range(50))
def test_each_change_of_what_a_backend_names_is_found(seed: int) -> None:
    """Fifty changes of its runtime or of the driver: the figure is stale, and says which package."""
    chance = random.Random(seed)
    backend = BACKENDS[seed % len(BACKENDS)]
    package = chance.choice([*plugins.backend(backend).requires, "nvidia_driver"])
    why = stale_because(figure(backend), changed(package, chance), now=NOW, max_age=1e9)

    assert why is not None
    assert why.startswith(f"measured with other software: {package} ")


@pytest.mark.parametrize("seed", range(50))
def test_no_change_of_anything_else_is_taken_for_one(seed: int) -> None:
    """Fifty changes of other packages, the runtimes of other backends among them: the figure holds."""
    chance = random.Random(seed)
    backend = BACKENDS[seed % len(BACKENDS)]
    unrelated = [name for name in (*NAMED, *OTHERS) if name not in plugins.backend(backend).requires]

    assert (
        stale_because(figure(backend), changed(chance.choice(unrelated), chance), now=NOW, max_age=1e9)
        is None
    )


@pytest.fixture
def engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Give a function that writes down which versions an engine is installed with."""
    monkeypatch.setenv("MODELDYNO_ENGINES", str(tmp_path))

    def install(name: str, **versions: str) -> None:
        (tmp_path / name).mkdir(exist_ok=True)
        receipt = {"versions": {"python": "3.11.7", **versions}, "library": ""}
        (tmp_path / name / "installed.json").write_text(json.dumps(receipt))

    return install


def test_a_figure_of_a_server_holds_until_its_engine_changes(engines: Callable[..., None]) -> None:
    """Its runtime is the engine's own: neither another engine's nor that of this environment."""
    engines("triton", onnxruntime="1.31.1")
    served = figure("triton")
    assert why_stale(served) is None

    engines("mlserver", onnxruntime="1.31.1")
    assert why_stale(served) is None

    engines("triton", onnxruntime="1.32.0")
    assert why_stale(served) == "measured with other software: triton onnxruntime 1.31.1 -> 1.32.0"
    assert why_stale(figure("mlserver")) is None
    assert why_stale(figure("onnxruntime")) is None


def why_stale(measured: VariantFigure) -> str | None:
    """Return why a figure is stale on this machine, whose other packages have not changed."""
    here = {**INSTALLED, **{name: text for name, text in software_here().items() if " " in name}}
    return stale_because(measured, here, now=NOW, max_age=1e9)
