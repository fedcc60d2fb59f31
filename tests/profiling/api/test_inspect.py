from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import modeldyno
from modeldyno.base import plugins
from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.base.job.static_options import Mode
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.profiling.run import JudgedResult
from modeldyno.reports import terminal
from modeldyno.testing.sample_results import an_inspection

if TYPE_CHECKING:
    from modeldyno.profiling.request import Request

api_profile = import_module("modeldyno.profiling.api.profile")
STEADY = "call:modeldyno.testing.known_latency:steady"


class Lab:
    """Replaces the analysis of a model."""

    def __init__(self) -> None:
        """Start without requests."""
        self.requests: list[tuple[Request, bool]] = []

    def measure(self, request: Request, *, in_process: bool, watch: object, limit: object) -> JudgedResult:
        """Record the request."""
        del watch, limit
        self.requests.append((request, in_process))
        return JudgedResult(result=an_inspection())


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Lab:
    """Records requests instead of running them."""
    made = Lab()
    monkeypatch.setattr(api_profile, "run_request", made.measure)
    return made


def test_a_reference_is_looked_at_in_a_child(lab: Lab) -> None:
    """Every option of the command has its argument, and the Result answers for modules."""
    result = modeldyno.inspect(
        Path("m.onnx"),
        mode="train",
        optimizer="sgd",
        vary={"width": (1, 8), "seq": 128},
        devices=("A100", "a100"),
        device="here",
        memory="24GiB",
        batch_size=8,
        plan=Plan(seed=3),
        name="mine",
        inputs="x=8x4",
        trust=True,
    )
    ((request, in_process),) = lab.requests

    assert not in_process
    assert result["macs@encoder.layer.0"] == 235_438_080
    assert (request.model, request.name, request.inputs, request.trust) == (
        "m.onnx",
        "mine",
        ("x=8x4",),
        True,
    )
    assert (request.probes, request.settings, request.plan.seed) == (("static",), {"batch_size": 8}, 3)
    assert (request.inspection.mode, request.inspection.optimizer) == (Mode.TRAIN, "sgd")
    assert request.inspection.vary == {"width": (1, 8), "seq": (128,)}
    assert (request.inspection.devices, request.inspection.memory) == (("a100", "here"), 24 * 2**30)


@pytest.mark.parametrize(
    "vary", ["batch=1..4 seq=128", ["batch=1..4", "seq=128"], {"batch": "1..4", "seq": [128]}]
)
def test_sizes_are_given_in_any_way(lab: Lab, vary: Any) -> None:
    """Text as on the command line, several texts, or a mapping."""
    modeldyno.inspect(STEADY, vary=vary)

    assert lab.requests[0][0].inspection.vary == {"batch": (1, 2, 4), "seq": (128,)}


def test_a_live_object_is_looked_at_in_place(lab: Lab) -> None:
    """A live function is analysed in this process, and released afterwards."""
    modeldyno.inspect(len, name="mine", devices="here")
    ((request, in_process),) = lab.requests

    assert in_process
    assert str(request.model).startswith("object:mine-")
    assert (request.backend, request.settings) == ("python", {})
    assert request.inspection.devices == ("here",)
    with pytest.raises(RequestError, match="no live object"):
        plugins.loader("object").load(ModelRef.parse(str(request.model)), seed=0, trust=False)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"mode": "traning"}, "no mode 'traning'; did you mean 'train'"),
        ({"optimizer": "adamax"}, "no optimizer 'adamax'"),
        ({"memory": "much"}, "'much' is not a quantity"),
        ({"memory": -1}, "memory= takes an amount"),
        ({"vary": {"batch": (0,)}}, "vary= 'batch=0': '0' is not a size"),
        ({"optimizer": "sgd"}, "The optimizer sgd has no effect without mode='train'"),
        ({"inputs": [object()]}, "give arrays and tensors as example="),
    ],
)
def test_a_wrong_argument_is_refused(lab: Lab, arguments: dict[str, Any], says: str) -> None:
    """A wrong request gives one sentence; nothing is analysed."""
    with pytest.raises(RequestError) as caught:
        modeldyno.inspect(STEADY, **arguments)

    assert says in str(caught.value)
    assert isinstance(caught.value, UnknownName) == says.startswith("no ")
    assert lab.requests == []


def test_a_live_module_has_its_parameters_counted() -> None:
    """A torch module is analysed without being called or modified."""
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(4, 2).train()
    result = modeldyno.inspect(module, example=torch.zeros(3, 4))

    assert result["parameters"] == 10
    assert result.find("latency") is None
    assert result.doubts == ()
    assert module.training


def test_a_live_object_of_which_nothing_is_known_is_refused() -> None:
    """A function tells nothing before it is called, so there is nothing to look at."""
    with pytest.raises(RequestError, match="Nothing is known of the code 'len' before it runs"):
        modeldyno.inspect(len)


def test_a_module_without_inputs_is_told_how_python_gives_them() -> None:
    """The message names the missing argument, not a command-line option."""
    torch = pytest.importorskip("torch")
    with pytest.raises(RequestError) as caught:
        modeldyno.inspect(torch.nn.Bilinear(4, 4, 2))

    assert "such as inputs='input1=batchx3x224x224', or a file" in str(caught.value)
    assert "as example=" in str(caught.value)
    assert "--" not in str(caught.value)


def test_a_shape_that_is_given_is_told() -> None:
    """Where the model declares no shape, the costs, the inputs and what was analysed name the one given."""
    torch = pytest.importorskip("torch")
    result = modeldyno.inspect(torch.nn.Linear(4, 2), inputs="input=3x4")
    lines = terminal.render(result).splitlines()

    assert "costs 24 MACs" in " ".join(lines[:3])
    assert "Totals, at input=3x4" in lines
    assert "inputs    input 3x4 float32" in lines
    assert "analysed  inference at input=3x4, nothing was run" in lines
