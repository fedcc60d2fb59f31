"""What architectures cost and hold: ours and other tools, beside the truth, as shares of it in %.

MACs: the truth is derived from the sizes (tests/zoo/truths.py). Memory: it is what torch's allocator recorded
of one call (tests.support.torch_allocator), and of one step of training with AdamW: what the call made, which
in training are activations and gradients, and everything, with weights, inputs and the optimiser's state.

    python bench/static.py [--only bert] [--attention eager] [--skip macs] [--skip memory]
"""

from __future__ import annotations

import argparse
import gc
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler says when it starts
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
sys.path.insert(0, str(Path(__file__).parent.parent))

import peers
import torch
from operators import OURS, ask, ours
from tests.support.operator_cases import CASES
from tests.support.torch_allocator import recorded_peak
from tests.zoo import models, truths
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import modeldyno

Inputs = Mapping[str, Any]
LARGEST = 1_000_000_000
"""Parameters beyond which a network is built on the meta device, where some tools cannot follow."""
NETWORKS = models.MODELS | {"mixtral_batched": models.SMALL["mixtral_batched"]}
"""One of them small: it gathers gigabytes, the weights of the experts of each token."""


def tensors(inputs: models.Inputs, device: str) -> dict[str, Tensor]:
    """Make inputs; numbers of tokens are in every vocabulary."""
    generator = torch.Generator().manual_seed(0)
    return {
        name: torch.randn(
            shape, dtype=dtype, device=device, generator=None if device == "meta" else generator
        )
        if dtype.is_floating_point
        else torch.randint(50, shape, device=device, generator=None if device == "meta" else generator)
        for name, (shape, dtype) in inputs.items()
    }


def build(case: models.Case, attention: str) -> tuple[nn.Module, dict[str, Tensor]]:
    """Build a network and its inputs."""
    device = "meta" if case.parameters > LARGEST else "cpu"
    torch.manual_seed(0)
    with torch.device(device):
        module, inputs = case.build(attention if attention in case.attentions else "eager", torch.float32)
    return module, tensors(inputs, device)


def share(part: float | None, total: float) -> str:
    """Say how much of the truth that is; ``=`` where it is the same number."""
    if part is None:
        return "-"
    if part == total:
        return "="
    return f"{100 * part / total:.2f}" if total else "-"


# -- multiply-accumulates ----------------------------------------------------------------------------------


def macs(only: str, attention: str, tools: list[str]) -> bool:
    """Print shares of the true MACs and the processor time; say whether ours are all the truth."""
    print(f"\nMACs in % of the truth, and seconds of processor time; attention: {attention}")
    print(f"{'':<18}{'G MACs':>10}" + "".join(f"{tool:>15}" for tool in tools))
    right = True
    for tool in tools:
        ask(tool, CASES[0])  # the first call imports and compiles
    for case in NETWORKS.values():
        if only not in case.name:
            continue
        cells = []
        for tool in tools:
            with peers.quiet():
                module, inputs = build(case, attention)
            if tool == OURS:
                answer = peers.answer(lambda module=module, inputs=inputs: ours(module, inputs))
                right &= answer.macs == case.macs
            else:
                answer = peers.ask(tool, module, (), inputs)
            deviation = answer.error[:8] or share(answer.macs, case.macs)
            cells.append(f"{deviation + ('?' if answer.uncounted else ''):>9}{answer.seconds:>5.1f}s")
            del module, inputs
            gc.collect()
        print(f"{case.name:<18}{case.macs / 1e9:>10.3f}" + "".join(cells), flush=True)
    return right


# -- memory ------------------------------------------------------------------------------------------------


class Recurrent(nn.Module):
    """A two-layer LSTM over embedded tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(5000, 128)
        self.steps = nn.LSTM(128, 256, num_layers=2, batch_first=True)
        self.head = nn.Linear(256, 10)

    def forward(self, ids: Tensor) -> Tensor:
        """Classify the last state."""
        return self.head(self.steps(self.words(ids))[0][:, -1])


def mlp(_attention: str, dtype: torch.dtype) -> models.Built:
    """Four layers of 1024, 256 samples."""
    layers = [module for _ in range(4) for module in (nn.Linear(1024, 1024), nn.GELU())]
    return nn.Sequential(*layers).to(dtype), {"input": ((256, 1024), dtype)}


def lstm(_attention: str, dtype: torch.dtype) -> models.Built:
    """Give `Recurrent` on 8 texts of 64 tokens."""
    return Recurrent().to(dtype), {"ids": ((8, 64), torch.int64)}


VIT = truths.Vit(hidden=384, heads=6, intermediate=1536)
BERT = truths.Bert(hidden=256, layers=4, heads=4, intermediate=1024, batch=4)
CONVNEXT = truths.ConvNext(depths=(2, 2, 2, 2), widths=(48, 96, 192, 384), batch=2)
MEMORY: dict[str, models.Case] = {
    "MLP": models.Case(name="", build=mlp, cost=truths.Cost()),
    "LSTM": models.Case(name="", build=lstm, cost=truths.Cost()),
    "ResNet-18": models.MODELS["resnet18"],
    "ViT-S/16": models.vit("", VIT),
    "ConvNeXt, small": models.convnext("", CONVNEXT),
    "BERT, small": models.bert("", BERT),
    "GPT-2, 128 tokens": models.gpt2("", replace(truths.Gpt2(), seq=128)),
    "T5-small": models.MODELS["t5_small"],
    "U-Net": models.MODELS["unet"],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes of one call or one step."""

    made: float | None = None
    """Activations and gradients: what is neither weights nor inputs nor the optimiser's state."""
    everything: float | None = None


def size(value: object) -> int:
    """Give the bytes of all tensors in a structure, each storage once."""
    held = [item for item in pytree.tree_leaves(value) if isinstance(item, Tensor)]
    return sum({item.untyped_storage().data_ptr(): item.untyped_storage().nbytes() for item in held}.values())


def loss(output: object) -> Tensor:
    """Add up all that depends on a parameter."""
    return sum((item.sum() for item in pytree.tree_leaves(output) if differs(item)), start=torch.zeros(()))


def differs(item: object) -> bool:
    """Say whether this is a tensor with a gradient."""
    return isinstance(item, Tensor) and item.requires_grad


def allocator_memory(module: nn.Module, inputs: Inputs, mode: str) -> Memory:
    """Ask the allocator."""
    base = size(([*module.parameters(), *module.buffers()], inputs))
    call = plain_call(module, inputs)
    if mode == "inference":
        module.eval()
        with torch.no_grad():
            call()
            peak = recorded_peak(call)
        return Memory(made=peak, everything=base + peak)
    module.train()
    parameters = list(module.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=1e-3)

    def step() -> None:
        for parameter, gradient in zip(parameters, gradients(), strict=True):
            parameter.grad = gradient
        optimizer.step()

    def gradients() -> tuple[Tensor, ...]:
        return torch.autograd.grad(loss(call()), parameters, allow_unused=True)

    step()
    optimizer.zero_grad()
    state = size([list(values.values()) for values in optimizer.state.values()])
    peak = recorded_peak(step)
    return Memory(made=peak, everything=base + state + peak)


def plain_call(module: nn.Module, inputs: Inputs) -> Callable[[], object]:
    """Give a call by keyword, or by position where the module takes no keywords."""
    if isinstance(module, nn.Sequential):
        return lambda: module(*inputs.values())
    return lambda: module(**inputs)


def predicted_memory(module: nn.Module, inputs: Inputs, mode: str) -> Memory:
    """Ask us."""
    result = modeldyno.inspect(module, example=inputs, mode=mode, inline=True)  # type: ignore[attr-defined]
    return Memory(made=result["activation_peak"], everything=result["memory_peak"])


def torchinfo(module: nn.Module, inputs: Inputs, mode: str) -> Memory:
    """Torchinfo's "forward/backward pass size" and "estimated total size", the same in every mode."""
    from torchinfo import summary  # may be absent

    net, arguments = peers.plain(module, (), inputs)
    if isinstance(module, nn.Sequential):
        net, arguments = module, tuple(inputs.values())
    summarised = summary(
        net, input_data=list(arguments), verbose=0, mode="train" if mode == "train" else "eval"
    )
    total = summarised.total_input + summarised.total_output_bytes + summarised.total_param_bytes
    return Memory(made=summarised.total_output_bytes, everything=total)


def accelerate(module: nn.Module, _inputs: Inputs, mode: str) -> Memory:
    """`accelerate estimate-memory` in float32: weights for inference, four times that for Adam."""
    from accelerate.commands.estimate import estimate_training_usage  # may be absent
    from accelerate.utils import calculate_maximum_sizes  # may be absent

    weights = calculate_maximum_sizes(module)[0]
    if mode == "inference":
        return Memory(everything=weights)
    return Memory(everything=max(estimate_training_usage(weights, "float32").values()))


def deepspeed(module: nn.Module, _inputs: Inputs, mode: str) -> Memory:
    """DeepSpeed's states of ZeRO 2 on one device: mixed precision, no activations, training only."""
    from deepspeed.runtime.zero import stage_1_and_2  # may be absent

    if mode == "inference":
        return Memory()
    parameters = stage_1_and_2.model_to_params(module)
    needs = stage_1_and_2.estimate_zero2_model_states_mem_needs(parameters, cpu_offload=False)
    return Memory(everything=needs[1])


ESTIMATES: dict[str, Callable[[nn.Module, Inputs, str], Memory]] = {
    "ModelDyno": predicted_memory,
    "torchinfo": torchinfo,
    "accelerate": accelerate,
    "DeepSpeed": deepspeed,
}


def memory(only: str, attention: str) -> None:
    """Print shares of the recorded peaks."""
    names = list(available())
    for mode in ("inference", "train"):
        print(f"\nPeak of {mode} in % of what the allocator recorded: made | everything; {attention}")
        print(f"{'':<18}{'MiB':>9}{'MiB':>9}" + "".join(f"{name:>20}" for name in names))
        errors: dict[str, list[float]] = {name: [] for name in names}
        for name, case in MEMORY.items():
            if only.lower() in name.lower():
                print(row(name, case, mode, attention, errors), flush=True)
        for tool, deviations in errors.items():
            if deviations:
                mean = math.fsum(deviations) / len(deviations)
                print(
                    f"  {tool}, everything: off by {100 * max(deviations):.2f} %, "
                    f"on average {100 * mean:.2f} %"
                )


def row(name: str, case: models.Case, mode: str, attention: str, errors: Mapping[str, list[float]]) -> str:
    """Give one line, and note how far off each total is."""
    with peers.quiet():
        truth = allocator_memory(*build(case, attention), mode)
    assert truth.made
    assert truth.everything
    cells = []
    for tool, off in errors.items():
        with peers.quiet():
            module, inputs = build(case, attention)
            try:
                estimate = ESTIMATES[tool](module, inputs, mode)
            except Exception as error:  # noqa: BLE001 - any tool may fail in any way
                cells.append(f"{type(error).__name__:>20}")
                continue
        if estimate.everything is not None:
            off.append(abs(estimate.everything / truth.everything - 1))
        text = f"{share(estimate.made, truth.made)} | {share(estimate.everything, truth.everything)}"
        cells.append(f"{text:>20}")
    return f"{name:<18}{truth.made / 2**20:>9.2f}{truth.everything / 2**20:>9.2f}" + "".join(cells)


def available() -> Iterator[str]:
    """Name the tools that are here."""
    for name in ESTIMATES:
        if name == OURS:
            if hasattr(modeldyno, "inspect"):
                yield name
        elif peers.has(name.lower()):
            yield name


def main() -> int:
    """Print both parts; the status is 1 where our MACs are not the truth."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", default="", help="part of the names of networks")
    parser.add_argument("--attention", default="sdpa", choices=("sdpa", "eager"), help="of transformers")
    parser.add_argument("--alone", action="store_true", help="MACs without the other tools")
    parser.add_argument("--skip", action="append", default=[], choices=("macs", "memory"))
    options = parser.parse_args()
    tools = [OURS] if hasattr(modeldyno, "inspect") else []
    tools += [] if options.alone else peers.installed_tools()
    right = True
    if "macs" not in options.skip:
        right = macs(options.only, options.attention, tools)
    if "memory" not in options.skip:
        memory(options.only, options.attention)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
