"""Broken conversions are found and right ones accepted: some of bench/broken_conversions.py."""

from __future__ import annotations

import importlib.util
import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from types import ModuleType

BENCH = Path(__file__).parents[2] / "bench" / "broken_conversions.py"
pytestmark = pytest.mark.filterwarnings("ignore")  # exporters warn of each other's old names


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    """Import the bench."""
    for package in ("torch", "onnx", "onnxruntime"):
        pytest.importorskip(package)
    spec = importlib.util.spec_from_file_location("broken_conversions", BENCH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_broken_conversions_are_found(bench: ModuleType) -> None:
    """Every fourth of a hundred."""
    cases = list(bench.break_conversions(every=4))

    assert len(cases) > 20
    assert [name for name, detected, _ in cases if not detected] == []


@pytest.mark.parametrize("every", [2, pytest.param(1, marks=pytest.mark.slow)])
def test_right_conversions_are_accepted(bench: ModuleType, every: int) -> None:
    """TorchScript of every other network, or of all, which needs no slow exporter."""
    refused = []
    for name, network, example in islice(bench.networks(), 0, None, every):
        with bench.model_of(network.eval(), example) as model:
            source = bench.run(model, "torch")
            _, candidate, backend, settings = next(iter(bench.ways(source)))
            taken, sentence = source.verdict(candidate(), backend, **settings)
            refused += [] if taken else [(name, sentence)]

    assert refused == []
