"""Llama-3-70B at sequence 4096, from its configuration and plain token ids: how long, and in how much memory.

Ours: the tree of modules, MACs, memory and lifetimes, and then other sizes from the formulas. Beside it
torch's FlopCounterMode, which counts on meta tensors once it is handed a four-dimensional mask, for the
FLOPs alone. CPU seconds beyond the imports, and bytes above what the process held after them.
"""

from __future__ import annotations

import json
import resource
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import LlamaConfig, LlamaForCausalLM

from modeldyno.base.job.input_spec import concrete_shape
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.models.flops.registry import formulas
from modeldyno.models.interface import Tracing
from modeldyno.models.loaders import hf_config
from modeldyno.models.static.other_sizes import SizeExtrapolator, TraceCache
from modeldyno.models.static.totals import AnalysedGraph, cost_by_module

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from modeldyno.models.interface import Model
    from modeldyno.models.static.graph import Graph

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8192,
    "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
    "vocab_size": 128256, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "dtype": "bfloat16",
}  # fmt: skip
SIZES = {"batch": 1, "seq": 4096}
GRID = {"batch": (2, 4, 8, 16, 32, 64, 128, 256), "seq": (128, 512, 4096)}


def main() -> None:
    """Measure both, ours first."""
    # What transformers imports when it first makes one.
    LlamaForCausalLM(LlamaConfig(num_hidden_layers=1, hidden_size=64, intermediate_size=64, vocab_size=100))
    table, held = formulas(), _memory_held()
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "config.json").write_text(json.dumps(CONFIG))
        (model, analysed), seconds = _time_work(lambda: _analyse(directory, table))
    graph: Graph = analysed.graph
    print(
        f"ours: {analysed.totals().macs:,} MACs, {len(graph.modules):,} modules, {len(graph.ops):,} operators"
    )
    print(f"ours: {seconds:.2f} s of CPU, {(_memory_held() - held) / 2**20:.0f} MiB above the imports")
    traces = TraceCache(lambda sizes: _at(model, {**SIZES, **sizes}), table, SIZES)
    elsewhere, seconds = _time_work(lambda: SizeExtrapolator(traces, GRID))
    print(
        f"ours: formulas in batch and seq from 8 traces, {seconds:.2f} s; {elsewhere.family.text()['macs']}"
    )
    _, seconds = _time_work(lambda: [elsewhere.at({"batch": 32, "seq": 1024}) for _ in range(10)])
    print(f"ours: another size {seconds * 100:.1f} ms")
    ids = torch.zeros((1, SIZES["seq"]), dtype=torch.int64, device="meta")
    mask = torch.zeros((1, 1, SIZES["seq"], SIZES["seq"]), dtype=torch.bool, device="meta")
    with torch.device("meta"):
        module, building = _time_work(lambda: LlamaForCausalLM(LlamaConfig(**CONFIG)).eval())
    with FlopCounterMode(display=False) as counter:
        _, seconds = _time_work(lambda: module(ids, attention_mask=mask))
    print(f"FlopCounterMode: {counter.get_total_flops() // 2:,} MACs, {building + seconds:.2f} s of CPU")


def _analyse(directory: str, table: Mapping[str, Any]) -> tuple[Model, AnalysedGraph]:
    model = hf_config.look(ModelRef(scheme="hf-config", locator=directory), seed=0, trust=False)
    analysed = AnalysedGraph.of(_at(model, SIZES), table)
    cost_by_module(analysed.graph, analysed.counts)
    return model, analysed


def _at(model: Model, sizes: Mapping[str, int]) -> Graph:
    assert model.graph is not None
    inputs = tuple(replace(spec, shape=concrete_shape(spec, sizes)) for spec in model.inputs)
    return model.graph(Tracing(inputs=inputs, sizes=sizes))


def _time_work(work: Callable[[], Any]) -> tuple[Any, float]:
    begin = time.process_time()
    return work(), time.process_time() - begin


def _memory_held() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
