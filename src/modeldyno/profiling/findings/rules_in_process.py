"""Rules for a model that runs in a process: where a call spends its time and memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.profiling.findings.finding import Case, Finding, Saving, format_bytes, format_seconds, part_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_IDLE, _FLOAT, _MOST = 0.3, 0.5, 0.5
"""Shares from which on a rule applies: of a call beyond arithmetic, of weights in float32, of matrix
products."""
_TELLING = 0.9
"""Largest saving that is worth telling as an upper bound; a larger one says nothing of a change."""
_CALL, _SAMPLE = "time of a call", "time of a sample"
_BATCHES = 4
"""Factor of the larger batch to try."""
_SHORT = 100e-6
"""Seconds of an operator below which splitting it among threads may cost more than it gains."""
_MOST_LISTED, _SMALLEST_SHARE = 3, 0.005
"""Most redundant operators to list, and the share of a call from which on one is worth listing."""


def _roofline_saving(case: Case) -> Saving | None:
    """Bound a saving by the roofline, unless it leaves nearly all of a call open.

    No implementation of the same products is faster.
    """
    if case.latency is None or not (1 - _TELLING) * case.latency < case.bound_seconds < case.latency:
        return None
    return Saving(
        of=_CALL,
        low=None,
        high=1 - case.bound_seconds / case.latency,
        basis=f"no implementation takes less than {format_seconds(case.bound_seconds)} on this "
        "machine, by its "
        f"measured peaks, and a call takes {format_seconds(case.latency)}",
    )


def needless(case: Case) -> Iterator[Finding]:
    """Report the costliest operators that the result does not need; the operator probe has timed each."""
    wastes = case.result.activity.wastes if case.result.activity else None
    for waste in (wastes or ())[:_MOST_LISTED]:
        share = part_of(waste.time, case.latency)
        if case.latency and share < _SMALLEST_SHARE:
            return
        line = f" ({waste.line})" if waste.line else ""
        yield Finding(
            seen=f"{waste.name} in {waste.scope or 'the model'}{line} takes "
            f"{format_seconds(waste.time)} of a call",
            why=waste.reason,
            saving=Saving(of=_CALL, low=0.0, high=min(1.0, share), basis="its own time in watched calls")
            if share
            else None,
            do="change the code there, and compare the two: modeldyno compare OLD NEW",
        )


def precision(case: Case) -> Iterator[Finding]:
    """Propose 16 bits if most weights have 32."""
    share = case.weight_share("float32")
    job = case.trial(precision="bf16")
    if case.served or share < _FLOAT or job is None or case.setting("precision"):
        return
    high = case.place is not None and case.place.bound == "memory"
    yield Finding(
        seen=f"{share:.0%} of the weights, {format_bytes(case.number('weight_bytes'))}, are float32",
        why="bf16 halves the bytes that are read, and doubles the peak of hardware that computes in it; what "
        "has no such unit is slower. Outputs keep about three digits",
        saving=Saving(of=_CALL, low=None, high=0.5, basis="half of the bytes, and the call waits for memory")
        if high
        else None,
        job=job,
        changes_outputs=True,
    )


def tf32(case: Case) -> Iterator[Finding]:
    """Propose TF32 if most weights have 32 bits and the products are computed in full."""
    share, job = case.weight_share("float32"), case.trial(tf32=True)
    of_cuda = case.result.environment.device.startswith("cuda")
    if case.served or not of_cuda or share < _FLOAT or job is None or case.setting("precision"):
        return
    yield Finding(
        seen=f"{share:.0%} of the weights are float32, and torch multiplies them in full by default",
        why="tensor cores multiply in TF32, which rounds inputs to 10 bits and keeps the range of float32; "
        "weights and outputs keep their type. Outputs keep about three digits",
        job=job,
        changes_outputs=True,
    )


def quantization(case: Case) -> Iterator[Finding]:
    """Propose int8 if linear layers have most of the products."""
    linear = case.product_share("linear", "addmm", "matmul", "gemm", ".mm", "bmm")
    job = case.trial(precision="int8")
    if case.served or case.trained or job is None or case.setting("precision"):
        return
    if linear < _MOST or case.weight_share("float32") < _FLOAT:
        return
    yield Finding(
        seen=f"linear layers have {linear:.0%} of the products, in float32",
        why="int8 weights are a quarter of the size; converting between int8 and float32 costs time, so that "
        "small layers lose. Outputs differ: check the accuracy on data of yours",
        job=job,
        changes_outputs=True,
    )


def compiled(case: Case) -> Iterator[Finding]:
    """Propose a compiler if operators run one by one."""
    job = case.trial(compile="default")
    if case.served or job is None or case.setting("compile") != "off" or not case.operators:
        return
    yield Finding(
        seen=f"a call runs {case.operators:,} operators one by one",
        why="torch.compile fuses element-wise operators and spares the start of each; the first call of each "
        "shape then takes from seconds to minutes",
        saving=_roofline_saving(case),
        job=job,
    )


def graph(case: Case) -> Iterator[Finding]:
    """Propose full graph optimisation if it is limited."""
    level = case.setting("graph_optimization")
    job = case.trial(graph_optimization="all")
    if case.served or job is None or level is None:
        return
    yield Finding(
        seen=f"the graph is optimised to the level '{level}' only",
        why="constants are folded and operators fused at the higher levels, once, when the model is loaded",
        saving=_roofline_saving(case),
        job=job,
    )


def batch(case: Case) -> Iterator[Finding]:
    """Propose a larger batch if arithmetic is a small part of a call."""
    now, sizes = case.batch_size, case.result.outline.sizes if case.result.outline else {}
    job = case.trial(batch_size=_BATCHES * now)
    if case.served or case.trained or job is None or "batch" not in sizes or case.latency is None:
        return
    idle = 1 - case.compute_seconds / case.latency
    if not case.compute_seconds or idle < _IDLE:
        return
    yield Finding(
        seen=f"with {now} in a batch, arithmetic would take {format_seconds(case.compute_seconds)} of "
        "a call of "
        f"{format_seconds(case.latency)} at the peak of this machine",
        why="starting operators and reading weights costs the same for more samples; each call takes longer, "
        "so this is for throughput",
        saving=Saving(of=_SAMPLE, low=0.0, high=idle, basis="a sample takes no less than its arithmetic"),
        job=job,
    )


def threads(case: Case) -> Iterator[Finding]:
    """Propose another number of threads: no more than cores, and one if operators are short."""
    name = case.has("threads")
    setting, cores = case.setting(name) if name else None, case.cores
    if case.served or not name or not cores or not case.result.environment.on_cpu:
        return
    thread_count = int(setting) if setting else cores
    if thread_count > cores:
        yield Finding(
            seen=f"{thread_count} threads share {cores} cores",
            why="threads that wait for one without a core spin meanwhile",
            job=case.trial(**{name: cores}),
        )
    elif thread_count < cores:
        yield Finding(
            seen=f"{thread_count} of {cores} cores may work on an operator",
            why="large operators divide well among cores, small ones do not",
            saving=Saving(
                of=_CALL,
                low=None,
                high=1 - thread_count / cores,
                basis="more cores help at most in proportion",
            ),
            job=case.trial(**{name: cores}),
        )
    per_operator = part_of(case.latency, case.operators)
    if thread_count > 1 and cores > 1 and 0 < per_operator < _SHORT:
        yield Finding(
            seen=f"an operator takes {format_seconds(per_operator)} on average, on up to "
            f"{min(thread_count, cores)} threads",
            why="handing work so short to other threads and waiting for them can cost more than it gains; "
            "one thread leaves the other cores to other calls",
            job=case.trial(**{name: 1}),
        )


def spinning(case: Case) -> Iterator[Finding]:
    """Propose to let idle threads sleep if other processes need the cores."""
    job, evidence = case.trial(spinning=False), case.doubted("interference")
    if case.served or job is None or not evidence or case.cores < 2:
        return
    yield Finding(
        seen=evidence,
        why="ONNX Runtime's idle threads spin for work, and take the cores that others want; without, waking "
        "them costs some microseconds",
        job=job,
    )


def channels_last(case: Case) -> Iterator[Finding]:
    """Propose the memory layout that convolutions prefer."""
    share, job = case.product_share("conv"), case.trial(channels_last=True)
    if case.served or job is None or share < _MOST:
        return
    yield Finding(
        seen=f"convolutions have {share:.0%} of the products, with the channels first",
        why="kernels for convolutions read all channels of a pixel together; with the channels last these "
        "lie side by side",
        saving=_roofline_saving(case),
        job=job,
    )


def inference_mode(case: Case) -> Iterator[Finding]:
    """Propose inference mode if it was turned off."""
    job = case.trial(inference_mode=True)
    if case.served or case.trained or job is None or case.setting("inference_mode") is not False:
        return
    yield Finding(
        seen="calls run under torch.no_grad, which still counts versions of tensors",
        why="torch.inference_mode leaves that out; its outputs cannot take part in training later",
        job=job,
    )


def io_binding(case: Case) -> Iterator[Finding]:
    """Propose to place inputs on the device once."""
    job, moved = case.trial(io_binding=True), case.number("input_bytes")
    if case.served or job is None or case.result.environment.on_cpu or not moved:
        return
    yield Finding(
        seen=f"each call moves {format_bytes(moved)} of inputs to the device and waits for the outputs",
        why="bound inputs lie there before the call; of use where what comes before runs there, too",
        job=job,
    )


_FIRST_CALL_FACTOR, _LONG_FIRST = 20, 0.1
_MANY_CALLS, _LONG_LOAD = 1000, 1.0


def warm_up(case: Case) -> Iterator[Finding]:
    """Report a first call that takes far longer than the later ones."""
    first, typical = case.number("first_call"), case.latency
    if not first or not typical or first < _LONG_FIRST or first < _FIRST_CALL_FACTOR * typical:
        return
    yield Finding(
        seen=f"the first call took {format_seconds(first)}, and one of those after it "
        f"{format_seconds(typical)}",
        why="kernels are chosen, code is compiled and memory is allocated in the first call of each shape",
        saving=Saving(of="first request", low=0.0, high=1 - typical / first, basis="both were measured"),
        do="call the model once with each shape before it gets requests",
    )


def load_time(case: Case) -> Iterator[Finding]:
    """Report loading that takes longer than thousands of calls, and its longest stage."""
    total, typical = case.number("load_time"), case.latency
    if not total or not typical or total < max(_LONG_LOAD, _MANY_CALLS * typical):
        return
    stages = {name: case.number("load_time", name) or 0.0 for name in ("import", "load", "open")}
    longest = max(stages, key=stages.__getitem__)
    if not stages[longest]:
        return
    yield Finding(
        seen=f"loading takes {format_seconds(total)}, as long as {total / typical:,.0f} calls; "
        f"{format_seconds(stages[longest])} of it is {_STAGES[longest]}",
        why="it is paid with each start of a process: scaling up, or a function that is called seldom",
        saving=Saving(
            of="loading", low=0.0, high=stages[longest] / total, basis="the longest stage, as measured"
        ),
        job=case.trial(graph_optimization="basic") if longest == "open" else None,
        do="keep a process that has loaded it, and send it the requests",
        metric="load_time",
    )


_STAGES = {"import": "importing the framework", "load": "reading the model", "open": "making it ready to run"}
