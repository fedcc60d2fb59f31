"""Export the best configurations of a study as server directories: ``config.pbtxt`` and the model."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base import codec, plugins
from modeldyno.base.errors import ModelDynoError, RequestError
from modeldyno.serving.deploy_worker import write_deployments
from modeldyno.sweeps.study.search_space import key
from modeldyno.sweeps.study.study import base_name, configuration_number
from modeldyno.sweeps.views.tables import format_point

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.base.job.job import Job
    from modeldyno.base.result.result import Artifact
    from modeldyno.stores.interface import Store
    from modeldyno.sweeps.study.ranking import RankedConfiguration, Ranking
    from modeldyno.sweeps.study.study import Study

TRITON = "config.pbtxt"
_REPOSITORY = "repository"
_STEP = re.compile(r'^(\s*model_name: )"([^"]*)"$', re.MULTILINE)
_NAME = re.compile(r'^name: "([^"]*)"$', re.MULTILINE)


def check_folder(folder: Path, *, overwrite: bool) -> None:
    """Refuse to write into a directory that is not empty, unless overwriting was requested.

    Raises:
        RequestError: it is not empty, or cannot be read.
    """
    try:
        full = folder.is_dir() and any(folder.iterdir())
    except OSError as error:
        raise RequestError(f"Cannot read {folder}: {error.strerror}.") from error
    if full and not overwrite:
        raise RequestError(
            f"The directory {folder} is not empty; give another one, or add `overwrite` to "
            "replace the files of the same names in it."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedConfigurations:
    """Files that were written for the best configurations of a study."""

    paths: tuple[Path, ...]
    note: str
    """Whether the model is beside them, or why not; empty where there is no model to write."""

    def lines(self) -> tuple[str, ...]:
        """Say in a line each what was written."""
        return (*(f"Wrote {path}" for path in self.paths), *((self.note,) if self.note else ()))


def export_configurations(study: Study, ranked: Ranking, folder: Path, top: int) -> ExportedConfigurations:
    """Write the files of the best, the safe and the default configurations.

    A directory is named for the model and the number of its configuration in the study's log, which does not
    change when the study is resumed or ranked again. Where a model calls others by name in its code, which
    cannot be renamed, the directory is a repository of its own with all of them. If the model cannot be
    written beside a configuration, the note says so; the configuration stays.

    Raises:
        RequestError: the study has no such files, or they cannot be written.
    """
    rows = [row for row in ranked.rows if row.feasible and not row.failure][:top]
    for extra in filter(None, (ranked.safe, ranked.default)):
        if all(study.configuration(row.point) != study.configuration(extra.point) for row in rows):
            rows.append(extra)
    written: dict[Path, str] = {}
    models: dict[tuple[str, str], tuple[Job, list[Path]]] = {}
    with plugins.store() as store:
        for row in rows:
            suffix = configuration_number(study, row.point)
            job, files = _files_of(study, row, store)
            if files and _calls_by_name(job):
                home = folder / f"{_model_name(study, files[0])}_{suffix}"
                new_files = dict(_write_file(study, row, artifact, home, "") for artifact in files)
            else:
                new_files = dict(
                    _write_file(study, row, artifact, folder, f"_{suffix}")
                    for artifact in _rename_steps(files, suffix)
                )
            written |= new_files
            configurations = [path for path in new_files if path.name == TRITON]
            # A model repository has a configuration for each model that it is composed of.
            parts = max(1, len(configurations) - len(job.beside)) if job.model.scheme == _REPOSITORY else 1
            for part, path in zip((*[job] * parts, *job.beside), configurations, strict=False):
                models.setdefault((part.backend, str(part.model)), (part, []))[1].append(path)
    if not written:
        raise RequestError(
            "There are no files to export: the trials ran on no server that is configured by files, or "
            "their results are no longer in the store."
        )
    note = _deploy_models(study, written, list(models.values()))
    return ExportedConfigurations(paths=tuple(written), note=note)


def _deploy_models(study: Study, texts: dict[Path, str], models: list[tuple[Job, list[Path]]]) -> str:
    """Write each model beside its configurations; return a sentence that says so, or why it failed."""
    for job, paths in models:
        measured = study.model if job.model == study.job.model else None
        digest = "" if measured is None else measured.digest
        try:
            write_deployments(job, {path.parent: texts[path] for path in paths}, digest)
        except RequestError as error:
            return f"The model could not be written beside them, so Triton cannot load them yet: {error}"
    if not models:
        return ""
    folder = models[0][1][0].parent.parent
    if _calls_by_name(models[0][0]):
        return f"Each is a repository with the models that it calls: tritonserver --model-repository={folder}"
    return f"The model is beside each configuration, so Triton can serve {folder} as it is."


def export_hint(study: Study, name: str) -> Iterator[str]:
    """Yield how to export the files, if the backend has some."""
    if study.job.backend == "triton":
        yield f"Export them as directories for Triton: modeldyno sweep --rerank {name} --export-configs DIR"


def _files_of(study: Study, row: RankedConfiguration, store: Store) -> tuple[Job, Sequence[Artifact]]:
    """Return the files of the newest trial that has some, and the Job that it ran."""
    for trial in reversed(study.candidates[key(row.point)].trials):
        try:
            result = store.get(trial.result)
        except ModelDynoError:
            continue
        files = [artifact for artifact in result.artifacts if artifact.text]
        if files:
            return result.job, files
    return study.job, []


def _calls_by_name(job: Job) -> bool:
    """Return whether the model calls others in its code."""
    return bool(job.config.get("calls"))


def _rename_steps(files: Sequence[Artifact], suffix: str) -> Iterator[Artifact]:
    """Rename the steps of an ensemble after the directories of its models."""
    names = {match[1] for artifact in files if (match := _NAME.search(artifact.text))}

    def renamed(step: re.Match[str]) -> str:
        return f'{step[1]}"{step[2]}_{suffix}"' if step[2] in names else step[0]

    for artifact in files:
        yield replace(artifact, text=_STEP.sub(renamed, artifact.text))


def _write_file(
    study: Study, row: RankedConfiguration, artifact: Artifact, folder: Path, suffix: str
) -> tuple[Path, str]:
    """Write a file; return its path and text."""
    name = f"{_model_name(study, artifact)}{suffix}"
    text = artifact.text
    if artifact.name == TRITON:  # Triton requires the directory's name in it
        text = f"# {format_point(study.resolved(row.point))}; modeldyno show {study.id}\n" + _NAME.sub(
            f'name: "{name}"', text, count=1
        )
    path = folder / name / artifact.name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(f"Cannot create {path.parent}: {error.strerror}.") from error
    codec.write(path, text.encode())
    return path, text


def _model_name(study: Study, artifact: Artifact) -> str:
    """Return the name of a configuration's model, or that of the study."""
    match = _NAME.search(artifact.text)
    return match[1] if match else base_name(study)
