"""A store of MLflow in a folder, with versions whose files are written by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from modeldyno.engine.environment.mlflow_client import local_uri, mlflow_client

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def new_store(folder: Path) -> str:
    """Make a store, which takes a second; return its URI."""
    uri = local_uri(str(folder))
    with mlflow_client(uri, "the test") as client:
        client.search_registered_models(max_results=1)
    return uri


def add_version(
    uri: str, name: str, folder: Path, flavors: Mapping[str, Any], files: Mapping[str, bytes]
) -> int:
    """Add a version with these files, made of a folder; return its number."""
    folder.mkdir(parents=True)
    if flavors:
        (folder / "MLmodel").write_text(yaml.safe_dump({"flavors": dict(flavors)}))
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    with mlflow_client(uri, "the test") as client:
        if not client.search_registered_models(f"name = '{name}'"):
            client.create_registered_model(name)
        return int(client.create_model_version(name, folder.as_uri(), run_id=None).version)
