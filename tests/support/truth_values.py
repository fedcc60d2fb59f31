"""No code of ours asks a verdict for its truth, which is false where it is broken: it compares with `is`.

Users may write ``assert report``; ``first or second`` within the package would drop a verdict that is broken.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import modeldyno
from modeldyno.base.metrics.constraints import Judgement, Verdict
from modeldyno.base.report.figure_checks import Recomputation
from modeldyno.comparison.change.gate_report import GateReport
from modeldyno.conversion.agreement.conversion import Conversion

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

_VERDICTS: tuple[type, ...] = (Verdict, Judgement, Conversion, GateReport, Recomputation)
_OURS = str(Path(modeldyno.__file__).parent)


def refuse_truth_of_verdicts(patch: pytest.MonkeyPatch) -> None:
    """Have the truth of a verdict raise AssertionError where the package itself asks for it."""
    for kind in _VERDICTS:
        patch.setattr(kind, "__bool__", _guarded(kind.__bool__))  # type: ignore[attr-defined]


def _guarded(truth: Callable[[object], bool]) -> Callable[[object], bool]:
    def guarded(self: object) -> bool:
        code = sys._getframe(1).f_code
        if code.co_filename.startswith(_OURS) and code.co_name != "__bool__":
            raise AssertionError(f"{code.co_filename} asks for the truth of a {type(self).__name__}")
        return truth(self)

    return guarded
