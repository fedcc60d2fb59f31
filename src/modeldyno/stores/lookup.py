"""Finds documents by a file path, an id or its prefix, a tag or a name."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base import codec, kinds, plugins
from modeldyno.base.errors import RequestError
from modeldyno.stores.catalog import BRANCH, stored_result
from modeldyno.sweeps import codec as codec_study
from modeldyno.sweeps.study.ranking import find_configuration, ranking
from modeldyno.sweeps.study.search_space import key
from modeldyno.sweeps.study.study import NAMED

if TYPE_CHECKING:
    from modeldyno.base.document import Conclusion, StoredDocument
    from modeldyno.base.result.result import Result
    from modeldyno.sweeps.study.study import Study

_SOME = 3
"""Results of a model that a message lists."""


def find(document: str) -> Result:
    """Find a Result by the path of its file, or by its id, a prefix of it or a tag in the store.

    ``@main`` is what was saved as that baseline, or else what has the tag ``main``; ``STUDY#3`` is a
    configuration of a study (`find_configuration_result`).

    Raises:
        RequestError: there is none.
    """
    path = Path(document)
    if path.is_file():
        return codec.read(path)
    study, separator, name = document.rpartition("#")
    if separator and NAMED.fullmatch(name):
        return find_configuration_result(find_study(study), name)
    if path.suffix == ".json" or "/" in document:
        raise RequestError(f"There is no file '{document}'; check the path, or name a stored id or tag.")
    with plugins.store() as store:
        try:
            return store.get(document)
        except RequestError as error:
            if document.startswith(BRANCH):
                for entry in store.find(tag=document.removeprefix(BRANCH), limit=1):
                    return store.get(entry.id)
            if newest := store.find(name=document, limit=_SOME):
                listed = ", ".join(entry.id[:6] for entry in newest)
                raise RequestError(
                    f"'{document}' is the name of a model, not of one result; its newest: {listed}. Write "
                    f"{newest[0].id[:6]} for the newest, or modeldyno list --name {document} for all."
                ) from error
            if not path.suffix:
                raise
            raise RequestError(f"There is no file, stored id or tag '{document}'.") from error


def find_study(document: str) -> Study:
    """Find a Study by the path of its file, or by its id or name in the store; ``""`` is the newest.

    Raises:
        RequestError: there is none.
    """
    path = Path(document)
    if document and path.is_file():
        return codec_study.read(path)
    with plugins.store() as store:
        if document:
            return store.study(document)
        newest = store.studies(limit=1)
        if not newest:
            raise RequestError("The store has no study yet; modeldyno sweep MODEL makes one.")
        return store.study(newest[0].id)


def find_configuration_result(study: Study, name: str) -> Result:
    """Return the Result of a configuration of a study at its best load, from its newest quoted trial.

    Args:
        study: the study.
        name: of the configuration: ``3``, ``default`` or ``text_recognition_3``.

    Raises:
        RequestError: there is no such configuration, or its Results are not in the store.
    """
    row = find_configuration(study, ranking(study), name)
    trials = study.candidates[key(row.point)].quoted_trials
    for trial in reversed(trials):
        if (result := stored_result(trial.result)) is not None:
            return result
    why = f"failed: {row.failure}" if row.failure else "has no result in the store any more"
    raise RequestError(f"The configuration {row.configuration} of the study {study.id[:6]} {why}.")


def find_named_configuration(name: str) -> Result:
    """Find a configuration by its name alone, such as ``text_3``, in the newest study of its model.

    Raises:
        RequestError: there is none.
    """
    match = NAMED.fullmatch(name)
    if match is None or not match["model"]:
        raise RequestError(f"'{name}' is no configuration; they are named MODEL_3 or MODEL_default.")
    return find_configuration_result(find_study(match["model"]), match["number"])


def find_conclusion(document: str) -> Conclusion:
    """Find a comparison, a load curve, a load search or a conversion by a prefix of its id in the store.

    Raises:
        RequestError: there is none, or there are several.
    """
    with plugins.store() as store:
        return store.conclusion(document)


def find_any(document: str) -> StoredDocument:
    """Find a Result, Study or Conclusion by a path, an id or its prefix, a tag or a name.

    Raises:
        RequestError: there is no Result, Study or Conclusion of that name.
    """
    path = Path(document)
    if path.is_file():
        return kinds.read(path)
    try:
        return find(document)
    except RequestError:
        for other in (find_study, find_conclusion, find_named_configuration):
            with suppress(RequestError):
                return other(document)
        raise
