"""Answer the registry's question from its figures: nothing is measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base.errors import UnknownName
from modeldyno.base.job.version_name import VersionName
from modeldyno.base.metrics.constraints import Constraint
from modeldyno.base.metrics.queries import STATISTICS_SHOWN
from modeldyno.registry.figures import current_figures
from modeldyno.registry.records.answer import RATES, choose, judge_figure, order
from modeldyno.registry.records.records import FigureState, TaskState, VariantState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from modeldyno.base.result.result import Result
    from modeldyno.base.result.where import KeptNumber
    from modeldyno.registry.interface import Registry
    from modeldyno.registry.records.answer import AnswerCandidate, RegistryAnswer
    from modeldyno.registry.records.records import Task, Variant, VariantFigure, Version
    from modeldyno.serving.loadtest.replicas import CostOptions

_SECONDS_PER_TASK = 40.0
"""Seconds that a measurement takes with its process, for an estimate of when something is known."""
_VERSIONS = 10
"""Newest versions whose conversions are told."""
_TELLING = frozenset({FigureState.FRESH, FigureState.FAILED})
"""States of a figure whose Result says something: numbers, or that memory ran out."""
_WAITING = (TaskState.QUEUED, TaskState.LEASED, TaskState.DEFERRED)


def answer(
    registry: Registry, name: str, *, require: Sequence[str], cost: CostOptions, on: str | None = None
) -> RegistryAnswer:
    """Answer which version and variant holds all bounds at the least cost.

    Args:
        registry: with the figures.
        name: a model, ``name/3`` or ``name@alias``; of a model, every version may answer.
        require: bounds, such as ``latency.p99 <= 20ms``.
        cost: the demand and the price of a replica.
        on: name or id of a target; by default any.

    Raises:
        RequestError: a name or a bound is wrong.
    """
    parsed = VersionName.parse(name)
    newest = registry.version(parsed)
    number = newest.number if parsed.number is not None or parsed.alias is not None else None
    bounds = tuple(map(Constraint.parse, require))
    targets = {target.id: target for target in registry.targets()}
    target_ids = None
    if on is not None:
        target_ids = {t.id for t in targets.values() if on in {t.name, t.id}}
        if not target_ids:
            raise UnknownName.among("target", on, (t.name for t in targets.values()))
    figures = [
        figure
        for figure in current_figures(registry, newest.model, number)
        if target_ids is None or figure.target in target_ids
    ]

    def judge(
        figure: VariantFigure, result: Result | None, kept: Mapping[str, KeptNumber] | None = None
    ) -> AnswerCandidate:
        return judge_figure(
            figure,
            result,
            targets.get(figure.target),
            bounds=bounds,
            demand=cost.demand,
            price=cost.price,
            among=among,
            kept=kept,
        )

    among = sum(figure.state is FigureState.FRESH for figure in figures)
    candidates = _confirm_best(list(_judged(figures, registry, bounds, judge)), registry, judge)
    waiting = [
        task
        for task in registry.tasks(states=_WAITING, model=newest.model, number=number)
        if target_ids is None or not task.target or task.target in target_ids
    ]
    return choose(
        newest.model,
        candidates,
        bounds=bounds,
        demand=cost.demand,
        price=cost.price,
        unusable=_unusable(registry, newest, number),
        waiting=len(waiting),
        seconds=_seconds(waiting, registry) if waiting else None,
    )


def _judged(
    figures: Sequence[VariantFigure],
    registry: Registry,
    bounds: tuple[Constraint, ...],
    judge: Callable[..., AnswerCandidate],
) -> Iterator[AnswerCandidate]:
    """Judge figures by the numbers that the store keeps; only for other bounds are their Results read."""
    queries = [bound.query for bound in bounds]
    all_kept = all(
        not query.part and not query.scope and query.statistic in {None, *STATISTICS_SHOWN}
        for query in queries
    )
    fresh = [figure.result for figure in figures if figure.state is FigureState.FRESH]
    kept = registry.numbers(fresh, [*map(str, queries), *RATES]) if all_kept else {}
    for figure in figures:
        numbers = kept.get(figure.result) if figure.state is FigureState.FRESH else None
        reads = figure.state in _TELLING and numbers is None
        yield judge(figure, registry.result(figure.result) if reads else None, numbers)


def _confirm_best(
    candidates: Sequence[AnswerCandidate], registry: Registry, judge: Callable[..., AnswerCandidate]
) -> list[AnswerCandidate]:
    """Judge the best answer by the samples of its Result, too; if it does not hold by them, the next."""
    judged = {candidate.figure.key: candidate for candidate in candidates}
    for candidate in sorted((c for c in candidates if not c.out), key=order):
        figure = candidate.figure
        judged[figure.key] = judge(figure, registry.result(figure.result))
        if not judged[figure.key].out:
            break
    return list(judged.values())


def _unusable(registry: Registry, newest: Version, number: int | None) -> tuple[Variant, ...]:
    """Return the variants that cannot answer: of one version, or of the newest ones of a model."""
    versions = [newest] if number is not None else registry.versions(newest.model, limit=_VERSIONS)
    ended = {VariantState.DIFFERS, VariantState.FAILED, VariantState.UNSUPPORTED}
    return tuple(v for version in versions for v in registry.variants(version) if v.state in ended)


def _seconds(waiting: Sequence[Task], registry: Registry) -> float | None:
    """Return about how long tasks take; None if no worker is there to do them."""
    workers = len(registry.workers())
    if not workers:
        return None
    put_off = max((task.left for task in waiting if task.state is TaskState.DEFERRED), default=0.0)
    return put_off + len(waiting) * _SECONDS_PER_TASK / workers
