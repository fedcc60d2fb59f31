"""An analysis leaves everything unchanged: the user's module, files, and the process around it."""

from __future__ import annotations

import builtins
import logging
import os
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("torch")

import torch
from tests.support.torch_allocator import recorded_peak
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune, spectral_norm, weight_norm
from torch.utils.checkpoint import checkpoint

import modeldyno
from modeldyno.base.errors import RequestError
from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.base.job.static_options import Mode
from modeldyno.models.flops.registry import formulas
from modeldyno.models.interface import Tracing
from modeldyno.models.loaders import torch as loader
from modeldyno.models.loaders.torch_tracing import graph as torch_tracing_graph
from modeldyno.models.loaders.torch_tracing.context import forbid_file_writes
from modeldyno.models.loaders.torch_weights import list_weights
from modeldyno.models.static.graph import Graph, Role
from modeldyno.models.static.totals import AnalysedGraph
from modeldyno.models.torch_signature import Forward

if TYPE_CHECKING:
    from collections.abc import Callable

X = InputSpec(name="x", shape=(3, 8), dtype="float32")
INPUT = InputSpec(name="input", shape=(3, 8), dtype="float32")


def traced(module: nn.Module, *inputs: InputSpec, mode: Mode = Mode.INFERENCE) -> Graph:
    """Analyse a live module."""
    return torch_tracing_graph.trace_module(
        *torch_tracing_graph.copy_to_meta(module), Tracing(inputs=inputs, mode=mode, optimizer="sgd")
    )


def macs(graph: Graph) -> int:
    """Return the MACs of a graph."""
    return AnalysedGraph.of(graph, formulas()).totals().macs


# --- the module --------------------------------------------------------------------------------


class Locked(nn.Module):
    """Cannot be copied because of its lock, and keeps a tensor from its first call."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()
        self.linear = nn.Linear(8, 8)
        self.table: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        with self.lock:
            if self.table is None:
                self.table = torch.rand(8)
            y: Tensor = self.linear(x) * self.table
            return y


@pytest.mark.parametrize("mode", list(Mode))
def test_a_module_that_cannot_be_copied_keeps_nothing_of_an_analysis(mode: Mode) -> None:
    """A module with a lock that keeps tensors works after an analysis, and still has its gradients."""
    module = Locked()
    module.linear.weight.grad = torch.ones(8, 8)

    graph = traced(module, X, mode=mode)

    assert macs(graph) == 3 * 64 * (1 if mode is Mode.INFERENCE else 2)
    assert module.table is None
    assert torch.equal(module.linear.weight.grad, torch.ones(8, 8))
    assert type(module(torch.randn(3, 8))) is Tensor


def test_a_profile_of_a_module_with_a_lock_runs() -> None:
    """A module that was inspected first can be measured afterwards, in the same process."""
    plan = modeldyno.Plan(max_time=0.2, min_time=0.0, min_runs=3)
    result = modeldyno.profile(Locked(), example=torch.randn(3, 8), plan=plan, probes=["static", "latency"])
    assert not result.failures
    assert result["macs"] == 3 * 64


@pytest.mark.filterwarnings("ignore:.*weight_norm.*is deprecated")
@pytest.mark.parametrize(
    "made",
    [
        lambda: weight_norm(nn.Linear(8, 8)),
        lambda: spectral_norm(nn.Linear(8, 8)),
        lambda: prune.l1_unstructured(nn.Linear(8, 8), "weight", amount=0.5),  # type: ignore[no-untyped-call]
        lambda: parametrizations.weight_norm(nn.Linear(8, 8)),
    ],
    ids=["weight_norm", "spectral_norm", "prune", "parametrized"],
)
def test_a_weight_that_is_made_of_others_is_as_it_was(made: Callable[[], nn.Module]) -> None:
    """A weight that is computed before each call is analysed, and is a plain tensor afterwards."""
    module = made()
    module(torch.randn(3, 8))
    weight = torch.as_tensor(module.weight)
    kind, before = type(module.weight), weight.detach().clone()

    assert macs(traced(module, INPUT)) >= 3 * 64
    assert type(module.weight) is kind
    assert torch.equal(torch.as_tensor(module.weight).detach(), before)


class Remembering(nn.Module):
    """Adds the result of its last call to the next one."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        y = x * 2
        if self.kept is not None and self.kept.shape == x.shape:
            y = y + self.kept
        self.kept = torch.tanh(y)
        return y


def test_state_of_an_earlier_call_exists_in_a_later_one() -> None:
    """A module that keeps its last result is analysed at several sizes, one after the other."""
    module, stage = torch_tracing_graph.copy_to_meta(Remembering())
    courses = [
        torch_tracing_graph.trace_module(
            module, stage, Tracing(inputs=(InputSpec(name="x", shape=(n, 8), dtype="float32"),))
        )
        for n in (2, 2, 4, 4)
    ]
    kept = [[s.bytes for s in graph.storages if s.role is Role.WEIGHT and s.bytes] for graph in courses]
    assert [max(sizes, default=0) for sizes in kept] == [0, 64, 0, 128]


class Reentrant(nn.Module):
    """Computes its first layer again in backward, in the older way."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.inner, self.last = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        y: Tensor = self.last(checkpoint(self.inner, self.first(x), use_reentrant=True))
        return y


def test_reentrant_checkpoints_are_trained() -> None:
    """A checkpoint that calls autograd within autograd adds a forward call of its part."""
    layer = 3 * 64
    assert macs(traced(Reentrant(), X, mode=Mode.TRAIN)) == (2 + 4 + 3) * layer


class Anything(nn.Module):
    """Takes any arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Pass it on."""
        return self.inner(*args, **kwargs)


@pytest.mark.slow
def test_an_example_by_position_stays_so() -> None:
    """A module that takes anything gets an unnamed example by position, and named inputs by name."""
    plan = modeldyno.Plan(max_time=0.2, min_time=0.0, min_runs=3)
    assert modeldyno.inspect(Anything(), example=torch.randn(3, 8))["macs"] == 3 * 64
    result = modeldyno.profile(Anything(), example=torch.randn(3, 8), plan=plan, probes=["latency"])
    assert not result.failures
    named = {"ids": torch.zeros(1)}
    assert Forward.of(Anything()).arguments(named) == ([], named)


class Tied(nn.Module):
    """Uses the weight of its part in a function."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 8)

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        return nn.functional.linear(x, self.table.weight)


def test_a_weight_used_by_a_function_is_work_of_the_caller() -> None:
    """A computation with the weight of a part, without calling the part, belongs to the module itself."""
    assert {op.scope for op in traced(Tied(), X).ops} == {""}


# --- what is told ------------------------------------------------------------------------------


def test_the_substitute_loss_is_reported() -> None:
    """Training is analysed with a substitute loss, which is reported, unless the model returns a number."""

    class Losing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.linear(x).mean()
            return y

    messages = traced(nn.Linear(8, 8), INPUT, mode=Mode.TRAIN).assumptions
    assert messages == ("the loss is taken as the sum of the squares of all model outputs",)
    assert traced(Losing(), X, mode=Mode.TRAIN).assumptions == ()


# --- files -------------------------------------------------------------------------------------

FACTORY = """
import pickle, pathlib, numpy, torch
from torch import nn

HERE = pathlib.Path(__file__).parent

class Net(nn.Linear):
    pass

def with_numpy():
    net, cache = nn.Linear(8, 8), HERE / "cache.npy"
    if not cache.exists():
        numpy.save(cache, net.weight.detach().numpy())
    return net, torch.randn(3, 8)

def with_pickle():
    net, cache = nn.Linear(8, 8), HERE / "cache.pkl"
    if not cache.exists():
        with cache.open("wb") as file:
            pickle.dump(net.state_dict(), file)
    with cache.open("rb") as file:
        net.load_state_dict(pickle.load(file))
    return net, torch.randn(3, 8)

def with_text():
    (HERE / "log.txt").write_text("made")
    return nn.Linear(8, 8), torch.randn(3, 8)
"""


@pytest.mark.parametrize(
    "name",
    ["with_numpy", *(pytest.param(each, marks=pytest.mark.slow) for each in ("with_pickle", "with_text"))],
)
def test_what_a_factory_writes_is_true(tmp_path: Path, name: str) -> None:
    """A factory that keeps its weights in a file is called for real, so that the file is real."""
    (tmp_path / "made.py").write_text(FACTORY)

    result = modeldyno.inspect(f"torch:{tmp_path / 'made.py'}:{name}", inline=True)

    assert result["macs"] == 3 * 64
    if name == "with_numpy":
        import numpy as np

        assert len(set(np.load(tmp_path / "cache.npy").ravel().tolist())) > 1


def test_files_are_read_but_not_written(tmp_path: Path) -> None:
    """While a factory runs on meta tensors, files open for reading only, except the null device."""
    before = builtins.open
    path = tmp_path / "read.txt"
    path.write_text("here")
    with forbid_file_writes():
        assert path.read_text() == "here"
        with Path(os.devnull).open("w") as file:
            file.write("nothing")
        with pytest.raises(TypeError, match="may not write files"):
            path.write_text("gone")
        with pytest.raises(TypeError, match="may not write files"):
            path.open("ab").close()
        with pytest.raises(TypeError, match="cannot be saved"):
            torch.save({}, path)
    assert builtins.open is before
    assert path.read_text() == "here"


# --- the process -------------------------------------------------------------------------------


def test_analyses_in_threads_take_turns() -> None:
    """Analyses at the same time leave torch, files, garbage collector and log as they were."""
    before = torch.save, builtins.open, torch.tensor, logging.root.manager.disable
    modules = [nn.Sequential(*(nn.Linear(8, 8) for _ in range(n))) for n in range(1, 9)]
    with ThreadPoolExecutor(4) as pool:
        result = [*pool.map(lambda module: macs(traced(module, INPUT)), modules)]
    assert result == [n * 3 * 64 for n in range(1, 9)]
    assert (torch.save, builtins.open, torch.tensor, logging.root.manager.disable) == before


# --- shapes and memory -------------------------------------------------------------------------


class Writing(nn.Module):
    """Writes a product into a tensor that is too small for it at first."""

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        out = torch.empty(0)
        torch.matmul(x, x.t(), out=out)
        return out @ x


def test_an_output_that_grows_is_as_large_as_it_grew() -> None:
    """A tensor that an operator enlarges counts with its new size, and has its new shape."""
    graph = traced(Writing(), X)
    assert macs(graph) == 2 * 3 * 3 * 8
    assert 36 in [storage.bytes for storage in graph.storages]


def test_sequences_of_other_lengths_are_other_calls() -> None:
    """The result of packing depends on the lengths, and is recomputed for each of them."""

    class Packing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> list[Tensor]:
            packed = (
                nn.utils.rnn.pack_padded_sequence(x, torch.tensor(lengths), batch_first=True)
                for lengths in ([8, 8], [1, 1])
            )
            return [self.linear(item.data) for item in packed]

    graph = traced(Packing(), InputSpec(name="x", shape=(2, 8, 4), dtype="float32"))
    assert macs(graph) == (16 + 2) * 16


def test_the_usual_dtype_is_part_of_a_call() -> None:
    """A tensor made after a change of the default dtype has the new dtype."""

    class Switching(nn.Module):
        def forward(self, x: Tensor) -> list[Tensor]:
            first = torch.zeros(1000)
            torch.set_default_dtype(torch.float64)
            try:
                return [first, torch.zeros(1000), x]
            finally:
                torch.set_default_dtype(torch.float32)

    graph = traced(Switching(), X)
    assert [op.outputs[0].dtype for op in graph.ops] == ["float32", "float64"]


@pytest.mark.parametrize(
    ("made", "shape", "within"),
    [
        (lambda: nn.ConvTranspose2d(64, 16, 4, stride=2), (4, 64, 16, 16), 0.001),
        (lambda: nn.ConvTranspose2d(16, 16, 3), (1, 16, 8, 8), 0.001),
        (lambda: nn.LSTM(64, 128, batch_first=True), (4, 16, 64), 0.05),
        (lambda: nn.LSTM(64, 128, num_layers=2, bidirectional=True, batch_first=True), (4, 16, 64), 0.05),
        (lambda: nn.Conv2d(3, 8, 3), (2, 3, 16, 16), 0.005),
        (lambda: nn.Conv2d(20, 20, 3), (2, 20, 16, 16), 0.005),
        (lambda: nn.Conv2d(24, 24, 3, groups=24), (2, 24, 16, 16), 0.005),
        (lambda: nn.Conv2d(32, 32, 3, groups=2), (2, 32, 16, 16), 0.005),
        (lambda: nn.Conv2d(32, 64, 1), (2, 32, 16, 16), 0.005),
        (lambda: nn.Conv2d(256, 512, 1, stride=2), (2, 256, 28, 28), 0.001),
        (lambda: nn.TransformerEncoderLayer(64, 4, batch_first=True), (2, 100, 64), 0.001),
        (lambda: nn.TransformerEncoderLayer(64, 4, 64, batch_first=True), (2, 256, 64), 0.001),
    ],
    ids=[
        "transposed in blocks",
        "transposed in columns",
        "lstm",
        "lstm of two layers",
        "few channels",
        "odd channels",
        "depth-wise",
        "grouped",
        "pointwise",
        "pointwise strided",
        "encoder layer",
        "encoder layer of long sequences",
    ],
)
def test_the_scratch_of_a_kernel_is_foreseen(
    made: Callable[[], nn.Module], shape: tuple[int, ...], within: float
) -> None:
    """The peak of a kernel with workspace memory is that of torch's allocator."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    module = made().eval()
    x = torch.randn(shape)
    with torch.no_grad():
        module(x)
        witness = recorded_peak(lambda: module(x))
    spec = InputSpec(name="input", shape=shape, dtype="float32")
    foreseen = AnalysedGraph.of(traced(module, spec), formulas()).totals().activation_peak
    torch.set_num_threads(threads)
    assert foreseen == pytest.approx(witness, rel=within)


# --- tensors and modules of other kinds ----------------------------------------------------------------


def test_quantised_weights_that_wrap_others_are_analysed() -> None:
    """A torchao weight costs the product that it represents, and its stored bytes; it stays alive."""
    torchao = pytest.importorskip("torchao.quantization")
    module = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 2))
    torchao.quantize_(module, torchao.Int8WeightOnlyConfig())
    spec = InputSpec(name="input", shape=(2, 64), dtype="float32")

    graph = traced(module, spec)

    assert macs(graph) == 2 * 64 * 128 + 2 * 128 * 2
    held = sum(storage.bytes for storage in graph.storages if storage.role is Role.WEIGHT)
    assert 64 * 128 + 128 * 2 < held < 4 * 64 * 128
    assert module(torch.randn(2, 64)).shape == (2, 2)


@pytest.mark.filterwarnings("ignore")
def test_packed_weights_are_held() -> None:
    """Packed weights of a quantised module are in memory at the peak."""
    plain = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 2))
    module = torch.ao.quantization.quantize_dynamic(plain, {nn.Linear}, dtype=torch.qint8)  # type: ignore[no-untyped-call]
    graph = traced(module, InputSpec(name="input", shape=(2, 64), dtype="float32"))
    held = sum(storage.bytes for storage in graph.storages if storage.role is Role.WEIGHT)
    assert held >= 64 * 128 + 128 * 2


T, B, N, H = 5, 3, 16, 32
"""Steps, batch, width of the input and of the state."""


class First(nn.Module):
    """The first output of a layer."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        out = self.layer(x)
        return out[0] if isinstance(out, tuple) else out  # type: ignore[no-any-return]


def recurrent(gates: int, layers: int, ways: int) -> int:
    """Multiply all gates of each step with its input, or with the layer below, and with the state."""
    return B * T * gates * H * ways * ((N + H) + (layers - 1) * (ways * H + H))


DYNAMIC = {
    "linear": (lambda: nn.Linear(N, H), (B, N), B * N * H),
    "lstm": (lambda: nn.LSTM(N, H), (T, B, N), recurrent(4, 1, 1)),
    "deep lstm": (
        lambda: nn.LSTM(N, H, num_layers=2, bidirectional=True, batch_first=True),
        (B, T, N),
        recurrent(4, 2, 2),
    ),
    "gru": (lambda: nn.GRU(N, H), (T, B, N), recurrent(3, 1, 1)),
    "deep gru": (lambda: nn.GRU(N, H, num_layers=2, bidirectional=True), (T, B, N), recurrent(3, 2, 2)),
    "lstm cell": (lambda: nn.LSTMCell(N, H), (B, N), B * 4 * H * (N + H)),
    "gru cell": (lambda: nn.GRUCell(N, H), (B, N), B * 3 * H * (N + H)),
    "rnn cell": (lambda: nn.RNNCell(N, H), (B, N), B * H * (N + H)),
}
KINDS = {nn.Linear, nn.LSTM, nn.GRU, nn.LSTMCell, nn.GRUCell, nn.RNNCell}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [torch.qint8, torch.float16], ids=str)
@pytest.mark.parametrize("kind", DYNAMIC)
def test_dynamically_quantised_layers_cost_what_the_original_does(kind: str, dtype: torch.dtype) -> None:
    """Counted by hand; parameters and the shape of the output are those of the original, too."""
    layer, shape, products = DYNAMIC[kind]
    plain = First(layer()).eval()  # type: ignore[no-untyped-call]
    module = torch.ao.quantization.quantize_dynamic(plain, KINDS, dtype=dtype)  # type: ignore[no-untyped-call]
    example = torch.randn(shape)

    result = modeldyno.inspect(module, example=example, store=False)
    graph = traced(module, InputSpec(name="x", shape=shape, dtype="float32"))

    assert (result["macs"], result["coverage"]) == (products, 1)
    assert result["parameters"] == sum(parameter.numel() for parameter in plain.parameters())
    assert graph.ops[-1].outputs[0].shape == tuple(module(example).shape)
    assert not [doubt.code for doubt in result.doubts if doubt.code == "assumed-branch"]


@pytest.mark.filterwarnings("ignore")
def test_weights_that_are_packed_in_half_precision_take_two_bytes() -> None:
    """They are unpacked as float32; biases are kept in that."""
    plain = nn.Sequential(nn.Linear(N, H)).eval()
    module = torch.ao.quantization.quantize_dynamic(plain, {nn.Linear}, dtype=torch.float16)  # type: ignore[no-untyped-call]
    lstm = torch.ao.quantization.quantize_dynamic(  # type: ignore[no-untyped-call]
        nn.Sequential(nn.LSTM(N, H)), {nn.LSTM}, dtype=torch.float16
    )

    assert sum(weight.bytes for weight in list_weights(module)) == 2 * N * H + 4 * H
    assert sum(weight.bytes for weight in list_weights(lstm)) == 2 * 4 * H * (N + H) + 4 * 2 * 4 * H


CONVOLUTIONS = {
    "1d": (lambda: nn.Conv1d(8, 16, 3), (2, 8, 12), 2 * 16 * 10 * 8 * 3),
    "2d": (lambda: nn.Conv2d(8, 16, 3, padding=1), (2, 8, 10, 10), 2 * 16 * 100 * 8 * 9),
    "groups and strides": (
        lambda: nn.Conv2d(8, 16, 3, stride=2, groups=4), (2, 8, 11, 11), 2 * 16 * 25 * 2 * 9,
    ),
    "3d": (lambda: nn.Conv3d(4, 8, 3), (1, 4, 6, 6, 6), 8 * 64 * 4 * 27),
    "transposed": (lambda: nn.ConvTranspose2d(8, 16, 2, stride=2), (1, 8, 5, 5), 8 * 25 * 16 * 4),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", CONVOLUTIONS)
def test_quantised_convolutions_cost_the_products_of_the_original(kind: str) -> None:
    """Counted by hand: each output takes its taps, and each input of a transposed one all filters."""
    layer, shape, products = CONVOLUTIONS[kind]
    quantization = torch.ao.quantization
    backend = next(e for e in ("x86", "fbgemm", "qnnpack") if e in torch.backends.quantized.supported_engines)
    torch.backends.quantized.engine = backend
    module = nn.Sequential(quantization.QuantStub(), layer(), nn.ReLU(), quantization.DeQuantStub()).eval()  # type: ignore[no-untyped-call]
    module.qconfig = quantization.QConfig(  # type: ignore[assignment, no-untyped-call]
        quantization.default_observer, quantization.default_weight_observer
    )
    ready, example = quantization.prepare(module), torch.randn(shape)  # type: ignore[no-untyped-call]
    ready(example)
    quantised = quantization.convert(ready)  # type: ignore[no-untyped-call]

    result = modeldyno.inspect(quantised, example=example, store=False)
    graph = traced(quantised, InputSpec(name="x", shape=shape, dtype="float32"))

    assert (result["macs"], result["coverage"]) == (products, 1)
    assert graph.ops[-1].outputs[0].shape == tuple(quantised(example).shape)


class Residual(nn.Module):
    """Two convolutions, a sum, a concatenation, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU())
        self.second = nn.Conv2d(8, 8, 3, padding=1, groups=2)
        self.last = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        x = self.first(x)
        x = torch.cat([torch.relu(x + self.second(x)), x * x], 1)
        return self.last(x.mean((2, 3)))  # type: ignore[no-any-return]


@pytest.mark.filterwarnings("ignore")
def test_a_calibrated_network_of_whole_numbers_is_analysed() -> None:
    """A model quantised by FX has the MACs and the parameters of the original."""
    fx = pytest.importorskip("torch.ao.quantization.quantize_fx")
    example = (torch.rand(1, 3, 16, 16),)
    backend = next(e for e in ("x86", "fbgemm", "qnnpack") if e in torch.backends.quantized.supported_engines)
    torch.backends.quantized.engine = backend
    ready = fx.prepare_fx(
        Residual().eval(), torch.ao.quantization.get_default_qconfig_mapping(backend), example
    )
    ready(*example)
    module = fx.convert_fx(ready)

    result = modeldyno.inspect(module, example=example[0])

    assert module(*example).shape == (1, 4)
    assert result["macs"] == 8 * 8 * 8 * 27 + 8 * 8 * 8 * 36 + 16 * 4
    assert result["parameters"] == sum(parameter.numel() for parameter in Residual().parameters())
    assert result["coverage"] == 1


LAZY = """
import torch
from torch import nn

def with_example():
    return nn.Sequential(nn.LazyLinear(8), nn.ReLU(), nn.LazyLinear(2)), torch.randn(2, 4)

def without():
    return nn.LazyLinear(8)
"""


def test_lazy_parts_get_their_shapes_by_a_call(tmp_path: Path) -> None:
    """A factory's lazy module is called once with its example; without one it is rejected, as when live."""
    path = tmp_path / "lazy.py"
    path.write_text(LAZY)
    result = modeldyno.inspect(f"torch:{path}:with_example", inline=True)
    assert result["parameters"] == 4 * 8 + 8 + 8 * 2 + 2
    assert result["macs"] == 2 * (4 * 8 + 8 * 2)
    with pytest.raises(RequestError, match="return example inputs with the module"):
        modeldyno.inspect(f"torch:{path}:without", inline=True)
    with pytest.raises(RequestError, match="call it once first"):
        modeldyno.inspect(nn.LazyLinear(8), example=torch.randn(2, 4))


COMPUTED = """
import torch
from torch import nn

def rank():
    kept = int((torch.linalg.svdvals(torch.eye(8) + 0.1 * torch.randn(8, 8)) > 0.5).sum())
    return nn.Linear(8, kept)

def chosen():
    weights = torch.randn(64)
    return nn.Linear(8, weights[weights > 0.5].numel())

def checked():
    module = nn.Linear(8, 3)
    if (module.weight > 2).any():
        raise ValueError("too large")
    return module
"""


@pytest.mark.parametrize(("name", "known"), [("rank", True), ("chosen", True), ("checked", False)])
def test_a_size_that_a_factory_computes_is_that_of_its_weights(
    tmp_path: Path, name: str, *, known: bool
) -> None:
    """A rank or a number of chosen weights is computed by a real call; a check alone needs none."""
    path = tmp_path / "computed.py"
    path.write_text(COMPUTED)
    ref = ModelRef(scheme="torch", locator=f"{path}:{name}")
    looked, loaded = (each(ref, seed=0, trust=False) for each in (loader.look, loader.load))

    assert (looked.value is not None) is known
    assert looked.weights is not None
    assert loaded.weights is not None
    assert sum(w.size for w in looked.weights()) == sum(w.size for w in loaded.weights()) > 9


def test_a_choice_on_which_nothing_depends_is_no_assumption() -> None:
    """The predicted class of a model is not assumed; a part that runs for that class alone is."""

    class Choosing(nn.Module):
        def __init__(self, *, depends: bool) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)
            self.depends = depends

        def forward(self, x: Tensor) -> Tensor:
            best = self.linear(x).argmax(-1)
            return x[best == 1] if self.depends else best

    assert traced(Choosing(depends=False), X).assumptions == ()
    (message,) = traced(Choosing(depends=True), X).assumptions
    assert "spread evenly" in message


def test_the_line_that_raises_is_named() -> None:
    """An error names the innermost line of the model's own code."""

    class Failing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.reshape(7, -1)

    with pytest.raises(RequestError, match=r"\(test_torch_tracing_context.py:\d+\)"):
        traced(nn.Sequential(Failing()), INPUT)


def test_a_script_runs_in_inference_after_its_training_was_analysed() -> None:
    """The analysis of a training step does not change how a script is run."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        plain = nn.Sequential(nn.Linear(8, 8), nn.ReLU()).eval()
        module = torch.jit.trace(plain, torch.randn(3, 8))  # type: ignore[no-untyped-call]
    assert macs(traced(module, INPUT, mode=Mode.TRAIN)) == 2 * 3 * 64
    with torch.inference_mode():
        for _ in range(3):
            assert module(torch.randn(3, 8)).shape == (3, 8)


@pytest.mark.parametrize(
    ("width", "state", "layers", "steps", "batch"),
    [(64, 128, 1, 16, 4), (512, 512, 2, 32, 4), (32, 64, 1, 50, 16)],
)
def test_training_a_recurrent_layer_is_foreseen(
    width: int, state: int, layers: int, steps: int, batch: int
) -> None:
    """The memory that oneDNN keeps and copies to train an LSTM is predicted to a few per cent."""
    module = nn.LSTM(width, state, layers, batch_first=True)
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-3)
    x = torch.randn(batch, steps, width)

    def step() -> None:
        output, (hidden, cell) = module(x)
        (output.square().sum() + hidden.square().sum() + cell.square().sum()).backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    witness = recorded_peak(step)
    spec = InputSpec(name="input", shape=(batch, steps, width), dtype="float32")
    foreseen = AnalysedGraph.of(traced(module, spec, mode=Mode.TRAIN), formulas()).totals().activation_peak
    assert foreseen == pytest.approx(witness, rel=0.05)
