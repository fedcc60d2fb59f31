"""Needless copies: what was planted in small models and is found, and what is flagged in models without.

Each planted model has one needless copy, transfer or wait, in one module; it counts as found only where
that kind is told of that module, and nothing else is. The others copy no more than they must: anything
that is told of them is a false alarm. The status is 1 where one was missed or falsely told.

    python bench/needless_copies.py [-v]
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import torch
from tests.zoo.frugal import FRUGAL
from tests.zoo.needless import PLANTED

from modeldyno.engine.backends.torch.dataflow import record_flow
from modeldyno.engine.trace.redundant_ops import find_redundant_ops

if TYPE_CHECKING:
    from torch import nn

    from modeldyno.base.result.trace_data import RedundantOp


def judge(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[RedundantOp, ...]:
    """Follow one call of a model, and judge it."""
    with torch.inference_mode():
        flow = record_flow(partial(module.eval(), *args, **kwargs), module, torch.device("cpu"))
    assert flow is not None
    return find_redundant_ops(flow)


def describe_wastes(wastes: tuple[RedundantOp, ...]) -> str:
    """List what was told."""
    return "; ".join(f"{w.kind} in {w.scope or 'the whole'}: {w.reason}" for w in wastes) or "nothing"


def main() -> int:
    """Judge all models, and count."""
    parser = argparse.ArgumentParser(description="needless copies, planted and not")
    parser.add_argument("-v", "--verbose", action="store_true", help="print what is told of each model")
    verbose = parser.parse_args().verbose
    begin, hit, false = perf_counter(), 0, 0
    for name, planted in PLANTED.items():
        torch.manual_seed(0)
        wastes = judge(*planted.build(), {})
        right = [(w.kind, w.scope) for w in wastes] == [(planted.kind, planted.scope)]
        hit += right
        if verbose or not right:
            print(f"{'found ' if right else 'MISSED'} {name:<24}{describe_wastes(wastes)}")
    for name, build in FRUGAL.items():
        torch.manual_seed(0)
        wastes = judge(*build())
        false += bool(wastes)
        if verbose or wastes:
            print(f"{'FALSE ' if wastes else 'clean '} {name:<24}{describe_wastes(wastes)}")
    print(
        f"planted: {hit} of {len(PLANTED)} found, in the right module; without: {false} of {len(FRUGAL)} "
        f"flagged; {perf_counter() - begin:.1f} s, torch {torch.__version__}"
    )
    return int(hit < len(PLANTED) or false > 0)


if __name__ == "__main__":
    sys.exit(main())
