# ruff: noqa: D102 - the signatures are those that a user of deeplite-profiler writes
"""Complexity and time of a torch module as metrics."""

from __future__ import annotations

from copy import copy, deepcopy
from typing import TYPE_CHECKING, Any

import pytest

torch = pytest.importorskip("torch")

from modeldyno.base.errors import RunFailed
from modeldyno.compat.deeplite.cost_functions import ComputeComplexity, ComputeExecutionTime
from modeldyno.compat.deeplite.device_name import Device
from modeldyno.compat.deeplite.forward_pass import ForwardPass
from modeldyno.compat.deeplite.framework_profilers import TorchProfiler

if TYPE_CHECKING:
    from pathlib import Path


def complexity(
    model: Any, splits: Any, function: ComputeComplexity | None = None, **more: Any
) -> dict[str, Any]:
    profiler = TorchProfiler(model, splits)
    profiler.register_profiler_function(function or ComputeComplexity())
    profiler.compute_status("flops", **more)
    return profiler.status_to_dict()


def test_complexity_is_as_derived_by_hand() -> None:
    """A frozen layer counts, at any batch size, and the footprint is weights, inputs and activations."""
    model = torch.nn.Sequential(torch.nn.Linear(30, 30, bias=False), torch.nn.ReLU())
    model.requires_grad_(requires_grad=False)
    profiler = TorchProfiler(model, {"train": [(torch.zeros(4, 30), torch.zeros(4))]})
    profiler.register_profiler_function(ComputeComplexity())
    status = profiler.compute_network_status(batch_size=1, include_weights=True, device=Device.CPU)

    assert (status["flops"], status["total_params"], status["model_size"]) == (900, 900, 3600)
    assert status["memory_footprint"] == 3600 + 3 * 120  # weights, input, both outputs
    assert profiler.compute_status("memory_footprint", include_weights=False) == 360
    assert profiler.compute_status("flops", batch_size=8) == 900  # per sample
    assert model.training


def test_each_parameter_counts_in_its_own_data_type() -> None:
    """Unless the bytes of an element are given; buffers are in the footprint, but not in the size."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)).half()
    splits = {"train": [(torch.zeros(2, 4).half(), torch.zeros(2))]}
    status = complexity(model, splits)
    wider = complexity(model, splits, ComputeComplexity(num_bytes=4))

    assert (status["total_params"], status["model_size"], wider["model_size"]) == (28, 56, 112)
    buffers = status["layerwise_data"]["1"].buffer_bytes
    assert buffers == 2 * 4 * 2 + 8  # means and variances, and a counter
    without = complexity(model, splits, include_weights=False)
    assert status["memory_footprint"] - without["memory_footprint"] == 56 + buffers


def test_layers_are_listed_as_text_data_csv_and_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the whole model first; files are written only if export asks for them."""
    monkeypatch.chdir(tmp_path)
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.Sequential(torch.nn.ReLU()))
    splits = {"train": [(torch.zeros(1, 1, 5, 5), torch.zeros(1))]}
    table = complexity(model, splits)["layerwise_data"]
    assert list(tmp_path.iterdir()) == []
    summary = complexity(model, splits, ComputeComplexity(export=True))["layerwise_summary"]

    assert [row.path for row in table.rows] == ["", "0", "1", "1.0"]
    assert (table["0"].macs, table["0"].parameters, table["0"].output) == (162, 20, "1x2x3x3 float32")
    assert "Conv2d" in summary
    assert "1x2x3x3 float32" in summary
    assert (
        (tmp_path / "layerwise_data.csv")
        .read_text()
        .splitlines()[2]
        .startswith("0,Conv2d,1x2x3x3 float32,20")
    )
    picture = (tmp_path / "layerwise_data.svg").read_text()
    assert picture.count("<rect") == 2  # the layers without layers inside
    assert "72 B" in picture


class Ternary(torch.nn.Module):  # type: ignore[misc,name-defined]
    """A layer whose weights take two bits, which no data type of torch does."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(8, 8))
        self.inside = torch.nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        return self.inside(x @ self.weight)

    def compute_module_complexity(self, inputs: Any, output: Any) -> dict[str, Any]:
        return {
            "flops": inputs[0].shape[0] * 16,
            "param_size": {"weight": 2 / 8, "inside.weight": 2 / 8},
            "activation_size": 1,
        }


def test_a_module_may_declare_what_it_costs() -> None:
    """Bytes of an element, in place of what is counted, in its row and in those around it.

    What it does not name counts as ever, as other layers do.
    """
    model = torch.nn.Sequential(torch.nn.Sequential(Ternary()), torch.nn.Linear(8, 8, bias=False))
    status = complexity(model, {"train": [(torch.zeros(2, 8), torch.zeros(2))]}, batch_size=2)
    table = status["layerwise_data"]

    assert status["flops"] == 16 + 64  # per sample, as times are
    assert status["model_size"] == 16 + 16 + 8 * 4 + 256
    assert [row.path for row in table.rows] == ["", "0", "0.0", "1"]
    assert (table["0"].macs, table["0.0"].macs, table["0.0"].parameter_bytes) == (16, 16, 64)
    assert table["0.0"].written_bytes == 16
    assert model.training


def test_what_a_module_does_not_declare_is_in_its_data_types() -> None:
    """Only `flops` is needed."""

    class Own(torch.nn.Linear):  # type: ignore[misc,name-defined]
        def compute_module_complexity(self, inputs: Any, output: Any) -> dict[str, Any]:
            return {"flops": 42}

    status = complexity(torch.nn.Sequential(Own(8, 4)), {"train": [(torch.zeros(2, 8), torch.zeros(2))]})
    assert (status["flops"], status["model_size"]) == (42, 36 * 4)
    assert status["layerwise_data"]["0"].written_bytes == 4 * 4


def test_kernels_that_torch_has_no_shapes_for_count_as_declared() -> None:
    """A layer that is called twice does its work twice, and has its parameters once; it runs as before."""

    @torch.library.custom_op("modeldyno_test::product", mutates_args=())  # type: ignore[untyped-decorator]
    def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:  # type: ignore[name-defined]
        return x @ w.float()

    class Quantised(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("packed", torch.ones(8, 8, dtype=torch.int8))

        def forward(self, x: Any) -> Any:
            return product(x, self.packed)

        def compute_module_complexity(self, inputs: Any, output: Any) -> dict[str, Any]:
            return {"flops": 64, "param_size": {"packed": 1}, "activation_size": 4}

    layer = Quantised()
    model = torch.nn.Sequential(layer, torch.nn.Linear(8, 8, bias=False), layer)
    status = complexity(model, {"train": [(torch.zeros(2, 8), torch.zeros(2))]})

    assert (status["flops"], status["model_size"]) == (64 + 64 + 64, 64 + 256)
    assert status["memory_footprint"] == 64 + 256 + 32 + 2 * 32  # weights, the input, two activations
    assert torch.equal(layer(torch.ones(1, 8)), torch.full((1, 8), 8.0))
    assert "forward" not in vars(layer)


def test_what_could_not_be_counted_is_warned_of() -> None:
    """The MACs are then too few."""

    @torch.library.custom_op("modeldyno_test::mixed", mutates_args=())  # type: ignore[untyped-decorator]
    def mixed(x: torch.Tensor) -> torch.Tensor:  # type: ignore[name-defined]
        return x.clone()

    mixed.register_fake(torch.empty_like)

    class Mixed(torch.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any) -> Any:
            return mixed(x)

    with pytest.warns(UserWarning, match="Complexity: .*modeldyno_test.mixed"):
        complexity(Mixed(), {"train": [(torch.zeros(1, 8), torch.zeros(1))]})


def test_each_split_has_its_own_forward_pass() -> None:
    """So that random inputs are like the split's."""
    splits = TorchProfiler.enable_forward_pass_data_splits(
        {"train": [(torch.zeros(1, 8), 1)], "test": [(torch.zeros(1, 5), 1)]}, ForwardPass((0, "_"))
    )
    assert [loader.random_inputs(2)[0].shape for loader in splits.values()] == [(2, 8), (2, 5)]
    alone = ForwardPass((0, "_"))
    named = TorchProfiler.enable_forward_pass_data_splits({"train": []}, {"train": alone})
    assert named["train"].forward_pass is alone


def test_products_count_as_derived_by_hand() -> None:
    """Of a transposed convolution each input with each of its weights, of fused attention both products."""

    class Attention(torch.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any) -> Any:
            return torch.nn.functional.scaled_dot_product_attention(x, x, x)

    transposed = torch.nn.ConvTranspose2d(2, 3, 3, bias=False)
    cases = ((transposed, (1, 2, 4, 4), 16 * 2 * 3 * 9), (Attention(), (1, 1, 4, 8), 2 * 4 * 4 * 8))
    for model, shape, macs in cases:
        assert complexity(model, {"train": [(torch.zeros(shape), torch.zeros(1))]})["flops"] == macs


def test_a_declaration_that_lacks_something_is_refused() -> None:
    """With the layer's name, as the failure of the metric."""

    class Wrong(Ternary):
        def compute_module_complexity(self, inputs: Any, output: Any) -> dict[str, Any]:
            return {"param_size": {"weight": 1}}

    profiler = TorchProfiler(torch.nn.Sequential(Wrong()), {"train": [(torch.zeros(2, 8), torch.zeros(2))]})
    profiler.register_profiler_function(ComputeComplexity())
    with pytest.raises(TypeError, match="of Wrong at '0' must return a dict of flops and"):
        profiler.compute_status("flops")


def test_a_declaration_of_a_parameter_that_is_none_is_refused() -> None:
    """With those that there are."""

    class Wrong(Ternary):
        def compute_module_complexity(self, inputs: Any, output: Any) -> dict[str, Any]:
            return {"flops": 1, "param_size": {"wieght": 1}, "activation_size": 1}

    profiler = TorchProfiler(torch.nn.Sequential(Wrong()), {"train": [(torch.zeros(2, 8), torch.zeros(2))]})
    profiler.register_profiler_function(ComputeComplexity())
    with pytest.raises(
        TypeError, match="at '0' names 'wieght' in param_size, but its parameters and buffers are weight"
    ):
        profiler.compute_status("flops")


@pytest.mark.filterwarnings("ignore")  # torch moves these layers to torchao, and warns in several ways
def test_layers_that_torch_quantises_count() -> None:
    """Weights of eight bits take a byte each, though they are no parameters of torch."""
    model = torch.ao.quantization.quantize_dynamic(torch.nn.Sequential(torch.nn.Linear(8, 8)))
    status = complexity(model, {"train": [(torch.zeros(2, 8), torch.zeros(2))]})

    assert (status["flops"], status["total_params"], status["model_size"]) == (64, 72, 64 + 4 * 8)


class Pair(torch.nn.Module):  # type: ignore[misc,name-defined]
    """Takes its inputs by name, or nested."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 4, bias=False)

    def forward(self, x: Any = None, rest: Any = None) -> Any:
        if isinstance(x, list):  # as detectors take images
            x, rest = x[0]["x"], x[1]["x"]
        return self.first(x) + sum(rest.values()) if isinstance(rest, dict) else self.first(x) + rest


class Detector(torch.nn.Module):  # type: ignore[misc,name-defined]
    """Takes a list of dicts, one of each image."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 2, 3, bias=False)

    def forward(self, images: Any) -> Any:
        return [self.conv(each["image"][None]) for each in images]


def test_a_list_of_dicts_with_images_is_the_batch() -> None:
    """The images keep their axes, and costs are of one of them."""
    batch = ([{"image": torch.zeros(3, 8, 8)}, {"image": torch.zeros(3, 8, 8)}], torch.zeros(2))

    assert complexity(Detector(), {"train": [batch]})["flops"] == 2 * 3 * 9 * 36


class ByName(ForwardPass):
    """A batch is what the model takes, as in the tests of deeplite-profiler."""

    def extract_model_inputs(self, batch: Any) -> Any:
        return batch

    def model_call(self, model: Any, x: Any, device: Any = "cpu") -> Any:
        return model(**x)

    def create_random_model_inputs(self, batch_size: int) -> Any:
        return {"x": torch.rand(batch_size, 4), "rest": torch.rand(batch_size, 4)}


@pytest.mark.parametrize(
    ("batch", "forward_pass"),
    [
        (({"x": torch.zeros(2, 4), "rest": torch.zeros(2, 4)}, torch.zeros(2)), None),
        ({"x": torch.zeros(2, 4), "rest": torch.zeros(2, 4), "labels": torch.zeros(2)}, None),
        (([{"x": torch.zeros(2, 4)}, {"x": torch.zeros(2, 4)}], torch.zeros(2)), None),
        ((torch.zeros(2, 4), {"a": torch.zeros(2, 4)}, torch.zeros(2)), ForwardPass((0, 1, "_"))),
        ({"x": torch.zeros(2, 4), "rest": torch.zeros(2, 4)}, ByName(None, expecting_common_inputs=False)),
    ],
)
def test_inputs_by_name_and_nested_inputs_are_called_as_the_model_wants(
    batch: Any, forward_pass: ForwardPass | None
) -> None:
    """Paths of layers are those of the model in each case."""
    splits = {"train": [batch]}
    if forward_pass:
        splits = TorchProfiler.enable_forward_pass_data_splits(splits, forward_pass)  # type: ignore[assignment]
    status = complexity(Pair(), splits, batch_size=3)

    assert (status["flops"], [row.path for row in status["layerwise_data"].rows]) == (16, ["", "first"])


def test_time_is_measured_and_models_compare() -> None:
    """In milliseconds of a sample, with its interval; the model keeps its mode."""
    model = torch.nn.Linear(8, 8)
    profiler = TorchProfiler(model, {"test": [(torch.zeros(4, 8), torch.zeros(4))]}, name="a")
    profiler.register_profiler_function(ComputeExecutionTime(max_time=0.3))
    compared = profiler.compare(profiler.clone(model=deepcopy(model)), batch_size=2, device="cpu")

    time = compared["execution_time"].x
    assert time.low <= time <= time.high
    assert 0 < time < 1000
    assert copy(time).high == time.high
    assert model.training


def test_a_model_that_raises_says_so_and_is_left_as_it_was() -> None:
    """The reason stands in the message."""
    model = torch.nn.Linear(8, 8)
    profiler = TorchProfiler(model, {"test": [(torch.zeros(4, 9), torch.zeros(4))]})
    profiler.register_profiler_function(ComputeExecutionTime())
    with pytest.raises(RunFailed, match="shapes cannot be multiplied"):
        profiler.compute_status("execution_time")
    assert model.training


def test_a_split_that_is_not_there_is_refused() -> None:
    """With those that are."""
    with pytest.raises(ValueError, match="no split 'train'; known: none"):
        ComputeComplexity()(torch.nn.Identity(), {})
    with pytest.raises(ValueError, match="no split 'best'; known: test"):
        ComputeExecutionTime()(torch.nn.Identity(), {"test": []}, split="best")


@pytest.mark.parametrize(
    ("name", "text"),
    [("CPU", "cpu"), ("GPU", "cuda"), ("gpu:1", "cuda:1"), ("mps", "mps"), ("cuda:0", "cuda:0")],
)
def test_devices_are_named_as_there_and_as_in_torch(name: str, text: str) -> None:
    """The device is the text that torch knows."""
    assert Device(name) == text
    assert torch.device(Device(name)).type == text.partition(":")[0]


def test_other_devices_are_refused() -> None:
    """With those that are known."""
    assert (Device.CPU, Device.GPU, Device(Device.GPU)) == ("cpu", "cuda", "cuda")
    with pytest.raises(ValueError, match="no device 'unknown device'; use 'cpu', 'GPU'"):
        Device("unknown device")
