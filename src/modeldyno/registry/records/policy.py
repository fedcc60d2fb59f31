"""What is done by itself with a version: which conversions, which measurements, how old a figure may get."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError
from modeldyno.base.job.input_spec import fixed_batch as fixed_batch_of
from modeldyno.base.job.version_name import SOURCE
from modeldyno.base.stats.units import check_time_limit
from modeldyno.registry.records.records import Measure, Task, TaskKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from modeldyno.registry.records.records import EvaluationData, Variant, Version


_HOUR, _WHOLE_DAY = 60, 24 * 60
"""In minutes."""
_FORM = re.compile(r"([01]?\d|2[0-4]):([0-5]\d)\s*-\s*([01]?\d|2[0-4]):([0-5]\d)")
_SHOWN = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A part of each day, in local time; one that ends before it begins goes over midnight."""

    begin: int
    """Minutes after midnight; within the window."""
    end: int
    """Minutes after midnight; no longer within it."""

    @classmethod
    def parse(cls, text: str) -> Window:
        """Read ``22:00-06:00``.

        Raises:
            RequestError: it is no time of day, or it lasts no time.
        """
        match = _FORM.fullmatch(text.strip())
        if match is not None:
            hour, minute, end_hour, end_minute = map(int, match.groups())
            begin, end = hour * _HOUR + minute, end_hour * _HOUR + end_minute
            if max(begin, end) <= _WHOLE_DAY and begin % _WHOLE_DAY != end:
                return cls(begin=begin % _WHOLE_DAY, end=end)
        raise RequestError(f"'{text[:_SHOWN]}' is no time of day; write 22:00-06:00, or 00:00-24:00.")

    def __str__(self) -> str:
        return "-".join(f"{time // _HOUR:02}:{time % _HOUR:02}" for time in (self.begin, self.end))

    def holds(self, now: datetime) -> bool:
        """Return whether a local time is within it."""
        minute = now.hour * _HOUR + now.minute
        if self.begin < self.end:
            return self.begin <= minute < self.end
        return minute >= self.begin or minute < self.end

    def next_begin(self, now: datetime) -> datetime:
        """Return when it begins next, after a local time."""
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        today = midnight + timedelta(minutes=self.begin)
        return today if today > now else today + timedelta(days=1)


def opens_at(windows: Iterable[Window], now: datetime) -> datetime | None:
    """Return when the first window begins; None if one holds now, or there are none and any time will do.

    Args:
        windows: one of them is enough.
        now: local time, without a zone.
    """
    each = tuple(windows)
    if any(window.holds(now) for window in each):
        return None
    return min((window.next_begin(now) for window in each), default=None)


_DAY = 86400.0
_OLDEST = 36525 * _DAY
_MANY = 10**9
FIRST, CONVERSIONS, FURTHER, REPEATS = 10, 20, 100, 1000
"""Priorities: the first figure of the source, conversions, other figures, and stale ones measured again.

Other figures follow FURTHER in the order of the policy, so that all variants are compared at its first batch
size before any is measured at the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What is done by itself with each version that has this policy."""

    name: str
    convert: tuple[str, ...] = ("onnx", "torchscript", "openvino")
    """Recipes; those that do not take the source are left out."""
    tolerance: float | None = None
    """The share of a sample's largest value by which outputs of a variant may be off, if somebody allows more
    than the rule."""
    tolerated_by: str = ""
    """Who allows it: whoever stored the policy."""
    batch_sizes: tuple[int, ...] = (1, 8, 32)
    """Batch sizes at which each variant is called in a process."""
    probes: tuple[str, ...] = ("static", "latency", "throughput")
    serve: str = ""
    """Backend whose server is loaded as well, such as ``triton``; empty for none."""
    concurrency: tuple[int, ...] = (1, 4)
    """Loads on that server."""
    require: tuple[str, ...] = ()
    """Bounds that figures should be able to answer, such as ``latency.p99 <= 20ms``."""
    max_time: float = 20.0
    """Seconds of measuring for each probe."""
    max_age: float = 30 * _DAY
    """Seconds until a figure is stale."""
    windows: tuple[Window, ...] = ()
    """Times of day at which a worker may measure, in its local time; empty for any time."""

    def __post_init__(self) -> None:
        """Refuse what no worker can do, with one sentence."""
        check_time_limit(self.max_time, "max_time")
        if not 0 < self.max_age <= _OLDEST:
            raise RequestError(f"max_age is {self.max_age:g} s: write more than 0, and at most 36525d.")
        if self.tolerance is not None and not 0 < self.tolerance < 1:
            raise RequestError(f"tolerance is {self.tolerance:g}: write a share between 0 and 1.")
        for name in ("batch_sizes", "concurrency"):
            if not all(1 <= number < _MANY for number in getattr(self, name)):
                raise RequestError(f"{name} needs whole numbers of 1 or more, with 9 digits at most.")

    def measures(
        self, evaluation: EvaluationData | None = None, fixed_batch: int | None = None
    ) -> Iterator[Measure]:
        """Yield what is measured of each variant, the first figure first.

        A model whose batch is fixed is measured at that, whatever the policy says. What is evaluated is part
        of every figure in a process, so that a bound on it and one on the latency are judged together.
        """
        evaluated: dict[str, Any] = {}
        if evaluation is not None:
            data = ":".join(filter(None, (evaluation.file.digest, evaluation.labels)))
            evaluated = {"evaluate": evaluation.metrics, "data": data}
        sizes = self.batch_sizes if fixed_batch is None else (fixed_batch,)
        for batch in sizes if self.batch_sizes else ():
            yield Measure(
                probes=self.probes,
                settings={"batch_size": batch},
                require=self.require,
                max_time=self.max_time,
                **evaluated,
            )
        for load in self.concurrency if self.serve else ():
            yield Measure(
                probes=("load",),
                backend=self.serve,
                concurrency=load,
                require=self.require,
                max_time=self.max_time,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadablePolicy:
    """A stored policy that is damaged, or of a later ModelDyno; storing one of its name replaces it."""

    name: str
    why: str


DEFAULT = Policy(name="default")
"""The policy of versions for which no other is named."""


def conversion_tasks(version: Version, policy: Policy) -> Iterator[Task]:
    """Yield a task for each conversion of a version; any machine can do them."""
    for recipe in policy.convert:
        yield Task(
            key=task_key(version.name, recipe, None, ""),
            kind=TaskKind.CONVERT,
            model=version.model,
            number=version.number,
            recipe=recipe,
            priority=CONVERSIONS,
        )


def profile_tasks(
    variant: Variant, policy: Policy, target: str, version: Version | None = None
) -> Iterator[Task]:
    """Yield the tasks that measure a variant on a target, at the batch and with the labels of its version."""
    measures = (
        policy.measures(version.evaluation, fixed_batch_of(version.inputs)) if version else policy.measures()
    )
    for position, measure in enumerate(measures):
        first = position == 0 and variant.recipe == SOURCE
        yield profile_task(variant, measure, target, priority=FIRST if first else FURTHER + position)


def profile_task(variant: Variant, measure: Measure, target: str, *, priority: int) -> Task:
    """Return the task that measures a variant once on a target."""
    return Task(
        key=task_key(f"{variant.model}/{variant.number}", variant.recipe, measure, target),
        kind=TaskKind.PROFILE,
        model=variant.model,
        number=variant.number,
        recipe=variant.recipe,
        target=target,
        measure=measure,
        priority=priority,
    )


def compare_task(variants: Sequence[Variant], measure: Measure, target: str) -> Task:
    """Return the task that measures variants in turns on a target and compares them with the first one."""
    first, *others = variants
    beside = replace(measure, beside=tuple(variant.name for variant in others))
    return replace(profile_task(first, beside, target, priority=FIRST), kind=TaskKind.COMPARE)


def task_key(version: str, recipe: str, measure: Measure | None, target: str) -> str:
    """Return what identifies a task: equal work has an equal key, and is queued once.

    It is also the key of the figure that the task gives.

    Args:
        version: its name, such as ``digits/3``; its content never changes.
        recipe: how the variant is made.
        measure: what is measured; None for the conversion itself.
        target: id of the target; empty for any machine.
    """
    described = None if measure is None else asdict(measure)
    if described is not None:  # keys are older than these fields
        later = {"evaluate", "data"} if not described["evaluate"] else set()
        later |= {"beside"} if not described["beside"] else set()
        described = {name: value for name, value in described.items() if name not in later}
    parts = [version, recipe, described, target]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:32]
