"""What a person changes by hand: words about a version, aliases, removal; and copies of its files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.base.identity import actor
from modeldyno.base.job.version_name import (
    SOURCE,
    VersionName,
    check_alias,
    check_description,
    check_model_name,
)
from modeldyno.comparison.operands import FEWEST
from modeldyno.registry import weights
from modeldyno.registry.policies import current_versions, find_policy, readable_policies
from modeldyno.registry.records.policy import DEFAULT, FIRST, compare_task, profile_task
from modeldyno.registry.records.records import OPEN, Task, TaskKind, TaskState
from modeldyno.registry.records.webhooks import Webhook, check_webhook
from modeldyno.registry.register import first_tasks
from modeldyno.registry.registered_version import find_variant

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from modeldyno.registry.interface import Registry
    from modeldyno.registry.records.policy import Policy
    from modeldyno.registry.records.records import AliasMove, Measure, Version


def update_version(
    registry: Registry,
    name: str,
    *,
    texts: Mapping[str, str | None],
    metrics: Mapping[str, float],
    labels: Mapping[str, str],
) -> Version:
    """Edit the metadata of a version; metrics and labels are added to those that it has.

    What another policy wants is queued, and what only the one before wanted is cancelled, unless it is being
    done. The texts are ``task``, ``dataset`` and ``policy``; None leaves one as it is.

    Raises:
        RequestError: there is no such version or policy, or nothing is to be changed.
    """
    version = registry.version(VersionName.parse(name))
    changes: dict[str, Any] = {key: value for key, value in texts.items() if value is not None}
    if "policy" in changes:
        find_policy(registry, changes["policy"])
    if metrics:
        changes["metrics"] = {**version.metrics, **metrics}
    if labels:
        changes["labels"] = {**version.labels, **labels}
    check_description(changes.get("labels", {}), task=changes.get("task"), dataset=changes.get("dataset"))
    if not changes:
        raise RequestError("Nothing is to be changed; give a task, a dataset, a policy, a metric or a label.")
    changed = registry.change_version(version, actor(), **changes)
    if "policy" in changes:
        before = readable_policies(registry).get(version.policy, DEFAULT)
        after = find_policy(registry, changed.policy)
        _replace_tasks(registry, changed, before, after)
    return changed


_WAITING = (TaskState.QUEUED, TaskState.DEFERRED)
_MOST_WAITING = 100_000
"""Waiting tasks whose versions are looked at when a policy is stored again."""


def _replace_tasks(
    registry: Registry, version: Version, before: Policy, after: Policy, refused: Collection[TaskKind] = ()
) -> tuple[int, int]:
    """Queue what a policy wants of a version, cancel what waits for the one before; return both numbers."""
    tasks = [task for task in first_tasks(version, after, registry) if task.kind not in refused]
    dropped = {task.key for task in first_tasks(version, before, registry)} - {task.key for task in tasks}
    waiting = registry.tasks(states=_WAITING, model=version.model, number=version.number)
    cancelled = [task.id for task in waiting if task.key in dropped]
    registry.change_tasks(cancelled, TaskState.CANCELLED, actor())
    return registry.enqueue(tasks), len(cancelled)


def _refused_kinds(registry: Registry, version: Version, policy: Policy) -> set[TaskKind]:
    """Return the kinds of tasks that a policy wanted of a version, and that it was registered without."""
    queued = {task.kind for task in registry.tasks(model=version.model, number=version.number)}
    return {task.kind for task in first_tasks(version, policy, registry)} - queued


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChange:
    """What became of the tasks when a policy was stored."""

    versions: int = 0
    """Versions that have it and whose tasks wait, or that are the newest of their model or have an alias."""
    queued: int = 0
    cancelled: int = 0


def store_policy(registry: Registry, policy: Policy) -> PolicyChange:
    """Store a policy; of versions that had an earlier one of its name, the tasks are replaced.

    As with another policy, what is being done goes on. A version that was registered without measurements or
    without conversions gets none by this.
    """
    before = readable_policies(registry).get(policy.name)
    registry.put_policy(policy, actor())
    return _follow(registry, before, policy)


def remove_policy(registry: Registry, name: str) -> PolicyChange:
    """Remove a stored policy that no version has; a stored ``default`` gives way to the built-in one.

    Raises:
        RequestError: none of this name is stored, or versions have it.
    """
    before = readable_policies(registry).get(name)
    registry.remove_policy(name, actor())
    return _follow(registry, before, DEFAULT) if name == DEFAULT.name else PolicyChange()


def _follow(registry: Registry, before: Policy | None, policy: Policy) -> PolicyChange:
    """Replace the tasks of the versions that had another policy of this name."""
    if before is None or before == policy:
        return PolicyChange()
    waiting = {(task.model, task.number) for task in registry.tasks(states=_WAITING, limit=_MOST_WAITING)}
    current = {(each.model, each.number) for each in current_versions(registry)}
    named = (VersionName(model=model, number=number) for model, number in sorted(waiting | current))
    versions = [each for each in map(registry.version, named) if each.policy == policy.name]
    numbers = [
        _replace_tasks(registry, version, before, policy, _refused_kinds(registry, version, before))
        for version in versions
    ]
    return PolicyChange(
        versions=len(versions),
        queued=sum(queued for queued, _ in numbers),
        cancelled=sum(cancelled for _, cancelled in numbers),
    )


def remove_version(registry: Registry, name: str) -> tuple[Version, tuple[str, ...]]:
    """Remove a version, which has to be named with its number; return what it was, and the aliases it had.

    Raises:
        RequestError: there is no such version, or no number was given.
    """
    parsed = VersionName.parse(name)
    if parsed.number is None:
        raise RequestError(f"'{name}' may be any version; name the one to remove, such as {parsed.model}/1.")
    version = registry.version(parsed)
    aliases = tuple(
        alias for alias, number in registry.aliases(version.model).items() if number == version.number
    )
    registry.remove_version(version, actor())
    return version, aliases


def change_alias(
    registry: Registry, name: str, alias: str, *, remove: bool = False, rollback: bool = False
) -> AliasMove:
    """Let an alias name a version, or what it named before, or nothing.

    Raises:
        RequestError: there is no such version or alias, or the version has no number.
    """
    parsed = VersionName.parse(name)
    check_alias(alias)
    version = registry.version(parsed)
    if rollback:
        return registry.roll_back(version.model, alias, actor())
    if remove:
        return registry.move_alias(version.model, alias, None, actor())
    if parsed.number is None and parsed.alias is None:
        raise RequestError(
            f"'{name}' may be any version; name the one that {alias} shall be: {version.name}."
        )
    return registry.move_alias(version.model, alias, version.number, actor())


def add_webhook(
    registry: Registry, url: str, *, secret: str = "", kinds: Sequence[str] = (), model: str = ""
) -> Webhook:
    """Let an address be told of events from now on.

    Raises:
        RequestError: it is no address, or there is no such model.
    """
    if model:
        registry.versions(check_model_name(model), limit=1)
    webhook = check_webhook(Webhook(url=url, secret=secret, kinds=tuple(kinds) or ("*",), model=model))
    return registry.add_webhook(webhook, actor())


def copy_files(registry: Registry, name: str, folder: Path) -> tuple[Version, Path]:
    """Copy the files of a version to a new folder; return the version, and the path of the model in it.

    Raises:
        RequestError: there is no such version, its files were not kept, or the folder is not empty.
    """
    version = registry.version(VersionName.parse(name))
    if not version.files:
        raise RequestError(f"The files of {version.name} were not copied; it is {version.reference}.")
    return version, weights.export(version, weights.place(registry.weights), folder)


def queue_measurement(
    registry: Registry, version: str, recipe: str, *, target: str, measure: Measure
) -> tuple[Task, bool]:
    """Queue a measurement of a variant, before everything else; return the task, and whether it is new.

    The version is given by its name, the target by its id.

    Raises:
        RequestError: there is no such version, usable variant or target.
    """
    variant = find_variant(registry, registry.version(VersionName.parse(version)), recipe)
    task = profile_task(variant, measure, known_target(registry, target), priority=FIRST)
    return task, bool(registry.enqueue((task,)))


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedTask:
    """The task, and whether it is new: the same measurement is queued once."""

    task: Task
    new: bool


def measure_next(
    registry: Registry, name: str, recipe: str = SOURCE, *, batch_size: int = 1, target: str = ""
) -> QueuedTask:
    """Queue a measurement of a version before everything else, with what its policy says.

    Args:
        registry: where it is.
        name: of the version.
        recipe: the variant, such as ``onnx``.
        batch_size: samples in one call.
        target: name or id of a target; may be left out where there is only one.

    Raises:
        RequestError: there is no such version, usable variant or target, or it is no batch size.
    """
    version = registry.version(VersionName.parse(name))
    task, new = queue_measurement(
        registry,
        version.name,
        recipe,
        target=target_named(registry, target),
        measure=measure_of_policy(registry, version, batch_size),
    )
    stored = registry.tasks(model=version.model, number=version.number)
    return QueuedTask(task=next((each for each in stored if each.key == task.key), task), new=new)


def queue_comparison(
    registry: Registry, variants: Sequence[tuple[str, str]], *, target: str, measure: Measure
) -> tuple[Task, bool]:
    """Queue a comparison of variants in turns with the first; return the task, and whether it is new.

    Each of the two to five is given by the name of its version and its recipe, the target by its id.

    Raises:
        RequestError: there are too few or too many, or there is no such version, usable variant or target.
    """
    different = len(set(variants))
    if different < len(variants) or not FEWEST <= different <= MOST_COMPARED:
        raise RequestError(f"{FEWEST} to {MOST_COMPARED} different ones are compared; choose them.")
    compared = [
        find_variant(registry, registry.version(VersionName.parse(version)), recipe)
        for version, recipe in variants
    ]
    task = compare_task(compared, measure, known_target(registry, target))
    return task, bool(registry.enqueue((task,)))


MOST_COMPARED = 5
"""Variants that are measured in turns."""


def known_target(registry: Registry, target: str) -> str:
    """Return the id of a target; raise UnknownName if there is none."""
    ids = [each.id for each in registry.targets()]
    if target not in ids:
        raise UnknownName.among("target", target, ids)
    return target


def target_named(registry: Registry, name: str) -> str:
    """Return the id of the target of a name or an id; without one, of the only one that there is.

    Raises:
        RequestError: there is none, or several have the name.
    """
    targets = registry.targets()
    named = [each for each in targets if name in {"", each.name, each.id}]
    if len(named) == 1:
        return named[0].id
    if not targets:
        raise RequestError("There is no target yet; a worker makes one: modeldyno worker")
    if not named:
        raise UnknownName.among("target", name, (each.name for each in targets))
    choices = ", ".join(f"{each.id} ({each.name})" for each in named)
    raise RequestError(f"There are several targets; name one of them: {choices}.")


def measure_of_policy(registry: Registry, version: Version, batch_size: int) -> Measure:
    """Return what the policy of a version measures, at a batch size.

    Raises:
        RequestError: it is no batch size.
    """
    if not 1 <= batch_size <= _LARGEST_BATCH:
        raise RequestError(f"A batch has 1 to {_LARGEST_BATCH} samples.")
    policy = replace(find_policy(registry, version.policy), batch_sizes=(batch_size,))
    return next(policy.measures(version.evaluation))


_LARGEST_BATCH = 65536


def change_and_list_tasks(
    registry: Registry,
    name: str | None,
    *,
    states: Sequence[TaskState] = tuple(OPEN),
    cancel: Sequence[int] = (),
    retry: Sequence[int] = (),
    limit: int,
) -> tuple[tuple[Task, ...], dict[TaskState, int]]:
    """Cancel tasks, queue those again that ended or were put off, and list those in some states.

    Returns:
        The tasks, and how many were cancelled and queued.

    Raises:
        RequestError: there is no such model.
    """
    changed = {
        state: sum(
            registry.change_tasks(ids[at : at + _PAGE], state, actor()) for at in range(0, len(ids), _PAGE)
        )
        for ids, state in ((cancel, TaskState.CANCELLED), (retry, TaskState.QUEUED))
        if ids
    }
    return tuple(registry.tasks(states=states, limit=limit, **_of_model(registry, name))), changed


def failed_tasks(registry: Registry, name: str | None) -> list[int]:
    """Return the ids of all tasks that have failed, of a model or of all.

    Raises:
        RequestError: there is no such model.
    """
    ids: list[int] = []
    after, of_model = None, _of_model(registry, name)
    while page := registry.tasks(states=(TaskState.FAILED,), limit=_PAGE, after=after, **of_model):
        ids += (task.id for task in page)
        after = page[-1].place
    return ids


def _of_model(registry: Registry, name: str | None) -> dict[str, Any]:
    if name is None:
        return {}
    parsed = VersionName.parse(name)
    registry.version(parsed)
    return {"model": parsed.model, "number": parsed.number}


_PAGE = 1000
"""Tasks that are read or changed at once."""
