"""Inspecting a model of any kind: its cost without its weights."""

from __future__ import annotations

import tracemalloc
import warnings
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from tests.zoo import canary, configs, modules
from torch import nn

from modeldyno.base.errors import RequestError, TrustRequired
from modeldyno.base.job.input_spec import InputSpec, concrete_shape
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.base.job.static_options import Mode
from modeldyno.models.flops.registry import formulas
from modeldyno.models.interface import Model, Tracing
from modeldyno.models.loaders import call, hf, hf_config, torch_export, torchscript
from modeldyno.models.loaders import live_object as live
from modeldyno.models.loaders import torch as torch_loader
from modeldyno.models.loaders.torch_tracing import dispatch as torch_tracing_dispatch
from modeldyno.models.static.graph import Role
from modeldyno.models.static.totals import AnalysedGraph
from modeldyno.models.static.weights import weight_measurements

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TABLE = formulas()
SIZES = {"batch": 2, "seq": 6, "decoder_seq": 5}
WHOLE, STRUCTURE = "sha256:", "structure:"


def cost(model: Model, mode: Mode = Mode.INFERENCE, **sizes: int) -> tuple[int, ...]:
    """Return MACs, elementwise operations, bytes and the peak of a call."""
    assert model.graph is not None
    bound = {**SIZES, **sizes}
    inputs = tuple(
        InputSpec(name=s.name, shape=concrete_shape(s, bound), dtype=s.dtype, low=s.low, high=s.high)
        for s in model.inputs
    )
    graph = model.graph(Tracing(inputs=inputs, sizes=bound, mode=mode))
    totals = AnalysedGraph.of(graph, TABLE).totals()
    return (
        totals.macs,
        totals.elementwise,
        totals.bytes_read,
        totals.bytes_written,
        totals.activation_peak,
        sum(item.bytes for item in graph.storages if item.role is Role.WEIGHT),
    )


def weighs(model: Model) -> dict[tuple[str, str], Any]:
    """Return the totals of the weights."""
    assert model.weights is not None
    return {(m.metric, m.scope): m.value for m in weight_measurements(model.weights())}


def same_when_inspected(looked: dict[tuple[str, str], Any], loaded: dict[tuple[str, str], Any]) -> bool:
    """Compare weights, but not their trainable flag: transformers drops it when it loads Whisper."""
    return {**looked, ("trainable_parameters", ""): 0} == {**loaded, ("trainable_parameters", ""): 0}


def reference(scheme: str, path: Path | str) -> ModelRef:
    """Make a reference."""
    return ModelRef(scheme=scheme, locator=str(path))


@pytest.fixture(autouse=True)
def no_news() -> Iterator[None]:
    """Hide torch's and transformers' own deprecations."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


# --- transformers --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    [
        "bert",
        "t5",
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("gpt2", "vit", "whisper", "clip")),
    ],
)
def test_a_saved_model_looks_as_it_is(tmp_path: Path, kind: str) -> None:
    """Hf and hf-config report the same costs, weights and inputs without weights as with them."""
    path = configs.write_model(tmp_path / kind, kind)
    loaded = hf.load(reference("hf", path), seed=0, trust=False)
    looked = hf.look(reference("hf", path), seed=0, trust=False)
    of_config = hf_config.look(reference("hf-config", path), seed=0, trust=False)

    assert cost(looked) == cost(of_config) == cost(loaded)
    assert weighs(looked) == weighs(of_config)
    assert same_when_inspected(weighs(looked), weighs(loaded))
    assert looked.inputs == of_config.inputs == loaded.inputs
    assert looked.file_bytes == loaded.file_bytes
    assert looked.value is of_config.value is None
    assert looked.identity.digest.startswith(STRUCTURE)
    assert loaded.identity.digest.startswith(WHOLE)


def test_training_looks_as_it_is(tmp_path: Path) -> None:
    """A training step costs the same, inspected and loaded."""
    path = configs.write_model(tmp_path / "gpt2", "gpt2")
    models = [
        hf.load(reference("hf", path), seed=0, trust=False),
        hf.look(reference("hf", path), seed=0, trust=False),
    ]

    assert len({cost(model, Mode.TRAIN) for model in models}) == 1


def test_the_data_of_weights_is_not_read(tmp_path: Path) -> None:
    """A file with meaningless data, or a sparse file, is inspected like the complete one."""
    path = configs.write_model(tmp_path / "bert", "bert")
    expected = hf.look(reference("hf", path), seed=0, trust=False)
    weights = path / "model.safetensors"
    content = weights.read_bytes()
    length = 8 + int.from_bytes(content[:8], "little")
    for data in (b"\xff" * (len(content) - length), None):
        weights.write_bytes(content[:length] + (data or b""))
        if data is None:
            with weights.open("r+b") as file:
                file.truncate(len(content))
        result = hf.look(reference("hf", path), seed=0, trust=False)
        assert result.identity == expected.identity
        assert result.file_bytes == len(content)
        assert cost(result) == cost(expected)


def test_a_damaged_header_does_not_hinder_a_stated_dtype(tmp_path: Path) -> None:
    """Unreadable weights are rejected where their dtype is needed, and not needed elsewhere."""
    path = configs.write_model(tmp_path / "bert", "bert")
    (path / "model.safetensors").write_bytes(b"\xff" * 100)
    try:
        hf.look(reference("hf", path), seed=0, trust=False)
    except RequestError as error:
        assert "damaged" in str(error)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_the_dtype_is_that_of_the_files(tmp_path: Path, dtype: str) -> None:
    """A model saved in half precision is stored and computed in half precision."""
    import transformers

    with torch.random.fork_rng(devices=[]):
        model = transformers.BertModel(configs.config("bert")).to(getattr(torch, dtype))
    model.save_pretrained(tmp_path / "m")
    result = hf.look(reference("hf", tmp_path / "m"), seed=0, trust=False)
    loaded = hf.load(reference("hf", tmp_path / "m"), seed=0, trust=False)

    assert weighs(result) == weighs(loaded)
    assert cost(result) == cost(loaded)


@pytest.mark.parametrize("trust", [True, False])
def test_pickled_weights_are_never_unpickled(tmp_path: Path, *, trust: bool) -> None:
    """A directory with a malicious pytorch_model.bin is inspected without executing it, trusted or not."""
    path = configs.write_config(tmp_path / "bert", "bert")
    nest = tmp_path / "nest"
    (path / "pytorch_model.bin").write_bytes(canary.pickled(nest))

    assert hf.claims(path)
    result = hf.look(reference("hf", path), seed=0, trust=trust)
    assert cost(result) == cost(hf_config.look(reference("hf-config", path), seed=0, trust=trust))
    assert not nest.exists()


def test_sizes_beyond_any_memory_are_inspected(tmp_path: Path) -> None:
    """A configuration of four hundred gigabytes of weights is inspected within a few megabytes."""
    wide = {
        "hidden_size": 16384,
        "intermediate_size": 2**19,
        "num_attention_heads": 4,
        "num_hidden_layers": 6,
    }
    path = configs.write_config(tmp_path / "bert", "bert", **wide)
    tracemalloc.start()
    try:
        result = hf_config.look(reference("hf-config", path), seed=0, trust=False)
        macs = cost(result)[0]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    layer = 12 * (4 * 16384**2 + 2 * 16384 * 2**19) + 2 * 2 * 6 * 6 * 16384
    assert macs >= 6 * layer
    assert weighs(result)["weight_bytes", ""] > 4e11
    assert peak < 256e6


def test_other_sizes_have_other_digests(tmp_path: Path) -> None:
    """The digest of a structure distinguishes configurations, and is the same each time."""
    one = configs.write_config(tmp_path / "one", "bert")
    other = configs.write_config(tmp_path / "other", "bert", intermediate_size=40)
    for path in (one, other):
        (path / "pytorch_model.bin").touch()
    digests = [hf.look(reference("hf", p), seed=0, trust=False).identity.digest for p in (one, one, other)]

    assert digests[0] == digests[1] != digests[2]
    assert all(digest.startswith(STRUCTURE) for digest in digests)


# --- factories ------------------------------------------------------------------------------------

HUGE = """
import torch

class Huge(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(10**6, 10**6)
        self.second = torch.nn.Linear(10**6, 10**6, dtype=torch.bfloat16)
        self.register_buffer("table", torch.zeros(10**6, 10**5))
        torch.nn.init.orthogonal_(self.second.weight) if False else torch.nn.init.zeros_(self.first.bias)

    def forward(self, x):
        return self.second(self.first(x).bfloat16())

def make():
    return Huge(), torch.zeros(3, 10**6)
"""

AWKWARD = {
    "numpy of a parameter": (
        "m = L(4, 2); m.bias.data = torch.from_numpy(m.bias.detach().numpy() * 2); return m"
    ),
    "an array": "m = L(4, 2); m.scale = float(np.asarray(m.weight.detach()).mean()); return m",
    "weights from a file": (
        "m = L(4, 2); torch.save(L(4, 2).state_dict(), FILE) if not FILE.exists() else None;"
        "m.load_state_dict(torch.load(FILE, weights_only=True)); return m"
    ),
    "weights that are read": "m = L(4, 2); m.load_state_dict(torch.load(KEPT, weights_only=True)); return m",
    "an array of weights": "m = L(4, 2); m.weight.data.copy_(torch.from_numpy(np.ones((2, 4)))); return m",
    "copied": "return copy.deepcopy(torch.nn.Sequential(L(4, 4), L(4, 2)))",
    "converted": "return torch.nn.Sequential(L(4, 2)).double().to('cpu').eval()",
    "called once": "m = L(4, 2); m(torch.zeros(1, 4)); return m",
    "trained": (
        "m = L(4, 2); o = torch.optim.SGD(m.parameters(), lr=1.0); m(torch.ones(1, 4)).sum().backward();"
        "o.step(); o.zero_grad(); return m"
    ),
    "lazy": "m = torch.nn.LazyLinear(2); m(torch.zeros(1, 4)); return m",
    "normed": "return torch.nn.utils.parametrizations.weight_norm(L(4, 2))",
    "frozen": "m = L(4, 2); m.requires_grad_(False); return m",
    "a loop": "return torch.nn.Sequential(*(L(4, 4) for _ in range(int(torch.tensor(2)))), L(4, 2))",
    "printing": "m = L(4, 2); str(m.weight); repr(m); return m",
    "shared": "m = L(4, 2).share_memory(); return m",
    "saved": "m = L(4, 2); torch.save(m.state_dict(), FILE2); return m",
    "element by element": "m = L(4, 2); m.bias.data.apply_(lambda v: v); return m",
    "quantiles": "m = L(4, 2); assert m.weight.abs().max() > 0; return m",
}
HEAD = """
import copy, pathlib
import numpy as np
import torch
L = torch.nn.Linear
FOLDER = pathlib.Path(__file__).parent
FILE, FILE2, KEPT = FOLDER / "made.pt", FOLDER / "saved.pt", FOLDER / "kept.pt"

def make():
    """


def test_a_factory_of_any_size_takes_no_memory(tmp_path: Path) -> None:
    """A factory of a seven-terabyte model is called, and its module analysed with its own example."""
    (tmp_path / "huge.py").write_text(HUGE)
    result = torch_loader.look(reference("torch", f"{tmp_path / 'huge.py'}:make"), seed=0, trust=False)

    assert result.value is None
    assert [(s.name, s.shape, s.dtype) for s in result.inputs] == [("x", ("batch", 10**6), "float32")]
    assert cost(result, batch=3)[0] == 2 * 3 * 10**12
    assert weighs(result)["weight_bytes", ""] == 6 * (10**12 + 10**6) + 4 * 10**11
    assert result.identity.digest.startswith(STRUCTURE)


@pytest.mark.parametrize("name", AWKWARD)
def test_an_awkward_factory_still_works(tmp_path: Path, name: str) -> None:
    """A factory that reads tensor values, or passes them to other libraries, is inspected all the same."""
    torch.save(nn.Linear(4, 2).state_dict(), tmp_path / "kept.pt")
    lines = "\n    ".join(part.strip() for part in AWKWARD[name].split(";"))
    (tmp_path / "awkward.py").write_text(HEAD + lines + "\n")
    ref = reference("torch", f"{tmp_path / 'awkward.py'}:make")

    result = torch_loader.look(ref, seed=0, trust=False)
    loaded = torch_loader.load(ref, seed=0, trust=False)

    assert [s.name for s in result.inputs] == ["input"]
    shaped = {"input": InputSpec(name="input", shape=(3, 4), dtype="float32")}
    if name == "converted":
        shaped = {"input": InputSpec(name="input", shape=(3, 4), dtype="float64")}
    costs = []
    for model in (result, loaded):
        assert model.graph is not None
        graph = model.graph(Tracing(inputs=tuple(shaped.values())))
        costs.append((AnalysedGraph.of(graph, TABLE).totals().macs, weighs(model)))
    assert costs[0] == costs[1]
    assert costs[0][0] >= 24


@pytest.mark.parametrize(
    ("name", "expected"), [("needy", "needs the argument width"), ("number", "returns int"), ("none", "none")]
)
def test_a_wrong_factory_is_refused(name: str, expected: str) -> None:
    """A name that is no module factory is rejected as by `load`."""
    for way in (torch_loader.look, torch_loader.load):
        with pytest.raises(RequestError, match=expected):
            way(reference("torch", f"tests.zoo.modules:{name}"), seed=0, trust=False)


def test_a_factory_that_raises_says_so(tmp_path: Path) -> None:
    """A factory's own error is raised, not one of the dispatch mode."""
    (tmp_path / "broken.py").write_text("def make():\n    raise KeyError('its own')\n")
    with pytest.raises(KeyError, match="its own"):
        torch_loader.look(reference("torch", f"{tmp_path / 'broken.py'}:make"), seed=0, trust=False)


@pytest.mark.parametrize("name", ["mlp", "Tied", "Shared", "instance", "mlp_with_example", "TwoInputs"])
def test_a_factory_looks_as_it_is(name: str) -> None:
    """Weights and inputs of a factory are the same, inspected and loaded."""
    ref = reference("torch", f"tests.zoo.modules:{name}")
    result, loaded = torch_loader.look(ref, seed=0, trust=False), torch_loader.load(ref, seed=0, trust=False)

    assert weighs(result) == weighs(loaded)
    assert result.inputs == loaded.inputs
    assert result.identity.name == loaded.identity.name


def test_a_look_leaves_the_random_state_alone() -> None:
    """Inspecting a factory neither draws random numbers nor seeds the process."""
    before = torch.random.get_rng_state()
    torch_loader.look(reference("torch", "tests.zoo.modules:mlp"), seed=3, trust=False)
    assert torch.equal(torch.random.get_rng_state(), before)


# --- what is there already -------------------------------------------------------------------------


def test_a_live_object_is_inspected_in_place() -> None:
    """A live module is inspected with its own weights and left unchanged."""
    module = modules.mlp()
    ref = live.offer(module, example=torch.zeros(3, 4))
    try:
        result = live.look(ref, seed=0, trust=False)
        assert cost(result, batch=5)[0] == 5 * 48
        assert result.value is module
        assert result.borrowed
        assert result.doubts == ()
    finally:
        live.withdraw(ref)
    with pytest.raises(RequestError, match="no live object"):
        live.look(ref, seed=0, trust=False)


def test_a_callable_has_no_graph() -> None:
    """The cost of a plain function is unknown without running it."""
    result = call.look(reference("call", "tests.zoo.modules:number"), seed=0, trust=False)
    assert result.graph is None
    assert result.weights is None


def test_archives_are_inspected_once_they_are_trusted(tmp_path: Path) -> None:
    """An exported program and a scripted module need trust to be inspected; the program has a graph."""
    program = torch.export.export(modules.mlp().eval(), (torch.randn(3, 4),))
    torch.export.save(program, tmp_path / "m.pt2")
    torch.jit.save(torch.jit.script(modules.mlp().eval()), str(tmp_path / "m.pt"))

    for loader, name in ((torch_export, "m.pt2"), (torchscript, "m.pt")):
        with pytest.raises(TrustRequired):
            loader.look(reference("", tmp_path / name), seed=0, trust=False)
    result = torch_export.look(reference("exported", tmp_path / "m.pt2"), seed=0, trust=True)
    assert cost(result, batch=3)[0] == 3 * 48


def test_a_scripted_module_is_analysed_or_refused(tmp_path: Path) -> None:
    """A TorchScript module has MACs, or a sentence that says why not."""
    torch.jit.save(torch.jit.script(modules.mlp().eval()), str(tmp_path / "m.pt"))
    result = torchscript.look(reference("torchscript", tmp_path / "m.pt"), seed=0, trust=True)
    assert result.graph is not None
    inputs = (InputSpec(name="input", shape=(3, 4), dtype="float32"),)
    try:
        graph = result.graph(Tracing(inputs=inputs))
    except RequestError as error:
        assert "\n" not in str(error)
    else:
        assert AnalysedGraph.of(graph, TABLE).totals().macs == 3 * 48


TRAINING = """
import torch
from torch import nn

def make():
    net = nn.Linear(4, 1)
    loss = torch.tensor(9.0)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    while loss.item() > 0.1:
        loss = net(torch.ones(8, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return net, torch.ones(2, 4)
"""


def test_a_factory_that_trains_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that ends by computed values is stopped on meta tensors, run for real, and reported."""
    monkeypatch.setattr(torch_tracing_dispatch, "_COMPUTE_LIMIT_S", 0.01)
    (tmp_path / "training.py").write_text(TRAINING, encoding="utf-8")
    model = torch_loader.look(
        ModelRef(scheme="torch", locator=f"{tmp_path / 'training.py'}:make"), seed=0, trust=False
    )

    assert [doubt.code for doubt in model.doubts] == ["factory-ran"]
    assert cost(model)[0] == 2 * 4
