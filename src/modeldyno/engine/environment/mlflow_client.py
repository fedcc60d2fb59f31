"""MLflow's client: quiet, patient for seconds and not minutes, its errors in a sentence."""

from __future__ import annotations

import logging
import os
import threading
import warnings
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from modeldyno.base.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

REQUIRES = ("mlflow", "sqlalchemy")
"""Packages that must be there before a client is asked for."""
_DEFAULTS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
"""Settings of MLflow unless the user has others; with its own number of retries it waits for minutes."""
_PATIENCE = 120.0
"""Seconds that a store has for an answer, tries again included."""
_LONGEST = 300
"""Characters of MLflow's message that are told."""


@contextmanager
def mlflow_client(uri: str | None, where: str) -> Iterator[Any]:
    """Yield a client of a store.

    Args:
        uri: of the store; None for the one that MLFLOW_TRACKING_URI and MLFLOW_REGISTRY_URI name.
        where: the store's name in errors.

    Raises:
        RequestError: MLflow cannot use the store, or `uri` is None and there is no store.
    """
    for variable, value in _DEFAULTS.items():
        os.environ.setdefault(variable, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MLflow's own deprecation warnings
        import mlflow  # slow to import
        from mlflow.exceptions import MlflowException  # slow to import

        logging.getLogger("mlflow").setLevel(logging.WARNING)  # it logs the creation of its tables
        try:
            if uri is None:
                _check_store(mlflow.get_registry_uri())
            yield TimedClient(mlflow.MlflowClient(tracking_uri=uri, registry_uri=uri), where)
        except MlflowException as error:
            raise RequestError(f"MLflow cannot use {where}: {mlflow_words(error)}") from error


class TimedClient:
    """A client of MLflow each of whose answers has a time; MLflow's own is that of each read."""

    def __init__(self, client: Any, where: str) -> None:
        self._client = client
        self._where = where

    def __getattr__(self, name: str) -> Any:
        """Return what the client has of this name; a function of it answers in time.

        The function raises RequestError if the store does not answer; the thread that waits for it ends with
        the process.
        """
        attribute = getattr(self._client, name)
        return wraps(attribute)(partial(self._call, attribute)) if callable(attribute) else attribute

    def _call(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        answer: Future[Any] = Future()

        def call() -> None:
            try:
                answer.set_result(function(*arguments, **named))
            except Exception as error:  # noqa: BLE001 - whoever waits raises it
                answer.set_exception(error)

        threading.Thread(target=call, daemon=True).start()
        try:
            return answer.result(_PATIENCE)
        except TimeoutError:
            if answer.done():
                raise
            raise RequestError(
                f"MLflow cannot use {self._where}: no answer within {_PATIENCE:g} s."
            ) from None


def local_uri(target: str) -> str:
    """Return the URI of a store; a directory, which is created, stands for the database in it."""
    if "://" in target:
        return target
    folder = Path(target).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{folder}/mlflow.db"


def mlflow_words(error: Exception) -> str:
    """Return the beginning of a message in one line."""
    return " ".join(str(error).split())[:_LONGEST] or type(error).__name__


def _check_store(uri: str) -> None:
    """Refuse a store on this machine that is not there, which MLflow would create.

    Raises:
        RequestError: in that case.
    """
    parts = urlsplit(uri)
    place = {"sqlite": parts.path[1:], "file": parts.path, "": parts.path}.get(parts.scheme)
    if place and not Path(place).exists():
        raise RequestError(
            f"There is no store of MLflow at {place}; set MLFLOW_TRACKING_URI to yours, "
            "such as http://host:5000."
        )
