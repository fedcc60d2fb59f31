"""The closed forms against published figures, and against a witness that sees every product computed."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from tests.zoo import truths
from tests.zoo.models import MODELS, SMALL, Case
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = (Path(__file__).parents[2] / "docs" / "explanation" / "derivations.md").read_text(encoding="utf-8")
PRODUCTS = ("mm", "matmul", "mv", "dot", "conv", "linear", "attention", "einsum", "rnn", "lstm", "gru")
ON_META = sorted(name for name, case in MODELS.items() if case.meta)
FEW = {"bert_base_128", "resnet18", "t5_small"}
"""Watched in their published size by default, all others by `make test-slow`; small siblings are, of all."""
OTHERS = [
    pytest.param(name, attention, dtype, marks=() if name == "bert_base_128" else pytest.mark.slow)
    for name in ON_META
    for attention in MODELS[name].attentions
    for dtype in MODELS[name].meta
    if (attention, dtype) != ("eager", MODELS[name].meta[0])
]
ATTENTIONS = [(name, attention) for name in sorted(SMALL) for attention in SMALL[name].attentions]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small products wait for each other more than they compute."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Witness(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the products that reach the kernels, and refuses one that it does not know."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.macs = 0
        self.fused = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Compute, and count what was computed."""
        out = func(*args, **(kwargs or {}))
        self.macs += self._product(func.overloadpacket.__name__, args, out)
        return out

    def _product(self, name: str, args: tuple[Any, ...], out: Any) -> int:
        macs = 0
        match name:
            case "mm" | "bmm":
                macs = out.numel() * args[0].shape[-1]
            case "addmm" | "baddbmm":
                macs = out.numel() * args[1].shape[-1]
            case "_grouped_mm":
                macs = args[0].numel() * args[1].shape[-1]
            case "convolution":
                macs = out.numel() * math.prod(args[1].shape[1:])
            case "convolution_backward":
                of_input, of_weight, _ = args[10]
                macs = (of_input + of_weight) * args[0].numel() * math.prod(args[2].shape[1:])
            case "_scaled_dot_product_flash_attention_for_cpu":
                macs = 2 * args[0].numel() * args[1].shape[-2]
            case "_scaled_dot_product_flash_attention_for_cpu_backward":
                self.fused += 1
                macs = 5 * args[1].numel() * args[2].shape[-2]
            case _:
                assert not any(word in name for word in PRODUCTS), name
        return macs


def _made(
    case: Case, attention: str, device: str, dtype: torch.dtype | None = None
) -> tuple[torch.nn.Module, dict[str, Tensor]]:
    torch.manual_seed(0)
    dtype = dtype or (case.meta[0] if device == "meta" else torch.float32)
    with torch.device(device):
        model, inputs = case.build(attention, dtype)
        return model.eval(), {name: torch.zeros(shape, dtype=kind) for name, (shape, kind) in inputs.items()}


def _tensors(out: Any) -> Iterator[Tensor]:
    values = [out] if isinstance(out, Tensor) else out.values()
    return (value for value in values if isinstance(value, Tensor) and value.requires_grad)


def _witnessed(case: Case, attention: str, device: str) -> tuple[int, int, int]:
    """Give what a forward call costs, what forward and backward cost, and how much attention was fused."""
    model, inputs = _made(case, attention, device)
    with Witness() as forward:
        out = model(**inputs)
        loss = torch.stack([value.float().sum() for value in _tensors(out)]).sum()
    with Witness() as backward:
        loss.backward()  # type: ignore[no-untyped-call]
    return forward.macs, forward.macs + backward.macs, backward.fused


@pytest.mark.parametrize(
    ("sizes", "macs"),
    [
        (truths.RESNET18, 1_814_073_344),
        (truths.RESNET50, 4_089_184_256),
        (truths.ConvNext(), 4_455_531_264),
        (truths.Vit(), 17_563_828_224),
        (truths.Bert(), 11_174_215_680),
        (truths.Bert(pooler=False), 11_173_625_856),
    ],
)
def test_known_macs(sizes: Any, macs: int) -> None:
    """The closed forms give the figures that are known for these models."""
    assert sizes.cost().forward == macs


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("resnet18_cifar", 11_173_962),
        ("resnet18", 11_689_512),
        ("resnet50", 25_557_032),
        ("vit_b16", 86_567_656),
        ("convnext_t", 28_589_128),
        ("bert_base_128", 109_482_240),
        ("gpt2_512", 124_439_808),
        ("llama3_8b", 8_030_261_248),
        ("t5_small", 60_506_624),
        ("whisper_tiny", 37_760_640),
        ("mamba_130m", 129_135_360),
    ],
)
def test_known_parameters(name: str, parameters: int) -> None:
    """The closed forms give the parameters that these models are known to have."""
    assert MODELS[name].parameters == parameters


def test_a_backward_pass_by_hand() -> None:
    """A layer costs 3 times its forward, or 2 times without a gradient for its input; attention 6 or 7."""
    assert truths.linear(5, 7, 11).training() == 3 * 5 * 7 * 11
    assert truths.linear(5, 7, 11, of_input=True).training() == 2 * 5 * 7 * 11
    assert truths.untrained(truths.linear(5, 7, 11)).training() == 5 * 7 * 11
    assert truths.attend(3, 4, 8).training() == 6 * 3 * 4 * 8
    assert truths.attend(3, 4, 8).training(fused=True) == 7 * 3 * 4 * 8


def test_bert_in_one_line() -> None:
    """The sum of terms is the formula of the page."""
    layer = 4 * 128 * 768**2 + 2 * 128**2 * 768 + 2 * 128 * 768 * 3072

    assert truths.Bert().cost().forward == 12 * layer + 768**2


def test_all_experts_cost_more_than_the_chosen_by_their_number() -> None:
    """Of the experts' part, the dense total is experts / chosen times the routed share."""
    sizes = truths.Mixtral()
    share = sizes.layers * sizes.seq * 3 * sizes.hidden * sizes.intermediate

    assert sizes.dense().forward - sizes.cost().forward == (sizes.experts - sizes.chosen) * share


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FEW else pytest.mark.slow) for name in ON_META]
)
def test_a_witness_counts_the_same_on_the_meta_device(name: str) -> None:
    """Forward and backward of the model in its published size, without any of its memory."""
    case = MODELS[name]
    forward, training, _ = _witnessed(case, "eager", "meta")

    assert (forward, training) == (case.macs, case.training)


@pytest.mark.parametrize(("name", "attention"), ATTENTIONS)
def test_a_witness_counts_the_same_on_a_cpu(name: str, attention: str) -> None:
    """Forward and backward of a small sibling, with real numbers and a batch of two."""
    case = SMALL[name]
    forward, training, fused = _witnessed(case, attention, "cpu")

    assert forward == case.macs
    if attention == "eager":
        assert not fused
        assert training == case.training
    elif case.training_fused:
        assert fused
        assert training == case.training_fused
    else:
        across = 2 * 2 * 7 * 12 * 16  # batch, layers, target, sequence, width: all that T5 lets a CPU fuse
        assert name == "t5_small"
        assert training == case.training + across


@pytest.mark.parametrize("name", sorted(MODELS))
@pytest.mark.parametrize("cases", [MODELS, SMALL], ids=["published", "small"])
def test_a_module_has_these_parameters(name: str, cases: dict[str, Case]) -> None:
    """The module has the parameters derived by hand, and shares one where the case says so."""
    case = cases[name]
    with torch.device("meta"):
        model, _ = case.build("eager", torch.float32)

    assert sum(parameter.numel() for parameter in model.parameters()) == case.parameters
    assert (
        len(list(model.named_parameters(remove_duplicate=False))) > len(list(model.parameters()))
    ) == case.tied


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FEW else pytest.mark.slow) for name in ON_META]
)
def test_the_counter_of_torch_agrees(name: str) -> None:
    """FlopCounterMode counts two operations for each MAC of a forward call, but no grouped products."""
    case = MODELS[name]
    sizes = truths.Mixtral()
    experts = sizes.layers * sizes.seq * sizes.chosen * 3 * sizes.hidden * sizes.intermediate
    unseen = experts if name == "mixtral" else 0
    model, inputs = _made(case, "eager", "meta")
    with FlopCounterMode(display=False) as counter:
        model(**inputs)

    assert counter.get_total_flops() == 2 * (case.macs - unseen)


@pytest.mark.parametrize(("name", "attention", "dtype"), OTHERS)
def test_another_dtype_or_attention_costs_the_same_forward(
    name: str, attention: str, dtype: torch.dtype
) -> None:
    """On the meta device, a call with what else a case is meant for computes the same products."""
    model, inputs = _made(MODELS[name], attention, "meta", dtype)
    with Witness() as witness:
        model(**inputs)

    assert witness.macs == MODELS[name].macs


@pytest.mark.slow
@pytest.mark.parametrize("name", ["detr", "mixtral_eager", "whisper_tiny"])
def test_a_witness_counts_the_same_in_the_published_size(name: str) -> None:
    """What the meta device cannot run, or has no fused kernel for, is computed for real."""
    case = MODELS[name]
    forward, training, fused = _witnessed(case, "sdpa", "cpu")

    assert fused
    assert (forward, training) == (case.macs, case.training_fused)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_the_page_states_the_numbers(name: str) -> None:
    """The page of derivations has a row of this model with its parameters, forward and training figures."""
    case = MODELS[name]
    row = [case.parameters, case.macs, case.training, case.training_fused]

    assert f"| `{name}` | {' | '.join(_written(value) for value in row)} |" in PAGE


@pytest.mark.parametrize("name", sorted(MODELS))
def test_the_formulas_of_the_page_give_the_numbers(name: str) -> None:
    """Each written product is the number beside it, and together they are what the closed form gives."""
    case = MODELS[name]
    section = next(part for part in PAGE.split("\n## ") if f"`{name}`" in part.split("|")[0])
    terms = re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([\d,]+) \|$", section, re.MULTILINE)
    results = re.findall(r"^(Parameters|Training|Fused): ([^=]+)=\s+([\d,]+)$", section, re.MULTILINE)
    totals = {label: formula for label, formula, _ in results}

    assert all(_written(_evaluated(formula)) == number for _, formula, number in terms + results)
    assert sum(_evaluated(formula) for _, formula, _ in terms) == case.macs
    assert f"| **sum** | | {case.macs:,} |" in section
    assert _evaluated(totals["Parameters"]) == case.parameters
    assert _evaluated(totals["Training"]) == case.training
    assert ("Fused" in totals) == (case.training_fused is not None)
    assert "Fused" not in totals or _evaluated(totals["Fused"]) == case.training_fused


def test_the_page_states_the_dense_total_and_the_angles() -> None:
    """What no case holds: Mixtral with all experts, and the angles of rotary positions by a product."""
    assert f"{truths.Mixtral().dense().forward:,}" in PAGE
    assert f"{truths.Llama().angles().forward:,} for Llama" in PAGE


def _evaluated(formula: str) -> int:
    return int(eval(formula.translate({0xD7: "*", 0xB2: "**2", 0x2212: "-", ord("\n"): " "})))


def _written(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
