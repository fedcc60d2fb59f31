"""Weights & Biases: an offline run, for upload by ``wandb sync``; nothing is sent over the network here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base import codec
from modeldyno.exchange.exporters.exported_numbers import circumstances, figures, settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from modeldyno.base.result.result import Result
    from modeldyno.sweeps.study.study import Study

requires = ("wandb",)
_PROJECT = "modeldyno"


def export(document: Result, target: str) -> str:
    """Write one offline run below the directory."""
    return _write_run(document, target, group="")


def export_study(study: Study, results: Mapping[str, Result], target: str) -> str:
    """Write a run for each trial that has a result, all in one group."""
    measured = [results[trial.result] for trial in study.trials if trial.result in results]
    for result in measured:
        _write_run(result, target, group=study.name or study.id)
    return f"{len(measured)} offline runs in {target}"


def _write_run(result: Result, target: str, *, group: str) -> str:
    import wandb  # slow to import

    folder = Path(target).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if existing := sorted(folder.glob(f"wandb/offline-run-*-{result.id}")):
        return str(existing[0])
    run = wandb.init(
        project=_PROJECT,
        dir=str(folder),
        mode="offline",
        id=result.id,
        name=f"{result.name} {result.id}",
        group=group or None,
        config={**settings(result), "about": circumstances(result)},
        settings=wandb.Settings(
            silent=True, console="off", save_code=False, disable_git=True, x_disable_meta=True
        ),
    )
    run.summary.update({str(figure.query): figure.value for figure in figures(result)})
    path = Path(run.dir) / "result.json"
    codec.write(path, codec.encode(result))
    run.finish(exit_code=1 if result.failures else 0)
    return str(Path(run.dir).parent)
