"""The rules that derive findings from a Result; each uses only what the data supports.

A rule is silent if what it needs was not measured. Each estimated saving is a range with its basis: a
measurement or a known bound; without either there is no estimate, and only a trial can show the gain.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.profiling.findings import rules_in_process, rules_memory, rules_served
from modeldyno.profiling.findings.finding import Case, FindingRule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from modeldyno.base.job.knob import Knob
    from modeldyno.base.result.result import Result
    from modeldyno.profiling.findings.finding import Finding


RULES: dict[str, FindingRule] = {
    "needless": rules_in_process.needless,
    "precision": rules_in_process.precision,
    "tf32": rules_in_process.tf32,
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
    "pooling": rules_memory.pooling,
    "checkpointing": rules_memory.checkpointing,
    "sharding": rules_memory.sharding,
    "client-limited": rules_served.client,
    "batching": rules_served.batching,
    "instances": rules_served.instances,
    "protocol": rules_served.protocol,
    "saturated": rules_served.saturated,
}
"""Code of a finding to its rule; equal findings keep this order."""


def findings(result: Result, knobs: Iterable[Knob] = ()) -> tuple[Finding, ...]:
    """Apply every rule to a Result; observed costs come before what only a trial can show.

    Args:
        result: the measurements; a failed Result has no findings.
        knobs: the knobs of its backend, so that nothing else is proposed.
    """
    if result.failures:
        return ()
    case = Case(result=result, knobs={knob.name: knob for knob in knobs})
    all_findings = [replace(finding, code=code) for code, rule in RULES.items() for finding in rule(case)]
    return tuple(sorted(all_findings, key=_priority))


def _priority(finding: Finding) -> tuple[bool, float]:
    """Sort key: observed costs before proposals that may cost time; larger savings first."""
    saving = finding.saving
    untried = finding.job is not None or saving is None or saving.low is None
    return (untried, -saving.high if saving else 0.0)
