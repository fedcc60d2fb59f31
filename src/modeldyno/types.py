"""Values that functions take and return, for annotations and ``isinstance``; documents are in `modeldyno`."""

from __future__ import annotations

from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.metrics.constraints import Constraint, Judgement, Verdict
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Distribution, Interval, Measurement
from modeldyno.base.report.figure_checks import Recomputation
from modeldyno.comparison.calibrate import MachineCheckup
from modeldyno.comparison.change.advice import Advice
from modeldyno.comparison.change.choice import Optimized
from modeldyno.conversion.opened_model import OpenModel
from modeldyno.engine.environment.device_state import DeviceState
from modeldyno.exchange.reconciliation import Reconciliation
from modeldyno.serving.loadtest.replicas import CostAnswer

__all__ = [
    "Advice",
    "Constraint",
    "CostAnswer",
    "DeviceState",
    "Distribution",
    "Doubt",
    "InputSpec",
    "Interval",
    "Judgement",
    "MachineCheckup",
    "Measurement",
    "OpenModel",
    "Optimized",
    "Recomputation",
    "Reconciliation",
    "Verdict",
]
