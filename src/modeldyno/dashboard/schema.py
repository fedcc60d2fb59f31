"""What the JSON twins of pages hold, as types; documents are described by `modeldyno schema`."""

from __future__ import annotations

from dataclasses import dataclass, make_dataclass
from functools import cache
from types import GenericAlias
from typing import Any

import msgspec

from modeldyno.base.result.live_load import LiveLoad
from modeldyno.base.result.result import Result
from modeldyno.dashboard.api_writes import API_WRITES
from modeldyno.dashboard.page import ModelCard
from modeldyno.profiling.views.result.network import Network
from modeldyno.registry.interface import ModelEntry
from modeldyno.registry.records.answer import RegistryAnswer
from modeldyno.registry.records.overview import SpeedRow, VersionOverview
from modeldyno.registry.records.policy import Policy
from modeldyno.registry.records.records import AliasMove, HardwareTarget, RegistryEvent, Task, Version, Worker
from modeldyno.registry.records.webhooks import Webhook
from modeldyno.registry.views.lineage import LineageRow
from modeldyno.stores.interface import ConclusionEntry, Entry, StudyEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionData:
    """Something that a person should look at."""

    state: str
    of: str
    target: str
    why: str
    address: str
    change: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HomeData:
    """What needs attention, the models measured last, what goes on and is new."""

    attention: list[AttentionData]
    running: list[Task]
    queued: int
    models: list[ModelCard]
    results: list[Entry]
    studies: list[StudyEntry]
    conclusions: list[ConclusionEntry]
    loads: list[LiveLoad]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelList:
    """A page of models; `next` is the address of the page after it, as in every list."""

    items: list[ModelEntry]
    next: str | None
    speeds: list[SpeedRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelData:
    """A model."""

    model: str
    versions: list[Version]
    aliases: dict[str, int]
    moves: list[AliasMove]
    speeds: list[SpeedRow]
    lineage: list[LineageRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadList:
    """A page of load series, the newest single loads, and those that go on: their figures are provisional."""

    items: list[ConclusionEntry]
    next: str | None
    going_on: list[LiveLoad]
    results: list[Entry]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskData:
    """A page of tasks, and the workers."""

    tasks: list[Task]
    workers: list[Worker]
    next: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineData:
    """How a machine stands by its reference model."""

    target: str
    state: str
    readings: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetData:
    """Targets, workers, and the machines whose reference model was measured more than once."""

    targets: list[HardwareTarget]
    workers: list[Worker]
    machines: list[MachineData]


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsData:
    """Settings of a store."""

    store: str
    policies: list[Policy]
    webhooks: list[Webhook]


def _list_of(name: str, entry: type, text: str) -> type:
    """Return the type of a page of a list that holds nothing else, described by a text."""
    fields: list[tuple[str, Any]] = [("items", GenericAlias(list, (entry,))), ("next", str | None)]
    return make_dataclass(name, fields, namespace={"__doc__": text}, frozen=True, kw_only=True)


_CONCLUSIONS = _list_of("ConclusionList", ConclusionEntry, "A page of comparisons or of conversions.")

TYPES: dict[str, Any] = {
    "/": HomeData,
    "/models": ModelList,
    "/models/{name}": ModelData,
    "/models/{name}/answer": RegistryAnswer,
    "/models/{name}/{version}": VersionOverview,
    "/results": _list_of("ResultList", Entry, "A page of results."),
    "/results/{id}": Result,
    "/results/{id}/network": Network,
    "/studies": _list_of("StudyList", StudyEntry, "A page of studies."),
    "/comparisons": _CONCLUSIONS,
    "/loads": LoadList,
    "/conversions": _CONCLUSIONS,
    "/alerts": list[AttentionData],
    "/tasks": TaskData,
    "/targets": TargetData,
    "/events": _list_of("EventList", RegistryEvent, "A page of events, the newest first."),
    "/settings": SettingsData,
}
"""Path of a page to what its JSON twin holds; other pages hold whole documents."""


@cache
def schemas() -> tuple[dict[str | type, Any], dict[str, Any]]:
    """Return the JSON Schemas by path or by type of what is written, and the components they refer to."""
    types: dict[Any, Any] = dict(TYPES)
    types |= {kind: kind for one in API_WRITES for kind in (one.takes, one.gives) if kind is not None}
    each, components = msgspec.json.schema_components(
        types.values(), ref_template="#/components/schemas/{name}"
    )
    nullable: dict[str, Any] = _with_nulls(components)
    return dict(zip(types, each, strict=True)), nullable


def _with_nulls(part: Any) -> Any:
    """Let every number be null as well: NaN and infinities become so."""
    if isinstance(part, list):
        return [_with_nulls(one) for one in part]
    if not isinstance(part, dict):
        return part
    if part.get("type") == "number":
        return {**part, "type": ["number", "null"]}
    return {key: _with_nulls(value) for key, value in part.items()}
