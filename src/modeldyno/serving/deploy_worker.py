"""Write a model's files beside server configurations, in a child process: loading may run its code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.base import codec, plugins
from modeldyno.base.errors import RequestError
from modeldyno.engine.runtime.order import answer, run_order

if TYPE_CHECKING:
    from collections.abc import Mapping

    from modeldyno.base.job.job import Job


def write_deployments(job: Job, entries: Mapping[Path, str], digest: str) -> None:
    """Write what a server needs of the Job's model into each directory, except the given configuration.

    If the text of a configuration is empty, the one of the Job's knobs is written as well.

    Args:
        job: names the model, and the backend whose server is meant.
        entries: directory to the text of its configuration.
        digest: digest of the model that was measured.

    Raises:
        RequestError: the model is missing, has changed, or cannot be written.
    """
    order = {
        "job": json.loads(codec.encode_job(job)),
        "entries": {str(folder.absolute()): text for folder, text in entries.items()},
        "digest": digest,
    }
    run_order(
        "modeldyno.serving.deploy_worker",
        order,
        failed=lambda how: RequestError(f"The model's files could not be written: {how}."),
    )


def _write_models(order: dict[str, Any]) -> None:
    job = codec.decode_job(json.dumps(order["job"]).encode())
    backend, loader = plugins.backend(job.backend), plugins.loader(job.model.scheme)
    if not backend.deploys:
        raise RequestError(f"The backend '{job.backend}' cannot write deployable files of a model.")
    plugins.require((*loader.requires, *backend.requires), f"model {job.model.argument}")
    model = loader.load(job.model, seed=job.plan.seed, trust=job.trust)
    if order["digest"] and model.identity.digest != order["digest"]:
        raise RequestError(
            f"{job.model.argument} is not the model that was measured: its content has changed."
        )
    if model.form not in backend.accepts:
        raise RequestError(f"The backend '{job.backend}' cannot serve {job.model.scheme} models.")
    for folder, text in order["entries"].items():
        configuration = text or backend.configuration(model, job.config)
        backend.deploy(model, configuration, Path(folder))
        if not text:
            codec.write(Path(folder) / "config.pbtxt", configuration.encode())


if __name__ == "__main__":
    answer(_write_models)
