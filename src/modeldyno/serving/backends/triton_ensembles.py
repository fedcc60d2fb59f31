"""Applies knobs to models of a Triton repository: the measured model and its composing models."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.base.job.knob import find_knob
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.models.interface import Form
from modeldyno.serving.backends import base, model_files, triton_knobs
from modeldyno.serving.servers import (
    onnx_config,
    triton_config,
    triton_repository_reader,
    triton_repository_writer,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from modeldyno.base.job.knob import KnobValue
    from modeldyno.models.interface import Model
    from modeldyno.serving.servers.triton_config import Config
    from modeldyno.serving.servers.triton_repository_reader import TritonRepository

_COMPOSING_PREFIX = "composing."
_MODEL_KNOBS = ("instances", "max_batch", "dynamic_batching", "queue_delay", "preferred_batch")
"""Knobs of an existing configuration, besides ``config.`` paths."""


def triton_model_name(model: Model) -> str:
    """Return the name of a model on the server."""
    return str(model.value.name) if model.form == Form.REPOSITORY else base.servable_name(model)


def write_models(
    model: Model, repository: Path, config: Mapping[str, KnobValue], *, native: bool
) -> list[Config]:
    """Write a model's files into a repository; return the configurations, the model's own first.

    Raises:
        RequestError: the model or the knobs cannot be expressed for Triton.
    """
    if model.form == Form.REPOSITORY:
        source = model.value.with_called_models(called_models(config))
        configs = configurations(source, config)
        source = replace(source, configs=configs)
        if not native or config.get("runtime") == "python":
            source = source.run_by_us(lacking_runtime(source))
            configs = dict(source.configs)
        triton_repository_reader.write_repository(repository, source, configs)
        return list(configs.values())
    if composing_knobs(config) or called_models(config):
        raise RequestError(
            "The knobs composing and calls are for models of a repository with composing models; omit "
            "them for this model."
        )
    name = triton_model_name(model)
    deployed = model_files.deploy(model, repository / name / "1")
    config_of_model = triton_knobs.configuration(name, deployed, config, native=native)
    triton_repository_writer.write_model_entry(repository, config_of_model)
    return [config_of_model]


def lacking_runtime(repository: TritonRepository) -> tuple[str, ...]:
    """Return the models of the ONNX Runtime backend that do not bring it along, and have an ONNX file."""
    return tuple(
        name
        for name, config in repository.configs.items()
        if triton_repository_reader.backend_of(config) == onnx_config.BACKEND
        and onnx_config.onnx_file(repository.folder / name, config) is not None
        and not any((repository.folder / name).rglob("libtriton_onnxruntime.so"))
    )


def repository_doubts(model: Model, configs: Sequence[Config]) -> tuple[Doubt, ...]:
    """Return doubts about models that do not run as the repository says."""
    if model.form != Form.REPOSITORY:
        return ()
    own_configs = model.value.configs
    substituted = [
        str(config["name"])
        for config in configs
        if config.get("backend") == triton_repository_writer.PYTHON
        and triton_repository_reader.backend_of(own_configs.get(str(config["name"]), config))
        == onnx_config.BACKEND
    ]
    completed = [name for name in model.value.completed if name in own_configs]
    doubts = []
    if substituted:
        doubts.append(
            Doubt(
                code="other-backend",
                seen=f"the backend onnxruntime of {', '.join(substituted)} was not used: ModelDyno's runner "
                "called ONNX Runtime in Triton's Python backend, where a call takes longer",
                advice="measure with a Triton that has the backend: program=PATH, or launch=docker",
            )
        )
    if completed:
        doubts.append(
            Doubt(
                code="completed-config",
                seen=f"the tensors of {', '.join(completed)} were read from the ONNX file, as no "
                "config.pbtxt declares them; the largest batch is 4 unless it says more, as Triton sets it",
                advice="write a config.pbtxt that says what is deployed",
            )
        )
    return tuple(doubts)


def called_models(config: Mapping[str, KnobValue]) -> list[str]:
    """Return the models that the model calls in its code, as listed by the knob `calls`."""
    return [name.strip() for name in str(config.get("calls", "")).split(",") if name.strip()]


def composing_knobs(config: Mapping[str, KnobValue]) -> dict[str, dict[str, KnobValue]]:
    """Return the knobs of composing models by model name.

    Raises:
        RequestError: a knob is unknown, or does not take its value.
    """
    result: dict[str, dict[str, KnobValue]] = {}
    allowed = tuple(knob for knob in triton_knobs.knobs if knob.name in {*_MODEL_KNOBS, "config"})
    for path, value in config.items():
        if path.startswith(_COMPOSING_PREFIX):
            model, _, name = path.removeprefix(_COMPOSING_PREFIX).partition(".")
            match = find_knob(name, allowed)
            if match is None:
                names = (alias for knob in allowed for alias in knob.names)
                raise UnknownName.among(f"knob of the model '{model}',", name, names)
            knob, canonical = match
            result.setdefault(model, {})[canonical] = knob.parse(value)
    return result


def configurations(repository: TritonRepository, config: Mapping[str, KnobValue]) -> dict[str, Config]:
    """Return the configurations of a model and its composing models, with the knobs applied.

    Raises:
        RequestError: a knob is for an unknown model, or does not apply to an ensemble.
    """
    knobs = composing_knobs(config)
    if unknown := next((name for name in knobs if name not in repository.configs), ""):
        raise UnknownName.among(f"model in '{repository.name}',", unknown, repository.configs)
    own = {
        name: value for name, value in config.items() if name in _MODEL_KNOBS or name.startswith("config.")
    }
    knobs[repository.name] = {**own, **knobs.get(repository.name, {})}
    return {
        name: _apply_knobs(model_config, knobs.get(name, {}))
        for name, model_config in repository.configs.items()
    }


def _apply_knobs(model_config: Config, knobs: Mapping[str, KnobValue]) -> Config:
    """Change what the knobs set, and nothing else."""
    if triton_repository_reader.is_ensemble(model_config) and (
        inapplicable := next((knob for knob in _MODEL_KNOBS if knob in knobs), "")
    ):
        raise RequestError(
            f"'{model_config['name']}' is an ensemble and has no {inapplicable} of its own; set it for a "
            f"composing model: composing.MODEL.{inapplicable}={knobs[inapplicable]}."
        )
    changed = dict(model_config)
    if "instances" in knobs:
        first, *others = model_config.get("instance_group") or [{}]
        changed["instance_group"] = [{**first, "count": int(knobs["instances"])}, *others]
    if "max_batch" in knobs:
        changed["max_batch_size"] = int(knobs["max_batch"])
    if batching := triton_knobs.dynamic_batching_field(knobs):
        changed["dynamic_batching"] = {**model_config.get("dynamic_batching", {}), **batching[0]}
    elif knobs.get("dynamic_batching") is False:
        changed.pop("dynamic_batching", None)
    return triton_config.with_settings(changed, base.engine_settings(knobs))
