"""The best configurations of a study as directories that a server takes: ``config.pbtxt`` and the model."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno import codec, plugins
from modeldyno.core.study.search_space import key
from modeldyno.errors import ModelDynoError, RequestError
from modeldyno.runtime.deploy_worker import deployed
from modeldyno.views.study.rows import point

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from modeldyno.core.result.result import Artifact
    from modeldyno.core.spec.job import Job
    from modeldyno.core.study.ranking import Ranking, Standing
    from modeldyno.core.study.study import Study
    from modeldyno.interfaces import Store

TRITON = "config.pbtxt"
_REPOSITORY = "repository"
_STEP = re.compile(r'^(\s*model_name: )"([^"]*)"$', re.MULTILINE)
_NAME = re.compile(r'^name: "([^"]*)"$', re.MULTILINE)


def check_folder(folder: Path, *, overwrite: bool) -> None:
    """Refuse to write into a directory that has something in it, unless that was asked for.

    Raises:
        RequestError: it has, or cannot be read.
    """
    try:
        full = folder.is_dir() and any(folder.iterdir())
    except OSError as error:
        raise RequestError(f"Cannot read {folder}: {error.strerror}.") from error
    if full and not overwrite:
        raise RequestError(
            f"The directory {folder} of --export-configs is not empty; give another one, or add --overwrite "
            "to replace the files of the same names in it."
        )


def export(study: Study, ranked: Ranking, folder: Path, top: int) -> list[str]:
    """Write the files of the best configurations, of what is safe and of the default; say where each one is.

    A directory is named for the model and for the place that its configuration has in the log of the study:
    the name lasts when the study goes on, or is ranked anew. Where the model cannot be put beside a
    configuration, that is said; the configuration stays.

    Raises:
        RequestError: the study has no such files, or they cannot be written.
    """
    rows = [row for row in ranked.rows if row.feasible and not row.failure][:top]
    for more in filter(None, (ranked.safe, ranked.default)):
        if all(study.configuration(row.point) != study.configuration(more.point) for row in rows):
            rows.append(more)
    numbers = _numbers(study)
    written: dict[Path, str] = {}
    models: dict[tuple[str, str], tuple[Job, list[Path]]] = {}
    with plugins.store() as store:
        for row in rows:
            suffix = "default" if row.default else str(numbers[key(study.configuration(row.point))])
            job, files = _files(study, row, store)
            made = dict(
                _written(study, row, artifact, folder, suffix) for artifact in _renamed(files, suffix)
            )
            written |= made
            configurations = [path for path in made if path.name == TRITON]
            # A model of a repository has a configuration for each that it is made of.
            parts = max(1, len(configurations) - len(job.beside)) if job.model.scheme == _REPOSITORY else 1
            for each, path in zip((*[job] * parts, *job.beside), configurations, strict=False):
                models.setdefault((each.backend, str(each.model)), (each, []))[1].append(path)
    if not written:
        raise RequestError(
            "There are no files to export: the trials were of no server that is configured by files, or "
            "their results are no longer in the store."
        )
    said = [f"Wrote {path}" for path in written]
    return [*said, *_deployed(study, written, list(models.values()))]


def _deployed(study: Study, texts: dict[Path, str], models: list[tuple[Job, list[Path]]]) -> list[str]:
    """Put each model beside its configurations; say so, or why it is not there."""
    for job, paths in models:
        known = study.model if job.model == study.job.model else None
        digest = "" if known is None else known.digest
        try:
            deployed(job, {path.parent: texts[path] for path in paths}, digest)
        except RequestError as error:
            return [f"The model is not beside them, so that no Triton takes them yet: {error}"]
    if not models:
        return []
    folder = models[0][1][0].parent.parent
    return [f"The model is beside each, so that a Triton can be given {folder} as it is."]


def hint(study: Study, name: str) -> Iterator[str]:
    """Say how to get the files, where the backend has some."""
    if study.job.backend == "triton":
        yield f"As directories that Triton takes: modeldyno sweep --rerank {name} --export-configs DIR"


def _numbers(study: Study) -> dict[object, int]:
    """Number the configurations in the order in which they were first measured, without the default."""
    default = key(study.configuration(study.default))
    found = dict.fromkeys(key(study.configuration(c.point)) for c in study.candidates.values())
    return {name: number for number, name in enumerate((k for k in found if k != default), 1)}


def _files(study: Study, row: Standing, store: Store) -> tuple[Job, Sequence[Artifact]]:
    """Give the files of the newest trial that has some, and what was measured there."""
    for trial in reversed(study.candidates[key(row.point)].trials):
        try:
            result = store.get(trial.result)
        except ModelDynoError:
            continue
        found = [artifact for artifact in result.artifacts if artifact.text]
        if found:
            return result.job, found
    return study.job, []


def _renamed(files: Sequence[Artifact], suffix: str) -> Iterator[Artifact]:
    """Have an ensemble name the models that it is made of as their directories will be called."""
    names = {found[1] for artifact in files if (found := _NAME.search(artifact.text))}

    def called(step: re.Match[str]) -> str:
        return f'{step[1]}"{step[2]}_{suffix}"' if step[2] in names else step[0]

    for artifact in files:
        yield replace(artifact, text=_STEP.sub(called, artifact.text))


def _written(study: Study, row: Standing, artifact: Artifact, folder: Path, suffix: str) -> tuple[Path, str]:
    """Write a file; give its path and its text."""
    named = _NAME.search(artifact.text)
    name = f"{named[1] if named else _model(study)}_{suffix}"
    text = artifact.text
    if artifact.name == TRITON:  # Triton wants the name of the directory in it
        text = f"# {point(row.point)}; modeldyno study {study.id}\n" + _NAME.sub(
            f'name: "{name}"', text, count=1
        )
    path = folder / name / artifact.name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(f"Cannot make {path.parent}: {error.strerror}.") from error
    codec.write(path, text.encode())
    return path, text


def _model(study: Study) -> str:
    """Give a name of the model that a directory can have."""
    named = study.name or study.job.model.locator
    return re.sub(r"[^\w.-]+", "-", named.rpartition("/")[2]).strip("-.") or "model"
