"""Read a file of jobs: commands with their options, written down as YAML.

A file is one job: ``command: profile``, and a key for each option; ``max-time`` and ``max_time`` are one key.
With ``jobs`` it holds several: each item adds its keys to those beside ``jobs``. With ``matrix`` there is one
for each combination of values: ``matrix: {model: [a.onnx, b.onnx], set.batch_size: [1, 8]}``. The address
``jobs.yaml#2`` is the second job, ``jobs.yaml#2-4`` and ``jobs.yaml#3-`` are several.

What the keys mean is decided by the command; here they are text.
"""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError
from modeldyno.base.yaml_file import FileConfig, Place, Tree, read_yaml_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

COMMAND, MODEL, JOBS, MATRIX = "command", "model", "jobs", "matrix"
"""Keys of a file with a meaning for any command."""
MOST_JOBS = 1000

_ADDRESS = re.compile(r"(?P<path>.*\.ya?ml)(?:#(?P<first>\d+)(?P<range>-(?P<last>\d+)?)?)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileJob:
    """One job of a file."""

    number: int
    """From 1, in the order of the file."""
    config: FileConfig
    """Its keys, those of the whole file included."""
    label: str = ""
    """Its model, and what distinguishes it from the other jobs of its command: ``a.onnx batch_size=8``."""

    @property
    def command(self) -> str:
        """The command; empty if the file does not say it."""
        return str(self.config.tree.get(COMMAND, ""))

    @property
    def options(self) -> FileConfig:
        """Its keys without the command."""
        return replace(self.config, tree={k: v for k, v in self.config.tree.items() if k != COMMAND})

    @property
    def address(self) -> str:
        """How the command line names it."""
        return f"{self.config.origin}#{self.number}"


def is_job_address(text: str) -> bool:
    """Return whether this is the name of a YAML file, perhaps with the numbers of some of its jobs."""
    return _ADDRESS.fullmatch(text) is not None


def check_job_numbers(text: str) -> None:
    """Raise RequestError if text names a YAML file, and then something that is no number of a job."""
    path, mark, numbers = text.rpartition("#")
    if mark and is_job_address(path) and not is_job_address(text):
        raise RequestError(f"'#{numbers}' names no job; write {path}#2 for the second, {path}#2-4 for three.")


def read_jobs(address: str) -> tuple[FileJob, ...]:
    """Read the jobs of a file, or those that the address names.

    Raises:
        RequestError: the file cannot be read, is wrong, or has no job of this number.
    """
    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise RequestError(f"'{address}' is no file of jobs; its name ends in .yaml or .yml.")
    jobs = expand_jobs(read_yaml_file(Path(match["path"])))
    if match["first"] is None:
        return jobs
    first = int(match["first"])
    last = int(match["last"] or len(jobs)) if match["range"] else first
    if last < first <= len(jobs):
        path = match["path"]
        raise RequestError(f"{address} ends before it begins; write {path}#{last}-{first} or {path}#{first}.")
    if not 1 <= first <= last <= len(jobs):
        raise RequestError(
            f"{match['path']} has {len(jobs)} {'jobs' if len(jobs) > 1 else 'job'}; "
            f"{address} names number {first if not 1 <= first <= len(jobs) else last}."
        )
    return jobs[first - 1 : last]


def read_job(address: str, command: str) -> FileJob:
    """Read the one job of a file, or that which the address names, as one of this command.

    Raises:
        RequestError: as `read_jobs`; there are several, or it is a job of another command.
    """
    jobs = read_jobs(address)
    if len(jobs) > 1:
        path = jobs[0].config.origin
        first = "" if all(job.command for job in jobs) else f"add command: {command} to it, then "
        raise RequestError(
            f"{address} has {len(jobs)} jobs; for all: {first}modeldyno run {address}; "
            f"for one: modeldyno {command} {path}#{jobs[0].number}"
        )
    job = jobs[0]
    if job.command not in {"", command}:
        with job.config.at(COMMAND):
            raise RequestError(f"this is a job of {job.command}; type: modeldyno {job.command} {address}")
    return job


def expand_jobs(config: FileConfig) -> tuple[FileJob, ...]:
    """Return the jobs of a file in its order; of a matrix, the last key varies fastest.

    Raises:
        RequestError: ``jobs`` or ``matrix`` is wrong, or there are too many jobs.
    """
    configs = tuple(_job_configs(_with_one_spelling(config)))
    return tuple(
        FileJob(number=number, config=job, label=_label(job, configs))
        for number, job in enumerate(configs, 1)
    )


def _job_configs(config: FileConfig) -> Iterator[FileConfig]:
    """Yield the configuration of each job."""
    common = _without(config, JOBS)
    if JOBS not in config.tree:
        yield from _matrix_configs(common)
        return
    items = config.tree[JOBS]
    with config.at(JOBS):
        if not isinstance(items, list) or not items:
            raise RequestError("`jobs` is a list with the keys of each job: - model: a.onnx")
    for index, item in enumerate(items):
        with config.at(JOBS, str(index)):
            if not isinstance(item, dict) or JOBS in item:
                raise RequestError("a job is a mapping of options, such as model: a.onnx")
        job = _with_one_spelling(_part(config, (JOBS, str(index)), item))
        yield from _matrix_configs(job.over(common))


def _matrix_configs(config: FileConfig) -> Iterator[FileConfig]:
    """Yield the configuration of each combination of the matrix."""
    matrix = config.tree.get(MATRIX, {})
    with config.at(MATRIX):
        if not isinstance(matrix, dict):
            raise RequestError("`matrix` maps keys to lists of values: set.batch_size: [1, 8]")
    axes = dict(_leaves(matrix))
    for place, values in axes.items():
        with config.at(MATRIX, *place):
            if not isinstance(values, list) or not values:
                raise RequestError(f"`matrix` takes a list of values for {'.'.join(place)}: [1, 8]")
    with config.at(MATRIX):
        if math.prod(map(len, axes.values())) > MOST_JOBS:
            raise RequestError(f"`matrix` makes more than {MOST_JOBS:,} jobs; vary less.")
    rest = _without(config, MATRIX)
    targets = {place: _target(place) for place in axes}
    for choice in itertools.product(*(range(len(values)) for values in axes.values())):
        job = rest
        for (place, values), index in zip(axes.items(), choice, strict=True):
            target = targets[place]
            line = config.lines.get((MATRIX, *place, str(index)))
            chosen = FileConfig(
                tree=_nest(target, values[index]),
                lines={} if line is None else {target: line},
                origin=config.origin,
            )
            job = chosen.over(job)
        yield job


def _target(place: Place) -> Place:
    """Return the place that a key of the matrix sets: ``set.threads`` is ``threads`` within ``set``."""
    first, dot, rest = place[0].partition(".")
    return (first.replace("-", "_"), *((rest,) if dot else ()), *place[1:])


def _nest(place: Place, value: Any) -> Tree:
    return {place[0]: value if len(place) == 1 else _nest(place[1:], value)}


def _leaves(tree: Mapping[str, Any], before: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Yield the values that are no mappings, with their places."""
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*before, name))
        else:
            yield (*before, name), value


def _without(config: FileConfig, key: str) -> FileConfig:
    return replace(
        config,
        tree={name: value for name, value in config.tree.items() if name != key},
        lines={place: line for place, line in config.lines.items() if place[:1] != (key,)}
        if key == JOBS
        else config.lines,
    )


def _part(config: FileConfig, place: Place, tree: Tree) -> FileConfig:
    """Return a part of a file as a configuration of its own."""
    size = len(place)
    lines = {at[size:]: line for at, line in config.lines.items() if at[:size] == place and len(at) > size}
    return FileConfig(tree=tree, lines=lines, origin=config.origin)


def _with_one_spelling(config: FileConfig) -> FileConfig:
    """Write the keys of the first level with ``_``.

    Raises:
        RequestError: a key stands there in both spellings.
    """
    tree: Tree = {}
    for name, value in config.tree.items():
        spelled = name.replace("-", "_")
        if spelled in tree:
            with config.at(name):
                raise RequestError(f"'{name}' occurs twice; give it once.")
        tree[spelled] = value
    lines = {
        (place[0].replace("-", "_"), *place[1:]) if place else place: line
        for place, line in config.lines.items()
    }
    return replace(config, tree=tree, lines=lines)


def _label(job: FileConfig, jobs: Sequence[FileConfig]) -> str:
    """Name the model of a job, and the keys in which jobs of its command differ."""
    command = job.tree.get(COMMAND)
    others = [dict(_leaves(other.tree)) for other in jobs if other.tree.get(COMMAND) == command]
    parts: list[str] = []
    for place, value in _leaves(job.tree):
        text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
        if place == (MODEL,):
            parts.insert(0, Path(text).name)
        elif any(other.get(place) != value for other in others):
            parts.append(f"{place[-1]}={text}")
    return " ".join(parts)
