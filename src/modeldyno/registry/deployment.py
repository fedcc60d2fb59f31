"""Write the deployment of an answer: a model repository for Triton, for KServe an InferenceService too."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.base import codec, plugins
from modeldyno.base.errors import MissingExtra, RequestError, UnknownName
from modeldyno.base.job.job import Job
from modeldyno.base.job.version_name import SOURCE, VersionName
from modeldyno.registry import weights
from modeldyno.registry.register import located
from modeldyno.registry.views.answer import describe
from modeldyno.serving.deploy_worker import write_deployments
from modeldyno.serving.servers import triton

if TYPE_CHECKING:
    from modeldyno.base.job.knob import KnobValue
    from modeldyno.base.result.result import Result
    from modeldyno.registry.interface import Registry
    from modeldyno.registry.records.answer import AnswerCandidate, RegistryAnswer
    from modeldyno.registry.records.records import Variant, VariantFigure, Version

FORMATS = ("triton", "kserve")
FOLDER = "deployment"
"""Where it is written unless told otherwise."""
_TRITON = "triton"
_CONFIGURATION = "config.pbtxt"
_REPOSITORY = "repository"
_SERVICE = "inferenceservice.yaml"
_NAME = re.compile(r'^name: "[^"]*"$', re.MULTILINE)
_BACKEND = re.compile(r'^backend: "([^"]*)"$', re.MULTILINE)
_NEEDS_TORCH = re.compile(r'"model\.(?:pt|pt2)"')
_EXPRESSED = frozenset({"batch_size", "threads", "device"})
"""Settings of a run in a process that a server's configuration expresses."""
_LABEL = 40
"""Characters of an InferenceService's name: KServe makes longer ones of it, of 63 at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """Files that were written, and what is to be done with them."""

    files: tuple[Path, ...]
    notes: tuple[str, ...]

    def lines(self) -> tuple[str, ...]:
        """Say in a line each what was written, and what is next."""
        return (*(f"Wrote {path}" for path in self.files), *self.notes)


def check_deployment(export: str | None, output: str | Path | None, storage: str | None) -> None:
    """Refuse words of a deployment that do not fit together, before anything is asked.

    Raises:
        RequestError: the format is unknown, a place is missing, or is given without need.
    """
    if export is None:
        if output is not None or storage is not None:
            raise RequestError("`output` and `storage` say where a deployment goes; add `export=triton`.")
        return
    if export not in FORMATS:
        raise UnknownName.among("format of a deployment", export, FORMATS)
    if export == "kserve" and not storage:
        raise RequestError(
            "KServe fetches the model from a URI: give the one where the repository will be, such as "
            "`storage=s3://bucket/models`."
        )
    if export != "kserve" and storage:
        raise RequestError("`storage` is for `export=kserve`; Triton reads the folder that is written.")
    weights.check_new_folder(Path(output or FOLDER))


def write_deployment(
    registry: Registry,
    answer: RegistryAnswer,
    *,
    export: str,
    output: str | Path | None = None,
    storage: str | None = None,
) -> Deployment:
    """Write the best candidate of an answer, as it was measured, for ``triton`` or ``kserve``.

    The folder is new or empty, by default ``deployment``; from the URI `storage` KServe fetches the model
    repository.

    Raises:
        RequestError: there is no answer, the variant has a form that Triton cannot load, it was measured in a
            way that its configuration cannot express, or the folder cannot be written.
        StoreError: the variant's files are gone.
    """
    check_deployment(export, output, storage)
    if answer.best is None:
        raise RequestError(
            f"Nothing is written: the answer is {answer.state}, no variant of {answer.model} surely holds."
        )
    best, folder = answer.best, Path(output or FOLDER)
    result = registry.result(best.figure.result)
    if result is None:
        raise RequestError(f"The result of {describe(best)} is no longer in the store.")
    repository = folder / _REPOSITORY if storage else folder
    try:
        configuration = _write_repository(registry, best, result, repository)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)  # it was new or empty
        raise
    files, notes, text = [configuration], [], configuration.read_text(encoding="utf-8")
    if storage:
        service = folder / _SERVICE
        codec.write(service, _yaml(_inference_service(answer, best, storage)))
        files.append(service)
        notes.append(f"Copy {repository} to {storage}, then: kubectl apply -f {service}")
    else:
        notes.append(f"Serve it with: tritonserver --model-repository {folder.absolute()}")
        notes += _lacking_here(text)
    if _NEEDS_TORCH.search(text):
        notes.append("Triton runs it in its Python backend, whose Python needs torch.")
    return Deployment(files=tuple(files), notes=tuple(notes))


def _lacking_here(text: str) -> list[str]:
    """Say if the Triton that is here could not load a configuration."""
    named = _BACKEND.search(text)
    try:
        program = triton.find_tritonserver()
    except MissingExtra:
        return []
    if named is None or program.has(named[1]):
        return []
    note = f"It needs Triton's backend '{named[1]}', which the Triton here lacks and NVIDIA's container has; "
    return [note + "what is measured on this one (serve: triton in the policy) can be served by it."]


def _write_repository(registry: Registry, best: AnswerCandidate, result: Result, repository: Path) -> Path:
    """Write the variant's files with its configuration; return the path of the configuration."""
    figure = best.figure
    version = registry.version(VersionName(model=figure.model, number=figure.number))
    variant = next((v for v in registry.variants(version) if v.recipe == figure.recipe), None)
    if variant is None or not variant.usable:
        raise RequestError(f"{version.name} has no usable {figure.recipe} any more.")
    name = re.sub(r"[^\w.-]+", "-", figure.model, flags=re.ASCII).strip("-.") or "model"
    text = _measured_configuration(result, name)
    entry = repository / name
    try:
        entry.mkdir(parents=True, exist_ok=True)
        write_deployments(
            _job(registry, version, variant, _knobs(figure, result, text)), {entry: text}, variant.digest
        )
        path = entry / _CONFIGURATION
        written = text or path.read_text(encoding="utf-8")
    except OSError as error:
        raise RequestError(f"{entry} cannot be written: {error.strerror}.") from error
    head = f"# {describe(best)}; modeldyno show {result.id[:12]}\n"
    codec.write(path, (head + _NAME.sub(f'name: "{name}"', written, count=1)).encode())
    return path


def _measured_configuration(result: Result, name: str) -> str:
    """Return the configuration with which Triton was measured; empty if the model was called in a process.

    Raises:
        RequestError: it was measured on another server, or as several models.
    """
    if result.job.backend == _TRITON:
        texts = [artifact.text for artifact in result.artifacts if artifact.name == _CONFIGURATION]
        if len(texts) != 1:
            raise RequestError(
                f"{name} is served as {len(texts)} models of a repository, which is deployed as it is."
            )
        return texts[0]
    if plugins.serves(result.job.backend):
        raise RequestError(
            f"{name} was measured on {result.job.backend}, whose figures say nothing of Triton; "
            "ask for it with the policy's serve: triton."
        )
    return ""


def _knobs(figure: VariantFigure, result: Result, text: str) -> dict[str, KnobValue]:
    """Return the knobs of Triton that configure the model as it was called.

    Raises:
        RequestError: it was called with a setting that Triton's configuration does not express.
    """
    if text:
        return dict(result.job.config)
    if lost := sorted(figure.measure.settings.keys() - _EXPRESSED):
        raise RequestError(
            f"It was measured with {', '.join(lost)}, which a configuration of Triton does not express."
        )
    config = result.job.config
    knobs = {name: config[name] for name in _EXPRESSED if name in figure.measure.settings}
    if "device" in config:
        knobs["device"] = config["device"]
    return knobs


def _job(registry: Registry, version: Version, variant: Variant, knobs: dict[str, KnobValue]) -> Job:
    source = variant.recipe == SOURCE
    return Job(
        model=located(version if source else variant, registry),
        backend=_TRITON,
        config=knobs,
        trust=version.trust or not source,  # a variant was written here
    )


def _inference_service(answer: RegistryAnswer, best: AnswerCandidate, storage: str) -> dict[str, Any]:
    """Return the InferenceService that runs the answer's replicas on KServe's runtime of Triton."""
    figure, replicas = best.figure, best.replicas or 1
    model: dict[str, Any] = {
        "modelFormat": {"name": "triton", "version": "2"},
        "runtime": "kserve-tritonserver",
        "protocolVersion": "v2",
        "storageUri": storage,
    }
    if best.target is not None and best.target.device != "cpu":
        model["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {
            "name": _label(figure),
            "annotations": {
                "modeldyno/answer": describe(best),
                "modeldyno/bounds": " and ".join(answer.bounds) or "none",
                "modeldyno/result": figure.result,
            },
        },
        "spec": {"predictor": {"minReplicas": replicas, "maxReplicas": replicas, "model": model}},
    }


def _yaml(document: dict[str, Any]) -> bytes:
    import yaml  # only this needs it

    return str(yaml.safe_dump(document, sort_keys=False, allow_unicode=True)).encode()


def _label(figure: VariantFigure) -> str:
    """Return the name as Kubernetes takes it: small letters, digits and hyphens, a letter first."""
    name = re.sub(r"[^a-z0-9]+", "-", figure.model.lower()).strip("-")
    return (name if name[:1].isalpha() else f"model-{name}")[:_LABEL].strip("-")
