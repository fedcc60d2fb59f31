"""The gate from Python: a baseline, what has got worse since, and a gate that measures."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.api.error_wording import in_python
from modeldyno.api.profile import check_settings, several
from modeldyno.api.result_dict import Figures
from modeldyno.comparison.gate import baseline_of, checked, gated
from modeldyno.core.comparison.build import Question
from modeldyno.core.comparison.comparison import Change
from modeldyno.core.comparison.default_metrics import ALL, SMALLEST
from modeldyno.core.comparison.gate_rule import Rule
from modeldyno.core.comparison.schedule import PLAN
from modeldyno.core.metrics.constraints import Verdict
from modeldyno.core.metrics.doubt import FEW_PROCESSES
from modeldyno.errors import RunFailed, UndecidedWarning
from modeldyno.profiling.request import Request
from modeldyno.profiling.run import judged
from modeldyno.runtime.session import campaign

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from modeldyno.core.comparison.gate_report import Checked
    from modeldyno.core.metrics.measurement_plan import Plan
    from modeldyno.core.result.result import Result
    from modeldyno.core.spec.input_spec import InputSpec
    from modeldyno.core.spec.knob import KnobValue


@in_python
def load_baseline(source: str | Path) -> Result:
    """Read a baseline: a file, an id or a tag of the store, or ``"@main"`` for the newest of a branch.

    Raises:
        RequestError: there is none, or it cannot be read.
    """
    return baseline_of(str(source))


class Regressions(list[Change]):
    """What is worse than in the baseline, metric by metric; empty if nothing is, or if that is undecided.

    Each has its ``query``, ``baseline`` and ``candidate`` in base units, the relative ``difference`` and its
    ``interval``. ``str`` tells all of them with their figures, and what is undecided.
    """

    def __init__(self, found: Checked) -> None:
        """Sort what was looked at by its verdict."""
        told = [(check, check.change) for check in found.checks if check.change is not None]
        super().__init__(change for check, change in told if check.verdict is Verdict.BROKEN)
        self.verdict = found.verdict
        """Broken where anything is worse, held where everything is shown not to be, or undecided."""
        self.undecided = tuple(change for check, change in told if check.verdict is Verdict.UNDECIDED)
        """What is neither shown to be worse nor shown not to be."""
        self.held = tuple(change for check, change in told if check.verdict is Verdict.HELD)
        """What is shown to be not worse."""
        self._texts = {
            verdict: "; ".join(
                f"{check.name} {check.text}".removesuffix(f": {Verdict.UNDECIDED}")
                for check, _ in told
                if check.verdict is verdict
            )
            for verdict in Verdict
        }

    def __str__(self) -> str:
        broken, undecided = self._texts[Verdict.BROKEN], self._texts[Verdict.UNDECIDED]
        held = " and ".join(str(change.query) for change in self.held)
        parts = (
            broken or ("" if undecided else f"no regression in {held or 'anything'}"),
            undecided and f"undecided: {undecided}",
        )
        return "; ".join(filter(None, parts))

    def __repr__(self) -> str:
        return f"<Regressions ({self.verdict}): {self}>"


@in_python
def detect_regressions(
    baseline: Result | Figures | str | Path,
    current: Result | Figures | str | Path,
    *,
    max_regression: float | Mapping[str, float] | None = None,
    metrics: Sequence[str] = (),
    force: bool = False,
) -> Regressions:
    """Give what is worse in one result than in another, metric by metric; an empty list if nothing is.

    The two were measured at different times: what differs by no more than a machine may change in between, or
    than processes differ among each other, is no regression. How much that is, is seen in the processes of
    the two, and in what the store has of the model: of one process, without a history, only a large factor
    can be told apart from chance. `gate` decides smaller ones, as it measures.

    Args:
        baseline: what is compared with: a Result, what a `ModelProfiler` gives, a file, an id or a tag.
        current: what is judged, likewise.
        max_regression: how much worse a metric may get: ``0.05``, or by metric, ``{"latency": 0.1}``.
        metrics: what may not get worse; by default the time of a call, and memory.
        force: judge though the hardware or the inputs are not the same.

    Returns:
        A list of changes; ``.undecided``, ``.held`` and ``.verdict`` tell the rest. Where nothing is found
        worse and something is undecided, an `UndecidedWarning` says so.

    Raises:
        RequestError: the hardware is not the same, or a metric was measured in neither.
        RunFailed: the model failed when one of them was measured.
    """
    before, after = (_result(each) for each in (baseline, current))
    question = Question(metrics=several(metrics, "metrics"), smallest=_effects(max_regression), force=force)
    found = Regressions(checked(before, after, question))
    if found.verdict is Verdict.UNDECIDED:
        fewest = min(before.processes, after.processes)
        advice = (
            _MORE if fewest < FEW_PROCESSES else "modeldyno.api.gate, which runs both in turns, decides it."
        )
        text = f"Whether {after.name} is worse than its baseline is {str(found).rstrip('.')}. {advice}"
        warnings.warn(UndecidedWarning(text), stacklevel=3)
    return found


_MORE = (
    "How much one start differs from the next is not seen in so few processes; measure both in five, with "
    "ModelProfiler(..., processes=5) or modeldyno profile --processes 5."
)


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


def _result(given: Result | Figures | str | Path) -> Result:
    """Give the Result that is meant.

    Raises:
        RequestError: there is none.
        RunFailed: the model failed.
    """
    found = baseline_of(str(given)) if isinstance(given, str | Path) else given
    if isinstance(found, Figures):
        if found.result is None:
            raise RunFailed(f"Nothing was measured that could be compared: {found.failure}")
        found = found.result
    if found.failures:
        failure = found.failures[0]
        raise RunFailed(f"{found.name} failed in {failure.where}: {failure.message.rstrip('.')}.")
    return found


def _effects(given: float | Mapping[str, float] | None) -> Mapping[str, float]:
    if given is None:
        return SMALLEST
    return {ALL: given} if isinstance(given, int | float) else {**SMALLEST, **given}
