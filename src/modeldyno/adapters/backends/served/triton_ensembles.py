"""Models of a repository with other knobs: the one that is measured, and those that it is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.adapters.backends.served import base, model_files, triton_knobs
from modeldyno.core.spec.knob import meant
from modeldyno.errors import RequestError, UnknownName
from modeldyno.interfaces import Form
from modeldyno.servers import triton_config, triton_repository_reader, triton_repository_writer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from modeldyno.core.spec.knob import KnobValue
    from modeldyno.interfaces import Model
    from modeldyno.servers.triton_config import Config
    from modeldyno.servers.triton_repository_reader import Repository

_FAMILY = "composing."
_OWN = ("instances", "max_batch", "dynamic_batching", "queue_delay", "preferred_batch")
"""Knobs that a configuration is changed by, beside its fields by their paths."""


def name_of(model: Model) -> str:
    """Give the name by which a server has a model."""
    return str(model.value.name) if model.form == Form.REPOSITORY else base.name_of(model)


def put(model: Model, repository: Path, config: Mapping[str, KnobValue], *, native: bool) -> list[Config]:
    """Write what a server needs of a model into a repository; give the configurations, its own first.

    Raises:
        RequestError: the model or the knobs cannot be brought into Triton's form.
    """
    if model.form == Form.REPOSITORY:
        found = model.value.with_called(called(config))
        configs = configurations(found, config)
        triton_repository_reader.write(repository, found, configs)
        return list(configs.values())
    if composing(config) or called(config):
        raise RequestError(
            "The knobs composing and calls are for a model of a repository, and this one is made of no "
            "others; leave them away."
        )
    name = name_of(model)
    described = model_files.deploy(model, repository / name / "1")
    written = triton_knobs.configuration(name, described, config, native=native)
    triton_repository_writer.write(repository, written)
    return [written]


def called(config: Mapping[str, KnobValue]) -> list[str]:
    """Name the models that are called by code, which no configuration tells."""
    return [name.strip() for name in str(config.get("calls", "")).split(",") if name.strip()]


def composing(config: Mapping[str, KnobValue]) -> dict[str, dict[str, KnobValue]]:
    """Give the knobs of models that another is made of, by their names.

    Raises:
        RequestError: one is no knob of such a model, or does not take its value.
    """
    found: dict[str, dict[str, KnobValue]] = {}
    allowed = tuple(knob for knob in triton_knobs.knobs if knob.name in {*_OWN, "config"})
    for path, value in config.items():
        if path.startswith(_FAMILY):
            model, _, name = path.removeprefix(_FAMILY).partition(".")
            known = meant(name, allowed)
            if known is None:
                names = (each for knob in allowed for each in knob.names)
                raise UnknownName.among(f"knob of the model '{model}',", name, names)
            knob, canonical = known
            found.setdefault(model, {})[canonical] = knob.parse(value)
    return found


def configurations(found: Repository, config: Mapping[str, KnobValue]) -> dict[str, Config]:
    """Give the configurations of a model and of those that it is made of, as the knobs say.

    Raises:
        RequestError: a knob is of a model that is none of them, or of an ensemble that has no such thing.
    """
    told = composing(config)
    if stranger := next((name for name in told if name not in found.configs), ""):
        raise UnknownName.among(f"model in '{found.name}',", stranger, found.configs)
    own = {name: value for name, value in config.items() if name in _OWN or name.startswith("config.")}
    if not own.get("dynamic_batching"):
        own.pop("dynamic_batching", None)  # the default says nothing of what is configured already
    told[found.name] = {**own, **told.get(found.name, {})}
    return {name: _changed(written, told.get(name, {})) for name, written in found.configs.items()}


def _changed(written: Config, knobs: Mapping[str, KnobValue]) -> Config:
    """Change what the knobs say, and nothing else."""
    if triton_repository_reader.is_ensemble(written) and (
        wrong := next((each for each in _OWN if each in knobs), "")
    ):
        raise RequestError(
            f"'{written['name']}' is an ensemble, and has no {wrong} of its own; set it for a model that it "
            f"is made of: composing.MODEL.{wrong}={knobs[wrong]}."
        )
    made = dict(written)
    if "instances" in knobs:
        first, *others = written.get("instance_group") or [{}]
        made["instance_group"] = [{**first, "count": int(knobs["instances"])}, *others]
    if "max_batch" in knobs:
        made["max_batch_size"] = int(knobs["max_batch"])
    if gathered := triton_knobs.gathering(knobs):
        made["dynamic_batching"] = {**written.get("dynamic_batching", {}), **gathered[0]}
    elif knobs.get("dynamic_batching") is False:
        made.pop("dynamic_batching", None)
    return triton_config.changed(made, base.fields(knobs))
