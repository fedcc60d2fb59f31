"""The pytest fixture ``modeldyno_profile``: measures a model, and fails the test on a regression.

The baseline is stored like a snapshot next to the test, in ``__modeldyno__/<file>/<test>.json``, and written
by ``pytest --modeldyno-update``. ModelDyno is only imported when a test uses the fixture.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from modeldyno.base.errors import UndecidedWarning

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from modeldyno.base.result.result import Result

FOLDER = "__modeldyno__"
_PROCESSES = 5


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the plugin."""
    group = parser.getgroup("modeldyno", "speed and memory of models")
    group.addoption(
        "--modeldyno-update", action="store_true", help="Measure, and save the results as the baselines."
    )
    group.addoption(
        "--modeldyno-budget", default="2m", metavar="TIME",
        help="Time of each gate, after which no further round starts, such as 10m (default: %(default)s).",
    )  # fmt: skip
    group.addoption(
        "--modeldyno-undecided", choices=("pass", "fail"), default="pass",
        help="What an undecided gate does: warn (pass), or fail the test (default: %(default)s).",
    )  # fmt: skip


@pytest.fixture
def modeldyno_profile(request: pytest.FixtureRequest) -> Profile:
    """Measure a model, and compare it with the baseline stored next to the test."""
    module = Path(request.path)
    name = re.sub(r"[^\w.-]+", "-", request.node.name).strip("-")
    return Profile(
        folder=module.parent / FOLDER / module.stem,
        name=name,
        update=request.config.getoption("--modeldyno-update"),
        budget=request.config.getoption("--modeldyno-budget"),
        undecided=request.config.getoption("--modeldyno-undecided"),
    )


@dataclass(slots=True, kw_only=True)
class Profile:
    """Measures models for one test; the baseline of the second call is ``<test>-2.json``, and so on."""

    folder: Path
    name: str
    update: bool
    budget: float | str
    undecided: str
    calls: int = 0

    def __call__(
        self,
        model: str | Path,
        *,
        max_regression: float | Mapping[str, float] | None = None,
        metrics: Sequence[str] = (),
        require: Sequence[str] = (),
        **how: Any,
    ) -> Result:
        """Measure; fail the test if the model is worse than its baseline, or a bound is broken.

        Args:
            model: a path or a reference, such as ``"torch:nets.py:make"``.
            max_regression: largest allowed regression: ``0.05``, or by metric; 3 % by default.
            metrics: metrics that must not get worse; by default latency and memory.
            require: bounds, such as ``"latency.p99 <= 50ms"``.
            how: further arguments of `modeldyno.profile`: ``inputs=``, ``max_time=3``, ``batch_size=8`` ...
        """
        __tracebackhide__ = True
        path = self._baseline_path()
        if self.update or not path.is_file():
            return self._measure(model, path, require, how)
        from modeldyno.base.errors import UnlikeHardware
        from modeldyno.base.metrics.constraints import Verdict
        from modeldyno.comparison.api.gate import gate  # imported only when used
        from modeldyno.comparison.views.gate import sentence

        try:
            report = gate(
                model, path, max_regression=max_regression, metrics=metrics, require=require,
                budget=self.budget, undecided=self.undecided, **how,
            )  # fmt: skip
        except UnlikeHardware as error:
            warnings.warn(UndecidedWarning(str(error)), stacklevel=2)
            return self._measure(model, None, require, how)
        if report.outcome is Verdict.BROKEN:
            pytest.fail(f"{sentence(report)} (baseline: {path})", pytrace=False)
        if report.verdict is Verdict.UNDECIDED:
            warnings.warn(UndecidedWarning(sentence(report)), stacklevel=2)
        return report.result

    def _baseline_path(self) -> Path:
        self.calls += 1
        tail = f"-{self.calls}" if self.calls > 1 else ""
        return self.folder / f"{self.name}{tail}.json"

    def _measure(
        self, model: str | Path, path: Path | None, require: Sequence[str], how: dict[str, Any]
    ) -> Result:
        """Measure without a baseline; save the result as the baseline with --modeldyno-update."""
        __tracebackhide__ = True
        from dataclasses import replace  # imported only when used

        import modeldyno
        from modeldyno.base.option_spelling import spell_for_python
        from modeldyno.base.stats.schedule import PLAN
        from modeldyno.profiling.api.error_wording import reference_of
        from modeldyno.profiling.api.profile import BoundBroken

        plan = replace(how.pop("plan", None) or PLAN, processes=_PROCESSES)
        try:
            result = modeldyno.profile(reference_of(model), require=require, plan=plan, **how)
        except BoundBroken as error:
            pytest.fail(str(error), pytrace=False)
        if failure := result.failure:
            pytest.fail(f"{result.name} failed in {failure.where}: {spell_for_python(failure.message)}")
        if self.update and path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            modeldyno.save(result, path)
        elif path is not None:
            text = f"There is no baseline {path}; create it with pytest --modeldyno-update."
            warnings.warn(UndecidedWarning(text), stacklevel=3)
        return result
