"""What a worker queues when it begins: what policies want on its target, of models registered before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.core.registry.names import VersionName
from modeldyno.core.registry.policy import profile_tasks
from modeldyno.registry.policies import find_policy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.core.registry.policy import Policy
    from modeldyno.core.registry.records import Task, Version
    from modeldyno.interfaces.registry import Registry

_PAGE = 500


def tasks_missing_on(registry: Registry, target: str) -> Iterator[Task]:
    """Yield the measurements that the policies want on a target and that were never queued for it.

    Of each model, the newest version and those with an alias are wanted, unless they were registered without
    measurements.
    """
    queued = registry.asked_for(target)
    policies: dict[str, Policy] = {}
    for version in current_versions(registry):
        if (version.model, version.number) not in queued.versions:
            continue
        if version.policy not in policies:
            policies[version.policy] = find_policy(registry, version.policy)
        for variant in registry.variants(version):
            if variant.usable:
                tasks = profile_tasks(variant, policies[version.policy], target, version)
                yield from (task for task in tasks if task.key not in queued.keys)


def current_versions(registry: Registry) -> Iterator[Version]:
    """Yield of each model the newest version and those with an alias."""
    before = ""
    while entries := registry.models(limit=_PAGE, before=before):
        for entry in entries:
            yield entry.newest
            for number in sorted({*entry.aliases.values()} - {entry.newest.number}):
                yield registry.version(VersionName(model=entry.name, number=number))
        before = entries[-1].mark
