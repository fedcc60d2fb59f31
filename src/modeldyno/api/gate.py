"""Regression gates in Python: load a baseline, detect regressions, and measure against a baseline."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.api.error_wording import reword_errors
from modeldyno.api.profile import as_tuple, check_settings
from modeldyno.api.result_dict import Figures
from modeldyno.comparison.gate import check_stored, find_baseline, run_gate
from modeldyno.core.comparison.build import CompareOptions
from modeldyno.core.comparison.comparison import Change
from modeldyno.core.comparison.default_metrics import ALL, SMALLEST
from modeldyno.core.comparison.gate_rule import GateRule
from modeldyno.core.comparison.schedule import PLAN
from modeldyno.core.metrics.constraints import Verdict
from modeldyno.core.metrics.doubt import FEW_PROCESSES
from modeldyno.errors import RunFailed, UndecidedWarning
from modeldyno.profiling.request import Request
from modeldyno.profiling.run import judge_result
from modeldyno.runtime.session import open_run_session

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from modeldyno.core.comparison.gate_report import GateReport
    from modeldyno.core.metrics.measurement_plan import Plan
    from modeldyno.core.result.result import Result
    from modeldyno.core.spec.input_spec import InputSpec
    from modeldyno.core.spec.knob import KnobValue


@reword_errors
def load_baseline(source: str | Path) -> Result:
    """Read a baseline: a file, an id or a tag of the store, or ``"@main"`` for the newest of a branch.

    Raises:
        RequestError: there is none, or it cannot be read.
    """
    return find_baseline(str(source))


class Regressions(list[Change]):
    """Metrics that are worse than in the baseline; empty if none is, or if that is undecided.

    Each has its ``query``, ``baseline`` and ``candidate`` in base units, the relative ``difference`` and its
    ``interval``. ``str`` lists them with their figures, and what is undecided.
    """

    def __init__(self, report: GateReport) -> None:
        """Sort the checks by verdict."""
        checked_changes = [(check, check.change) for check in report.checks if check.change is not None]
        super().__init__(change for check, change in checked_changes if check.verdict is Verdict.BROKEN)
        self.verdict = report.verdict
        """Broken if anything is worse, held if everything is shown not to be, else undecided."""
        self.undecided = tuple(
            change for check, change in checked_changes if check.verdict is Verdict.UNDECIDED
        )
        """Metrics that are neither shown to be worse nor shown not to be."""
        self.held = tuple(change for check, change in checked_changes if check.verdict is Verdict.HELD)
        """Metrics that are shown not to be worse."""
        self._texts = {
            verdict: "; ".join(
                f"{check.name} {check.text}".removesuffix(f": {Verdict.UNDECIDED}")
                for check, _ in checked_changes
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


@reword_errors
def detect_regressions(
    baseline: Result | Figures | str | Path,
    current: Result | Figures | str | Path,
    *,
    max_regression: float | Mapping[str, float] | None = None,
    metrics: Sequence[str] = (),
    force: bool = False,
) -> Regressions:
    """Return the metrics that are worse in one result than in another; an empty list if none is.

    The two were measured at different times, so a change within the drift of a machine or within the
    variation between processes is no regression. Both are estimated from the processes of the two results and
    from the model's history in the store: with one process and no history, only a large factor can be told
    apart from chance. `gate` decides smaller changes, as it measures both in turns.

    Args:
        baseline: the reference: a Result, the return value of a `ModelProfiler`, a file, an id or a tag.
        current: what is judged, likewise.
        max_regression: largest allowed regression: ``0.05``, or by metric, ``{"latency": 0.1}``.
        metrics: metrics that must not get worse; by default latency and memory.
        force: judge even if the hardware or the inputs differ.

    Returns:
        A list of changes; ``.undecided``, ``.held`` and ``.verdict`` have the rest. If nothing is worse and
        something is undecided, it emits an `UndecidedWarning`.

    Raises:
        RequestError: the hardware differs, or a metric was measured in neither.
        RunFailed: the model failed when one of them was measured.
    """
    before, after = (_resolve_result(document) for document in (baseline, current))
    question = CompareOptions(
        metrics=as_tuple(metrics, "metrics"), smallest=_parse_max_regression(max_regression), force=force
    )
    regressions = Regressions(check_stored(before, after, question))
    if regressions.verdict is Verdict.UNDECIDED:
        fewest = min(before.processes, after.processes)
        advice = (
            _MEASURE_MORE
            if fewest < FEW_PROCESSES
            else "To decide it, use modeldyno.gate, which runs both in turns."
        )
        text = f"Whether {after.name} is worse than its baseline is {str(regressions).rstrip('.')}. {advice}"
        warnings.warn(UndecidedWarning(text), stacklevel=3)
    return regressions


_MEASURE_MORE = (
    "So few processes do not show the variation between processes; measure both in five, with "
    "ModelProfiler(..., processes=5) or modeldyno profile --processes 5."
)


@reword_errors
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
) -> GateReport:
    """Measure a model against a baseline, as ``modeldyno profile --baseline`` does.

    Args:
        model: a path or a reference, which runs in fresh processes.
        baseline: a Result, a file, an id or a tag of the store, ``"@main"``.
        backend: what runs it; by default the one for the model's format.
        inputs: shapes or files, as ``--input`` takes them.
        probes: what to measure; by default as `profile` does.
        require: bounds, such as ``"latency.p99 <= 50ms"``.
        max_regression: largest allowed regression: ``0.05``, or by metric, ``{"latency": 0.1}``.
        metrics: metrics that must not get worse; by default latency and memory.
        budget: seconds after which no further round begins.
        force: judge even if the hardware or the inputs differ.
        plan: time and precision of each process; by default at most five seconds per probe.
        name: name of the model in the results.
        trust: allow files that run code when loaded (in the child process).
        settings: the backend's knobs, such as ``batch_size=8``.

    Returns:
        The report: ``.verdict`` is held, broken or undecided, ``.checks`` has each check, ``.result`` is the
        measured Result.

    Raises:
        RequestError: the request is invalid, or the hardware differs.
    """
    check_settings(settings)
    request = Request(
        model=str(model),
        backend=backend,
        settings=settings,
        inputs=as_tuple(inputs, "inputs"),
        probes=as_tuple(probes, "probes"),
        require=as_tuple(require, "require"),
        plan=plan or PLAN,
        name=name,
        trust=trust,
    )
    question = CompareOptions(
        metrics=as_tuple(metrics, "metrics"), smallest=_parse_max_regression(max_regression), force=force
    )
    constraints, job, before = request.constraints(), request.job(), _resolve_result(baseline)
    with open_run_session() as bench:
        report = run_gate(before, job, question, GateRule(), bench, max_time=budget)
    return report.with_bounds(judge_result(report.result, constraints).judgements)


def _resolve_result(source: Result | Figures | str | Path) -> Result:
    """Return the Result of a document, an id or Figures.

    Raises:
        RequestError: there is none.
        RunFailed: the model failed.
    """
    result = find_baseline(str(source)) if isinstance(source, str | Path) else source
    if isinstance(result, Figures):
        if result.result is None:
            raise RunFailed(f"Nothing was measured that could be compared: {result.failure}")
        result = result.result
    if result.failures:
        failure = result.failures[0]
        raise RunFailed(f"{result.name} failed in {failure.where}: {failure.message.rstrip('.')}.")
    return result


def _parse_max_regression(max_regression: float | Mapping[str, float] | None) -> Mapping[str, float]:
    if max_regression is None:
        return SMALLEST
    return (
        {ALL: max_regression} if isinstance(max_regression, int | float) else {**SMALLEST, **max_regression}
    )
