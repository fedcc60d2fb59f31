"""Test suite that every converter must pass.

Inherit, name the recipe, and provide the fixture; pytest does the rest::

    from modeldyno.testing.converters import ConverterSuite

    class TestMyForm(ConverterSuite):
        recipe = "myform"

        @pytest.fixture
        def source(self, tmp_path: Path) -> ModelRef:
            return ModelRef(scheme="onnx", locator=str(save_a_model(tmp_path)))

The source is converted as `modeldyno convert` does it, and must agree with what the converter wrote. It
should have a free batch, and weights that matter.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest

from modeldyno.base import plugins
from modeldyno.conversion.recipe import ConversionOrder, run_order
from modeldyno.conversion.reference import read_reference
from modeldyno.testing.loaders import imported_frameworks

if TYPE_CHECKING:
    from modeldyno.base.job.model_ref import ModelRef
    from modeldyno.conversion.agreement.conversion import Converted
    from modeldyno.conversion.interface import Converter


class ConverterSuite:
    """Inherit, set `recipe`, and provide the fixture `source`."""

    recipe: ClassVar[str]
    """The name of the converter's entry point."""

    @pytest.fixture(scope="class")
    def tmp_path(self, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """Return one folder for all tests of the class: what the first one makes is kept for the others."""
        return tmp_path_factory.mktemp("converted")

    @pytest.fixture
    def source(self) -> ModelRef:
        """Return a reference to a small model of a kind that it converts."""
        raise NotImplementedError

    @pytest.fixture
    def converter(self) -> Converter:
        """Return the plugin, by its entry point."""
        return plugins.converter(self.recipe)

    first: ClassVar[tuple[ConversionOrder, Converted]]
    """What was ordered and what came of it, kept for all tests of the class."""

    @pytest.fixture
    def order(self, source: ModelRef, tmp_path: Path) -> ConversionOrder:
        """Return the order to convert the source, which has been carried out once."""
        if "first" not in vars(type(self)):
            folder = tmp_path / "reference"
            folder.mkdir()
            reference = ConversionOrder(model=source, trust=True, reference=str(folder))
            returned = run_order(reference, _ignore)
            order = replace(reference, recipe=self.recipe, folder=str(tmp_path / self.recipe))
            assert read_reference(folder) == returned.reference, returned
            answer = run_order(order, _ignore)
            assert answer.converted is not None, answer
            type(self).first = order, answer.converted
        return self.first[0]

    @pytest.fixture
    def made(self, order: ConversionOrder) -> Converted:
        """Return what the recipe made of it."""
        del order
        return self.first[1]

    def test_says_what_it_converts_and_writes(self, converter: Converter) -> None:
        """It names its sources with what they need, its file, and a loader and a backend that exist."""
        assert converter.sources
        assert all(isinstance(name, str) for needed in converter.sources.values() for name in needed)
        assert converter.file == Path(converter.file).name
        assert converter.loader in plugins.names("loader")
        assert converter.backend in plugins.names("backend")
        assert isinstance(converter.lossy, bool)

    def test_importing_it_is_cheap(self) -> None:
        """Importing the plugin imports no framework."""
        assert imported_frameworks("converter", self.recipe) == []

    def test_what_it_writes_is_the_model(self, made: Converted, converter: Converter) -> None:
        """Its loader reads the file, which agrees with the source, or is close if the recipe is lossy."""
        assert made.failure is None, made.failure
        assert made.agreement is not None
        assert made.verdict in ({"agrees", "close"} if converter.lossy else {"agrees"})
        assert made.digest.startswith("sha256:")
        assert Path(made.path).exists()
        assert made.size > 0
        assert made.converter

    def test_the_batch_stays_free(self, made: Converted) -> None:
        """It was called with batches of 1, 3 and 32."""
        assert made.agreement is not None
        assert {call.split(",")[0].split()[0] for call in made.agreement.calls} == {
            "batch=32",
            "batch=3",
            "batch=1",
        }

    def test_converting_twice_replaces_the_file(self, made: Converted, order: ConversionOrder) -> None:
        """As after a change of the model."""
        again = run_order(order, _ignore).converted

        assert again is not None
        assert (again.path, again.verdict) == (made.path, made.verdict)


def _ignore(_stage: str) -> None:
    pass
