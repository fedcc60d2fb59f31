"""The best configurations of a study as files that a server takes, such as ``config.pbtxt``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from modeldyno import plugins, wire
from modeldyno.core.space import key
from modeldyno.errors import ModelDynoError, RequestError
from modeldyno.views.study_rows import point

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from modeldyno.core.ranking import Ranking, Standing
    from modeldyno.core.result import Artifact
    from modeldyno.core.study import Study
    from modeldyno.ports import Store

TRITON = "config.pbtxt"
_NAME = re.compile(r'^name: "([^"]*)"$', re.MULTILINE)


def export(study: Study, ranked: Ranking, folder: Path, top: int) -> list[str]:
    """Write the files of the best configurations and of the default; say where each one is.

    A directory is named for the model and for the place that its configuration has in the log of the study:
    the name lasts when the study goes on, or is ranked anew.

    Raises:
        RequestError: the study has no such files, or they cannot be written.
    """
    rows = [row for row in ranked.rows if row.feasible and not row.failure][:top]
    if ranked.default is not None and ranked.default not in rows:
        rows.append(ranked.default)
    numbers = _numbers(study)
    told: list[str] = []
    with plugins.store() as store:
        for row in rows:
            suffix = "default" if row.default else str(numbers[key(study.configuration(row.point))])
            files = _files(study, row, store)
            told += [_written(study, row, artifact, folder, suffix) for artifact in files]
    if not told:
        raise RequestError(
            "There are no files to export: the trials were of no server that is configured by files, or "
            "their results are no longer in the store."
        )
    return told


def hint(study: Study, name: str) -> Iterator[str]:
    """Say how to get the files, where the backend has some."""
    if study.job.backend == "triton":
        yield f"As config.pbtxt: modeldyno sweep --rerank {name} --export-configs DIR"


def _numbers(study: Study) -> dict[object, int]:
    """Number the configurations in the order in which they were first measured, without the default."""
    default = key(study.configuration(study.default))
    found = dict.fromkeys(key(study.configuration(c.point)) for c in study.candidates.values())
    return {name: number for number, name in enumerate((k for k in found if k != default), 1)}


def _files(study: Study, row: Standing, store: Store) -> Sequence[Artifact]:
    """Give the files of the newest trial that has some."""
    for trial in reversed(study.candidates[key(row.point)].trials):
        try:
            found = [artifact for artifact in store.get(trial.result).artifacts if artifact.text]
        except ModelDynoError:
            continue
        if found:
            return found
    return []


def _written(study: Study, row: Standing, artifact: Artifact, folder: Path, suffix: str) -> str:
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
    wire.write(path, text.encode())
    return f"Wrote {path}"


def _model(study: Study) -> str:
    """Give a name of the model that a directory can have."""
    named = study.name or study.job.model.locator
    return re.sub(r"[^\w.-]+", "-", named.rpartition("/")[2]).strip("-.") or "model"
