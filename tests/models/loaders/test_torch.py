from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tests.zoo import modules

from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.models.loaders import torch as loader
from modeldyno.models.loaders import torch_inputs, torch_module, torch_weights
from modeldyno.models.static.weights import weight_measurements
from modeldyno.testing.loaders import LoaderSuite, is_one_sentence

if TYPE_CHECKING:
    from modeldyno.models.interface import Model

ZOO = Path(modules.__file__)


def load(name: str, seed: int = 0) -> Model:
    """Load something of the zoo."""
    return loader.load(ModelRef(scheme="torch", locator=f"{ZOO}:{name}"), seed=seed, trust=False)


def totals(module: torch.nn.Module) -> dict[str, float]:
    """Tally the weights of a module."""
    return {
        m.metric: m.value
        for m in weight_measurements(torch_weights.list_weights(module))
        if not m.scope and isinstance(m.value, int | float)
    }


class TestSuite(LoaderSuite):
    scheme = "torch"

    @pytest.fixture
    def ref(self) -> ModelRef:
        """A small model of this kind."""
        return ModelRef(scheme="torch", locator=f"{ZOO}:mlp_with_example")

    @pytest.fixture
    def other(self) -> ModelRef:
        """One of other content."""
        return ModelRef(scheme="torch", locator=f"{ZOO}:Shared")

    @pytest.fixture
    def damaged(self, tmp_path: Path) -> ModelRef:
        """One that cannot be loaded."""
        (tmp_path / "broken.py").write_text("def factory(:\n")
        return ModelRef(scheme="torch", locator=f"{tmp_path / 'broken.py'}:factory")

    @pytest.fixture
    def claimed(self) -> Path:
        """A path of this kind."""
        return Path(f"{ZOO}:mlp")


class TestFactories:
    def test_example_declares_the_inputs(self) -> None:
        """A tensor beside the module is its input, by the name that forward gives it."""
        model = load("mlp_with_example")

        (spec,) = model.inputs
        assert (spec.name, spec.shape, spec.dtype) == ("input", ("batch", 4), "float32")
        assert model.example is not None
        assert model.example["input"].shape == (3, 4)

    def test_named_examples_keep_their_names(self) -> None:
        """A dict beside the module gives inputs by name."""
        assert [spec.name for spec in load("two_inputs_with_example").inputs] == ["left", "right"]

    def test_without_example_the_parameters_are_named(self) -> None:
        """Without an example the required parameters of forward are inputs of unknown shape."""
        model = load("TwoInputs")

        assert [(spec.name, spec.shape) for spec in model.inputs] == [("left", None), ("right", None)]
        assert model.example is None

    @pytest.mark.parametrize("name", ["mlp", "instance", "Tied", "Shared"])
    def test_functions_classes_and_instances(self, name: str) -> None:
        """A function, a class or an instance gives a module in evaluation mode."""
        model = load(name)

        assert isinstance(model.value, torch.nn.Module)
        assert not model.value.training
        assert model.identity.name == f"modules.{name}"

    def test_seed_fixes_random_weights(self) -> None:
        """The same seed gives the same digest, another seed another; the global state is left alone."""
        state = torch.random.get_rng_state()

        digests = [load("mlp", seed).identity.digest for seed in (1, 1, 2)]

        assert digests[0] == digests[1] != digests[2]
        assert torch.equal(torch.random.get_rng_state(), state)

    def test_code_is_content(self) -> None:
        """Modules without any state that compute differently have different digests."""
        digests = {
            torch_module.module_digest(kind()) for kind in (modules._Plus, modules.Minus, torch.nn.ReLU)
        }

        assert len(digests) == 3

    def test_settings_are_content(self) -> None:
        """A layer's settings are part of the digest, its training mode is not."""
        one, two = torch.nn.AvgPool2d(2), torch.nn.AvgPool2d(3)

        assert torch_module.module_digest(one) != torch_module.module_digest(two)
        assert torch_module.module_digest(one) == torch_module.module_digest(one.eval())

    def test_lightning_example_is_taken(self) -> None:
        """The attribute example_input_array of a module is its example."""
        module = modules.mlp()
        module.example_input_array = torch.zeros(5, 4)

        taken = loader.describe_inputs(module, None, "here")

        assert taken.example is not None
        assert taken.inputs[0].shape == ("batch", 4)

    def test_a_module_that_fails_when_asked_for_an_example_has_none(self) -> None:
        """Its `__getattr__` may raise something else than AttributeError."""

        class Odd(torch.nn.Module):
            def __getattr__(self, name: str) -> Any:
                raise KeyError(name)

        assert loader.find_example(Odd(), None) is None

    def test_a_dict_for_a_module_of_one_parameter_is_its_argument(self) -> None:
        """Entries named unlike the only parameter are one input; for several parameters each is an input."""
        entries = {"ids": torch.zeros(2, 3), "mask": torch.ones(2, 3)}
        feed, inputs = torch_inputs.example_inputs(torch.nn.ReLU(), entries, "here")

        assert [spec.name for spec in inputs] == ["input"]
        assert list(feed["input"].item()) == ["ids", "mask"]

        both, _ = torch_inputs.example_inputs(modules.TwoInputs(), entries, "here")

        assert list(both) == ["ids", "mask"]

    def test_example_that_is_no_tensor_is_refused(self) -> None:
        """An example input that is no tensor is named in the error."""
        with pytest.raises(RequestError, match="'right' of here is int"):
            torch_inputs.example_inputs(modules.TwoInputs(), (torch.zeros(2), 3), "here")

    def test_a_shape_given_as_an_example_is_told_where_it_goes(self) -> None:
        """As other tools take (1, 3, 64, 64) for the size of an input."""
        with pytest.raises(RequestError, match=r"example input of here is a shape; .* inputs='1x3x64x64'"):
            torch_inputs.example_inputs(torch.nn.ReLU(), (1, 3, 64, 64), "here")


class TestErrors:
    def test_an_estimator_is_to_be_saved(self, tmp_path: Path) -> None:
        """To call the factory itself would time the fit."""
        file = tmp_path / "iris.py"
        file.write_text(
            "from sklearn.dummy import DummyClassifier\n\ndef linear():\n"
            "    return DummyClassifier().fit([[0.0]], [1])\n"
        )
        with pytest.raises(
            RequestError, match=r"an estimator of sklearn; .*profile linear\.joblib with `trust`"
        ):
            loader.load(ModelRef(scheme="torch", locator=f"{file}:linear"), seed=0, trust=False)

    @pytest.mark.parametrize(
        ("locator", "expected"),
        [
            ("nowhere", "names no attribute"),
            ("no_such_package.mod:factory", "There is no Python module 'no_such_package'"),
            ("torch.no_such_part:factory", "There is no Python module 'torch.no_such_part'"),
            ("missing.py:factory", "There is no file 'missing.py'"),
            (
                f"{ZOO}:needy",
                f"but a factory takes none; to measure the function itself, profile it as call:{ZOO}:needy.",
            ),
            (f"{ZOO}:number", "returns int, not a torch.nn.Module"),
        ],
    )
    def test_wrong_reference(self, locator: str, expected: str) -> None:
        """A wrong reference is refused in one sentence that says what is wrong."""
        with pytest.raises(RequestError) as caught:
            loader.load(ModelRef(scheme="torch", locator=locator), seed=0, trust=False)

        assert expected in str(caught.value)
        assert is_one_sentence(str(caught.value))

    def test_misspelt_attribute(self) -> None:
        """A misspelt factory is answered with the nearest name."""
        with pytest.raises(UnknownName, match="did you mean 'mlp_with_example'"):
            load("mlp_with_exmple")

    @pytest.mark.parametrize(
        ("code", "expected"),
        [
            ("import os\nx = 1 / 0\n", "bad.py:2 with ZeroDivisionError: division by zero"),
            ("import nonexistent_thing\n", "bad.py:1 with ModuleNotFoundError: No module named"),
            ("raise SystemExit(3)\n", "bad.py:1 with SystemExit: 3"),
            ("def f(:\n", "bad.py:1 with SyntaxError"),
            ("import json\njson.loads('{')\n", "bad.py:2 with JSONDecodeError"),
        ],
    )
    def test_failing_import(self, tmp_path: Path, code: str, expected: str) -> None:
        """A file that fails while it is imported is reported with its line and exception."""
        (tmp_path / "bad.py").write_text(code)

        with pytest.raises(RequestError) as caught:
            loader.load(ModelRef(scheme="torch", locator=f"{tmp_path / 'bad.py'}:f"), seed=0, trust=False)

        assert expected in str(caught.value)
        assert is_one_sentence(str(caught.value))

    def test_current_directory_is_importable(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A module in the current directory can be named, and one beside a file imported."""
        (tmp_path / "dyno_beside.py").write_text("WIDTH = 5\n")
        (tmp_path / "dyno_here.py").write_text(
            "import torch\nfrom dyno_beside import WIDTH\ndef make():\n    return torch.nn.Linear(WIDTH, 1)\n"
        )
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "path", [p for p in sys.path if p])

        for locator in ("dyno_here:make", "dyno_here.py:make"):
            model = loader.load(ModelRef(scheme="torch", locator=locator), seed=0, trust=False)
            assert model.value.in_features == 5

    def test_a_file_named_like_a_package_hides_nothing(self, tmp_path: Path) -> None:
        """A file called torch.py can hold a factory."""
        folder = tmp_path / "odd"
        folder.mkdir()
        (folder / "json.py").write_text("from torch import nn\ndef make():\n    return nn.Linear(2, 2)\n")

        loader.load(ModelRef(scheme="torch", locator=f"{folder / 'json.py'}:make"), seed=0, trust=False)

        assert hasattr(sys.modules["json"], "loads")


class TestWeights:
    def test_tied_weights_count_once(self) -> None:
        """Weights that two layers share are counted once, in numbers and bytes."""
        result = totals(modules.Tied())

        assert result["parameters"] == 40
        assert result["weight_bytes"] == 160

    def test_shared_modules_and_buffers(self) -> None:
        """A layer under two names counts once; buffers are told from parameters."""
        result = totals(modules.Shared())

        assert result["parameters"] == 20 + 8
        assert result["buffers"] == 4 + 4 + 1

    def test_frozen_parameters_are_not_trainable(self) -> None:
        """Parameters without gradients count as parameters, not as trainable ones."""
        module = modules.mlp()
        module[0].requires_grad_(requires_grad=False)

        result = totals(module)

        assert result["parameters"] == 58
        assert result["trainable_parameters"] == 18

    def test_meta_tensors_have_sizes(self) -> None:
        """A module on the meta device has sizes and bytes, and each tensor is its own."""
        with torch.device("meta"):
            module = modules.mlp()

        result = totals(module)

        assert result["parameters"] == 58
        assert result["weight_bytes"] == 232
        assert torch_module.module_digest(module).startswith("sha256:")

    def test_views_of_one_storage_all_count(self) -> None:
        """Parameters that lie beside each other in one storage are different weights."""
        flat = torch.zeros(12)
        module = torch.nn.ParameterList([flat[:4], flat[4:]])

        assert totals(module)["parameters"] == 12
        assert totals(module)["weight_bytes"] == 48

    def test_expanded_tensors_take_what_they_take(self) -> None:
        """An expanded buffer takes the bytes of its storage."""
        module = torch.nn.Module()
        module.register_buffer("wide", torch.zeros(1, 4).expand(100, 4))

        assert totals(module)["weight_bytes"] == 16

    def test_packed_weights_are_seen(self) -> None:
        """Weights that torch's own dynamic quantisation packs are counted as they are stored."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            quantised = torch.ao.quantization.quantize_dynamic(  # type: ignore[no-untyped-call]
                torch.nn.Sequential(torch.nn.Linear(64, 64))
            )

        result = torch_weights.list_weights(quantised)

        assert [(w.name, w.dtype, w.bytes) for w in result] == [
            ("0.weight", "qint8", 4096),
            ("0.bias", "float32", 256),
        ]

    def test_sparse_weights_take_values_and_indices(self) -> None:
        """A sparse buffer takes its values and its indices, not its full shape."""
        module = torch.nn.Module()
        module.register_buffer("sparse", torch.eye(100).to_sparse())

        assert totals(module)["weight_bytes"] == 100 * 4 + 2 * 100 * 8
        assert torch_module.module_digest(module).startswith("sha256:")

    def test_lazy_parameters_are_no_obstacle(self) -> None:
        """A lazy layer has weights of size 0 and a digest."""
        module = torch.nn.LazyLinear(3)

        assert totals(module)["parameters"] == 0
        assert torch_module.module_digest(module).startswith("sha256:")
