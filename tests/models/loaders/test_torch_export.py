from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING

import pytest
import torch
from tests.zoo import canary, modules

from modeldyno.base.errors import RequestError, TrustRequired
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.engine.data.assumed_sizes import assume_sizes
from modeldyno.models.loaders import torch_export as loader
from modeldyno.testing.loaders import LoaderSuite

if TYPE_CHECKING:
    from pathlib import Path

    from torch.export import Dim


def save(path: Path, seed: int = 0, dynamic: tuple[dict[int, Dim], ...] | None = None) -> Path:
    """Export an MLP."""
    torch.manual_seed(seed)
    program = torch.export.export(modules.mlp().eval(), (torch.randn(3, 4),), dynamic_shapes=dynamic)
    torch.export.save(program, path)
    return path


def ref(path: Path) -> ModelRef:
    """Refer to a file."""
    return ModelRef(scheme="exported", locator=str(path))


class TestSuite(LoaderSuite):
    scheme = "exported"

    @pytest.fixture
    def ref(self, tmp_path: Path) -> ModelRef:
        """A small model of this kind."""
        return ref(save(tmp_path / "one.pt2"))

    @pytest.fixture
    def other(self, tmp_path: Path) -> ModelRef:
        """One of other content."""
        return ref(save(tmp_path / "two.pt2", seed=1))

    @pytest.fixture
    def damaged(self, tmp_path: Path) -> ModelRef:
        """One that cannot be loaded."""
        whole = save(tmp_path / "whole.pt2")
        with zipfile.ZipFile(whole) as source, zipfile.ZipFile(tmp_path / "damaged.pt2", "w") as sink:
            for name in source.namelist():
                sink.writestr(name, b"{}" if name.endswith("model.json") else source.read(name))
        return ref(tmp_path / "damaged.pt2")

    @pytest.fixture
    def claimed(self, tmp_path: Path) -> Path:
        """A path of this kind."""
        return save(tmp_path / "claimed.pt2")


class TestFiles:
    def test_a_dynamic_first_dimension_is_the_batch(self, tmp_path: Path) -> None:
        """A free first dimension is called batch; a fixed one is its size."""
        free = save(tmp_path / "free.pt2", dynamic=({0: torch.export.Dim("n")},))
        fixed = save(tmp_path / "fixed.pt2")

        shapes = [loader.load(ref(p), seed=0, trust=True).inputs[0].shape for p in (free, fixed)]

        assert shapes == [("batch", 4), (3, 4)]

    def test_free_tokens_are_a_sequence(self, tmp_path: Path) -> None:
        """The free second dimension of integers is called seq."""
        path = tmp_path / "tied.pt2"
        dims = ({0: torch.export.Dim("a"), 1: torch.export.Dim("b")},)
        program = torch.export.export(
            modules.Tied(), (torch.zeros(3, 5, dtype=torch.int64),), dynamic_shapes=dims
        )
        torch.export.save(program, path)

        (spec,) = loader.load(ref(path), seed=0, trust=True).inputs

        assert (spec.name, spec.shape, spec.dtype) == ("ids", ("batch", "seq"), "int64")

    def test_free_sizes_are_assumed_within_what_the_export_allows(self, tmp_path: Path) -> None:
        """Images of 224 are usual, but this one takes 100 at most."""
        rows, columns = torch.export.Dim("rows", min=8, max=100), torch.export.Dim("columns", min=8, max=96)
        program = torch.export.export(
            torch.nn.Conv2d(3, 4, 3), (torch.zeros(2, 3, 32, 32),), dynamic_shapes=({2: rows, 3: columns},)
        )
        torch.export.save(program, tmp_path / "image.pt2")
        model = loader.load(ref(tmp_path / "image.pt2"), seed=0, trust=True)

        assumed = assume_sizes(model, (), batch_size=None, sizes={}).assumed

        assert list(assumed.values()) == [100, 96]

    def test_digest_is_of_the_content(self, tmp_path: Path) -> None:
        """The same program saved twice under different names has one digest."""
        paths = [save(tmp_path / name) for name in ("a.pt2", "b.pt2")]

        assert len({loader.load(ref(p), seed=0, trust=True).identity.digest for p in paths}) == 1

    @pytest.mark.parametrize("trust", [True, False])
    def test_other_files_are_refused(self, tmp_path: Path, *, trust: bool) -> None:
        """A file that is absent, or no archive of torch.export, is refused, whether trusted or not."""
        (tmp_path / "text.pt2").write_text("nothing of the kind")

        for name, expected in (
            ("absent.pt2", "There is no file"),
            ("text.pt2", "not an archive of torch.export"),
        ):
            with pytest.raises(RequestError, match=expected):
                loader.load(ref(tmp_path / name), seed=0, trust=trust)

    def test_nothing_runs_without_trust(self, tmp_path: Path) -> None:
        """Pickles in an archive do not run when it is looked at, claimed, or loaded without trust."""
        nest = tmp_path / "nest"
        whole = save(tmp_path / "whole.pt2")
        bad = canary.poison(
            whole, tmp_path / "bad.pt2", nest, "data/sample_inputs/model.pt", "data/weights/weight_0"
        )

        assert loader.claims(bad)
        with pytest.raises(TrustRequired):
            loader.load(ref(bad), seed=0, trust=False)
        assert not nest.exists()
