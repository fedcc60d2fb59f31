"""The gate from Python: a baseline, what has got worse since, and a gate that measures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.api.functions import check_settings, several
from modeldyno.api.words import in_python
from modeldyno.core.comparison import Outcome
from modeldyno.core.contrast import Question
from modeldyno.core.gate import Rule
from modeldyno.core.goal import Verdict
from modeldyno.core.headlines import ALL, SMALLEST
from modeldyno.core.turns import PLAN
from modeldyno.executors.campaign import campaign
from modeldyno.gates import baseline_of, checked, gated
from modeldyno.measure import judged
from modeldyno.request import Request

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from modeldyno.core.checked import Checked
    from modeldyno.core.comparison import Change
    from modeldyno.core.inputs import InputSpec
    from modeldyno.core.knob import KnobValue
    from modeldyno.core.plan import Plan
    from modeldyno.core.result import Result


@in_python
def load_baseline(source: str | Path) -> Result:
    """Read a baseline: a file, an id or a tag of the store, or ``"@main"`` for the newest of a branch.

    Raises:
        RequestError: there is none, or it cannot be read.
    """
    return baseline_of(str(source))


@in_python
def detect_regressions(
    baseline: Result | str | Path,
    current: Result | str | Path,
    *,
    max_regression: float | Mapping[str, float] | None = None,
    metrics: Sequence[str] = (),
    force: bool = False,
) -> list[Change]:
    """Give what is worse in one Result than in another, metric by metric; an empty list if nothing is.

    The two were measured at different times: what differs by no more than a machine may change in between, or
    than processes differ among each other, is no regression. `gate` decides smaller ones, as it measures.

    Args:
        baseline: what is compared with.
        current: what is judged.
        max_regression: how much worse a metric may get: ``0.05``, or by metric, ``{"latency": 0.1}``.
        metrics: what may not get worse; by default the time of a call, and memory.
        force: judge though the hardware or the inputs are not the same.

    Raises:
        RequestError: the hardware is not the same, or a metric was measured in neither.
    """
    before, after = (_result(each) for each in (baseline, current))
    question = Question(metrics=several(metrics, "metrics"), smallest=_effects(max_regression), force=force)
    found = checked(before, after, question)
    assert found.ruling is not None
    if found.ruling.verdict is not Verdict.BROKEN:
        return []
    return [change for change in found.ruling.changes if change.outcome is Outcome.WORSE]


@in_python
def gate(  # noqa: PLR0913 - one function per command, one parameter per option
    model: str | Path,
    baseline: Result | str | Path,
    *,
    backend: str | None = None,
    inputs: Sequence[str | InputSpec] = (),
    probes: Sequence[str] = (),
    require: Sequence[str] = (),
    max_regression: float | Mapping[str, float] | None = None,
    metrics: Sequence[str] = (),
    budget: float = 600.0,
    force: bool = False,
    plan: Plan | None = None,
    name: str | None = None,
    trust: bool = False,
    **settings: KnobValue,
) -> Checked:
    """Measure a model against a baseline, as ``modeldyno profile --baseline`` does.

    Args:
        model: a path or a reference, which runs in fresh processes.
        baseline: a Result, a file, an id or a tag of the store, ``"@main"``.
        backend: what runs it; by default what suits the model.
        inputs: shapes or files, as ``--input`` takes them.
        probes: what to measure; by default what suits the model.
        require: bounds, such as ``"latency.p99 <= 50ms"``.
        max_regression: how much worse a metric may get: ``0.05``, or by metric, ``{"latency": 0.1}``.
        metrics: what may not get worse; by default the time of a call, and memory.
        budget: seconds after which no further round begins.
        force: judge though the hardware or the inputs are not the same.
        plan: how carefully each process measures; by default five seconds a probe at most.
        name: what to call the model.
        trust: allow files that run code when loaded (in the child process).
        settings: the backend's knobs, such as ``batch_size=8``.

    Returns:
        What was looked at: ``.verdict`` is held, broken or undecided, ``.checks`` has each, ``.result`` is
        what was measured.

    Raises:
        RequestError: the request is wrong, or the hardware is not the same.
    """
    check_settings(settings)
    asked = Request(
        model=str(model),
        backend=backend,
        settings=settings,
        inputs=several(inputs, "inputs"),
        probes=several(probes, "probes"),
        require=several(require, "require"),
        plan=plan or PLAN,
        name=name,
        trust=trust,
    )
    question = Question(metrics=several(metrics, "metrics"), smallest=_effects(max_regression), force=force)
    constraints, job, before = asked.constraints(), asked.job(), _result(baseline)
    with campaign() as bench:
        found = gated(before, job, question, Rule(), bench, max_time=budget)
    return found.judged_by(judged(found.result, constraints).judgements)


def _result(given: Result | str | Path) -> Result:
    return baseline_of(str(given)) if isinstance(given, str | Path) else given


def _effects(given: float | Mapping[str, float] | None) -> Mapping[str, float]:
    if given is None:
        return SMALLEST
    return {ALL: given} if isinstance(given, int | float) else {**SMALLEST, **given}
