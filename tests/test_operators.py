from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tests.support.operator_cases import CASES, OperatorCase
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import modeldyno

if TYPE_CHECKING:
    from collections.abc import Callable

BY_NAME = {case.name: case for case in CASES}
MAY_BE_LISTED = {
    # Work that a formula cannot know: what is stored, and operators of others.
    "sparse mm, built",
    "custom operator",
}
WITNESS_IS_BLIND = {
    "bilinear", "mm, complex", "bmm, complex", "addmm in place", "addbmm", "mv", "addmv", "dot",
    "matmul, vectors", "matmul, 3-D x 1-D", "int8 mm", "int8 weights, mm", "quantised linear, dynamic",
    "grouped mm", "float8 mm", "lstm, packed", "sdpa, flash kernel", "flex attention", "sparse mm, built",
    "sparse mm, stored",
    "custom operator", "state-space scan",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    """Let torch warn of what it deprecates and of kernels that it has not."""
    with warnings.catch_warnings(), torch.backends.opt_einsum.flags(enabled=False):
        warnings.simplefilter("ignore")
        yield


def test_names_are_unique() -> None:
    assert len(BY_NAME) == len(CASES)


# Flex attention compiles itself, which depends on what else this process has compiled.
@pytest.mark.parametrize("name", [name for name in BY_NAME if name != "flex attention"])
def test_each_case_runs(name: str) -> None:
    module, inputs = BY_NAME[name].build()
    with torch.no_grad():
        assert module(*inputs) is not None


@pytest.mark.parametrize("name", [name for name in BY_NAME if name not in WITNESS_IS_BLIND])
def test_the_truth_has_a_witness(name: str) -> None:
    """Torch's own counter agrees where it counts at all: with gradients on, attention and LSTMs unfused."""
    module, inputs = BY_NAME[name].build()
    unfused = torch.backends.mkldnn.flags(enabled=False)
    with unfused, sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        module(*inputs)
    assert BY_NAME[name].macs == counter.get_total_flops() / 2


def inspected(case: OperatorCase) -> tuple[float | None, list[str]]:
    """Give our MACs, and the operators that we list as uncounted."""
    inspect: Callable[..., Any] | None = getattr(modeldyno, "inspect", None)
    if inspect is None:
        pytest.skip("no static analysis yet")
    module, inputs = case.build()
    result = inspect(module, example=inputs, inline=True)
    uncounted = [operator.kind for operator in result.outline.operators if not operator.counted]
    return result["macs"], uncounted


@pytest.mark.parametrize("name", BY_NAME)
def test_macs(name: str) -> None:
    case = BY_NAME[name]
    macs, uncounted = inspected(case)
    assert macs == case.macs or (name in MAY_BE_LISTED and uncounted)
