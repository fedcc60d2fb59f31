"""Rules about memory: what is limited by its bandwidth, what fills it, and what holds it."""

from __future__ import annotations

from collections import Counter
from math import sqrt
from typing import TYPE_CHECKING

from modeldyno.base.metrics.doubt import HOST_TIMES
from modeldyno.profiling.findings.finding import Case, Finding, Saving, format_bytes, format_seconds, part_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_MUCH, _MOST = 0.3, 0.5
"""Shares that count as much, and as most of a whole."""
_CALL = "time of a call"


def memory_bound(case: Case) -> Iterator[Finding]:
    """Report memory-bound layers if they take much of a call."""
    bound_layers = _memory_bound_layers(case)
    total = sum(case.number("latency", path) or 0.0 for path in _innermost_layers(case))
    share = part_of(sum(bound_layers.values()), total)
    if case.served or share < _MUCH:
        return
    named = ", ".join(f"{path} {format_seconds(time)}" for path, time in Counter(bound_layers).most_common(3))
    yield Finding(
        seen=f"{share:.0%} of the time of the layers is spent where memory is the limit: {named}",
        why="these read their weights and write their outputs at the bandwidth of this machine; fewer bytes, "
        "or more samples for each reading of the weights, are what helps",
        saving=Saving(of=_CALL, low=None, high=share / 2, basis="half of the bytes of these layers"),
        job=case.trial(precision="bf16") if not case.setting("precision") else None,
        do="store the weights in fewer bits, or call the model with a larger batch",
        changes_outputs=True,
    )


def _innermost_layers(case: Case) -> list[str]:
    """Return the paths of traced layers without traced layers inside."""
    paths = [layer.path for layer in case.result.activity.layers] if case.result.activity else []
    return [p for p in paths if p and not any(other.startswith(f"{p}.") for other in paths)]


def _memory_bound_layers(case: Case) -> dict[str, float]:
    """Return the layers whose bytes at the memory bandwidth account for most of their time."""
    bandwidth, peak = case.peak("bandwidth"), case.peak("flops")
    if not bandwidth or not peak or case.doubted(HOST_TIMES):
        return {}
    bound_layers: dict[str, float] = {}
    for path in _innermost_layers(case):
        time = case.number("latency", path, "p50") or 0.0
        moved = (case.number("weight_bytes", path) or 0.0) + (case.number("output_bytes", path) or 0.0)
        memory, compute = moved / bandwidth, 2 * (case.number("macs", path) or 0.0) / peak
        if memory > compute and time and memory >= _MOST * time:
            bound_layers[path] = time
    return bound_layers


_RESERVE_FACTOR, _LEAST = 1.5, 100 * 2**20


def reserved(case: Case) -> Iterator[Finding]:
    """Report an allocator that holds far more than the peak needs."""
    held = case.number("allocator_reserved")
    used = (case.number("allocated_peak") or 0.0) + (case.number("weight_bytes") or 0.0)
    if not held or not used or held < _RESERVE_FACTOR * used or held - used < _LEAST:
        return
    yield Finding(
        seen=f"the allocator holds {format_bytes(held)}, and weights and the peak of a call need "
        f"{format_bytes(used)}",
        why="blocks that were freed are kept for sizes that do not come again",
        saving=Saving(of="memory of the device", low=0.0, high=1 - used / held, basis="both were measured"),
        do="start it with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        metric="allocator_reserved",
    )


def checkpointing(case: Case) -> Iterator[Finding]:
    """Propose gradient checkpointing if activations fill the memory of a training step."""
    total, activations = case.number("memory_peak"), case.number("activation_peak")
    blocks = _count_blocks(case)
    if not case.trained or part_of(activations, total) < _MOST or blocks <= _FEW_BLOCKS:
        return
    assert activations is not None
    remaining = 2 / sqrt(blocks)
    yield Finding(
        seen=f"{part_of(activations, total):.0%} of the memory of a step, {format_bytes(activations)}, is "
        f"activations, of {blocks} alike blocks",
        why="checkpoints keep the inputs of some blocks and compute the rest again in the backward pass: one "
        "forward pass more, about a third more time",
        saving=Saving(
            of="memory of a step",
            low=0.0,
            high=part_of(activations, total) * (1 - remaining),
            basis=f"2 of every sqrt({blocks}) blocks' activations stay (Chen et al. 2016)",
        ),
        do="wrap the blocks in torch.utils.checkpoint.checkpoint, and inspect it with `mode=train`",
        metric="memory_peak",
    )


_FEW_BLOCKS = 4


def _count_blocks(case: Case) -> int:
    """Count the largest group of sibling modules of one class."""
    modules = case.result.outline.modules if case.result.outline else ()
    siblings = Counter((m.path.rpartition(".")[0], m.kind) for m in modules if m.path)
    return max(siblings.values(), default=0)


_LARGEST_KEPT = 32 * 2**20
"""Bytes of the largest block that the allocator of glibc may keep for the next call (mallopt(3),
M_MMAP_THRESHOLD): what is larger comes from the system each time, as pages that are zeroed when touched."""


def pooling(case: Case) -> Iterator[Finding]:
    """Propose a pool of memory where each call takes its buffers from the system anew."""
    if case.served or not case.result.environment.on_cpu:
        return
    if case.setting("arena") is False:
        yield Finding(
            seen="the arena is off, so that each call takes the memory of its results from the system",
            why="an arena keeps what a call gives back for the next one; it holds its largest size for good",
            job=case.trial(arena=True),
        )
    allocations = case.result.activity.allocations if case.result.activity else ()
    large = [one for one in allocations if one.bytes > _LARGEST_KEPT and one.freed is not None]
    if not large:
        return
    taken = sum(one.bytes for one in large)
    first = max(large, key=lambda one: one.bytes)
    yield Finding(
        seen=f"each call takes {format_bytes(taken)} in {len(large)} blocks of more than 32 MiB, the largest "
        f"in {first.scope or first.operator or 'the model'}, and gives them back",
        why="glibc returns blocks of that size to the system at once, so that every call gets fresh pages, "
        "which are zeroed as they are touched",
        do="start it with a pool that keeps them, such as LD_PRELOAD=libjemalloc.so.2 or libtcmalloc.so.4, "
        "and compare the two",
    )


_LEAST_STATE = 2**30
_NEAR = 0.5
"""Share of the memory of a machine from which on weights leave little for anything else."""


def sharding(case: Case) -> Iterator[Finding]:
    """Propose to split weights over devices where they, or what trains them, fill the memory."""
    weights = case.number("weight_bytes") or 0.0
    if case.trained:
        state = weights + (case.number("gradient_bytes") or 0.0) + (case.number("optimizer_bytes") or 0.0)
        share = part_of(state, case.number("memory_peak"))
        if share < _MOST or state < _LEAST_STATE:
            return
        yield Finding(
            seen=f"{share:.0%} of the memory of a step, {format_bytes(state)}, is weights, gradients and the "
            "state of the optimiser",
            why="data-parallel copies each hold all of it; sharded, each device holds its part, and "
            "weights are gathered layer by layer, which costs transfers",
            saving=Saving(
                of="memory of a step",
                low=0.0,
                high=share / 2,
                basis="two devices; n leave an n-th part of it",
            ),
            do="shard the blocks by torch.distributed.fsdp.fully_shard, or ZeRO of DeepSpeed",
            metric="memory_peak",
        )
        return
    memory = case.result.environment.hardware.get("memory")
    if not case.result.environment.on_cpu or not isinstance(memory, int | float):
        return
    share = part_of(weights, float(memory))
    if share < _NEAR:
        return
    yield Finding(
        seen=f"the weights take {format_bytes(weights)}, {share:.0%} of the memory of this machine",
        why="what is left must hold activations, caches and every other copy of the model",
        saving=Saving(of="memory", low=0.0, high=share / 2, basis="half of the weights on each of two"),
        do="store them in fewer bits, or split the layers over two machines or devices",
        metric="weight_bytes",
    )
