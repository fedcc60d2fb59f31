"""Write the figures of a version as tags of its version in MLflow, and set the aliases there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from modeldyno.base import plugins
from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.base.job.version_name import VersionName
from modeldyno.base.metrics.constraints import Answer
from modeldyno.base.metrics.metric import Query
from modeldyno.base.views.text import estimate, format_utc
from modeldyno.engine.environment.mlflow_client import REQUIRES, local_uri, mlflow_client
from modeldyno.profiling.mlflow_version import STORE, created_at
from modeldyno.registry.answering import answer
from modeldyno.registry.register import CREATED_LABEL, RUN_LABEL, SOURCE_LABEL
from modeldyno.serving.loadtest.replicas import CostOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.base.result.result import Result
    from modeldyno.registry.interface import Registry
    from modeldyno.registry.records.answer import AnswerCandidate
    from modeldyno.registry.records.records import Version

_FIGURES = tuple(map(Query.parse, ("latency.p50", "latency.p99", "throughput", "request_rate")))
_PREFIX, _DIGEST = "modeldyno.", "modeldyno.digest"
_ILLEGAL = re.compile(r"[^\w\-. ]")
"""Characters that MLflow does not allow in a part of a tag's name."""
_LONGEST = 5000
"""Characters of a tag."""
_REFERENCE = re.compile(r"models:/(?P<name>[^/@]+)/(?P<number>[0-9]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class PushedVersion:
    """What was written to MLflow."""

    version: str
    """The version here, such as ``digits/3``."""
    reference: str
    """The version there, as ``models:/digits/3``."""
    new: bool
    """Whether it was made there."""
    tags: dict[str, str]
    aliases: tuple[str, ...]
    targets: tuple[str, ...]
    """Names of the targets whose figures were written."""
    stale: int
    """Figures that were not written, as they are not fresh."""


def push_version(registry: Registry, name: str, *, to: str | None = None) -> PushedVersion:
    """Write the fresh figures of a version to MLflow: of each target, the variant of the highest rate.

    A version that came from MLflow is found by where it came from, another by its digest; else a version is
    made of the same name, whose source names ours. Tags of earlier figures are replaced. The store is
    ``mlflow:URI`` or ``mlflow:DIR``, by default that of MLFLOW_TRACKING_URI.

    Raises:
        RequestError: there is no such version, or MLflow cannot use the store.
        MissingExtra: MLflow is not installed.
    """
    uri = None if to is None else _uri(to)
    version = registry.version(VersionName.parse(name))
    answered = answer(registry, version.name, require=(), cost=CostOptions())
    fresh = [candidate for candidate in (answered.best, *answered.others) if candidate is not None]
    best = _best_by_target(fresh)
    tags = {_DIGEST: version.digest, "modeldyno.version": version.name}
    for target, candidate in best.items():
        tags |= {
            f"{_PREFIX}{key}/{target}": text[:_LONGEST] for key, text in _figure_tags(candidate, registry)
        }
    named = registry.aliases(version.model)
    aliases = tuple(alias for alias, number in named.items() if number == version.number)
    plugins.require(REQUIRES, "registry push")
    with mlflow_client(uri, to or STORE) as client:
        there, new = _version_there(client, version)
        model, number = there.name, str(there.version)
        for key in there.tags:
            if key.startswith(_PREFIX) and key not in tags:
                client.delete_model_version_tag(model, number, key)
        for key, text in tags.items():
            client.set_model_version_tag(model, number, key, text)
        for alias in aliases:
            client.set_registered_model_alias(model, alias, number)
    return PushedVersion(
        version=version.name,
        reference=f"models:/{model}/{number}",
        new=new,
        tags=tags,
        aliases=aliases,
        targets=tuple(best),
        stale=len(answered.fell_out),
    )


def _uri(to: str) -> str:
    tool, _, target = to.partition(":")
    if tool != "mlflow":
        raise UnknownName.among("registry to push to", tool, ("mlflow",))
    if not target:
        raise RequestError(f"'{to}' names no store; write mlflow:URI, such as mlflow:http://host:5000.")
    plugins.require(REQUIRES, "registry push")
    return local_uri(target)


def _best_by_target(candidates: list[AnswerCandidate]) -> dict[str, AnswerCandidate]:
    """Return the first candidate of each target by a name that is a part of a tag's name."""
    first: dict[str, AnswerCandidate] = {}
    for candidate in candidates:
        first.setdefault(candidate.figure.target, candidate)
    best: dict[str, AnswerCandidate] = {}
    for identifier, candidate in first.items():
        name = identifier if candidate.target is None else candidate.target.name
        name = _ILLEGAL.sub("_", name).strip(" .") or identifier
        best[f"{name} {identifier}" if name in best else name] = candidate
    return best


def _figure_tags(candidate: AnswerCandidate, registry: Registry) -> Iterator[tuple[str, str]]:
    """Yield what is told of a figure, by the middle of the tag's name."""
    figure, result = candidate.figure, registry.result(candidate.figure.result)
    yield "configuration", f"{figure.recipe}, {figure.measure.label}"
    yield "result", figure.result
    yield "measured", format_utc(figure.taken)
    if candidate.target is not None:
        yield "target", f"{candidate.target.device} of target {candidate.target.id}"
    for query in _FIGURES if result is not None else ():
        if result is not None and (text := _text(result, query)):
            yield str(query), text


def _text(result: Result, query: Query) -> str:
    """Return a number with its interval and certainty; why there is none; or nothing if none was measured."""
    if result.find(query.metric, query.scope) is None:
        return ""
    answered = Answer.to(query, result.measurements)
    value, interval = estimate(answered.value, answered.interval, query.unit)
    if not value:
        return answered.why
    return f"{value} ({interval} with 95% certainty)" if interval else value


def _version_there(client: Any, version: Version) -> tuple[Any, bool]:
    """Return the version in MLflow that is this one, and whether it was made now."""
    if (origin := _origin(client, version)) is not None:
        return origin, False
    condition = f"name = '{version.model}' and tags.`{_DIGEST}` = '{version.digest}'"
    if versions := client.search_model_versions(condition, max_results=1):
        return versions[0], False
    if not client.search_registered_models(f"name = '{version.model}'", max_results=1):
        client.create_registered_model(version.model)
    source = f"modeldyno:{quote(version.name)}"
    return client.create_model_version(version.model, source, tags={_DIGEST: version.digest}), True


def _origin(client: Any, version: Version) -> Any | None:
    """Return the version that this one was fetched from; None in another store."""
    match = _REFERENCE.fullmatch(version.labels.get(SOURCE_LABEL, ""))
    if match is None:
        return None
    from mlflow.exceptions import MlflowException  # slow to import

    try:
        original = client.get_model_version(match["name"], match["number"])
    except MlflowException as error:
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            return None
        raise
    same_run = (original.run_id or "") == version.labels.get(RUN_LABEL, "")
    return original if same_run and created_at(original) == version.labels.get(CREATED_LABEL) else None
