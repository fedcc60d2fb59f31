"""The best form that is still the model is packaged, and stands in for the module that it was made of."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import modeldyno
from modeldyno.base.errors import RequestError
from modeldyno.comparison.views.optimized import blocks, headline
from modeldyno.profiling.packages import PackageRecord, is_package, open_package, write_package

if TYPE_CHECKING:
    from pathlib import Path

torch = pytest.importorskip("torch")


class Heads(torch.nn.Module):  # type: ignore[misc,name-defined]
    """Two outputs by name, an argument that changes what is returned, an attribute of its own."""

    config = "two heads"

    def __init__(self) -> None:
        super().__init__()
        self.scores, self.boxes = torch.nn.Linear(8, 3), torch.nn.Linear(8, 4)

    def forward(self, x: Any, *, names: bool = True) -> Any:
        """Return both heads."""
        made = {"scores": self.scores(x), "boxes": self.boxes(x)}
        return made if names else tuple(made.values())


class Single(torch.nn.Module):  # type: ignore[misc,name-defined]
    """One output."""

    def forward(self, x: Any) -> Any:
        """Return the input."""
        return x


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unpack into a folder of the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def optimized(tmp_path: Path, **options: Any) -> tuple[Any, Any]:
    """Return the module, and what was made of it."""
    module = Heads().eval()
    made = modeldyno.optimize(
        module, torch.randn(2, 8), output=tmp_path / "best.zip", store=False, progress=False, **options
    )
    return module, made


def test_forms_preferred_by_name_are_made_until_one_is_the_model(tmp_path: Path) -> None:
    """Nothing is measured, and the sentence says which was taken; its package holds how it came about."""
    _, made = optimized(tmp_path, prefer=["torchscript", "onnx"])

    assert (made.form, made.comparison) == ("torchscript", None)
    assert [each.recipe for each in made.conversion.converted] == ["torchscript"]
    assert headline(made) == "Heads: torchscript, the first preferred form that is still the model."
    with zipfile.ZipFile(made.path) as archive:
        names = set(archive.namelist())
    assert {"package.json", "conversion.json", "torchscript/model.pt", "torchscript/inputs.npz"} <= names
    assert repr(made) == f"<Optimized Heads: torchscript in {made.path}>"


def test_the_stand_in_returns_what_the_original_does(tmp_path: Path) -> None:
    """The same structure from the same arguments, and its attributes; what it cannot follow, it refuses."""
    module, made = optimized(tmp_path, prefer="torchscript")
    x = torch.randn(5, 8)

    stand_in = modeldyno.open_model(made, trust=True).as_module(module)
    returned = stand_in(x, names=True)

    assert list(returned) == ["scores", "boxes"]
    torch.testing.assert_close(returned, module(x))
    assert stand_in.config == "two heads"
    assert not list(stand_in.parameters())
    with pytest.raises(RequestError, match="was made without 'names'; it takes x"):
        stand_in(x, names=False)
    with pytest.raises(RequestError, match="not 3 arguments"):
        stand_in(x, x, x)
    with pytest.raises(RequestError, match="train the original"):
        stand_in.train()
    with pytest.raises(RequestError, match="returns 2 tensors, and the original 1"):
        modeldyno.open_model(made, trust=True).as_module(Single(), x)


def test_without_an_original_a_stand_in_returns_tensors_by_name(tmp_path: Path) -> None:
    """And has no attributes of another module."""
    module, made = optimized(tmp_path, prefer="torchscript")

    stand_in = modeldyno.open_model(made.path, trust=True).as_module()

    assert len(stand_in(torch.randn(2, 8))) == len(module(torch.randn(2, 8)))
    assert not hasattr(stand_in, "config")


def test_measured_forms_are_told_beside_the_source(tmp_path: Path) -> None:
    """The table has the verdict and the figures of each, and the package is a model of every command."""
    _, made = optimized(tmp_path, to="torchscript", prefer=["latency if latency.p50 <= 1ns", "torchscript"],
                        max_time=4)  # fmt: skip

    text = repr(list(blocks(made)))
    assert made.form == "torchscript"
    assert headline(made).endswith("Not met: latency if latency.p50 <= 1ns.")
    assert "source" in text
    assert "latency.p50" in text
    assert modeldyno.inspect(made.path, trust=True, store=False)["parameters"] == 63


def test_a_live_estimator_is_measured_by_what_runs_it(tmp_path: Path) -> None:
    """Whatever is chosen, all are in the table."""
    linear = pytest.importorskip("sklearn.linear_model")
    pytest.importorskip("skl2onnx")
    rows = np.random.default_rng(0).normal(size=(100, 4))
    model = linear.LogisticRegression().fit(rows, (rows.sum(1) > 0).astype(int))

    made = modeldyno.optimize(
        model,
        rows[:8].astype(np.float32),
        to="onnx",
        max_time=4,
        output=tmp_path / "lr.zip",
        store=False,
        progress=False,
    )

    assert made.comparison is not None
    assert made.form in {"source", "onnx"}


def test_what_is_wrong_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    """The name of the package, its folder, and a preference."""
    for options, message in (
        ({"output": "best.onnx"}, "a .zip file"),
        ({"output": tmp_path / "no" / "b.zip"}, "no folder"),
        ({"prefer": "opnvino"}, "opnvino"),
    ):
        with pytest.raises(RequestError, match=message):
            modeldyno.optimize("examples/digits/digits.onnx", store=False, **options)


def test_a_zip_file_that_leads_outside_is_refused(tmp_path: Path) -> None:
    """And one without a record is no package."""
    record = PackageRecord(
        name="m", form="onnx", scheme="onnx", file="onnx/m.onnx", why="", agreement="", digest=""
    )
    (tmp_path / "onnx").mkdir()
    write_package(tmp_path / "p.zip", record, tmp_path / "onnx", {"../out.txt": b"x"})
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("a.txt", "a")

    assert is_package(tmp_path / "p.zip")
    assert not is_package(tmp_path / "other.zip")
    with pytest.raises(RequestError, match="would lie outside"):
        open_package(tmp_path / "p.zip")
    assert not (tmp_path / "out.txt").exists()
