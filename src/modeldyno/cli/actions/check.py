"""What ``modeldyno check`` does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from modeldyno.cli.actions import gate_options
from modeldyno.cli.actions.output_options import OutputTargets
from modeldyno.comparison.baseline import find_baseline, find_result
from modeldyno.comparison.gate import check_result


def run(**options: Any) -> int:
    """Judge a saved result, and report it; return the exit code."""
    required, notes = gate_options.expand_bounds(options["require"])
    gate_options.check_baseline()
    gate_options.check_output_paths(options)
    criteria = gate_options.compare_options_from(options)
    candidate = find_result(options["result"])
    constraints = tuple(map(candidate.read_bound, required))
    baseline = options["baseline"] and find_baseline(options["baseline"], candidate.name)
    report = replace(
        check_result(candidate, constraints, criteria, baseline).with_notes(*notes),
        undecided=gate_options.undecided_from(options),
    )
    gate_options.write_verdict(report, options)
    gate_options.print_verdict(report, OutputTargets(store=False), quiet=options["quiet"])
    return gate_options.exit_code(report)
