"""Policies: built in, stored, or read from a YAML file; and what they want that was never queued."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from modeldyno.base import plugins, yaml_file
from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.base.identity import actor
from modeldyno.base.job.version_name import VersionName, check_model_name
from modeldyno.base.metrics.constraints import Constraint
from modeldyno.base.stats.units import SECONDS, parse_quantity
from modeldyno.conversion.request import check_tolerance
from modeldyno.registry.records.policy import DEFAULT, Policy, UnreadablePolicy, Window, profile_tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from modeldyno.registry.interface import Registry
    from modeldyno.registry.records.records import Task, Version

_DAY = 86400.0
_PAGE = 500
"""Models that are read at once."""


def find_policy(registry: Registry, name: str) -> Policy:
    """Return the policy of a name: a stored one, or the built-in ``default``.

    Raises:
        RequestError: it is the path of a file, or cannot be read.
        UnknownName: there is none.
    """
    stored = {policy.name: policy for policy in all_policies(registry)}
    policy = stored.get(name)
    if isinstance(policy, UnreadablePolicy):
        raise RequestError(
            f"The policy {name} cannot be read ({policy.why}); store it again with `modeldyno registry "
            "policy -f FILE`."
        )
    if policy is None:
        if name.endswith((".yaml", ".yml")):
            raise RequestError(
                f"A policy is named, not given as a file: store it with `modeldyno registry policy -f {name}`"
                ", and give the name that this says."
            )
        raise UnknownName.among("policy", name, stored)
    return policy


def all_policies(registry: Registry) -> tuple[Policy | UnreadablePolicy, ...]:
    """Return the policies, ``default`` first, stored or built in; one that cannot be read is among them."""
    stored = {policy.name: policy for policy in registry.policies()}
    return (stored.pop(DEFAULT.name, DEFAULT), *stored.values())


def readable_policies(registry: Registry) -> dict[str, Policy]:
    """Return the policies that can be read, by name."""
    return {policy.name: policy for policy in all_policies(registry) if isinstance(policy, Policy)}


def policy_of(registry: Registry, task: Task) -> Policy:
    """Return the policy of the version of a task.

    Raises:
        RequestError: there is no such version any more.
    """
    version = registry.version(VersionName(model=task.model, number=task.number))
    return find_policy(registry, version.policy)


def tasks_missing_on(registry: Registry, target: str) -> Iterator[Task]:
    """Yield the measurements that the policies want on a target and that were never queued for it.

    Of each model, the newest version and those with an alias are wanted, unless they were registered without
    measurements, or have a policy that cannot be read.
    """
    queued = registry.asked_for(target)
    policies = readable_policies(registry)
    for version in current_versions(registry):
        policy = policies.get(version.policy)
        if policy is None or (version.model, version.number) not in queued.versions:
            continue
        for variant in registry.variants(version):
            if variant.usable:
                tasks = profile_tasks(variant, policy, target, version)
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


def check_policy_request(name: str | None, *, file: str | Path | None, remove: bool) -> None:
    """Raise RequestError if a policy is to be stored and removed at once, or removed without a name."""
    if remove and file is not None:
        raise RequestError("A policy is stored of a file or removed by its name; do one of them.")
    if remove and name is None:
        raise RequestError("Name the policy to remove.")


def read_policy(path: Path) -> Policy:
    """Read a policy from a YAML file; a key that is left out has the value of the built-in policy.

    Raises:
        RequestError: the file cannot be read, or a key or value in it is wrong; it names the line.
    """
    config = yaml_file.read_yaml_file(path)
    field_names = {field.name for field in fields(Policy)} - {"tolerated_by"}
    values: dict[str, Any] = {"name": path.stem}
    for key, value in config.tree.items():
        with config.at(key):
            if key not in field_names:
                raise UnknownName.among("key of a policy", key, field_names)
            values[key] = _PARSERS[key](value)
            replace(DEFAULT, **{key: values[key]})
    if "tolerance" in values:
        values["tolerated_by"] = actor()
    policy = replace(DEFAULT, **values)
    with config.at("convert"):
        for recipe in policy.convert:
            plugins.resolve("converter", recipe)
    with config.at("serve"):
        if policy.serve:
            plugins.backend(policy.serve)
    return policy


def _as_texts(value: Any) -> tuple[str, ...]:
    items = value if isinstance(value, list) else str(value).split(",")
    return tuple(str(item).strip() for item in items if str(item).strip())


def _numbers(value: Any) -> tuple[int, ...]:
    try:
        numbers = tuple(int(word) for word in _as_texts(value))
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 1:
        typed = ", ".join(_as_texts(value))
        raise RequestError(f"'{typed}' is no list of numbers of 1 or more; write [1, 8, 32].")
    return numbers


def _bounds(value: Any) -> tuple[str, ...]:
    items = value if isinstance(value, list) else [value]
    return tuple(str(Constraint.parse(str(item))) for item in items)


def _age(value: Any) -> float:
    text = str(value).strip()
    if text.endswith("d") and text[:-1].strip().replace(".", "", 1).isdigit():
        return float(text[:-1]) * _DAY
    return parse_quantity(text, SECONDS)


_PARSERS: dict[str, Callable[[Any], Any]] = {
    "name": lambda value: check_model_name(str(value)),
    "convert": _as_texts,
    "tolerance": lambda value: check_tolerance(parse_quantity(str(value), "1")),
    "batch_sizes": _numbers,
    "probes": _as_texts,
    "serve": lambda value: str(value).strip(),
    "concurrency": _numbers,
    "require": _bounds,
    "max_time": lambda value: parse_quantity(str(value), SECONDS),
    "max_age": _age,
    "windows": lambda value: tuple(map(Window.parse, _as_texts(value))),
}
