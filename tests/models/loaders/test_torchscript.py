from __future__ import annotations

import warnings
import zipfile
from typing import TYPE_CHECKING

import pytest
import torch
from tests.zoo import canary, modules

from modeldyno.base.errors import RequestError, TrustRequired
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.models.loaders import torchscript as loader
from modeldyno.models.static.weights import weight_measurements
from modeldyno.testing.loaders import LoaderSuite

if TYPE_CHECKING:
    from pathlib import Path


def save(path: Path, seed: int = 0, *, freeze: bool = False) -> Path:
    """Save a scripted MLP."""
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        module = torch.jit.script(modules.mlp().eval())
        torch.jit.save(torch.jit.freeze(module) if freeze else module, str(path))
    return path


def ref(path: Path) -> ModelRef:
    """Make a reference."""
    return ModelRef(scheme="torchscript", locator=str(path))


class TestSuite(LoaderSuite):
    scheme = "torchscript"

    @pytest.fixture
    def ref(self, tmp_path: Path) -> ModelRef:
        """A small model of this kind."""
        return ref(save(tmp_path / "one.pt"))

    @pytest.fixture
    def other(self, tmp_path: Path) -> ModelRef:
        """One with different content."""
        return ref(save(tmp_path / "two.pt", seed=1))

    @pytest.fixture
    def damaged(self, tmp_path: Path) -> ModelRef:
        """One that cannot be loaded."""
        whole = save(tmp_path / "whole.pt")
        with zipfile.ZipFile(whole) as source, zipfile.ZipFile(tmp_path / "damaged.pt", "w") as sink:
            for name in source.namelist():
                sink.writestr(name, b"" if name.endswith("/data.pkl") else source.read(name))
        return ref(tmp_path / "damaged.pt")

    @pytest.fixture
    def claimed(self, tmp_path: Path) -> Path:
        """A path of this kind."""
        return save(tmp_path / "claimed.pt")

    @pytest.fixture
    def unclaimed(self, tmp_path: Path) -> Path:
        """A path of a near kind."""
        path = tmp_path / "state.pt"
        torch.save(modules.mlp().state_dict(), path)
        return path


class TestFiles:
    def test_digest_is_of_the_content(self, tmp_path: Path) -> None:
        """The same module saved twice under different names has one digest."""
        paths = [save(tmp_path / name) for name in ("a.pt", "b.pt")]

        assert len({loader.load(ref(p), seed=0, trust=True).identity.digest for p in paths}) == 1

    def test_inputs_come_from_the_schema(self, tmp_path: Path) -> None:
        """The input is named as the schema of forward names it."""
        assert [s.name for s in loader.load(ref(save(tmp_path / "m.pt")), seed=0, trust=True).inputs] == [
            "input"
        ]

    def test_frozen_weights_are_seen(self, tmp_path: Path) -> None:
        """The weights of a frozen module are the constants of its graph."""
        model = loader.load(ref(save(tmp_path / "m.pt", freeze=True)), seed=0, trust=True)

        assert model.weights is not None
        assert [
            m.value
            for m in weight_measurements(model.weights())
            if (m.metric, m.scope) == ("weight_bytes", "")
        ] == [232]

    @pytest.mark.parametrize("new_format", [True, False])
    @pytest.mark.parametrize("trust", [True, False])
    def test_weights_alone_are_refused(self, tmp_path: Path, *, new_format: bool, trust: bool) -> None:
        """A state dict is rejected with what to do instead, whether trusted or not."""
        path = tmp_path / "state.pt"
        torch.save(modules.mlp().state_dict(), path, _use_new_zipfile_serialization=new_format)

        assert not loader.claims(path)
        with pytest.raises(RequestError, match=r"without an architecture.*torch:file\.py:factory"):
            loader.load(ref(path), seed=0, trust=trust)

    @pytest.mark.parametrize("trust", [True, False])
    def test_other_files_are_distinguished(self, tmp_path: Path, *, trust: bool) -> None:
        """A file that is missing, truncated, or of torch.export is rejected with what it is."""
        whole = save(tmp_path / "whole.pt").read_bytes()
        (tmp_path / "short.pt").write_bytes(whole[: len(whole) // 2])
        program = torch.export.export(modules.mlp().eval(), (torch.randn(3, 4),))
        torch.export.save(program, tmp_path / "program.pt2")

        for name, expected in (
            ("absent.pt", "There is no file"),
            ("short.pt", "or is damaged"),
            ("program.pt2", "name it as exported:"),
        ):
            with pytest.raises(RequestError, match=expected):
                loader.load(ref(tmp_path / name), seed=0, trust=trust)

    def test_nothing_runs_without_trust(self, tmp_path: Path) -> None:
        """Pickles in an archive do not run when it is inspected, claimed, or loaded without trust."""
        nest = tmp_path / "nest"
        whole = save(tmp_path / "whole.pt")
        bad = canary.poison(whole, tmp_path / "bad.pt", nest, "data.pkl", "constants.pkl")

        assert loader.claims(bad)
        with pytest.raises(TrustRequired):
            loader.load(ref(bad), seed=0, trust=False)
        assert not nest.exists()

    def test_a_bare_pickle_never_runs(self, tmp_path: Path) -> None:
        """A pickle under the name of a model is not unpickled, even with trust."""
        nest = tmp_path / "nest"
        bad = tmp_path / "bad.pt"
        bad.write_bytes(canary.pickled(nest))

        assert not loader.claims(bad)
        with pytest.raises(RequestError):
            loader.load(ref(bad), seed=0, trust=True)
        assert not nest.exists()


def test_an_archive_without_a_single_forward_is_refused(tmp_path: Path) -> None:
    """Such as one of nn.LSTM itself, whose forward has a version for each kind of input."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.script(torch.nn.LSTM(4, 4).eval()).save(str(tmp_path / "lstm.pt"))  # type: ignore[no-untyped-call]

    with pytest.raises(RequestError, match="has no method forward"):
        loader.load(ref(tmp_path / "lstm.pt"), seed=0, trust=True)
