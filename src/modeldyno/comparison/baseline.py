"""The baseline of a gate: a stored result that is found by a word, or another checkout that is measured."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base import plugins
from modeldyno.base.errors import RequestError, RunFailed
from modeldyno.base.job.model_ref import ModelRef, names_of_file
from modeldyno.profiling.resolve_model import refers_to_model
from modeldyno.stores.catalog import BRANCH
from modeldyno.stores.lookup import find

if TYPE_CHECKING:
    from modeldyno.base.job.job import Job
    from modeldyno.base.result.result import Result
    from modeldyno.engine.runtime.session import RunSession


_SEARCH_LIMIT, _LISTED_NAMES = 500, 6
"""Baselines of a branch that are searched, and names listed in an error."""


def find_baseline(word: str, *names: str) -> Result:
    """Find a baseline: a file, an id, a tag; after ``@`` the newest that was stored for a branch.

    Possible names of the model select among several models stored for a branch.

    Raises:
        RequestError: there is none, or it is ambiguous.
    """
    if not word.startswith(BRANCH):
        return find_result(word)
    with plugins.store() as store:
        entries = store.find(tag=word, limit=_SEARCH_LIMIT)
        names_stored = sorted({entry.name for entry in entries})
        matching = entries if len(names_stored) == 1 else [entry for entry in entries if entry.name in names]
        if matching:
            return store.get(matching[0].id)
    if names_stored:
        raise RequestError(
            f"{word} has baselines of {', '.join(names_stored[:_LISTED_NAMES])}, but none of "
            f"{' or '.join(names) or 'this model'}; give the model's `name`."
        )
    with suppress(RequestError):  # a tag that was given without the sign
        return find_result(word)
    raise RequestError(
        f"The store has no baseline {word}; save one with modeldyno profile MODEL --save-as-baseline "
        f"{word.removeprefix(BRANCH)}."
    )


def possible_names(job: Job) -> tuple[str, ...]:
    """List the names that a model may have, before it is loaded."""
    if job.name is not None:
        return (job.name,)
    path, _, attribute = job.model.locator.rpartition(":")
    module = Path(path).stem if path.endswith(".py") else path.rpartition(".")[2]
    model_path = Path(job.model.locator)
    return (f"{module}.{attribute}", attribute, *names_of_file(job.model.locator), model_path.name)


def find_result(word: str) -> Result:
    """Find a Result by a file, an id or a tag.

    Raises:
        RequestError: there is none; if the word is a model, the message says how to measure it.
    """
    try:
        return find(word)
    except RequestError as error:
        if not refers_to_model(word):
            raise
        raise RequestError(
            f"'{word}' is a model, but a result is needed; measure it first, with modeldyno profile "
            f"{word} --json result.json, or compare two models with modeldyno compare."
        ) from error


# --- another checkout --------------------------------------------------------------------------------

_GLANCE = 1.0
"""Seconds per probe of the first run in another checkout: it is run again in turns."""


def is_checkout(word: object) -> bool:
    """Return whether a baseline is a directory: with a slash, as a tag may have the name of a directory."""
    if not isinstance(word, str | Path):
        return False
    return (isinstance(word, Path) or os.sep in word) and Path(word).is_dir()


def measure_checkout(folder: str | Path, job: Job, session: RunSession) -> Result:
    """Measure the model of a Job as it is in another checkout, once and shortly.

    Raises:
        RequestError: the model is no file, or the checkout does not have it.
        RunFailed: it could not be measured there.
    """
    if job.model.registered is not None:
        raise RequestError(
            f"{job.model.registered} is a registered model, which no checkout has; give the path of its "
            "file, or a stored result as the baseline."
        )
    model = ModelRef(scheme=job.model.scheme, locator=locate_in_checkout(Path(folder), job.model.locator))
    there = replace(job, model=model, plan=replace(job.plan.within(_GLANCE), processes=1))
    result = session.execute(there, watch=session.label_progress(f"baseline in {folder}"))
    if failure := result.failure:
        raise RunFailed(f"The baseline in {folder} failed in {failure.where}: {failure.message.rstrip('.')}.")
    return result


def locate_in_checkout(folder: Path, locator: str) -> str:
    """Return the locator of the same file in another checkout.

    Raises:
        RequestError: it names no file here, or none there.
    """
    path, colon, attribute = locator.partition(":")
    if not Path(path).exists():
        raise RequestError(
            f"{locator} names no file, so it cannot be found in {folder}; give the model as a path, such as "
            "call:src/net.py:forward, or a stored result as the baseline."
        )
    inside = os.path.relpath(path)
    there = folder / inside
    if inside.startswith(os.pardir) or not there.exists():
        raise RequestError(f"{folder} has no {inside}; give the directory of a checkout that has it.")
    return f"{there}{colon}{attribute}"
