"""The rules by which findings come from a Result: one row each, and only what the data supports.

A rule says nothing where what it needs was not measured. Each estimate is a range with its basis: what was
measured, or a bound that is known; where there is neither there is no estimate, and a trial tells.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.core.advice import rules_in_process, rules_memory, rules_served
from modeldyno.core.advice.finding import Case, Rule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from modeldyno.core.advice.finding import Finding
    from modeldyno.core.result.result import Result
    from modeldyno.core.spec.knob import Knob


RULES: dict[str, Rule] = {
    "needless": rules_in_process.needless,
    "precision": rules_in_process.precision,
    "compile": rules_in_process.compiled,
    "graph-optimization": rules_in_process.graph,
    "batch-size": rules_in_process.batch,
    "threads": rules_in_process.threads,
    "spinning": rules_in_process.spinning,
    "channels-last": rules_in_process.channels_last,
    "inference-mode": rules_in_process.inference_mode,
    "io-binding": rules_in_process.io_binding,
    "memory-bound": rules_memory.memory_bound,
    "quantization": rules_in_process.quantization,
    "warm-up": rules_in_process.warm_up,
    "load-time": rules_in_process.load_time,
    "reserved": rules_memory.reserved,
    "checkpointing": rules_memory.checkpointing,
    "client-limited": rules_served.client,
    "batching": rules_served.batching,
    "instances": rules_served.instances,
    "protocol": rules_served.protocol,
    "saturated": rules_served.saturated,
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
