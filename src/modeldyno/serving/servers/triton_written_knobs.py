"""What the ``config.pbtxt`` of a model in a repository says of a knob of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from modeldyno.serving.servers.triton_repository_reader import is_ensemble

if TYPE_CHECKING:
    from collections.abc import Mapping

    from modeldyno.base.job.knob import KnobValue
    from modeldyno.serving.servers.triton_config import Config
    from modeldyno.serving.servers.triton_repository_reader import TritonRepository

_COMPOSING, _FIELD = "composing", "config"
_DEVICES = {"KIND_CPU": "cpu", "KIND_GPU": "cuda"}


def written_knob(repository: TritonRepository, name: str) -> KnobValue | None:
    """Return the value of a knob, of the model or as ``composing.NAME.instances`` of one that it consists of.

    A field that is not written has Triton's default. None for what is no knob of the configuration, such as
    the batch of a request, or has no value there, as the delay of a model that does not batch.
    """
    family, _, rest = name.partition(".")
    if family == _COMPOSING:
        model, _, knob = rest.partition(".")
        return _written_of(repository.configs.get(model, {}), knob)
    return _written_of(repository.config, name)


def _written_of(config: Config, name: str) -> KnobValue | None:
    if not config:
        return None
    if name.startswith(f"{_FIELD}."):
        return _field(config, name.split(".")[1:])
    if is_ensemble(config):
        return None
    return _knobs(config).get(name)


def _knobs(config: Config) -> Mapping[str, KnobValue]:
    """Return all knobs that a configuration has, by Triton's defaults where it does not say them."""
    group = (config.get("instance_group") or [{}])[0]
    batching = config.get("dynamic_batching")
    values: dict[str, KnobValue] = {
        "instances": int(group.get("count", 1)),
        "max_batch": int(config.get("max_batch_size", 0)),
        "dynamic_batching": batching is not None,
    }
    if device := _DEVICES.get(str(group.get("kind"))):
        values["device"] = device
    if batching is not None:
        values["queue_delay"] = int(batching.get("max_queue_delay_microseconds", 0))
        if sizes := batching.get("preferred_batch_size"):
            values["preferred_batch"] = ",".join(map(str, sizes))
    return values


def _field(config: Config, path: list[str]) -> KnobValue | None:
    """Return the plain value at a path such as ``dynamic_batching.priority_levels``."""
    value: Any = config
    for part in path:
        if isinstance(value, list):  # the index of a repeated field may be omitted
            index = int(part) if part.isdecimal() else 0
            value = value[index] if index < len(value) else None
            if part.isdecimal():
                continue
        value = value.get(part) if isinstance(value, dict) else None
    return value if isinstance(value, bool | int | float | str) else None
