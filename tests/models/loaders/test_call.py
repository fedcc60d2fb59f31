from __future__ import annotations

import os
import py_compile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.zoo import callables

from modeldyno.base.errors import RequestError
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.models.loaders import call as loader
from modeldyno.models.loaders.python_source import import_object
from modeldyno.testing.loaders import LoaderSuite

if TYPE_CHECKING:
    from modeldyno.models.interface import Model

ZOO = Path(callables.__file__)


def load(name: str) -> Model:
    """Load a callable of the zoo."""
    return loader.load(ModelRef(scheme="call", locator=f"{ZOO}:{name}"), seed=0, trust=False)


class TestSuite(LoaderSuite):
    scheme = "call"
    has_weights = False

    @pytest.fixture
    def ref(self) -> ModelRef:
        """A small model of this kind."""
        return ModelRef(scheme="call", locator=f"{ZOO}:add")

    @pytest.fixture
    def other(self) -> ModelRef:
        """One with different content."""
        return ModelRef(scheme="call", locator=f"{ZOO}:square")

    @pytest.fixture
    def damaged(self, tmp_path: Path) -> ModelRef:
        """One that cannot be loaded."""
        (tmp_path / "broken.py").write_text("import nothing_of_the_sort\n")
        return ModelRef(scheme="call", locator=f"{tmp_path / 'broken.py'}:f")


class TestInputs:
    def test_a_companion_gives_them_by_name(self) -> None:
        """A function <name>_inputs in the same module gives the inputs by name."""
        model = load("add")

        assert [(s.name, s.shape, s.dtype) for s in model.inputs] == [
            ("left", ("batch", 2), "float32"),
            ("right", ("batch", 2), "float32"),
        ]

    def test_a_tuple_gives_them_by_position(self) -> None:
        """A tuple <name>_inputs gives the inputs by position, under the parameters' names."""
        assert [s.name for s in load("square").inputs] == ["x"]

    def test_none_are_needed_without_parameters(self) -> None:
        """A callable without parameters has no inputs."""
        model = load("nothing")

        assert model.inputs == ()
        assert model.example is None

    def test_parameters_are_named_without_a_companion(self) -> None:
        """Without a companion the required parameters are inputs of unknown shape."""
        assert [(s.name, s.shape) for s in load("wanting").inputs] == [("x", None)]

    def test_what_cannot_be_called_is_refused(self) -> None:
        """A constant is rejected."""
        with pytest.raises(RequestError, match="int, which cannot be called"):
            load("constant")

    def test_a_class_whose_objects_are_called_is_refused(self) -> None:
        """A call that would only time a constructor is rejected, with what to write to measure the model."""
        ref = ModelRef(scheme="call", locator="torch.nn:Identity")
        with pytest.raises(
            RequestError, match=r"only creates one; to measure the module itself write torch\.nn:I"
        ):
            loader.load(ref, seed=0, trust=False)
        with pytest.raises(RequestError, match=r"such as model = partial\(\), and give its name"):
            loader.load(ModelRef(scheme="call", locator="functools:partial"), seed=0, trust=False)
        assert (
            loader.load(ModelRef(scheme="call", locator="json:JSONDecoder"), seed=0, trust=False).inputs == ()
        )

    def test_any_object_is_an_input(self) -> None:
        """An input that is not numeric is passed unchanged, in a zero-dimensional array."""
        value = {"a": 1}

        assert loader.example_feed(callables.add, {"left": value})["left"].item() is value
        assert loader.example_feed(callables.add, {"left": "text"})["left"].item() == "text"
        assert loader.example_feed(callables.add, {"left": [[1], [2, 3]]})["left"].item() == [[1], [2, 3]]

    def test_modules_of_the_standard_library(self) -> None:
        """A function of an installed module can be named, even without a signature or source."""
        model = loader.load(ModelRef(scheme="call", locator="time:perf_counter"), seed=0, trust=False)

        assert model.identity.name == "time.perf_counter"
        assert model.inputs == ()

    def test_a_partial_is_what_it_binds(self) -> None:
        """The digest of a partial differs from the plain function's, and depends on the bound values."""
        one, two = (loader.callable_digest(partial(callables.add, left=np.array(x))) for x in (1, 2))

        assert len({one, two, loader.callable_digest(callables.add)}) == 3

    def test_a_file_is_compiled_as_it_is_now(self, tmp_path: Path) -> None:
        """Bytecode of an earlier text is not taken, though the size and the time of the file are the same."""
        path = tmp_path / "model.py"
        path.write_text("def f():\n    return 1\n")
        py_compile.compile(str(path))
        times = path.stat().st_atime_ns, path.stat().st_mtime_ns
        path.write_text("def f():\n    return 2\n")
        os.utime(path, ns=times)

        assert import_object("call", f"{path}:f").value() == 2
