"""The rules by which findings come from a Result: one row each, and only what the data supports.

A rule says nothing where what it needs was not measured. Each estimate is a range with its basis: what was
measured, or a bound that is known; where there is neither there is no estimate, and a trial tells.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.core.finding import Case, Rule
from modeldyno.core.findings import alone, memory, served

if TYPE_CHECKING:
    from collections.abc import Iterable

    from modeldyno.core.finding import Finding
    from modeldyno.core.knob import Knob
    from modeldyno.core.result import Result


RULES: dict[str, Rule] = {
    "needless": alone.needless,
    "precision": alone.precision,
    "compile": alone.compiled,
    "graph-optimization": alone.graph,
    "batch-size": alone.batch,
    "threads": alone.threads,
    "spinning": alone.spinning,
    "channels-last": alone.channels_last,
    "inference-mode": alone.inference_mode,
    "io-binding": alone.io_binding,
    "memory-bound": memory.memory_bound,
    "quantization": alone.quantization,
    "warm-up": alone.warm_up,
    "load-time": alone.load_time,
    "reserved": memory.reserved,
    "checkpointing": memory.checkpointing,
    "client-limited": served.client,
    "batching": served.batching,
    "instances": served.instances,
    "protocol": served.protocol,
    "saturated": served.saturated,
}
"""Code of a finding to its rule, in the order in which equals are told."""


def findings(result: Result, knobs: Iterable[Knob] = ()) -> tuple[Finding, ...]:
    """Look at a Result by every rule; what was seen to cost comes before what only a trial tells.

    Args:
        result: what was measured; of one that failed nothing is found.
        knobs: of its backend, so that nothing is proposed that it does not have.
    """
    if result.failures:
        return ()
    case = Case(result=result, knobs={knob.name: knob for knob in knobs})
    found = [replace(each, code=code) for code, rule in RULES.items() for each in rule(case)]
    return tuple(sorted(found, key=_rank))


def _rank(found: Finding) -> tuple[bool, float]:
    """Put what was seen before what is yet to be tried and may cost time; the larger saving first."""
    saving = found.saving
    untried = found.job is not None or saving is None or saving.low is None
    return (untried, -saving.high if saving else 0.0)
