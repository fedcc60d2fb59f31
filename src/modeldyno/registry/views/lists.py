"""Tables of models, tasks, workers, alias moves and events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base.report.blocks import Table, drop_empty_columns, make_table, shorten
from modeldyno.base.report.charts import AxisScale, Plot, Series
from modeldyno.base.stats.units import RATE, SECONDS, format_quantity
from modeldyno.base.views.text import (
    about_number,
    format_known,
    format_rough_duration,
    format_utc,
    shorten_message,
)
from modeldyno.registry.records.policy import Policy, UnreadablePolicy
from modeldyno.registry.records.records import FigureState, TaskState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from modeldyno.registry.interface import ModelEntry
    from modeldyno.registry.records.overview import FigureSpeed, SpeedRow, VersionSpeed
    from modeldyno.registry.records.records import (
        AliasMove,
        HardwareTarget,
        RegistryEvent,
        Task,
        Version,
        Worker,
    )
    from modeldyno.registry.records.webhooks import Webhook

_WHY = 60
"""Most characters of a reason."""
_DAY = 10
"""Characters of a time up to its day."""
_MINUTES = 16
"""Characters of a time up to its minutes."""


def models(entries: Sequence[ModelEntry]) -> Table:
    """List models, one row each."""
    rows = tuple(
        (
            entry.name,
            str(entry.newest.number),
            entry.newest.framework,
            entry.newest.task,
            ", ".join(f"{alias}={number}" for alias, number in entry.aliases.items()),
            format_utc(entry.touched)[:_MINUTES],
        )
        for entry in entries
    )
    titles = ("model", "newest>", "framework", "task", "aliases", "registered")
    return _table("", titles, rows)


def versions(listed: Sequence[Version]) -> Table:
    """List versions of a model, one row each."""
    rows = tuple(
        (
            version.name,
            version.digest.removeprefix("sha256:")[:12],
            version.framework,
            version.creator,
            " ".join(f"{name}={value:g}" for name, value in version.metrics.items()),
            format_utc(version.created)[:_MINUTES],
        )
        for version in listed
    )
    return _table("Versions", ("version", "digest", "framework", "by", "metrics", "registered"), rows)


def version_figures(
    listed: Sequence[Version], speeds: Sequence[VersionSpeed], targets: Mapping[str, HardwareTarget]
) -> Table:
    """List versions of a model with their best fresh figures, one row for each target."""
    rows: list[tuple[str, ...]] = []
    for version in listed:
        metrics = " ".join(f"{name}={value:g}" for name, value in version.metrics.items())
        first = version.name, format_utc(version.created)[:_DAY], metrics
        measured = [speed for speed in speeds if speed.number == version.number]
        for at, speed in enumerate(measured):
            rows.append((*(("", "", "") if at else first), *_speed(speed, targets)))
        if not measured:
            rows.append((*first, "", "not measured", "", ""))
    titles = ("version", "registered", "metrics", "target", "p50>", "p99>", "rate>")
    return _table("Versions, each by its best figures", titles, tuple(rows))


def _speed(speed: VersionSpeed, targets: Mapping[str, HardwareTarget]) -> tuple[str, str, str, str]:
    """Return the target, and the figures or why there are none."""
    target = targets[speed.target].name if speed.target in targets else speed.target
    if speed.state is not FigureState.FRESH:
        return target, str(speed.state), "", ""
    return target, *_times(speed), format_quantity(speed.rate, RATE, 3) if speed.rate else ""


def tasks(listed: Sequence[Task], targets: Mapping[str, HardwareTarget]) -> Table:
    """List tasks, one row each."""
    rows = tuple(
        (
            str(task.id),
            str(task.state),
            task.label,
            targets[task.target].name if task.target in targets else "any",
            _note(task),
        )
        for task in listed
    )
    return _table("", ("task>", "state", "what", "target", ""), rows)


def workers(listed: Sequence[Worker], targets: Mapping[str, HardwareTarget]) -> Table:
    """List workers, one row each."""
    rows = tuple(
        (
            worker.id,
            targets[worker.target].name if worker.target in targets else worker.target,
            f"{worker.host} (pid {worker.pid})",
            worker.state,
            f"{worker.silent:.0f} s ago",
        )
        for worker in listed
    )
    return _table("Workers", ("worker", "target", "process", "does", "seen"), rows)


def webhooks(listed: Sequence[Webhook], deliveries: Mapping[tuple[int, str], int]) -> Table:
    """List webhooks, with how many messages wait, have arrived, or were given up."""
    rows = tuple(
        (
            str(webhook.id),
            webhook.shown,
            ", ".join(webhook.kinds),
            webhook.model or "all",
            "yes" if webhook.secret else "no",
            *(str(deliveries.get((webhook.id, state), 0)) for state in ("waiting", "done", "failed")),
        )
        for webhook in listed
    )
    titles = ("id>", "url", "events", "models", "signed", "waiting>", "arrived>", "given up>")
    return _table("Webhooks", titles, rows)


def alias_moves(moves: Sequence[AliasMove]) -> Table:
    """List the moves of aliases, the newest last."""
    rows = tuple(
        (
            format_utc(move.at)[:_MINUTES],
            move.alias,
            "new" if move.before is None else f"/{move.before}",
            "removed" if move.after is None else f"/{move.after}",
            move.actor,
        )
        for move in moves
    )
    return _table("", ("when", "alias", "from", "to", "by"), rows)


def events(listed: Iterable[RegistryEvent]) -> Table:
    """List events, the newest last; all of their details are in the JSON document."""
    rows = tuple(
        (
            str(event.id),
            format_utc(event.at)[:_MINUTES],
            event.kind,
            event.subject,
            event.actor,
            shorten(_describe(event), _WHY),
        )
        for event in listed
    )
    return _table("", ("event>", "when", "what", "of", "by", "detail"), rows)


def _describe(event: RegistryEvent) -> str:
    """Say in a few words what an event changed, and why."""
    detail = {key: text for key, text in event.detail.items() if text not in {"", "None"}}
    if "alias" in detail:
        before, after = (f"/{detail[end]}" if end in detail else "" for end in ("before", "after"))
        return f"@{detail['alias']}: {before or 'new'} to {after or 'nothing'}"
    if "what" in detail or "why" in detail:
        task = detail.get("what", "").removeprefix(f"{event.subject} ")
        return ": ".join(filter(None, (task, detail.get("why", ""))))
    return ", ".join(f"{key} {text}" for key, text in detail.items())


def _note(task: Task) -> str:
    if task.state is TaskState.DEFERRED:
        return f"{shorten_message(task.why, _WHY)}; again in {format_rough_duration(task.left)}"
    if task.state is TaskState.LEASED:
        return f"worker {task.worker}"
    if task.state is TaskState.DONE and task.result:
        return task.why or f"result {task.result}"
    return shorten_message(task.why, _WHY)


def _table(title: str, titles: Sequence[str], rows: Iterable[tuple[str, ...]]) -> Table:
    return drop_empty_columns(make_table(title, titles, rows))


def policy(stored: Policy | UnreadablePolicy) -> Table:
    """Show what a policy does, or why it cannot be read."""
    if isinstance(stored, UnreadablePolicy):
        why = (("cannot be read", stored.why), ("store it again", "modeldyno registry policy -f FILE"))
        return make_table(f"Policy {stored.name}", ("", ""), why)
    rows = (
        ("convert to", ", ".join(stored.convert) or "nothing"),
        *([("tolerance", f"{stored.tolerance:g}, by {stored.tolerated_by}")] if stored.tolerance else []),
        ("batch sizes", ", ".join(map(str, stored.batch_sizes))),
        ("measure", ", ".join(stored.probes)),
        ("serve", f"{stored.serve} at {', '.join(map(str, stored.concurrency))}" if stored.serve else "no"),
        ("bounds", " and ".join(stored.require) or "none"),
        ("time for each probe", f"at most {stored.max_time:g} s"),
        ("a figure is stale after", f"{stored.max_age / 86400:g} days"),
        ("measure at", ", ".join(map(str, stored.windows)) or "any time"),
    )
    return make_table(f"Policy {stored.name}", ("", ""), rows)


# --- how fast models are --------------------------------------------------------------------------


def speeds(rows: Sequence[SpeedRow], title: str = "") -> Table:
    """List versions on targets: the lowest latency, the highest rate, and what gives them."""
    titles = (
        "version", "target", "p50>", "p99>", "lowest latency as", "rate>", "highest rate as", "bounds?",
        "state",
    )  # fmt: skip
    return make_table(title, titles, map(_speed_row, rows))


def _speed_row(row: SpeedRow) -> tuple[str, ...]:
    texts = _speed_texts(row)
    return (
        f"{row.model}/{row.number}",
        row.target.name,
        texts["p50"],
        texts["p99"],
        f"{row.figure.recipe}, {row.figure.measure.label}",
        texts["rate"],
        f"{row.most.recipe}, {row.most.measure.label}" if row.rate else "",
        "" if row.speed.bounds is None else str(row.speed.bounds),
        str(row.figure.state),
    )


def _times(speed: FigureSpeed | VersionSpeed) -> tuple[str, str]:
    """Format the p50 and the p99; one that too few samples certify is about what was seen."""
    p50, p99 = (
        format_known(certified, SECONDS, unknown=about_number(seen))
        for certified, seen in zip((speed.p50, speed.p99), speed.seen, strict=True)
    )
    return p50, p99


SHOWN = ("p50", "p99", "rate")
"""What a matrix can show of each target."""


def _speed_texts(row: SpeedRow) -> dict[str, str]:
    """Format what a matrix can show of a target."""
    p50, p99 = _times(row.speed)
    return {"p50": p50, "p99": p99, "rate": format_quantity(row.rate, RATE, 3) if row.rate else ""}


def by_target(rows: Sequence[SpeedRow], figures: Sequence[str], title: str) -> Table:
    """List models, and beside each how fast its newest version is on each target.

    Args:
        rows: the newest version of each model on each target.
        figures: what is shown of each of them, of `SHOWN`.
        title: of the table.
    """
    targets = {row.target.id: row.target.name for row in rows}
    row_by_place = {(row.model, row.target.id): row for row in rows}

    def cells(model: str) -> Iterator[str]:
        yield model
        for target in targets:
            row = row_by_place.get((model, target))
            texts = {} if row is None else _speed_texts(row)
            yield from (texts.get(name, "") for name in figures)
            verdict = None if row is None else row.speed.bounds
            yield "" if row is None else str(row.figure.state if verdict is None else verdict)

    marked = (*(f"{name}>" for name in figures), "state")
    titles = (f"{target}: {name}" for target in targets.values() for name in marked)
    return make_table(title, ("model", *titles), map(cells, dict.fromkeys(row.model for row in rows)))


def over_versions(rows: Sequence[SpeedRow]) -> Plot | None:
    """Draw the lowest median latency over the versions, a line for each target; None for a single version."""
    timed = [row for row in rows if row.speed.p50 is not None]
    if len({row.number for row in timed}) < 2:
        return None
    names = {row.target.id: row.target.name for row in timed}
    return Plot(
        title="Lowest median latency over the versions",
        x=AxisScale(label="version", whole=True),
        y=AxisScale(label="latency.p50", unit=SECONDS),
        series=tuple(
            _series(name, sorted((r for r in timed if r.target.id == target), key=lambda row: row.number))
            for target, name in names.items()
        ),
    )


def _series(name: str, rows: Sequence[SpeedRow]) -> Series:
    values = [row.speed.p50 or 0.0 for row in rows]
    ends = [row.speed.p50_interval for row in rows]
    return Series(
        name=name,
        x=tuple(float(row.number) for row in rows),
        y=tuple(values),
        labels=tuple(f"{row.figure.recipe}, {row.figure.measure.label}" for row in rows),
        low=tuple(v if end is None else end.low for v, end in zip(values, ends, strict=True)),
        high=tuple(v if end is None else end.high for v, end in zip(values, ends, strict=True)),
    )
