"""Every plugin passes the conformance suite of its kind, and has what the Protocol of its kind says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pytest
from dyno_plugins import (
    backend,
    client,
    converter,
    exporter,
    importer,
    loader,
    probe,
    reporter,
    sampler,
    store,
    strategy,
)

from modeldyno import plugin as kinds
from modeldyno.plugin import Feed, Model, ModelRef, Reply
from modeldyno.testing.backends import BackendSuite
from modeldyno.testing.clients import ClientSuite
from modeldyno.testing.converters import ConverterSuite
from modeldyno.testing.exporters import ExporterSuite
from modeldyno.testing.importers import ImporterSuite
from modeldyno.testing.loaders import LoaderSuite
from modeldyno.testing.probes import ProbeSuite
from modeldyno.testing.reporters import ReporterSuite
from modeldyno.testing.samplers import SamplerSuite
from modeldyno.testing.stores import StoreSuite
from modeldyno.testing.strategies import StrategySuite

if TYPE_CHECKING:
    from collections.abc import Iterator

# A type checker compares each module with its Protocol here.
_LOADER: kinds.Loader = loader
_BACKEND: kinds.Backend = backend
_CLIENT: kinds.Client = client
_PROBE: kinds.Probe = probe
_SAMPLER: kinds.Sampler = sampler
_STORE: kinds.OpensStores = store
_REPORTER: kinds.Reporter = reporter
_STRATEGY: kinds.Strategy = strategy
_IMPORTER: kinds.Importer = importer
_EXPORTER: kinds.Exporter = exporter
_CONVERTER: kinds.Converter = converter


def save(path: Path, *, factor: float = 1.0) -> Path:
    """Write a layer of four inputs and two outputs."""
    weights = [[factor, 2.0, 3.0, 4.0], [0.5, 0.0, -1.0, 1.0]]
    path.write_text(json.dumps({"linear": {"weights": weights, "bias": [1.0, -1.0]}}), encoding="utf-8")
    return path


class TestLoader(LoaderSuite):
    scheme = "linear"

    @pytest.fixture
    def ref(self, tmp_path: Path) -> ModelRef:
        return ModelRef(scheme="linear", locator=str(save(tmp_path / "m.linear")))

    @pytest.fixture
    def other(self, tmp_path: Path) -> ModelRef:
        return ModelRef(scheme="linear", locator=str(save(tmp_path / "o.linear", factor=7.0)))

    @pytest.fixture
    def damaged(self, tmp_path: Path) -> ModelRef:
        path = save(tmp_path / "d.linear")
        path.write_bytes(path.read_bytes()[:-9])
        return ModelRef(scheme="linear", locator=str(path))

    @pytest.fixture
    def claimed(self, tmp_path: Path) -> Path:
        return save(tmp_path / "c.linear")


class TestBackend(BackendSuite):
    name = "repeated"
    settings: ClassVar = {"times": 2}

    @pytest.fixture
    def model(self, tmp_path: Path) -> Model:
        path = save(tmp_path / "m.linear")
        return loader.load(ModelRef(scheme="linear", locator=str(path)), seed=0, trust=False)

    def feed(self, batch_size: int) -> Feed:
        return {"x": np.random.default_rng(0).random((batch_size, 4), dtype="float32")}


class TestClient(ClientSuite):
    name = "plain-json"
    answer = Reply(message=0, status=200, head=b"Content-Type: application/json", body=b'{"y": [[1.5, 2.0]]}')

    def feed(self, seed: int) -> Feed:
        return {"x": np.random.default_rng(seed).random((2, 4), dtype="float32")}


class TestProbe(ProbeSuite):
    name = "evenness"


class TestSampler(SamplerSuite):
    name = "load-average"


class TestStore(StoreSuite):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[kinds.Store]:
        (tmp_path / "pyproject.toml").touch()
        with store.open(f"project://{tmp_path}") as opened:
            yield opened


class TestReporter(ReporterSuite):
    name = "badge"


class TestStrategy(StrategySuite):
    name = "shuffled"


class TestImporter(ImporterSuite):
    name = "hey"
    examples = (Path(__file__).parent / "hey.csv",)


class TestExporter(ExporterSuite):
    name = "json-lines"

    def target(self, folder: Path) -> str:
        return str(folder / "history.jsonl")

    def content(self, folder: Path) -> object:
        return (folder / "history.jsonl").read_bytes()


class TestConverter(ConverterSuite):
    recipe = "linear"

    @pytest.fixture
    def source(self, tmp_path: Path) -> ModelRef:
        pytest.importorskip("torch")
        file = tmp_path / "net.py"
        file.write_text(
            "import torch\n\n\ndef make():\n"
            "    torch.manual_seed(0)\n"
            "    return torch.nn.Linear(4, 2).eval(), torch.ones(2, 4)\n"
        )
        return ModelRef(scheme="torch", locator=f"{file}:make")
