"""Test suite that every loader must pass.

Inherit, name the loader, and provide the fixtures; pytest does the rest::

    from modeldyno.testing.loaders import LoaderSuite

    class TestMyFormat(LoaderSuite):
        scheme = "myformat"

        @pytest.fixture
        def ref(self, tmp_path: Path) -> ModelRef:
            return ModelRef(scheme="myformat", locator=str(save_a_model(tmp_path)))

        @pytest.fixture
        def other(self, tmp_path: Path) -> ModelRef:
            return ModelRef(scheme="myformat", locator=str(save_another_model(tmp_path)))

The plugin is found by its entry point, as a user's would be. No framework is named here.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, ClassVar

import pytest

from modeldyno.base import plugins
from modeldyno.base.errors import RequestError, TrustRequired
from modeldyno.base.job.input_spec import DTYPES
from modeldyno.models.interface import Executes, Form, Loader, Model
from modeldyno.models.static.weights import Weight

if TYPE_CHECKING:
    from pathlib import Path

    from modeldyno.base.job.model_ref import ModelRef

FRAMEWORKS = (
    "torch", "onnx", "onnxruntime", "transformers", "tensorflow", "jax", "torchao", "openvino", "sklearn",
    "xgboost", "lightgbm",
)  # fmt: skip
"""Frameworks that importing a plugin must not import."""

_FORMS = {Form.ONNX, Form.TORCH, Form.CALLABLE}


class LoaderSuite:
    """Inherit, set `scheme`, and provide the fixtures `ref` and `other`; override the others if needed."""

    scheme: ClassVar[str]
    """The name of the loader's entry point."""
    forms: ClassVar[frozenset[str]] = frozenset(_FORMS)
    """Possible forms of its models; a loader for a new runtime names its own form."""
    has_weights: ClassVar[bool] = True
    """Whether its models expose their weights."""

    @pytest.fixture
    def ref(self) -> ModelRef:
        """Return a reference to a small model that loads."""
        raise NotImplementedError

    @pytest.fixture
    def other(self) -> ModelRef:
        """Return a reference to a model with other content."""
        raise NotImplementedError

    @pytest.fixture
    def damaged(self) -> ModelRef | None:
        """Return a reference to something damaged; None if nothing can be damaged."""
        return None

    @pytest.fixture
    def claimed(self) -> Path | None:
        """Return a path that the loader claims; None if it claims none."""
        return None

    @pytest.fixture
    def unclaimed(self, tmp_path: Path) -> Path:
        """Return a path that the loader must not claim."""
        path = tmp_path / "notes.txt"
        path.write_text("no model")
        return path

    @pytest.fixture
    def loader(self) -> Loader:
        """Return the plugin, by its entry point."""
        return plugins.loader(self.scheme)

    @pytest.fixture
    def model(self, loader: Loader, ref: ModelRef) -> Model:
        """Return the loaded model."""
        return loader.load(ref, seed=0, trust=True)

    def test_says_what_it_needs_and_executes(self, loader: Loader) -> None:
        """A loader names its modules, what it executes, and its default backend."""
        assert isinstance(loader.requires, tuple)
        assert all(isinstance(name, str) for name in loader.requires)
        assert isinstance(loader.executes, Executes)
        assert loader.backend in plugins.names("backend")

    def test_importing_it_is_cheap(self) -> None:
        """Importing the plugin imports no framework."""
        assert imported_frameworks("loader", self.scheme) == []

    def test_unknown_path_is_not_claimed(self, loader: Loader, unclaimed: Path) -> None:
        """A path of another kind is not claimed, nor is one that does not exist."""
        assert not loader.claims(unclaimed)
        assert not loader.claims(unclaimed.with_name("absent.bin"))

    def test_its_own_path_is_claimed(self, loader: Loader, claimed: Path | None) -> None:
        """A path of its kind is claimed."""
        if claimed is None:
            pytest.skip("this loader claims no path")
        assert loader.claims(claimed)

    def test_identity(self, model: Model) -> None:
        """The identity has a name for people, a sha256 digest and a framework."""
        assert model.identity.name.strip()
        assert model.identity.digest.startswith("sha256:")
        assert len(model.identity.digest) == len("sha256:") + 64
        assert model.identity.framework

    def test_form(self, model: Model) -> None:
        """The model is of a known form, and a backend that exists accepts it."""
        assert model.form in self.forms
        assert model.value is not None

    def test_digest_is_stable(self, loader: Loader, ref: ModelRef) -> None:
        """Loading the same thing twice gives the same digest and name."""
        first, second = (loader.load(ref, seed=0, trust=True).identity for _ in range(2))
        assert first == second

    def test_digest_tells_contents_apart(self, loader: Loader, ref: ModelRef, other: ModelRef) -> None:
        """Other content has another digest."""
        digests = {loader.load(r, seed=0, trust=True).identity.digest for r in (ref, other)}
        assert len(digests) == 2

    def test_inputs(self, model: Model) -> None:
        """Every input has a name, once; one whose shape is known has a known dtype and sound bounds."""
        names = [spec.name for spec in model.inputs]
        assert all(names)
        assert len(set(names)) == len(names)
        for spec in model.inputs:
            assert spec.dtype in DTYPES or (spec.dtype is None and spec.shape is None)
            assert spec.low is None or spec.high is None or spec.low <= spec.high
            assert all(isinstance(d, str) or d > 0 for d in spec.shape or ())

    def test_example(self, model: Model) -> None:
        """An example that comes with the model has exactly its inputs, by name."""
        if model.example is not None:
            assert set(model.example) == {spec.name for spec in model.inputs}

    def test_weights(self, model: Model) -> None:
        """The weights have names, sizes that fit their shapes, and bytes; and can be asked for twice."""
        if not self.has_weights:
            assert model.weights is None
            return
        assert model.weights is not None
        weights = tuple(model.weights())
        assert weights
        assert all(isinstance(weight, Weight) for weight in weights)
        assert all(weight.name and weight.dtype and weight.bytes >= 0 for weight in weights)
        assert sum(weight.bytes for weight in weights) > 0
        assert tuple(model.weights()) == weights

    def test_file_bytes(self, model: Model) -> None:
        """The size of its files is positive, or None when it has none."""
        assert model.file_bytes is None or model.file_bytes > 0

    def test_pickles_need_trust(self, loader: Loader, ref: ModelRef) -> None:
        """A loader of pickles raises TrustRequired without trust, in one line that names `trust`."""
        if loader.executes is not Executes.PICKLE:
            pytest.skip("this loader unpickles nothing")
        with pytest.raises(TrustRequired, match="`trust`") as caught:
            loader.load(ref, seed=0, trust=False)
        assert is_one_sentence(str(caught.value))

    def test_damage_is_a_request_error(self, loader: Loader, damaged: ModelRef | None) -> None:
        """Damage is reported as a RequestError of one line."""
        if damaged is None:
            pytest.skip("nothing of this loader can be damaged")
        with pytest.raises(RequestError) as caught:
            loader.load(damaged, seed=0, trust=True)
        assert is_one_sentence(str(caught.value))


def imported_frameworks(kind: str, name: str) -> list[str]:
    """Import a plugin in a fresh interpreter and list the frameworks that came with it."""
    (entry,) = (e for e in entry_points(group=f"modeldyno.{kind}s") if e.name == name)
    if entry.module in _modules_without_frameworks():
        return []
    return [framework for framework in FRAMEWORKS if framework in _modules_imported_with(entry.module)]


@cache
def _modules_without_frameworks() -> frozenset[str]:
    """Import the modules of all our plugins in one interpreter, which is much quicker than one for each.

    If a framework came with any of them, none of them is listed: each must then be tried alone.
    """
    ours = {
        entry.module
        for kind in ("loader", "backend", "client", "probe", "converter")
        for entry in entry_points(group=f"modeldyno.{kind}s")
        if entry.module.startswith("modeldyno.")
    }
    return frozenset(ours if _modules_imported_with(*ours).isdisjoint(FRAMEWORKS) else ())


def _modules_imported_with(*modules: str) -> set[str]:
    code = f"import importlib, json, sys; [importlib.import_module(name) for name in {modules!r}];"
    command = [sys.executable, "-c", code + "print(json.dumps(list(sys.modules)))"]
    child = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(json.loads(child.stdout))


def is_one_sentence(text: str) -> bool:
    """Return whether an error message is a single readable line."""
    return bool(text.strip()) and "\n" not in text and "Traceback" not in text
