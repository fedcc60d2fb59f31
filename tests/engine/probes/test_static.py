"""The probe ``static`` on a live module: its numbers, those of its parts, and those at other sizes."""

from __future__ import annotations

from collections import UserDict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn

from modeldyno.base.errors import RequestError
from modeldyno.base.job.devices import DEVICES
from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.job.knob import configure
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.base.job.static_options import Mode, StaticOptions
from modeldyno.base.metrics.measurement import Measurement
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.result.static_data import StaticReport
from modeldyno.engine.backends.torch import backend as torch_backend
from modeldyno.engine.environment import peaks
from modeldyno.engine.interfaces.probe import ProbeContext
from modeldyno.engine.probes import static
from modeldyno.models.loaders import live_object as live
from modeldyno.models.loaders import torch as torch_loader
from modeldyno.testing.fakes import a_model
from modeldyno.testing.probes import ProbeSuite

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from modeldyno.base.metrics.doubt import Doubt
    from modeldyno.models.interface import Model


class Net(nn.Module):
    """A convolution, attention over its pixels, and two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.block = nn.ModuleDict({"query": nn.Linear(8, 8), "key": nn.Linear(8, 8)})
        self.head = nn.Sequential(nn.ReLU(), nn.Linear(8, 5))

    def forward(self, pixels: Tensor) -> Tensor:
        """Compute."""
        x = self.stem(pixels).flatten(2).mT
        scores = self.block["query"](x) @ self.block["key"](x).mT
        y: Tensor = self.head((scores.softmax(-1) @ x).mean(1))
        return y


STEM, LINEAR, PRODUCT, HEAD = 36 * 8 * 27, 36 * 8 * 8, 36 * 36 * 8, 8 * 5
ONE = STEM + 2 * LINEAR + 2 * PRODUCT + HEAD


@pytest.fixture
def model() -> Iterator[Model]:
    """Give a live module with an example of two images."""
    ref = live.offer(Net(), example=torch.zeros(2, 3, 6, 6))
    yield live.look(ref, seed=0, trust=False)
    live.withdraw(ref)


class TestLive(ProbeSuite):
    name = "static"

    @pytest.fixture
    def subject(self, model: Model) -> ProbeContext:
        """Look at a live module."""
        inspection = StaticOptions(modules=True, devices=("a100",), vary={"batch": (1, 4)}, memory=10**6)
        return ProbeContext(model=model, inspection=inspection)


def measured(
    model: Model, inspection: StaticOptions, inputs: tuple[InputSpec, ...] = (), batch_size: int | None = None
) -> tuple[dict[tuple[str, str], float], StaticReport, list[Doubt]]:
    """Give the numbers by metric and scope, the outline, and the doubts."""
    numbers: dict[tuple[str, str], float] = {}
    outlines: list[StaticReport] = []
    doubts: list[Doubt] = []
    subject = ProbeContext(model=model, inspection=inspection, inputs=inputs, batch_size=batch_size)
    for item in static.measure(subject, Plan()):
        match item:
            case Measurement():
                assert isinstance(item.value, int | float)
                numbers[item.metric, item.scope] = item.value
            case StaticReport():
                outlines.append(item)
            case _:
                doubts.append(item)
    (outline,) = outlines
    return numbers, outline, doubts


def test_the_whole_has_its_numbers(model: Model) -> None:
    """Weights, work, traffic and memory of a call at the sizes that were asked for, without a doubt."""
    numbers, outline, doubts = measured(model, StaticOptions(), batch_size=3)

    assert numbers["macs", ""] == 3 * ONE
    assert numbers["coverage", ""] == 1.0
    assert numbers["flops", ""] == 2 * numbers["macs", ""] + numbers["elementwise", ""]
    assert numbers["parameters", ""] == 8 * 27 + 8 + 2 * 72 + 45
    assert numbers["weight_bytes", ""] == 4 * numbers["parameters", ""]
    assert numbers["input_bytes", ""] == 3 * 3 * 36 * 4
    assert numbers["output_bytes", ""] == 3 * 5 * 4
    assert numbers["memory_peak", ""] >= numbers["activation_peak", ""] > 3 * 36 * 36 * 4
    assert numbers["memory_peak", ""] > numbers["weight_bytes", ""]
    assert {"bytes_read", "bytes_written", "arithmetic_intensity"} <= {metric for metric, _ in numbers}
    assert outline.sizes == {"batch": 3}
    assert [m.kind for m in outline.modules][:2] == ["Net", "Conv2d"]
    assert {o.kind for o in outline.operators} >= {"aten.convolution", "aten.bmm"}
    assert all(o.counted for o in outline.operators)
    assert (outline.points, doubts) == ((), [])


def test_modules_have_their_numbers_if_they_are_asked_for(model: Model) -> None:
    """Each module has its work and weights, which add up to the whole; without asking there are none."""
    numbers, _, _ = measured(model, StaticOptions(modules=True), batch_size=2)
    macs = {scope: value for (metric, scope), value in numbers.items() if metric == "macs"}

    assert macs["stem"] == 2 * STEM
    assert macs["block.query"] == macs["block.key"] == 2 * LINEAR
    assert macs["block"] == 4 * LINEAR
    assert macs["head"] == macs["head.1"] == 2 * HEAD
    assert macs[""] - macs["stem"] - macs["block"] - macs["head"] == 4 * PRODUCT
    assert numbers["parameters", "head.1"] == 45
    assert not [s for _, s in measured(model, StaticOptions())[0] if s in {"stem", "block", "head"}]


@pytest.mark.parametrize("mode", list(Mode))
def test_a_grid_is_what_its_points_are(model: Model, mode: Mode) -> None:
    """Numbers at other sizes, by polynomials, are those of a look at each size."""
    sizes = (1, 2, 3, 7, 64, 1000)
    _, outline, _ = measured(
        model, StaticOptions(vary={"batch": sizes}, mode=mode, optimizer="sgd", devices=("a100",))
    )

    assert not outline.traced
    assert "batch" in outline.formulas["macs"]
    assert [point.sizes for point in outline.points] == [{"batch": size} for size in sizes]
    for point in outline.points:
        alone, _, _ = measured(
            model,
            StaticOptions(mode=mode, optimizer="sgd", devices=("a100",)),
            batch_size=point.sizes["batch"],
        )
        for name, value in point.values.items():
            metric, _, device = name.partition("@")
            assert value == pytest.approx(alone[metric, device], rel=1e-9), name


def test_more_than_the_model_takes_is_doubted(model: Model) -> None:
    """A size beyond a limit is answered, and told as such; the limit itself is no doubt."""
    limited = replace(model, limits={"batch": 3})

    for largest, expected in ((3, []), (4, ["beyond-limit"])):
        inspection = StaticOptions(vary={"batch": (1, largest)})
        assert [doubt.code for doubt in measured(limited, inspection)[2]] == expected
    (doubt,) = measured(limited, StaticOptions(), batch_size=5)[2]
    assert doubt.seen == "batch is up to 5, but the model declares a maximum of 3"


@pytest.mark.parametrize("busy", [False, True])
def test_peaks_that_were_measured_beside_other_work_are_doubted(
    model: Model, monkeypatch: pytest.MonkeyPatch, busy: bool
) -> None:
    """A bound that rests on them may be too high, and says so."""
    monkeypatch.setattr(
        peaks, "local_device", lambda _dtype: replace(DEVICES["a100"], name="here", busy=busy)
    )
    numbers, _, doubts = measured(model, StaticOptions(devices=("here",)))

    assert numbers["roofline_latency", "here"] > 0
    assert [doubt.code for doubt in doubts] == (["busy-peaks"] if busy else [])


def test_a_dimension_that_no_input_has_is_refused(model: Model) -> None:
    """A size is asked for of dimensions that there are."""
    with pytest.raises(RequestError, match="no dimension 'seq'"):
        measured(model, StaticOptions(vary={"seq": (1, 2)}))


def test_training_has_phases(model: Model) -> None:
    """A training step has its work by phase, its gradients and its optimiser's state."""
    numbers, _, _ = measured(model, StaticOptions(mode=Mode.TRAIN), batch_size=2)
    forward, backward, update = (
        numbers["macs", f"phase {phase}"] for phase in ("forward", "backward", "update")
    )

    assert forward == 2 * ONE
    assert backward == 2 * (2 * ONE - STEM)  # no gradient goes to the pixels
    assert update == 0
    assert numbers["macs", ""] == forward + backward
    assert numbers["gradient_bytes", ""] == numbers["weight_bytes", ""]
    assert numbers["optimizer_bytes", ""] == 2 * numbers["weight_bytes", ""] + 8 * 4


def test_devices_give_estimates(model: Model) -> None:
    """Each device that is asked for has its peaks and two bounds; one after the other takes longer."""
    numbers, _, _ = measured(model, StaticOptions(devices=("a100", "h100")), batch_size=2)

    for device in ("a100", "h100"):
        assert 0 < numbers["roofline_latency", device] <= numbers["eager_latency", device] < 1
        assert numbers["peak_flops", device] > 1e12
        assert numbers["peak_bandwidth", device] > 1e11
    assert not [m for m, s in measured(model, StaticOptions())[0] if m.endswith("_latency")]


def test_memory_gives_the_largest_batch(model: Model) -> None:
    """The batch that is found fits the memory, and the next one does not."""
    memory = 50 * 10**6
    numbers, _, _ = measured(model, StaticOptions(memory=memory))
    largest = int(numbers["largest_batch", ""])

    fits, more = (
        measured(model, StaticOptions(), batch_size=size)[0]["memory_peak", ""]
        for size in (largest, largest + 1)
    )
    assert fits <= memory < more


def test_sizes_may_be_given_with_the_inputs(model: Model) -> None:
    """An input whose shape is given has it, whatever the example was."""
    numbers, outline, _ = measured(
        model, StaticOptions(), inputs=(InputSpec(name="pixels", shape=(5, 3, 6, 6), dtype="float32"),)
    )
    assert numbers["macs", ""] == 5 * ONE
    assert outline.sizes == {"batch": 5}


def test_a_wrong_shape_is_refused(model: Model) -> None:
    """A shape that the module cannot take is refused with the module and the shape."""
    wrong = (InputSpec(name="pixels", shape=(5, 4, 6, 6), dtype="float32"),)
    with pytest.raises(RequestError, match=r"pixels"):
        measured(model, StaticOptions(), inputs=wrong)


def test_a_model_without_a_graph_has_its_weights_only() -> None:
    """Where no graph is known there is no work to tell, and no outline."""
    yielded = list(
        static.measure(ProbeContext(model=a_model(), inspection=StaticOptions(modules=True)), Plan())
    )

    assert all(isinstance(each, Measurement) for each in yielded)
    assert {m.metric for m in yielded if isinstance(m, Measurement)} >= {"parameters", "weight_bytes"}
    assert not {m.metric for m in yielded if isinstance(m, Measurement)} & {"macs", "flops"}


COUNTING = """
import torch
from torch import nn

class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, x, group):
        groups = int(group.max()) + 1
        return self.layer(torch.zeros(groups, 8).index_add_(0, group, x))

def make():
    return Counting(), (torch.randn(30, 8), {example})
"""


@pytest.mark.parametrize(
    "example",
    [
        "torch.arange(30) // 3",
        "torch.full((30,), 9)",
        "torch.ones(30, dtype=torch.int64) * 9",
        "torch.cat([torch.randint(0, 9, (29,)), torch.tensor([9])])",
        "torch.randn(30, 30).argsort()[:, 0].clamp(9, 9)",
    ],
)
def test_whole_numbers_of_an_example_are_those_that_steer(tmp_path: Path, example: str) -> None:
    """However a factory makes the whole numbers of its example, the analysis has them, as a run has."""
    file = tmp_path / "counting.py"
    file.write_text(COUNTING.replace("{example}", example), encoding="utf-8")
    model = torch_loader.look(ModelRef(scheme="torch", locator=f"{file}:make"), seed=0, trust=False)

    assert measured(model, StaticOptions())[0]["macs", ""] == 10 * 8 * 4


class Padded(nn.Module):
    """A recurrent layer over packed sequences."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.GRU(8, 16, batch_first=True)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Pack, compute, and pad again."""
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        y: Tensor = nn.utils.rnn.pad_packed_sequence(self.layer(packed)[0], batch_first=True)[0]
        return y


def test_packed_sequences_cost_what_their_lengths_say() -> None:
    """A recurrent layer over packed sequences has the MACs of the steps that there are, and no more."""
    ref = live.offer(Padded(), example=(torch.zeros(3, 10, 8), torch.tensor([2, 10, 5])))
    numbers, outline, _ = measured(live.look(ref, seed=0, trust=False), StaticOptions())
    live.withdraw(ref)

    assert numbers["macs", ""] == (2 + 10 + 5) * 3 * 16 * (8 + 16)
    assert numbers["output_bytes", ""] == 3 * 10 * 16 * 4
    assert not outline.assumptions


@pytest.mark.parametrize("length", [0, 11])
def test_lengths_that_no_sequence_has_are_refused(length: int) -> None:
    """A length that torch refuses is refused by the analysis, with those that there may be."""
    ref = live.offer(Padded(), example=(torch.zeros(3, 10, 8), torch.tensor([2, length, 5])))
    with pytest.raises(RequestError, match=f"length of {length}; lengths are 1 to 10, such as `inputs="):
        measured(live.look(ref, seed=0, trust=False), StaticOptions())
    live.withdraw(ref)


@pytest.mark.parametrize(
    ("layers", "shape"),
    [
        ((nn.Conv2d(3, 4, 3, stride=2), nn.Flatten(), nn.Linear(4 * 15 * 15, 2)), "batchx3x32x32"),
        ((nn.Conv1d(2, 4, 3), nn.ReLU()), "batchx2x16000"),
        ((nn.Linear(7, 3),), "batchx7"),
        ((nn.Embedding(50, 8), nn.Linear(8, 2)), "batchx128:int64:0..49"),
        ((nn.Unflatten(1, (2, 4)), nn.LSTM(4, 2)), "batchx8"),
        ((nn.BatchNorm1d(5),), "batchx3x224x224"),
    ],
)
def test_the_hint_names_a_shape_that_the_model_takes(layers: tuple[nn.Module, ...], shape: str) -> None:
    """Where the shape of an input is unknown, the one that is proposed was tried by analysis."""
    ref = live.offer(nn.Sequential(*layers))
    tried = "" if shape == "batchx3x224x224" else ", which it accepts"
    with pytest.raises(RequestError, match=f"such as `inputs=input={shape}`{tried}, or a file of data"):
        measured(live.look(ref, seed=0, trust=False), StaticOptions())
    live.withdraw(ref)


def test_modules_tell_the_shapes_that_they_give(model: Model) -> None:
    """Each module tells what its call gave, views included, and a convolution its kernel."""
    _, outline, _ = measured(model, StaticOptions(), batch_size=3)
    shapes = {module.path: (module.output, module.kernel) for module in outline.modules}

    assert shapes[""] == shapes["head"] == shapes["head.1"] == ("3x5 float32", "")
    assert shapes["stem"] == ("3x8x6x6 float32", "3x3")
    assert shapes["block.query"] == ("3x36x8 float32", "")


class Nested(nn.Module):
    """Takes a tuple and a dict with a list in it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, rows: tuple[Tensor, Tensor], more: dict[str, Any]) -> Tensor:
        """Compute as many rows of the list as the mask says."""
        assert type(rows) is tuple
        assert type(more["list"]) is list
        some = self.layer(more["list"][0][: int(more["mask"].sum())])
        y: Tensor = self.layer(torch.cat(rows)).sum(0) + some.sum(0) * more["scale"]
        return y


def test_lists_and_dicts_are_inputs() -> None:
    """A list, tuple or dict of tensors goes into a module as it is, in an analysis and in a call."""
    rows = (torch.randn(2, 8), torch.randn(3, 8))
    more = UserDict({"list": [torch.randn(9, 8)], "mask": torch.ones(5, dtype=torch.int64), "scale": 2.0})
    module = Nested().eval()
    ref = live.offer(module, example=(rows, more))
    model = live.load(ref, seed=0, trust=False)
    numbers, _, _ = measured(model, StaticOptions())

    assert numbers["macs", ""] == (2 + 3 + 5) * 8 * 4
    assert model.example is not None
    with torch_backend.open(model, configure(torch_backend.knobs, {})) as session:
        output = session.arrays(session.prepare(model.example)())["output"]
    assert output.tolist() == pytest.approx(module(rows, more).tolist(), rel=1e-5)
    live.withdraw(ref)
    ref = live.offer(module, example=(rows, {"list": object()}))
    with pytest.raises(RequestError, match=r"within it, .*is object, neither a tensor nor a list"):
        live.load(ref, seed=0, trust=False)
    live.withdraw(ref)
