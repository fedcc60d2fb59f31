"""Graphs of torch modules, against reference values, torch's allocator, and each other."""

from __future__ import annotations

import copy
import sys
import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import numpy as np
import torch
from tests.support.torch_allocator import recorded_peak
from tests.zoo import modules
from tests.zoo.models import MODELS, SMALL, Case
from torch import Tensor, nn
from torch.nn import functional
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

from modeldyno.base.errors import RequestError
from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.job.static_options import Mode
from modeldyno.models.flops.registry import formulas
from modeldyno.models.interface import Tracing
from modeldyno.models.loaders import torch_module, torch_weights
from modeldyno.models.loaders.torch_tracing import graph as torch_tracing_graph
from modeldyno.models.loaders.transformers_model import offline
from modeldyno.models.static.analysis import sum_by_operator
from modeldyno.models.static.graph import Graph, Op, Phase, Role
from modeldyno.models.static.totals import WORKING, AnalysedGraph, cost_by_module, live_bytes_by_operator
from modeldyno.models.static.weights import weight_measurements
from modeldyno.models.torch_signature import Forward

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TABLE = formulas()
LARGE = 10**6


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Use one thread: small products spend more time on synchronisation than on computing."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def input_spec(name: str, *shape: int, dtype: str = "float32", low: int = 0, high: int = 9) -> InputSpec:
    """Declare an input; the range is for integers."""
    if "int" not in dtype:
        return InputSpec(name=name, shape=shape, dtype=dtype)
    return InputSpec(name=name, shape=shape, dtype=dtype, low=low, high=high)


def traced(
    module: nn.Module, *inputs: InputSpec, mode: Mode = Mode.INFERENCE, optimizer: str = "none"
) -> Graph:
    """Analyse a live module."""
    tracing = Tracing(inputs=inputs, mode=mode, optimizer=optimizer)
    return torch_tracing_graph.trace_module(*torch_tracing_graph.copy_to_meta(module), tracing)


def macs(graph: Graph) -> int:
    """Return the MACs of a graph, all of whose operators are counted."""
    result = AnalysedGraph.of(graph, TABLE)
    assert result.totals().coverage == 1.0, [o for o in sum_by_operator(result) if not o.counted]
    return result.totals().macs


def kinds(graph: Graph) -> list[str]:
    """Name the operators in order."""
    return [op.kind.removeprefix("aten.") for op in graph.ops]


def by_module(graph: Graph, phase: Phase) -> Counter[str]:
    """Return the MACs of each module itself in one phase."""
    result: Counter[str] = Counter()
    for op, cost in zip(graph.ops, AnalysedGraph.of(graph, TABLE).counts, strict=True):
        if op.phase is phase and cost.macs:
            result[op.scope] += cost.macs
    return result


def ops(graph: Graph, kind: str) -> list[Op]:
    """Return the calls of one operator."""
    return [op for op in graph.ops if op.kind == f"aten.{kind}"]


# --- truths ------------------------------------------------------------------------------------


def truth(case: Case, attention: str, dtype: torch.dtype) -> None:
    """Compare an architecture in its published size with what was derived by hand."""
    (module, inputs), stage = torch_tracing_graph.build_on_meta(lambda: case.build(attention, dtype))
    specs = tuple(input_spec(name, *shape, dtype=str(kind)[6:]) for name, (shape, kind) in inputs.items())

    for mode, truths in (
        (Mode.INFERENCE, {case.macs}),
        (Mode.TRAIN, {case.training, case.training_fused}),
    ):
        graph = torch_tracing_graph.trace_module(
            module, stage, Tracing(inputs=specs, mode=mode, optimizer="none")
        )
        assert macs(graph) in truths
    (parameters,) = (
        m.value for m in weight_measurements(torch_weights.list_weights(module)) if m.metric == "parameters"
    )
    assert parameters == case.parameters


OFTEN = ("resnet18", "bert_base_128")
FEW = ("bert_base_128", "mamba_130m", "unet")
"""The others are behind `slow` in their published sizes; the small ones below are of every architecture."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in OFTEN else pytest.mark.slow)
        for name in sorted(MODELS.keys() - {"mamba_130m"})
    ],
)
def test_an_architecture_costs_what_was_derived(name: str) -> None:
    """MACs of a call and a training step, and parameters, equal the reference; all operators are counted."""
    case = MODELS[name]
    truth(case, case.attentions[-1], torch.float32)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_architecture_costs_the_same_in_every_way(name: str, dtype: torch.dtype) -> None:
    """The reference holds with every attention and in both dtypes."""
    for attention in MODELS[name].attentions:
        truth(MODELS[name], attention, dtype)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FEW else pytest.mark.slow) for name in SMALL]
)
def test_a_small_architecture_costs_what_was_derived_in_bfloat16(name: str) -> None:
    """The references hold for another size, a batch of two, another dtype, and with attention scores."""
    case = SMALL[name]
    truth(case, case.attentions[0], torch.bfloat16)


# --- modules -----------------------------------------------------------------------------------


def of_zoo(name: str, mode: Mode = Mode.INFERENCE) -> Graph:
    """Analyse a small architecture of the zoo."""
    module, inputs = SMALL[name].build("eager", torch.float32)
    specs = [input_spec(n, *shape, dtype=str(kind)[6:]) for n, (shape, kind) in inputs.items()]
    return traced(module, *specs, mode=mode)


@pytest.mark.parametrize("name", ["resnet18", "bert_base_128", "t5_small", "mixtral", "unet"])
def test_children_add_up_to_their_parents(name: str) -> None:
    """The cost of a module is its own cost and that of its children; the root has the total."""
    graph = of_zoo(name, Mode.TRAIN)
    result = AnalysedGraph.of(graph, TABLE)
    costs = cost_by_module(graph, result.counts)
    own: Counter[str] = Counter()
    for op, counted in zip(graph.ops, result.counts, strict=True):
        assert op.scope in graph.modules
        own[op.scope] += counted.macs

    for scope, cost in costs.items():
        children = [c for path, c in costs.items() if path and path.rpartition(".")[0] == scope]
        assert cost.macs == own[scope] + sum(child.macs for child in children)
    assert costs[""].macs == result.totals().macs


def test_backward_belongs_to_the_modules_of_forward() -> None:
    """Every module of a GPT costs twice as much in backward as in forward."""
    graph = of_zoo("gpt2_512", Mode.TRAIN)
    forward, backward = by_module(graph, Phase.FORWARD), by_module(graph, Phase.BACKWARD)

    assert len(forward) > 8
    assert backward == Counter({scope: 2 * cost for scope, cost in forward.items()})


def test_a_module_that_is_called_twice_costs_twice() -> None:
    """A layer with two names counts under its first, for each call; its weights exist once."""
    graph = traced(modules.Shared().eval(), input_spec("x", 3, 4))

    assert by_module(graph, Phase.FORWARD) == {"first": 2 * 3 * 4 * 4}
    held = sum(item.bytes for item in graph.storages if item.role is Role.WEIGHT)
    assert held == 4 * (4 * 4 + 4) + 4 * 4 * 4 + 8


class Outer(nn.Module):
    """Calls one module within itself and within another."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4))
        self.last = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        y: Tensor = self.last(self.inner(x) @ x.mT @ self.inner(x))
        return y


def test_what_a_module_does_between_its_children_is_its_own() -> None:
    """After a child returns, the module around it is at work again."""
    graph = traced(Outer(), input_spec("x", 3, 4))

    products = 2 * 3 * 4 * 3
    assert by_module(graph, Phase.FORWARD) == {"inner.0": 2 * 3 * 4 * 4, "": products, "last": 3 * 4 * 2}


class Raising(nn.Module):
    """A child that raises, and a parent that handles it."""

    def __init__(self) -> None:
        super().__init__()
        self.child = nn.Linear(5, 5)

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        try:
            y: Tensor = self.child(x)
        except RuntimeError:
            y = x @ x.mT
        return y


def test_a_child_that_raises_is_left() -> None:
    """What follows a failed call belongs to the module that caught the error."""
    assert by_module(traced(Raising(), input_spec("x", 3, 4)), Phase.FORWARD) == {"": 36}


class Recomputing(nn.Module):
    """Computes its first layer again in backward."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        y: Tensor = self.second(checkpoint(lambda x: torch.relu(self.first(x)), x, use_reentrant=False))
        return y


def test_what_is_computed_again_is_counted_again() -> None:
    """A checkpoint adds a forward call of its part to backward."""
    first, second = 3 * 4 * 8, 3 * 8 * 2
    graph = traced(Recomputing(), input_spec("x", 3, 4), mode=Mode.TRAIN)

    assert macs(graph) == 3 * first + 3 * second


# --- memory ------------------------------------------------------------------------------------

PEAKS = ("resnet18", "resnet50", "bert", "gpt2", "llama", "t5", "unet", "mlp")


def peaking(name: str) -> tuple[nn.Module, dict[str, Tensor]]:
    """Return an architecture of some megabytes, and inputs for it."""
    if name == "mlp":
        layers = nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 10)
        return nn.Sequential(*layers), {"input": torch.randn(64, 128)}
    if name == "unet":
        module, inputs = SMALL["unet"].build("sdpa", torch.float32)
        sizes = {"latents": (2, 4, 32, 32), "timesteps": (2,), "context": (2, 5, 8)}
        sizes["latents"] = (2, inputs["latents"][0][1], 32, 32)
        return module, {
            n: torch.ones(s, dtype=torch.int64) if n == "timesteps" else torch.randn(s)
            for n, s in sizes.items()
        }
    if name.startswith("resnet"):
        module, _ = MODELS[name].build("eager", torch.float32)
        return module, {"pixels": torch.randn(1, 3, 64, 64)}
    ids = torch.randint(0, 100, (2, 64))
    return _language(name), {"input_ids": ids, **({"decoder_input_ids": ids[:, :32]} if name == "t5" else {})}


def _language(name: str) -> nn.Module:
    import transformers as hf

    with offline():
        made: dict[str, Callable[[], nn.Module]] = {
            "bert": lambda: hf.BertModel(
                hf.BertConfig(
                    num_hidden_layers=2, hidden_size=128, num_attention_heads=4, intermediate_size=512
                )
            ),
            "gpt2": lambda: hf.GPT2LMHeadModel(
                hf.GPT2Config(n_layer=2, n_embd=128, n_head=4, vocab_size=2000)
            ),
            "llama": lambda: hf.LlamaForCausalLM(
                hf.LlamaConfig(
                    num_hidden_layers=2, hidden_size=128, intermediate_size=512, num_attention_heads=8,
                    num_key_value_heads=2, vocab_size=2000,
                )
            ),
            "t5": lambda: hf.T5ForConditionalGeneration(
                hf.T5Config(num_layers=2, d_model=128, d_ff=512, vocab_size=2000)
            ),
        }  # fmt: skip
        return made[name]()


def step(module: nn.Module, args: list[Tensor], kwargs: dict[str, Tensor]) -> tuple[Tensor | None, ...]:
    """Run a training step as it is analysed: with the sum of the squares of all outputs."""
    out = module(*args, **kwargs)
    leaves = pytree.tree_leaves(torch_tracing_graph._plain_containers(out))
    floats = [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.requires_grad]
    loss = floats[0].square().sum()
    for more in floats[1:]:
        loss = loss + more.square().sum()
    del out, leaves, floats
    return torch.autograd.grad(loss, list(module.parameters()), allow_unused=True)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in {"resnet18", "bert", "llama", "mlp"} else pytest.mark.slow)
        for name in PEAKS
    ],
)
def test_the_peak_is_that_of_the_allocator(name: str) -> None:
    """The peak of a call and of a training step is within 1 % of what torch's allocator records."""
    torch.manual_seed(0)
    module, feed = peaking(name)
    inputs = [input_spec(n, *t.shape, dtype=str(t.dtype)[6:], high=99) for n, t in feed.items()]
    args, kwargs = Forward.of(module).arguments(feed)

    def call() -> Any:
        with torch.no_grad():
            return module(*args, **kwargs)

    module.eval()
    call()
    recorded = recorded_peak(call)
    module.train()
    step(module, args, kwargs)
    seen_in_training = recorded_peak(lambda: step(module, args, kwargs))

    foreseen, foreseen_in_training = (
        max(live_bytes_by_operator(traced(module, *inputs, mode=mode), roles=WORKING)) for mode in Mode
    )
    assert foreseen == pytest.approx(recorded, rel=0.01)
    assert foreseen_in_training == pytest.approx(seen_in_training, rel=0.01)


def test_lifetimes_of_a_chain() -> None:
    """Of a chain of layers the previous output and the current one are alive; the last is the output."""
    wide = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 16))
    graph = traced(wide, input_spec("input", 2, 4))

    assert kinds(graph) == ["addmm", "relu", "addmm"]
    assert live_bytes_by_operator(graph, roles=WORKING) == [64, 128, 64 + 128]
    assert [(s.role, s.bytes, s.output) for s in graph.storages if s.role is not Role.WEIGHT] == [
        (Role.INPUT, 32, False),
        (Role.ACTIVATION, 64, False),
        (Role.ACTIVATION, 64, False),
        (Role.ACTIVATION, 128, True),
    ]


# --- weights are not computed with -----------------------------------------------------------------


def test_weights_of_any_size_take_no_memory() -> None:
    """A module of eight terabytes, built and trained on meta tensors, costs what its shapes say."""

    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(LARGE, LARGE), nn.ReLU(), nn.Linear(LARGE, LARGE))

    module, stage = torch_tracing_graph.build_on_meta(make)
    inputs = (input_spec("input", 2, LARGE),)

    assert macs(torch_tracing_graph.trace_module(module, stage, Tracing(inputs=inputs))) == 4 * LARGE**2
    graph = torch_tracing_graph.trace_module(module, stage, Tracing(inputs=inputs, mode=Mode.TRAIN))
    held = sum(item.bytes for item in graph.storages if item.role is Role.WEIGHT)
    assert held == 8 * (LARGE**2 + LARGE)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("mode", list(Mode))
def test_a_live_module_is_as_it_was(mode: Mode, *, training: bool) -> None:
    """Weights, running means, modes, hooks and gradients of a live module are untouched, bit by bit."""
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.ReLU())
    module.train(training)
    module[2].eval()
    fired: list[str] = []
    module[0].register_forward_hook(lambda *_: fired.append("hook"))
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    modes = [part.training for part in module.modules()]
    hooks = [len(part._forward_hooks) + len(part._forward_pre_hooks) for part in module.modules()]
    everywhere = (
        len(nn.modules.module._global_forward_hooks),
        len(nn.modules.module._global_forward_pre_hooks),
    )
    memory = [tensor.data_ptr() for tensor in module.state_dict().values()]

    traced(module, input_spec("input", 2, 3, 8, 8), mode=mode, optimizer="adamw")

    after = module.state_dict()
    assert all(torch.equal(before[name], tensor) for name, tensor in after.items())
    assert [tensor.data_ptr() for tensor in after.values()] == memory
    assert [type(p) for p in module.parameters()] == [nn.Parameter] * 4
    assert [part.training for part in module.modules()] == modes
    assert [len(p._forward_hooks) + len(p._forward_pre_hooks) for p in module.modules()] == hooks
    assert everywhere == (
        len(nn.modules.module._global_forward_hooks),
        len(nn.modules.module._global_forward_pre_hooks),
    )
    assert all(parameter.grad is None for parameter in module.parameters())
    assert module(torch.randn(2, 3, 8, 8)).shape == (2, 4, 6, 6)


class Uncopiable(nn.Module):
    """Refuses to be copied."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        raise TypeError("there is one of me")

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        y: Tensor = self.norm(self.linear(x))
        return y


@pytest.mark.parametrize("mode", list(Mode))
def test_a_module_that_cannot_be_copied_is_as_it_was(mode: Mode) -> None:
    """A module that cannot be copied is analysed itself, and its weights are not written to."""
    module = Uncopiable()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    modes = [part.training for part in module.modules()]

    graph = traced(module, input_spec("x", 3, 4), mode=mode, optimizer="adamw")

    assert macs(graph) == (48 if mode is Mode.INFERENCE else 96)
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())
    assert [part.training for part in module.modules()] == modes
    assert all(parameter.grad is None for parameter in module.parameters())


def test_training_and_inference_differ_in_dropout_and_norms() -> None:
    """The requested mode is that of the call, whatever mode the module is in."""
    module = nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2))

    assert not any(
        "dropout" in kind or "bernoulli" in kind for kind in kinds(traced(module, input_spec("x", 3, 4)))
    )
    training = kinds(traced(module.eval(), input_spec("x", 3, 4), mode=Mode.TRAIN))
    assert any("dropout" in kind or "bernoulli" in kind for kind in training)


# --- courses that depend on data --------------------------------------------------------------------


class Deciding(nn.Module):
    """Takes one of two branches, by a test of its input."""

    def __init__(self, test: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.test = test
        self.yes, self.no = nn.Linear(4, 8, bias=False), nn.Linear(4, 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        chosen = self.yes if self.test(x) else self.no
        y: Tensor = chosen(x.float())
        return y


YES, NO = 3 * 4 * 8, 3 * 4 * 2


@pytest.mark.parametrize(
    ("test", "cost"),
    [
        (lambda x: x.min().item() >= 1, YES),
        (lambda x: x.max().item() > 9, NO),
        (lambda x: (x > 0).all(), YES),
        (lambda x: bool((x == 0).any()), NO),
        (lambda x: int(x.sum()) >= 12, YES),
        (lambda x: float(x.float().mean()) < 1, NO),
        (lambda x: x.tolist()[0][0] > 0, YES),
        (lambda x: x.flatten().tolist() == [], NO),
        (lambda x: x.unique().numel() <= 9, YES),
        (lambda x: torch.equal(x, x.clone()), YES),
        (lambda x: torch.equal(x, x + 1), NO),
        (lambda x: x.nonzero().shape[0] == 12, YES),
        (lambda x: x[x > 100].numel() > 0, NO),
        (lambda x: torch.masked_select(x, x > 0).numel() == 12, YES),
        (lambda x: len(torch.where(x < 0)[0]), NO),
        (lambda x: torch.allclose(x.float(), x.float()), YES),
        (lambda x: x.cpu().numpy().min() >= 1, YES),
        (lambda x: np.asarray(x).min() >= 1, YES),
        (lambda x: np.array(x[1]).sum() >= 4, YES),
        (lambda x: max(x.view(-1)[0].item(), 0), YES),
        (lambda x: 5 in torch.arange(10) and 11 not in torch.arange(10) and x.numel() == 12, YES),
    ],
)
def test_known_values_decide(test: Callable[[Tensor], Any], cost: int) -> None:
    """Integers of the input are drawn from their range, and decide branches; nothing is assumed."""
    graph = traced(Deciding(test), input_spec("x", 3, 4, dtype="int64", low=1, high=9))

    assert macs(graph) == cost
    assert graph.assumptions == ()


@pytest.mark.parametrize(
    ("test", "cost", "assumed"),
    [
        (lambda x: x.sum().item() > 0, YES, "taken as 1"),
        (lambda x: x.sum() > 0, NO, "taken as false"),
        (lambda x: bool((x > 0).all()), NO, "taken as false"),
        (lambda x: x[0].tolist() == [1, 1, 1, 1], YES, "taken as 1"),
        (lambda x: torch.equal(x, x + 1), NO, "taken as different"),
        (lambda x: x.nonzero().shape[0] == 12, YES, "taken as all"),
        (lambda x: x[x > 100].numel() == 12, YES, "taken as all"),
        (lambda x: torch.masked_select(x, x > 0).numel() == 12, YES, "taken as all"),
        (lambda x: len(torch.where(x < 0)[0]) == 12, YES, "taken as all"),
        (lambda x: x.argmax(-1).tolist() == [0, 1, 2], YES, "spread evenly"),
        (lambda x: x.topk(2).indices.tolist() == [[0, 1], [2, 3], [0, 1]], YES, "spread evenly"),
    ],
)
def test_unknown_values_are_assumed_and_reported(
    test: Callable[[Tensor], Any], cost: int, assumed: str
) -> None:
    """Where control flow depends on values that are not computed, the assumption is reported."""
    graph = traced(Deciding(test), input_spec("x", 3, 4))

    assert macs(graph) == cost
    assert any(assumed in assumption for assumption in graph.assumptions)


class Checked(nn.Module):
    """Checks the input of each of its layers before it computes."""

    def __init__(self, check: Callable[[Tensor], Any], layers: int = 3) -> None:
        super().__init__()
        self.check = check
        self.layers = nn.ModuleList(nn.Linear(4, 4, bias=False) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        for layer in self.layers:
            self.check(x)
            x = layer(x)
        return x


def asserted(x: Tensor) -> None:
    """Require all values to be finite, and then all to be small."""
    assert (x.abs() < 9).all()
    assert bool(torch.isfinite(x).all()), f"{x} is not finite"


def raised(x: Tensor) -> None:
    """Require a flag of an array."""
    if not (x > 0).any(-1).numpy()[0]:
        raise ValueError(f"{x.max().item()} is not positive")


def same(x: Tensor) -> None:
    """Require a copy to be a copy."""
    if not torch.equal(x, x.clone()):
        raise RuntimeError("It is not.")


def drawn(x: Tensor) -> None:
    """Require valid parameters of a distribution, as torch does."""
    torch.distributions.Normal(x, x.exp(), validate_args=True).rsample()


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("check", [asserted, raised, same, drawn])
def test_a_check_of_what_is_not_computed_is_taken_to_hold(check: Callable[[Tensor], Any], mode: Mode) -> None:
    """Where a module fails on a made-up flag, the other value is taken and reported, in every layer."""
    graph = traced(Checked(check), input_spec("x", 2, 4), mode=mode)

    assert macs(graph) == (3 if mode is Mode.INFERENCE else 3 + 3 + 2) * 2 * 16
    assert any("make the model fail when" in text for text in graph.assumptions)
    assert not any("taken as false" in text for text in graph.assumptions)


@pytest.mark.parametrize("mode", list(Mode))
def test_a_restarted_call_leaves_nothing_of_the_first(mode: Mode) -> None:
    """Remains of a failed call are neither memory nor operators of the next one."""

    def refusing(x: Tensor) -> None:
        assert (x > 0).all()

    def passing(x: Tensor) -> None:
        assert not (x > 0).all()

    anew, first = (traced(Checked(check), input_spec("x", 2, 4), mode=mode) for check in (refusing, passing))

    assert anew.ops == first.ops
    assert anew.storages == first.storages
    assert anew.assumptions != first.assumptions


def test_each_shape_is_asked_afresh() -> None:
    """A flag that one call needed to be true is false in the next one, if that does not fail."""

    def check(x: Tensor) -> None:
        if (x > 0).all():
            return
        assert x.shape[0] == 2

    module, stage = torch_tracing_graph.copy_to_meta(Checked(check))
    three, two = (
        torch_tracing_graph.trace_module(module, stage, Tracing(inputs=(input_spec("x", rows, 4),)))
        for rows in (3, 2)
    )

    assert "taken as true" in str(three.assumptions)
    assert "taken as true" not in str(two.assumptions)


def test_a_module_that_refuses_both_flags_is_refused_for_the_first() -> None:
    """Where neither flag helps, the error is that of the first one."""

    def refusing(x: Tensor) -> None:
        raise ValueError("too large" if (x > 0).all() else "too small")

    with pytest.raises(RequestError, match=r"ValueError: too small .*`inputs`\.$"):
        traced(Checked(refusing), input_spec("x", 2, 4))


def test_a_program_is_not_begun_anew_for_ever() -> None:
    """A program with a check for each of very many flags fails on the first."""
    begun = []

    def deeper(x: Tensor, more: int) -> None:
        if not more:
            begun.append(x)
        assert more == 200 or (x > 0).all(), f"at {more}"
        deeper(x, more + 1)

    with pytest.raises(RequestError, match=r"AssertionError: at 0 "):
        traced(Checked(lambda x: deeper(x, 0)), input_spec("x", 2, 4))
    assert len(begun) == 1 + 32


class Chosen(nn.Module):
    """Works on the rows whose first number is positive, and writes the result back."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4, bias=False)

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        """Compute."""
        y = x.clone()
        y[keep > 4] = self.layer(x[keep > 4])
        return y


def test_a_known_mask_chooses_rows() -> None:
    """Rows of an unknown tensor are selected by a known mask."""
    graph = traced(Chosen(), input_spec("x", 6, 4), input_spec("keep", 6, dtype="int64", low=5, high=5))
    none = traced(Chosen(), input_spec("x", 6, 4), input_spec("keep", 6, dtype="int64", low=1, high=1))

    assert macs(graph) == 6 * 4 * 4
    assert macs(none) == 0
    assert graph.assumptions == none.assumptions == ()


class Experts(nn.Module):
    """Sends each token to `chosen` of its experts, in a loop."""

    def __init__(self, experts: int = 4, chosen: int = 2) -> None:
        super().__init__()
        self.chosen = chosen
        self.router = nn.Linear(8, experts, bias=False)
        self.experts = nn.ModuleList(nn.Linear(8, 8, bias=False) for _ in range(experts))

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        scores, chosen = self.router(x).softmax(-1).topk(self.chosen, dim=-1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows, places = torch.where(chosen == number)
            out.index_add_(0, rows, expert(x[rows]) * scores[rows, places].unsqueeze(-1))
        return out


@pytest.mark.parametrize("mode", list(Mode))
def test_experts_are_chosen_evenly(mode: Mode) -> None:
    """Each of four experts gets two of four shares of twelve tokens, and the selection is reported."""
    graph = traced(Experts(), input_spec("x", 12, 8), mode=mode)
    times = 1 if mode is Mode.INFERENCE else 2  # neither input nor the first gradient to it is trained
    routed = by_module(graph, Phase.FORWARD)

    assert [routed[f"experts.{n}"] for n in range(4)] == [6 * 8 * 8] * 4
    assert macs(graph) == times * (12 * 8 * 4 + 24 * 8 * 8)
    assert [(r.experts, r.chosen) for r in graph.routings] == [(4, 2)]
    assert any("balanced router" in text for text in graph.assumptions)


def test_a_range_of_unknown_length_is_what_is_assumed() -> None:
    """A value that is not computed is taken as 1, wherever it becomes a size."""

    class Sized(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            """Compute."""
            return torch.ones(int(x.sum()), 4) @ x

    graph = traced(Sized(), input_spec("x", 4, 5))
    assert macs(graph) == 20
    assert graph.assumptions


# --- operators of others -----------------------------------------------------------------------------


@torch.library.custom_op("modeldyno_tests::doubled", mutates_args=())
def doubled(x: Tensor) -> Tensor:
    """Double."""
    return x * 2


@doubled.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("modeldyno_tests::shapeless", mutates_args=())
def shapeless(x: Tensor) -> Tensor:
    """Double, without a registered shape."""
    return x * 2


@torch.library.custom_op("modeldyno_tests::picky", mutates_args=())
def picky(x: Tensor) -> Tensor:
    """Double, without a registered shape, what consists of twos."""
    if (x != 2).any():
        raise ValueError("only twos")
    return x * 2


class Calling(nn.Module):
    """Calls a function within a child."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4, bias=False)
        self.child = Applying(function)

    def forward(self, x: Tensor) -> Any:
        """Compute."""
        return self.child(self.layer(x))


class Applying(nn.Module):
    """Applies a function."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        """Compute."""
        return self.function(x)


def test_an_operator_without_a_formula_is_listed() -> None:
    """A user's operator with known shapes is named with them, and lowers the coverage."""
    result = AnalysedGraph.of(traced(Calling(doubled), input_spec("x", 3, 4)), TABLE)
    (row,) = (row for row in sum_by_operator(result) if not row.counted)

    assert (row.kind, row.calls, row.shapes, row.scope) == (
        "modeldyno_tests.doubled",
        1,
        "(3, 4) -> (3, 4)",
        "child",
    )
    assert result.totals().coverage == 0.5


def test_an_operator_without_shapes_is_run_once() -> None:
    """A user's operator without a shape rule is run for its shapes, which is said, and is not counted."""
    graph = traced(Calling(shapeless), input_spec("x", 3, 4))
    assert AnalysedGraph.of(graph, TABLE).totals().coverage == 0.5
    (text,) = graph.assumptions
    assert text == "modeldyno_tests.shapeless was run once on random numbers, for the sizes of its results"


def test_an_operator_without_shapes_that_cannot_be_run_is_named() -> None:
    """Where it fails on such numbers, one sentence has its name, the reason and a remedy."""
    with pytest.raises(RequestError, match=r"picky .*only twos.*register_fake") as caught:
        traced(Calling(picky), input_spec("x", 3, 4))
    assert "\n" not in str(caught.value)


# --- tensors that share memory ------------------------------------------------------------------------


def test_views_are_no_work() -> None:
    """A view is no operator, and takes no memory."""
    graph = traced(
        Applying(lambda x: x.view(2, 6).t()[1:].unsqueeze(0).expand(5, -1, -1)), input_spec("x", 3, 4)
    )

    assert graph.ops == ()
    assert [s.role for s in graph.storages] == [Role.INPUT]
    assert graph.storages[0].output


def test_an_operator_in_place_takes_no_memory() -> None:
    """An in-place write is an operator whose output has the storage of its input."""
    graph = traced(Applying(lambda x: (x * 2).relu_().add_(1).t().neg_()), input_spec("x", 3, 4))

    assert kinds(graph) == ["mul", "relu_", "add_", "neg_"]
    assert max(live_bytes_by_operator(graph, roles=WORKING)) == 48
    assert len({op.outputs[0].storage for op in graph.ops}) == 1


def test_an_expanded_tensor_is_stored_once() -> None:
    """An expanded row is read once, however often it is repeated."""
    graph = traced(Applying(lambda x: x[:1].expand(1000, 4) + 1), input_spec("x", 3, 4))
    (operand, *_) = graph.ops[0].tensors()

    assert (operand.shape, operand.stored, operand.bytes) == ((1000, 4), 4, 16)
    assert graph.ops[0].outputs[0].bytes == 16000


def test_tied_weights_are_there_once() -> None:
    """An embedding tied to its decoder is stored once, in a live module and on meta tensors."""
    built, stage = torch_tracing_graph.build_on_meta(modules.Tied)
    tracing = Tracing(inputs=(input_spec("ids", 2, 3, dtype="int64"),))

    for graph in (
        traced(modules.Tied(), *tracing.inputs),
        torch_tracing_graph.trace_module(built, stage, tracing),
    ):
        assert sum(s.bytes for s in graph.storages if s.role is Role.WEIGHT) == 160
        assert macs(graph) == 6 * 4 * 10


def test_parameters_that_share_a_storage_weigh_once() -> None:
    """Two parameters that are parts of one tensor share one storage, of its whole size."""

    class Parts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            whole = torch.randn(6, 4)
            self.upper, self.lower = nn.Parameter(whole[:4]), nn.Parameter(whole[4:])

        def forward(self, x: Tensor) -> Tensor:
            """Compute."""
            return x @ self.upper @ self.lower.mT

    graph = traced(Parts(), input_spec("x", 3, 4))

    assert [s.bytes for s in graph.storages if s.role is Role.WEIGHT] == [96]


def test_copied_layers_have_weights_of_their_own() -> None:
    """Layers that nn.TransformerEncoder copies on meta tensors have the size and cost of live ones."""

    def make() -> nn.Module:
        return nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 3).eval()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        live = make()
    module, stage = torch_tracing_graph.build_on_meta(make)
    inputs = (input_spec("src", 2, 5, 16),)
    first, second = (
        traced(live, *inputs),
        torch_tracing_graph.trace_module(module, stage, Tracing(inputs=inputs)),
    )

    assert kinds(first) == kinds(second)
    assert sum(s.bytes for s in second.storages if s.role is Role.WEIGHT) == sum(
        p.nbytes for p in live.parameters()
    )
    projections = 10 * (4 * 16 * 16 + 2 * 16 * 32)
    assert macs(first) == macs(second) == 3 * (projections + 2 * 2 * 5 * 5 * 16)


def test_buffers_are_weights() -> None:
    """Running statistics exist before the call, whether they are saved or not."""
    norm = nn.BatchNorm1d(4)
    norm.register_buffer("extra", torch.zeros(7), persistent=False)
    graph = traced(norm.eval(), input_spec("input", 3, 4))

    assert sum(s.bytes for s in graph.storages if s.role is Role.WEIGHT) == 4 * 16 + 8 + 28


class Keeping(nn.Module):
    """Has a tensor attribute, and keeps a table that it builds in its first call."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.full((1000,), 2.0)
        self.table: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        if self.table is None:
            self.table = torch.rand(1000) * 3
        return (x * self.scale).relu() * self.table


@pytest.mark.parametrize("live", [True, False])
def test_what_a_module_keeps_is_there_before(*, live: bool) -> None:
    """Tensor attributes of a module are not activations, in this call nor in the next ones."""
    module, stage = (
        torch_tracing_graph.copy_to_meta(Keeping()) if live else torch_tracing_graph.build_on_meta(Keeping)
    )
    first, second, third = (
        torch_tracing_graph.trace_module(module, stage, Tracing(inputs=(input_spec("x", 1000),)))
        for _ in range(3)
    )

    assert second == third
    for graph in (second, third):
        scale, table = (ops(graph, "mul")[n].tensors() for n in range(2))
        kept = [graph.storages[list(tensors)[1].storage] for tensors in (scale, table)]
        assert [(s.role, s.bytes, s.born) for s in kept] == [(Role.WEIGHT, 4000, -1)] * 2
        assert max(live_bytes_by_operator(graph, roles=WORKING)) == 8000
    assert [s.bytes for s in first.storages if s.role is Role.WEIGHT] == [4000]


def test_another_model_of_the_same_file_takes_no_memory_of_this_one() -> None:
    """What a file makes beside the model, and the call does not use, is not the model's."""
    made: list[nn.Module] = []

    def make() -> nn.Module:
        made.extend(nn.Linear(64, 64) for _ in range(2))
        return made[0]

    module, stage = torch_tracing_graph.build_on_meta(make)
    graph = torch_tracing_graph.trace_module(module, stage, Tracing(inputs=(input_spec("input", 1, 64),)))
    assert len(made) == 2
    assert sum(s.bytes for s in graph.storages if s.role is Role.WEIGHT) == (64 * 64 + 64) * 4


# --- layers that torch treats in ways of their own ------------------------------------------------------


@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.parametrize("mode", list(Mode))
def test_attention_of_torch(mode: Mode, *, weights: bool) -> None:
    """nn.MultiheadAttention costs its projections and products, with or without its weights as an output."""

    class Attending(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

        def forward(self, x: Tensor) -> Any:
            """Compute."""
            return self.attention(x, x, x, need_weights=weights)

    forward = 2 * 5 * 16 * 16 * 4 + 2 * (2 * 5 * 5 * 16)
    result = macs(traced(Attending().eval(), input_spec("x", 2, 5, 16), mode=mode))
    if mode is Mode.INFERENCE:
        assert result == forward
    else:  # no gradient goes to the input; a fused kernel computes its scores again
        training = 3 * forward - 2 * 5 * 16 * 16 * 3
        assert result in {training, training + 2 * 5 * 5 * 16}


@pytest.mark.parametrize("norm_first", [True, False])
def test_an_encoder_layer_costs_the_same_on_its_fast_path(*, norm_first: bool) -> None:
    """The fused kernel of evaluation costs as much as the layer where gradients forbid the kernel."""
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=norm_first).eval()
    fast = traced(layer, input_spec("src", 2, 5, 16))
    slow = traced(layer, input_spec("src", 2, 5, 16), mode=Mode.TRAIN)

    assert macs(fast) == sum(by_module(slow, Phase.FORWARD).values())
    assert ("_transformer_encoder_layer_fwd" in kinds(fast)) == (
        "_transformer_encoder_layer_fwd" in run_kinds(layer, torch.randn(2, 5, 16))
    )


def run_kinds(module: nn.Module, *args: Tensor) -> set[str]:
    """Name the operators that torch calls for real, without gradients."""
    with torch.no_grad(), torch.profiler.profile(acc_events=True) as profile:
        module(*args)
    return {event.key.removeprefix("aten::") for event in profile.key_averages()}


@pytest.mark.parametrize(("kind", "gates"), [(nn.LSTM, 4), (nn.GRU, 3), (nn.RNN, 1)])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("both", [True, False])
def test_recurrent_layers(kind: Callable[..., nn.Module], gates: int, layers: int, *, both: bool) -> None:
    """LSTM, GRU and RNN cost gates times hidden times (inputs and hidden) for each step and direction."""
    ways = 2 if both else 1
    module = kind(6, 8, num_layers=layers, bidirectional=both, batch_first=True)
    wide = [6, *(8 * ways,) * (layers - 1)]
    forward = sum(ways * 3 * 10 * gates * 8 * (width + 8) for width in wide)

    assert macs(traced(module.eval(), input_spec("input", 3, 10, 6))) == forward


def test_quantised_weights_are_analysed_or_refused() -> None:
    """A module that torch quantised dynamically has its products, or an error that names the operator."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            module = torch.ao.quantization.quantize_dynamic(  # type: ignore[no-untyped-call]
                nn.Sequential(nn.Linear(4, 2)), dtype=torch.qint8
            )
        except RuntimeError as error:
            pytest.skip(f"this torch quantises nothing: {error}")
    try:
        graph = traced(module.eval(), input_spec("input", 3, 4))
    except RequestError as error:
        assert "linear_dynamic" in str(error)
    else:
        assert any("linear_dynamic" in op.kind for op in graph.ops)


class Converting(nn.Module):
    """Converts itself, and its input, in its first call."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        y: Tensor = functional.linear(x.double(), self.layer.weight.double())
        return y.half()


def test_dtypes_are_those_of_the_call() -> None:
    """A product has the dtype of its converted operands, and the output its own."""
    graph = traced(Converting(), input_spec("x", 3, 4))
    (product,) = ops(graph, "mm")

    assert {t.dtype for t in product.tensors()} == {"float64"}
    assert graph.ops[-1].outputs[0].dtype == "float16"


# --- training -----------------------------------------------------------------------------------------

STATES = {"adamw": 2, "adam": 2, "sgd": 0, "sgd-momentum": 1, "none": 0}


@pytest.mark.parametrize("name", STATES)
def test_optimisers_keep_what_they_keep(name: str) -> None:
    """State is a multiple of the parameters, plus four step counts; gradients are as large as parameters."""
    module = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 8))
    size = sum(p.nbytes for p in module.parameters())
    totals = AnalysedGraph.of(
        traced(module, input_spec("x", 3, 64), mode=Mode.TRAIN, optimizer=name), TABLE
    ).totals()

    counts = 4 * 4 if name.startswith("adam") else 0
    assert totals.optimizer_bytes == STATES[name] * size + counts
    assert totals.gradient_bytes == size


def test_adafactor_keeps_rows_and_columns() -> None:
    """Adafactor keeps far less than the parameters."""
    module = nn.Linear(64, 64, bias=False)
    totals = AnalysedGraph.of(
        traced(module, input_spec("x", 3, 64), mode=Mode.TRAIN, optimizer="adafactor"), TABLE
    ).totals()

    assert 0 < totals.optimizer_bytes < 0.1 * module.weight.nbytes


@pytest.mark.parametrize("name", ["adamw", "sgd-momentum"])
def test_the_step_that_is_recorded_is_a_steady_one(name: str) -> None:
    """The state exists before the step: no operator of the update creates it, and all read it."""
    graph = traced(nn.Linear(8, 8, bias=False), input_spec("x", 3, 8), mode=Mode.TRAIN, optimizer=name)
    update = [op for op in graph.ops if op.phase is Phase.UPDATE]
    states = [index for index, s in enumerate(graph.storages) if s.role is Role.STATE]

    assert update
    assert all(graph.storages[index].born == -1 for index in states)
    read = {tensor.storage for op in update for tensor in op.tensors()}
    assert set(states) <= read
    assert not any("zeros" in op.kind for op in update)


def test_phases_follow_each_other() -> None:
    """Forward comes before backward, and backward before the update."""
    graph = traced(modules.mlp(), input_spec("input", 3, 4), mode=Mode.TRAIN, optimizer="adamw")
    phases = [op.phase for op in graph.ops]

    assert list(dict.fromkeys(phases)) == [Phase.FORWARD, Phase.BACKWARD, Phase.UPDATE]
    assert phases == sorted(phases, key=list(Phase).index)


def test_frozen_parameters_have_no_gradients() -> None:
    """A frozen parameter has neither gradient nor state, nor a gradient product."""
    module = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False))
    module[0].requires_grad_(False)
    graph = traced(module, input_spec("input", 3, 8), mode=Mode.TRAIN, optimizer="adamw")
    totals = AnalysedGraph.of(graph, TABLE).totals()

    assert totals.macs == (2 + 1) * 3 * 8 * 8
    assert totals.gradient_bytes == 256
    assert totals.optimizer_bytes == 2 * 256 + 4


def test_what_cannot_be_trained_is_refused() -> None:
    """A module without anything to train is rejected for training; the error names the inference mode."""
    with pytest.raises(RequestError, match=r"Applying .*`mode=inference`"):
        traced(Applying(torch.relu), input_spec("x", 3, 4), mode=Mode.TRAIN)


# --- what does not fit ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "inputs"),
    [
        (modules.mlp(), (input_spec("input", 3, 5),)),
        (modules.mlp(), ()),
        (modules.TwoInputs(), (input_spec("left", 3, 4),)),
        (modules.TwoInputs(), (input_spec("left", 3, 4), input_spec("right", 2, 4))),
        (modules.Images(), (input_spec("pixels", 1, 4, 8, 8),)),
        (modules.Images(), (input_spec("pixels", 1, 3, 2, 2),)),
        (nn.Embedding(4, 2), (input_spec("input", 3),)),
        (Applying(lambda x: x[0, 0, 0]), (input_spec("x", 3),)),
    ],
)
def test_wrong_inputs_are_refused(module: nn.Module, inputs: tuple[InputSpec, ...]) -> None:
    """Invalid inputs are rejected in a sentence that names the module and the inputs."""
    with pytest.raises(RequestError, match=type(module).__name__) as caught:
        traced(module, *inputs)
    assert "\n" not in str(caught.value)
    assert "`inputs`" in str(caught.value)
    assert all(f"{s.name}=" in str(caught.value) for s in inputs)


def test_the_child_that_objects_is_named() -> None:
    """An error names the inner module whose call failed."""
    module = nn.Sequential(nn.Linear(4, 5), nn.Sequential(nn.ReLU(), nn.Linear(6, 2)))
    with pytest.raises(RequestError, match=r"in 1\.1: "):
        traced(module, input_spec("input", 3, 4))


def test_after_a_refusal_all_is_as_before() -> None:
    """A failed call leaves no mode, hook or dispatch mode behind, and the next one starts fresh."""
    module = modules.mlp()
    shadowed, stage = torch_tracing_graph.copy_to_meta(module)
    with pytest.raises(RequestError):
        torch_tracing_graph.trace_module(
            shadowed, stage, Tracing(inputs=(input_spec("input", 3, 5),), mode=Mode.TRAIN)
        )

    assert (
        macs(torch_tracing_graph.trace_module(shadowed, stage, Tracing(inputs=(input_spec("input", 3, 4),))))
        == 3 * 48
    )
    assert torch.ones(2).add(1).tolist() == [2, 2]
    assert type(module(torch.ones(1, 4))) is Tensor


def test_the_same_call_gives_the_same_graph() -> None:
    """A module that is traced twice, or live and rebuilt, has one graph."""
    first, second = (of_zoo("llama3_8b", Mode.TRAIN) for _ in range(2))

    assert first.ops == second.ops
    assert first.storages == second.storages


def test_keys_and_values_of_a_cache_are_known() -> None:
    """A decoder reports the storages of its cache: keys and values of each layer, by heads and width."""
    graph = of_zoo("llama3_8b")

    assert len(graph.caches) == 2 * 2
    assert {graph.storages[index].bytes for index in graph.caches} == {2 * 12 * 2 * 8 * 4}


# --- another precision -------------------------------------------------------------------------


class Tied(nn.Module):
    """One weight in two places, a number that steers, and a tensor that is no weight."""

    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(50, 16), nn.Linear(16, 50, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("scale", torch.tensor(2.0))
        self.shift = torch.ones(16)

    def forward(self, ids: Tensor) -> Tensor:
        """Embed, and score each word."""
        hidden = self.embedding(ids) * self.scale
        scores: Tensor = self.head(hidden if self.scale > 1 else hidden + self.shift)
        return scores


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
@pytest.mark.parametrize(
    ("module", "spec"),
    [
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()), input_spec("input", 2, 3, 8, 8)),
        (nn.LSTM(4, 8, batch_first=True), input_spec("input", 2, 5, 4)),
        (Tied(), input_spec("ids", 2, 5, dtype="int64")),
    ],
)
def test_an_analysis_in_another_dtype_is_that_of_the_converted_module(
    module: nn.Module, spec: InputSpec, dtype: str
) -> None:
    """Operators, bytes and memory; the module itself stays as it is."""
    converted = traced(copy.deepcopy(module).to(getattr(torch, dtype)), spec)
    before = [tensor.dtype for tensor in module.state_dict().values()]
    graph = torch_module.make_tracer(module)(Tracing(inputs=(spec,), dtype=dtype))

    assert graph.ops == converted.ops
    assert graph.storages == converted.storages
    assert [tensor.dtype for tensor in module.state_dict().values()] == before


@pytest.mark.parametrize("mode", [Mode.INFERENCE, Mode.TRAIN])
def test_modules_nested_as_deep_as_they_can_be_called_are_analysed(mode: Mode) -> None:
    """The hooks of an analysis take no frames from the model."""
    module: nn.Module = nn.Linear(4, 4)
    for _ in range(200):
        module = nn.Sequential(module)
    limit = sys.getrecursionlimit()

    graph = traced(module, input_spec("input", 1, 4), mode=mode)

    assert sum(op.kind == "aten.addmm" for op in graph.ops) == 1
    assert sys.getrecursionlimit() == limit


def test_a_module_that_calls_itself_for_ever_is_refused_without_advice_on_shapes() -> None:
    """The shapes are not why."""

    class Endless(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return self.forward(x)

    with pytest.raises(RequestError, match=r"RecursionError: maximum recursion depth exceeded \([^;]*\)\.$"):
        traced(Endless(), input_spec("x", 1, 4))


@pytest.mark.parametrize("make", [nn.Embedding, nn.EmbeddingBag])
def test_sparse_gradients_are_refused_in_a_sentence(make: type[nn.Embedding]) -> None:
    """A step with them cannot be counted, a call can."""
    ids = InputSpec(name="input", shape=(2, 5), dtype="int64")

    assert macs(traced(make(10, 4, sparse=True), ids)) == 0
    with pytest.raises(RequestError, match="has sparse gradients, whose steps can be timed but not counted"):
        traced(make(10, 4, sparse=True), ids, mode=Mode.TRAIN)
