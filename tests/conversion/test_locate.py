"""The first layer at which a converted model leaves its source."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from modeldyno.base import plugins
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.conversion import locate as located
from modeldyno.conversion.agreement.rule import AgreementRule
from modeldyno.conversion.graph_values import inner_graph
from modeldyno.conversion.locate import farthest_call, locate
from modeldyno.conversion.recipe import compare_model
from modeldyno.conversion.reference import conversion_source, run_reference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from modeldyno.conversion.agreement.agreement import FirstDifference
    from modeldyno.models.interface import Model

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore")  # exporters warn of each other's old names


class Network(torch.nn.Module):  # type: ignore[misc,name-defined]
    """Two layers with code between them, in a layer of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Dropout(0.1), torch.nn.Linear(8, 8))
        self.head, self.act = torch.nn.Linear(8, 3), torch.relu

    def forward(self, x: Any) -> Any:
        """Return scores."""
        return self.head(self.act(self.body(x)))


def scaled(layer: Any) -> None:
    with torch.no_grad():
        layer.weight.mul_(1.01)


@pytest.fixture
def offered() -> Iterator[Callable[..., Model]]:
    """Return a function that offers a network with a change as a model."""
    objects, refs = plugins.objects(), []

    def offer(change: Callable[[Any], Any] = lambda _network: None) -> Model:
        torch.manual_seed(0)
        network = Network().eval()
        change(network)
        refs.append(objects.offer(network, name="net", example=torch.randn(2, 6)))
        return plugins.loader(refs[-1].scheme).load(refs[-1], seed=0, trust=False)

    yield offer
    for ref in refs:
        objects.withdraw(ref)


def first_of(source: Model, broken: Model, recipe: str, folder: Path) -> FirstDifference:
    """Convert what is broken, and compare it with the source."""
    reference = run_reference(source, "torch", (), 0, folder)
    converter = plugins.converter(recipe)
    rule = AgreementRule(lossy=converter.lossy)
    plugins.require(converter.sources["torch"], recipe)
    path = folder / converter.file
    converter.convert(replace(conversion_source(source, reference, folder), model=broken), path, opset=None)
    made = plugins.loader(converter.loader).load(
        ModelRef(scheme=converter.loader, locator=str(path)), seed=0, trust=True
    )
    tallies, _ = compare_model(made, converter.backend, reference, folder, rule)
    call = farthest_call(tallies, reference)
    return locate(lambda: (source, "torch"), made, converter.backend, call, folder, rule)


@pytest.mark.parametrize("recipe", ["exported", pytest.param("onnx", marks=pytest.mark.slow)])
def test_a_layer_with_other_weights_is_named(
    recipe: str, offered: Callable[..., Model], tmp_path: Path
) -> None:
    """By its path in the source."""
    if recipe == "onnx":
        pytest.importorskip("onnxscript")
    difference = first_of(offered(), offered(lambda network: scaled(network.body[2])), recipe, tmp_path)

    assert difference.place == "at body.2"
    assert difference.inputs_agree
    assert difference.sentence.startswith("first differs at body.2 (Linear): off by ")
    assert not list(tmp_path.glob(".*"))


def outlying(layer: Any) -> None:
    with torch.no_grad():
        layer.weight[0, 0] = 3000


def test_a_layer_that_quantising_ruined_is_named(offered: Callable[..., Model], tmp_path: Path) -> None:
    """One weight is so large that int8 leaves no steps for the others."""
    pytest.importorskip("onnxscript")
    source = offered(lambda network: outlying(network.body[2]))

    assert first_of(source, source, "onnx-int8", tmp_path).place == "at body.2"


def test_code_between_layers_is_named_by_the_layer_after_it(
    offered: Callable[..., Model], tmp_path: Path
) -> None:
    """Here an activation."""
    broken = offered(lambda network: setattr(network, "act", torch.tanh))

    assert first_of(offered(), broken, "exported", tmp_path).place == "before head"


def test_what_is_held_at_once_is_bounded(
    offered: Callable[..., Model], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More calls see the same place."""
    monkeypatch.setattr(located, "MOST_VALUES", 100)
    broken = offered(lambda network: scaled(network.head))

    assert first_of(offered(), broken, "exported", tmp_path).place == "at head"


def test_a_form_without_layers_says_so(offered: Callable[..., Model], tmp_path: Path) -> None:
    """TorchScript runs without Python, which could watch it."""
    difference = first_of(offered(), offered(lambda network: scaled(network.head)), "torchscript", tmp_path)

    assert difference.place == ""
    assert difference.sentence == "where it first differs is not known: this form shows no layers"
    assert inner_graph(offered(), "torch") is None


def test_a_source_that_cannot_be_followed_says_so(offered: Callable[..., Model], tmp_path: Path) -> None:
    """Neither of a kind without layers nor when loading it fails."""
    source = offered()
    plain = replace(source, value=None, form="python")
    reference = run_reference(source, "torch", (), 0, tmp_path)
    path = tmp_path / "model.pt2"
    plugins.converter("exported").convert(conversion_source(source, reference, tmp_path), path, opset=None)
    made = plugins.loader("exported").load(ModelRef(scheme="exported", locator=str(path)), seed=0, trust=True)

    def failing() -> tuple[Model, str]:
        raise RuntimeError("it is gone")

    for load, why in ((lambda: (plain, "python"), "the source shows no layers"), (failing, "it is gone")):
        difference = locate(load, made, "torch", reference.calls[0], tmp_path, AgreementRule())
        assert difference.sentence.startswith("where it first differs is not known: ")
        assert why in difference.sentence
