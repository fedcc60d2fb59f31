from __future__ import annotations

import sys
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from modeldyno.base import plugins
from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.serving.backends import export_cache, model_files
from modeldyno.serving.servers.inside_server import runner

if TYPE_CHECKING:
    from pathlib import Path

    from modeldyno.models.interface import Model

torch = pytest.importorskip("torch")
CODE = """
import torch
from {helper} import scale

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)
    def forward(self, x):
        return scale(self.layer(x))

def net():
    torch.manual_seed(0)
    return Net(), torch.zeros(2, 4)
"""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Model:
    """A module whose code is in two files of the user's; the cache is its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    helper = f"helper_{tmp_path.name}"
    (tmp_path / f"{helper}.py").write_text("def scale(x):\n    return 2 * x\n")
    (tmp_path / "net.py").write_text(CODE.format(helper=helper))
    ref = ModelRef(scheme="torch", locator=f"{tmp_path / 'net.py'}:net")
    return plugins.loader("torch").load(ref, seed=0, trust=False)


def refuse(*_: object) -> None:
    """Stand for an export that must not be needed."""
    raise AssertionError


def test_a_module_is_exported_once(model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second server gets the file of the first one, the same tensors, and the answers of the module."""
    first = model_files.deploy(model, tmp_path / "first")
    monkeypatch.setattr(model_files, "_export", refuse)
    second = model_files.deploy(model, tmp_path / "second")
    assert second == first
    assert {path.name for path in (tmp_path / "second").iterdir()} == {"model.pt2"}
    x = np.random.default_rng(0).random((3, 4), dtype="float32")
    run = runner.load_model_file(str(tmp_path / "second" / "model.pt2"), ["x"], ["output"], 0, "cpu")
    np.testing.assert_allclose(run({"x": x})["output"], model.value(torch.from_numpy(x)).detach(), rtol=1e-5)


@pytest.mark.slow
def test_what_an_export_depends_on(model: Model, tmp_path: Path) -> None:
    """Other weights, inputs, versions or code of the user's own make it another; a live object has none."""
    spec = InputSpec(name="x", shape=("batch", 4), dtype="float32")
    feed = {"x": np.zeros((2, 4), "float32")}
    before = export_cache.key(model, (spec,), feed)
    assert before == export_cache.key(model, (spec,), feed)
    identity = replace(model.identity, digest="sha256:1")
    assert export_cache.key(replace(model, identity=identity), (spec,), feed) != before
    assert export_cache.key(model, (replace(spec, shape=(2, 4)),), feed) != before
    assert export_cache.key(model, (spec,), {"x": np.zeros((3, 4), "float32")}) != before
    (helper,) = tmp_path.glob("helper_*.py")
    helper.write_text("def scale(x):\n    return 3 * x\n")
    assert export_cache.key(model, (spec,), feed) != before
    assert export_cache.key(replace(model, borrowed=True), (spec,), feed) == ""


@pytest.mark.slow
def test_a_damaged_entry_is_none(model: Model, tmp_path: Path) -> None:
    """What cannot be read is exported anew, and no half of it is left in the server's folder."""
    first = model_files.deploy(model, tmp_path / "first")
    (about,) = (tmp_path / "cache").rglob("about.json")
    fetched = tmp_path / "model.pt2"
    assert export_cache.fetch(about.parent.name, fetched) is not None
    for damage in ("", "no JSON", "[{}]", '[{"name": "y", "shape": 3}]'):
        about.write_text(damage)
        assert export_cache.fetch(about.parent.name, fetched) is None
        assert not fetched.exists()
    assert model_files.deploy(model, tmp_path / "second") == first


@pytest.mark.slow  # as a module is
def test_a_script_is_kept_like_a_module(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A TorchScript is written once, too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch deprecates it
        scripted = torch.jit.trace(model.value, torch.zeros(2, 4))
    first = model_files.deploy(replace(model, value=scripted), tmp_path / "first")
    monkeypatch.setattr(torch.jit, "save", refuse)
    assert model_files.deploy(replace(model, value=scripted), tmp_path / "second") == first
    assert (tmp_path / "second" / "model.pt").exists()


@pytest.fixture
def recallable(model: Model, monkeypatch: pytest.MonkeyPatch) -> Model:
    """The module, as if it had come from files only, with what it depends on known."""
    monkeypatch.setattr(export_cache, "_source_digests", lambda: iter(()))
    inputs = (InputSpec(name="x", shape=("batch", 4), dtype="float32", low=0, high=1.5),)
    return replace(model, inputs=inputs, example=None, candidates=None, source="sha256:a", limits={"seq": 3})


def unloaded() -> Model:
    """Stand for loading a model that must not be needed."""
    raise AssertionError


def test_a_kept_export_needs_no_model(recallable: Model, tmp_path: Path) -> None:
    """A model is recalled as it was described, and the server gets the same file; others are unknown."""
    first = model_files.deploy(recallable, tmp_path / "first")
    assert {path.name for path in (tmp_path / "first").iterdir()} == {"model.pt2"}
    recalled = export_cache.recall("sha256:a", unloaded)
    assert recalled is not None
    assert (recalled.identity, recalled.inputs, recalled.limits, recalled.form, recalled.file_bytes) == (
        recallable.identity, recallable.inputs, recallable.limits, recallable.form, recallable.file_bytes,
    )  # fmt: skip
    assert model_files.deploy(recalled, tmp_path / "second") == first
    files = [tmp_path / name / "model.pt2" for name in ("first", "second")]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert export_cache.recall("sha256:b", unloaded) is None
    assert export_cache.recall("", unloaded) is None


def test_a_lost_export_is_made_anew(recallable: Model, tmp_path: Path) -> None:
    """Where only the export is gone, the model is loaded after all, and text is encoded by the loaded one."""
    feed = {"x": np.zeros((1, 4), "float32")}
    recallable = replace(recallable, encode=lambda _texts, _length: feed)
    first = model_files.deploy(recallable, tmp_path / "first")
    (about,) = (tmp_path / "cache").rglob("about.json")
    about.unlink()
    loads: list[Model] = []

    def load() -> Model:
        loads.append(recallable)
        return recallable

    recalled = export_cache.recall("sha256:a", load)
    assert recalled is not None
    assert model_files.deploy(recalled, tmp_path / "second") == first
    assert recalled.encode is not None
    assert recalled.encode(["a"], None) is feed
    assert loads == [recallable]


@pytest.mark.parametrize(
    "change",
    [
        {"source": ""},
        {"borrowed": True},
        {"example": {"x": np.zeros((2, 4), "float32")}},
        {"doubts": (Doubt(code="random-weights", seen="a", advice="b"),)},
        {"inputs": (InputSpec(name="x"),)},
    ],
)
def test_what_is_not_recalled(recallable: Model, tmp_path: Path, change: dict[str, Any]) -> None:
    """A model that depends on more than its source, or is not wholly described, is always loaded."""
    (tmp_path / "model.pt2").touch()
    export_cache.remember(replace(recallable, **change), tmp_path / "model.pt2")
    assert export_cache.recall("sha256:a", unloaded) is None
    export_cache.remember(recallable, tmp_path / "model.pt2")
    assert export_cache.recall("sha256:a", unloaded) is not None


def test_code_of_the_users_own_is_never_recalled(
    recallable: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a file outside of installed packages was imported, the model is always loaded."""
    monkeypatch.setattr(export_cache, "_source_digests", lambda: iter(("sha256:own",)))
    export_cache.remember(recallable, tmp_path / "model.pt2")
    assert export_cache.recall("sha256:a", unloaded) is None
