"""The page of workers and devices: who uses what, how much of the time, and whether the machines changed."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from modeldyno.base.report.blocks import Heading, Table, make_table
from modeldyno.base.report.charts import AxisScale, Plot, Series
from modeldyno.base.stats.units import BYTES, SECONDS, format_quantity
from modeldyno.base.views.text import count, format_rough_duration
from modeldyno.dashboard.page import CHIPS, DashboardPage, PageBlocks, PageText, address
from modeldyno.dashboard.trend_pages import machine_trends, trend_state
from modeldyno.registry.records.records import TaskState
from modeldyno.reports.interface import TableLinks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.base.report.blocks import Block
    from modeldyno.comparison.change.trend import Trend
    from modeldyno.dashboard.page import PageRequest, Part
    from modeldyno.registry.records.records import HardwareTarget, Task, Worker

_LEASED = 100
"""Tasks that are being done, of which that of each worker is told."""


def targets(request: PageRequest) -> DashboardPage:
    """Say who uses which device, how much of the time, and whether the machines are as they were."""
    registry = request.store.registry
    known_targets, workers = registry.targets(), registry.workers()
    tasks = {task.worker: task for task in registry.tasks(states=(TaskState.LEASED,), limit=_LEASED)}
    machines = tuple(machine_trends(request.store))
    nothing = PageText(
        text="No target is known yet; a worker makes one of its device.", commands=("modeldyno worker",)
    )
    parts: tuple[Part, ...] = (nothing,)
    if known_targets:
        links = {
            "does": {task.label: address("models", task.model, task.number) for task in tasks.values()},
            "machine": {trend.name: address("trends", name=tag) for _, tag, trend in machines},
        }
        blocks = (
            _uses(known_targets, workers, tasks),
            *_readings(machines),
            Heading(title="Hardware"),
            _hardware_table(known_targets),
        )
        parts = (PageBlocks(blocks=blocks, links=TableLinks(links=links, chips=CHIPS)),)
        if not workers:
            parts = (
                PageText(text="No worker is running; this starts one:", commands=("modeldyno worker",)),
                *parts,
            )
    return DashboardPage(
        title=_title(workers, machines),
        room="/targets",
        parts=parts,
        data={
            "targets": known_targets,
            "workers": workers,
            "machines": [
                {"target": target.id, "state": trend_state(trend), "readings": len(trend.readings)}
                for target, _, trend in machines
            ],
        },
    )


def _title(workers: Sequence[Worker], machines: Sequence[tuple[HardwareTarget, str, Trend]]) -> str:
    """Say how many workers there are, and which machines have become slower."""
    slower = [trend.name for _, _, trend in machines if trend.regressions]
    text = count(len(workers), "worker") if workers else "No worker"
    return f"{text} now; {', '.join(slower)} became slower" if slower else f"{text} now"


def _uses(targets: Sequence[HardwareTarget], workers: Sequence[Worker], tasks: dict[str, Task]) -> Table:
    """List each target with its workers, what they do, and how much of the time they wait."""
    serving: defaultdict[str, list[Worker]] = defaultdict(list)
    for worker in workers:
        serving[worker.target].append(worker)
    rows = [
        (
            target.name,
            target.device,
            f"{worker.host} (pid {worker.pid})",
            tasks[worker.id].label if worker.id in tasks else worker.state,
            "" if worker.idle is None else f"{worker.idle:.0%}",
            format_rough_duration(worker.alive) if worker.alive else "",
            f"{worker.silent:.0f} s ago",
        )
        for target in targets
        for worker in serving[target.id]
    ]
    rows += [(t.name, t.device, "no worker", "", "", "", "") for t in targets if not serving[t.id]]
    titles = ("target", "device", "worker", "does?", "idle>?", "for>?", "heard of>?")
    return make_table("Who uses what", titles, rows)


def _readings(machines: Sequence[tuple[HardwareTarget, str, Trend]]) -> Iterator[Block]:
    """Yield how the reference model went on each machine, as a chart and as a table."""
    if not machines:
        return
    yield Heading(title="The machines, by their daily reference model")
    yield Plot(
        title="Time of a call of the reference model",
        x=AxisScale(label="reading", whole=True),
        y=AxisScale(label="latency.p50", unit=SECONDS),
        series=tuple(
            Series.through(
                target.name,
                ((float(at), one.value, one.created[:10]) for at, one in enumerate(trend.readings, 1)),
                ("x", "y", "labels"),
            )
            for target, _, trend in machines
        ),
    )
    yield make_table(
        "Is each machine as it was?",
        ("machine", "target", "state", "now", "readings"),
        (
            (
                trend.name,
                target.name,
                trend_state(trend),
                format_quantity(trend.levels[-1].value, trend.query.unit, 3),
                f"{len(trend.readings):,}",
            )
            for target, _, trend in machines
        ),
    )


def _hardware_table(targets: Sequence[HardwareTarget]) -> Table:
    rows = ((t.name, t.device, t.id, ", ".join(_hardware(t))) for t in targets)
    return make_table("", ("target", "device", "id", "hardware"), rows)


def _hardware(target: HardwareTarget) -> Iterator[str]:
    for name, fact in target.hardware.items():
        if fact:
            text = format_quantity(float(fact), BYTES, 3) if name == "memory" else fact
            yield f"{name.replace('_', ' ')} {text}"
