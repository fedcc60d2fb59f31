from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from tests.zoo import callables, modules

from modeldyno.base.errors import RequestError
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.models.loaders import live_object as loader
from modeldyno.testing.loaders import LoaderSuite, is_one_sentence

if TYPE_CHECKING:
    from collections.abc import Iterator


class TestSuite(LoaderSuite):
    scheme = "object"

    @pytest.fixture
    def ref(self) -> Iterator[ModelRef]:
        """A small model of this kind."""
        torch.manual_seed(0)
        ref = loader.offer(modules.mlp(), example=torch.zeros(2, 4))
        yield ref
        loader.withdraw(ref)

    @pytest.fixture
    def other(self) -> Iterator[ModelRef]:
        """One with different content."""
        torch.manual_seed(1)
        ref = loader.offer(modules.mlp())
        yield ref
        loader.withdraw(ref)

    @pytest.fixture
    def damaged(self) -> ModelRef:
        """One that cannot be loaded."""
        return ModelRef(scheme="object", locator="gone-0123abcd")


class TestOffers:
    def test_module_is_lent_as_it_is(self) -> None:
        """A module is used itself, in its own mode, marked as borrowed and not isolated."""
        module = modules.mlp().train()
        ref = loader.offer(module, name="mine")

        model = loader.load(ref, seed=0, trust=False)

        assert str(ref).startswith("object:mine-")
        assert model.value is module
        assert module.training
        assert model.borrowed
        assert model.identity.name == "mine"
        assert [d.code for d in model.doubts] == ["not-isolated"]
        assert loader.backend_of(module) == "torch"

    def test_callable_has_its_example(self) -> None:
        """Any other callable is run by the python backend, with the example as its inputs."""
        ref = loader.offer(callables.add, example=callables.add_inputs())

        model = loader.load(ref, seed=0, trust=False)

        assert model.form == "callable"
        assert [s.name for s in model.inputs] == ["left", "right"]
        assert loader.backend_of(callables.add) == "python"

    def test_script_modules_are_modules(self) -> None:
        """A ScriptModule goes to the torch backend, with the inputs of its schema."""
        with pytest.warns(DeprecationWarning, match="torch.jit"):
            module = torch.jit.script(modules.mlp().eval())
        ref = loader.offer(module)

        model = loader.load(ref, seed=0, trust=False)

        assert model.form == "torch"
        assert [s.name for s in model.inputs] == ["input"]

    def test_withdrawn_offers_are_gone(self) -> None:
        """A withdrawn object cannot be loaded, and the error says what to give instead."""
        ref = loader.offer(modules.mlp())
        loader.withdraw(ref)

        with pytest.raises(RequestError, match=r"torch:file\.py:factory"):
            loader.load(ref, seed=0, trust=False)

    def test_a_session_of_onnxruntime_is_refused(self) -> None:
        """A session of onnxruntime is rejected with advice to give its file."""
        kind = type("InferenceSession", (), {"__module__": "onnxruntime.capi.session"})

        with pytest.raises(RequestError, match=r"give the path of its \.onnx file") as caught:
            loader.offer(kind())

        assert is_one_sentence(str(caught.value))

    def test_what_cannot_be_called_is_refused(self) -> None:
        """A number is rejected."""
        with pytest.raises(RequestError, match=r"neither a .* nor callable"):
            loader.offer(7)
