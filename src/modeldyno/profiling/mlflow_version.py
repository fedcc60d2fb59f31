"""``models:/name/3`` and ``models:/name@alias``: a version of MLflow's registry, fetched once and kept."""

from __future__ import annotations

import hashlib
import re
import secrets
import shutil
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from modeldyno.base import plugins
from modeldyno.base.errors import RequestError
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.base.yaml_file import read_foreign_yaml
from modeldyno.engine.environment.mlflow_client import REQUIRES, mlflow_client, mlflow_words
from modeldyno.engine.environment.peaks import cache_directory

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEME = "models"
STORE = "the store of MLFLOW_TRACKING_URI"
_REFERENCE = re.compile(r"models:/(?P<name>[^/@:'\"`]+)(?:/(?P<number>[0-9]{1,9})|@(?P<alias>[^/@]+))?")
_DESCRIPTION = "MLmodel"
_LISTED = 8
_LOADED = {
    "onnx": ("onnx", "data", "model.onnx"),
    "pytorch": ("torchscript", "model_data", "data"),
    "sklearn": ("sklearn", "pickled_model", "model.pkl"),
    "xgboost": ("xgboost", "data", "model.ubj"),
    "lightgbm": ("lightgbm", "data", "model.lgb"),
    "keras": ("keras", "data", "data"),
}
"""Flavor to the loader of its file, the key that names the file or its folder, and that name by default."""
_IN_FOLDER = {"pytorch": "model.pth", "keras": "model.keras"}
"""The file in a folder that a flavor names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MlflowVersion:
    """A version of MLflow's registry, on this machine."""

    name: str
    number: int
    run: str
    """Id of the run that made it; empty if none did."""
    created: str
    """UTC, ISO 8601."""
    ref: ModelRef

    @property
    def reference(self) -> str:
        """``models:/name/3``."""
        return f"{SCHEME}:/{self.name}/{self.number}"


def fetch_mlflow_version(text: str) -> MlflowVersion:
    """Fetch the files of a version, unless they were, and find the model in them; nothing is loaded.

    The name is no part of a path. The version is of the store that MLFLOW_TRACKING_URI names, or
    MLFLOW_REGISTRY_URI if that is set.

    Raises:
        RequestError: it names no version, the store cannot be read, or no loader reads the version's form.
        MissingExtra: MLflow is not installed.
    """
    match = _REFERENCE.fullmatch(text)
    if match is None:
        raise RequestError(
            f"'{text}' names no version of MLflow; write models:/name/3, models:/name@alias or models:/name."
        )
    plugins.require(REQUIRES, f"model {text}")
    with mlflow_client(None, STORE) as client:
        version = _find(client, match)
        folder = _fetch(client, version, text)
    return MlflowVersion(
        name=version.name,
        number=int(version.version),
        run=version.run_id or "",
        created=created_at(version),
        ref=find_model(folder, text),
    )


def created_at(version: Any) -> str:
    """Return when a version of MLflow was made, as UTC in ISO 8601."""
    return datetime.fromtimestamp(version.creation_timestamp / 1000, UTC).isoformat()


def find_model(folder: Path, text: str) -> ModelRef:
    """Return the model in the files of a version, by the flavors of its file ``MLmodel``.

    Raises:
        RequestError: it has no flavor that can be loaded, or its file is not there.
    """
    flavors = _read_flavors(folder)
    for flavor, (scheme, key, default) in _LOADED.items():
        if flavor in flavors:
            flavor_config = flavors[flavor]
            name = str(flavor_config.get(key) or default) if isinstance(flavor_config, dict) else default
            path = _inside(folder, name, text)
            if path.is_dir() and flavor in _IN_FOLDER:
                path /= _IN_FOLDER[flavor]
            if not path.is_file():
                raise RequestError(
                    f"{text} has the flavor {flavor}, but not its file "
                    f"{path.relative_to(folder)}, only {_content(folder)}."
                )
            if flavor == "pytorch" and not plugins.loader(scheme).claims(path):
                raise RequestError(
                    f"{text} is a module that PyTorch has pickled, and no TorchScript archive; write a "
                    f"function that returns mlflow.pytorch.load_model('{text}'), and name it, as "
                    "torch:file.py:make."
                )
            return ModelRef(scheme=scheme, locator=str(path))
    what = f"the flavors {', '.join(flavors)}" if flavors else "no file MLmodel that names flavors"
    raise RequestError(
        f"{text} has {what} and the files {_content(folder)}; of these, no model can be loaded, only of the "
        f"flavors {', '.join(_LOADED)}."
    )


def _find(client: Any, match: re.Match[str]) -> Any:
    name = match["name"]
    if match["alias"] is not None:
        return client.get_model_version_by_alias(name, match["alias"])
    if match["number"] is not None:
        return client.get_model_version(name, match["number"])
    newest = client.search_model_versions(f"name = '{name}'", max_results=1, order_by=["version_number DESC"])
    if not newest:
        raise RequestError(f"MLflow has no version of {name} in {STORE}.")
    return newest[0]


def _fetch(client: Any, version: Any, text: str) -> Path:
    """Return the folder of a version's files; it is there whole or not at all."""
    from mlflow.artifacts import download_artifacts  # slow to import

    where = client.get_model_version_download_uri(version.name, str(version.version))
    identity = repr((version.name, str(version.version), version.creation_timestamp, where))
    cache = (cache_directory() or Path(tempfile.mkdtemp(prefix="modeldyno-"))) / "mlflow"
    folder = cache / hashlib.sha256(identity.encode()).hexdigest()[:32]
    if folder.is_dir():
        return folder
    unfinished = folder.with_name(f"{folder.name}.{secrets.token_hex(4)}.part")
    try:
        unfinished.mkdir(parents=True)
        download_artifacts(
            artifact_uri=f"{SCHEME}:/{version.name}/{version.version}", dst_path=str(unfinished)
        )
        if not folder.is_dir():
            unfinished.rename(folder)
    except Exception as error:  # each kind of storage raises errors of its own
        raise RequestError(f"The files of {text} cannot be fetched: {mlflow_words(error)}") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def _read_flavors(folder: Path) -> Mapping[str, Any]:
    try:
        description = read_foreign_yaml(folder / _DESCRIPTION)
    except RequestError:
        return {}
    flavors = description.get("flavors") if isinstance(description, dict) else None
    return flavors if isinstance(flavors, dict) else {}


def _inside(folder: Path, name: str, text: str) -> Path:
    """Return a file of a version, after a check that its name leads nowhere else."""
    relative = PurePosixPath(name)
    if relative.is_absolute() or ".." in relative.parts or "\0" in name:
        raise RequestError(f"The file MLmodel of {text} names '{name}', which is outside its folder.")
    return folder / relative


def _content(folder: Path) -> str:
    files = [str(path.relative_to(folder)) for path in sorted(folder.rglob("*")) if path.is_file()]
    more = f" and {len(files) - _LISTED} more" if len(files) > _LISTED else ""
    return (", ".join(files[:_LISTED]) or "(none)") + more
