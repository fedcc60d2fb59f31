"""Sweeps several models for ``modeldyno sweep``, one after the other, and ranks them together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from modeldyno.base.clock import monotonic
from modeldyno.base.codec import json_array
from modeldyno.base.progress import Progress
from modeldyno.base.report.blocks import Heading
from modeldyno.cli.actions import sweep_dry_run, sweep_study
from modeldyno.cli.actions.printing import ignore_broken_pipe, print_blocks
from modeldyno.profiling.run import INTERRUPTED, OK
from modeldyno.reports.write import write_several
from modeldyno.sweeps import build, loop
from modeldyno.sweeps import codec as codec_study
from modeldyno.sweeps.loop import run_study
from modeldyno.sweeps.model_set import share_of_budget
from modeldyno.sweeps.study.ranking import rank_models, ranking
from modeldyno.sweeps.views.tables import models_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from modeldyno.base.yaml_file import FileConfig
    from modeldyno.cli.actions.output_options import OutputTargets
    from modeldyno.sweeps.study.study import Study


def begin(configs: Sequence[FileConfig], options: Mapping[str, Any]) -> int:
    """Sweep each model in its turn, and print all and their common ranking; return the exit code.

    The code is that of the best model: 0 if a configuration of any holds the bounds.
    """
    built = [build.build_study(config, trust=options["trust"]) for config in configs]
    if options["dry_run"]:
        return max(sweep_dry_run.print_plan(study, chosen) for study, chosen in built)
    targets = sweep_study.check_targets(options)
    for study, _ in built:
        loop.check_study(study)
    started = monotonic()
    done: list[Study] = []
    own = replace(targets, json=None, reports=())
    for study, _ in built:
        share = share_of_budget(study.budget, monotonic() - started, done, len(built))
        if not targets.silent:
            print_blocks(Heading(title=study.name))
        with Progress(quiet=options["quiet"]) as progress:
            swept, interrupted = run_study(
                replace(study, budget=share),
                store=targets.store,
                watch=progress.watch,
                reuse=options["reuse"],
            )
        done.append(swept)
        sweep_study.report_study(swept, own, options, quiet=targets.silent)
        if interrupted:
            return INTERRUPTED
    _report_all(done, targets, options)
    codes = [sweep_study.exit_code(study, ranking(study)) for study in done]
    return OK if OK in codes else codes[0]


def _report_all(studies: Sequence[Study], targets: OutputTargets, options: Mapping[str, Any]) -> None:
    """Write and print what was found over all models."""
    rows = rank_models(studies, options["top_models"])
    for report in targets.reports:
        write_several(studies, Path(report))
    targets.write(json_array([codec_study.encode(study, ranking=ranking(study)) for study in studies]))
    if rows and not targets.silent:
        with ignore_broken_pipe():
            print_blocks(Heading(title="All models"), models_table(rows, len(studies)))
            number = rows[0].row.configuration.rpartition("_")[2]
            click.echo(f"One of them: modeldyno show {rows[0].study.id[:6]}#{number}")
