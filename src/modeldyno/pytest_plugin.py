"""``modeldyno_profile`` for pytest: a test that measures a model, and fails when it has got worse.

A baseline is kept like a snapshot beside the test, in ``__modeldyno__/<file>/<test>.json``; it is written by
``pytest --modeldyno-update``. Nothing of ModelDyno is imported until a test asks for the fixture.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from modeldyno.errors import UndecidedWarning

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from modeldyno.core.result.result import Result

FOLDER = "__modeldyno__"
_PROCESSES = 5


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that writes baselines."""
    group = parser.getgroup("modeldyno", "speed and memory of models")
    group.addoption(
        "--modeldyno-update", action="store_true", help="Measure, and keep the results as the baselines."
    )
    group.addoption(
        "--modeldyno-budget", type=float, default=120.0, metavar="SECONDS",
        help="Time that each gate may take before no further round begins (default: %(default)s).",
    )  # fmt: skip


@pytest.fixture
def modeldyno_profile(request: pytest.FixtureRequest) -> Profile:
    """Measure a model, and hold it against the baseline that is kept beside the test."""
    module = Path(request.path)
    name = re.sub(r"[^\w.-]+", "-", request.node.name).strip("-")
    return Profile(
        folder=module.parent / FOLDER / module.stem,
        name=name,
        update=request.config.getoption("--modeldyno-update"),
        budget=request.config.getoption("--modeldyno-budget"),
    )


@dataclass(slots=True, kw_only=True)
class Profile:
    """Measures models for one test; the baseline of the second one is ``<test>-2.json``, and so on."""

    folder: Path
    name: str
    update: bool
    budget: float
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
        """Measure, and fail the test where the model is worse than its baseline, or a bound is broken.

        Args:
            model: a path or a reference, such as ``"torch:nets.py:make"``.
            max_regression: how much worse a metric may get: ``0.05``, or by metric; 3 % unless told.
            metrics: what may not get worse; by default the time of a call, and memory.
            require: bounds, such as ``"latency.p99 <= 50ms"``.
            how: what else `modeldyno.profile` takes: ``inputs=``, ``backend=``, ``batch_size=8`` ...
        """
        __tracebackhide__ = True
        path = self._baseline()
        if self.update or not path.is_file():
            return self._measured(model, path, require, how)
        from modeldyno.api.gate import gate  # noqa: PLC0415 - costs nothing until it is used
        from modeldyno.core.metrics.constraints import Verdict  # noqa: PLC0415
        from modeldyno.errors import RequestError  # noqa: PLC0415
        from modeldyno.views.comparison.gate import sentence  # noqa: PLC0415

        try:
            found = gate(
                model, path, max_regression=max_regression, metrics=metrics, require=require,
                budget=self.budget, **how,
            )  # fmt: skip
        except RequestError as error:
            if "unlike hardware" not in str(error):
                raise
            warnings.warn(UndecidedWarning(str(error)), stacklevel=2)
            return self._measured(model, None, require, how)
        if found.verdict is Verdict.BROKEN:
            pytest.fail(f"{sentence(found)} (baseline: {path})", pytrace=False)
        if found.verdict is Verdict.UNDECIDED:
            warnings.warn(UndecidedWarning(sentence(found)), stacklevel=2)
        return found.result

    def _baseline(self) -> Path:
        self.calls += 1
        tail = f"-{self.calls}" if self.calls > 1 else ""
        return self.folder / f"{self.name}{tail}.json"

    def _measured(
        self, model: str | Path, path: Path | None, require: Sequence[str], how: dict[str, Any]
    ) -> Result:
        """Measure without a baseline; keep it as one where that is asked for."""
        __tracebackhide__ = True
        from dataclasses import replace  # noqa: PLC0415 - costs nothing until it is used

        import modeldyno  # noqa: PLC0415
        from modeldyno.api.profile import BoundBroken  # noqa: PLC0415
        from modeldyno.core.comparison.schedule import PLAN  # noqa: PLC0415

        plan = replace(how.pop("plan", None) or PLAN, processes=_PROCESSES)
        try:
            result = modeldyno.profile(str(model), require=require, plan=plan, **how)
        except BoundBroken as error:
            pytest.fail(str(error), pytrace=False)
        if result.failures:
            pytest.fail(f"{result.name} failed in {result.failures[0].where}: {result.failures[0].message}")
        if self.update and path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            modeldyno.save(result, path)
        elif path is not None:
            text = f"There is no baseline {path}; keep one with pytest --modeldyno-update."
            warnings.warn(UndecidedWarning(text), stacklevel=3)
        return result
