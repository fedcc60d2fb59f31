"""Exclude trials whose outputs differ from those of the default."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base import plugins
from modeldyno.base.errors import RequestError
from modeldyno.base.job.probe_options import ProbeOptions
from modeldyno.base.job.static_options import StaticOptions
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.result.result import Failure, FailureKind, Progressed
from modeldyno.base.system.temporary_folder import own_folder
from modeldyno.conversion.agreement.rule import OutputCheck
from modeldyno.conversion.judge_outputs import judge_files
from modeldyno.sweeps.point_to_job import backends, job_at_point

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from modeldyno.base.job.job import Job
    from modeldyno.base.result.result import Event, Result
    from modeldyno.engine.runtime.trial_executor import TrialExecutor
    from modeldyno.sweeps.study.study import Study

_PROBE = "outputs"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputComparison:
    """The outputs of the default, beside which those of each trial are judged."""

    check: OutputCheck
    expected: Path
    actual: Path
    """Where a trial writes its own."""

    def of_trial(self, job: Job) -> Job:
        """Return the Job of a trial that writes its outputs, too."""
        self.actual.unlink(missing_ok=True)
        return _with_outputs(job, self.actual)

    def judge(self, result: Result) -> Result:
        """Return a trial's Result, which has failed if its outputs differ.

        Raises:
            RequestError: the tolerance or the user's function is wrong.
        """
        artifacts = tuple(one for one in result.artifacts if one.path != str(self.actual))
        job = replace(result.job, observation=replace(result.job.observation, outputs=None))
        result = replace(result, artifacts=artifacts, job=job)
        if result.failures or not self.actual.is_file():
            return result
        try:
            why = judge_files(self.expected, self.actual, self.check)
        except ValueError as error:
            doubt = Doubt(
                code="unlike-outputs",
                seen=f"the outputs could not be compared with those of the default: {error}",
                advice="give inputs that are the same at every configuration",
            )
            return replace(result, doubts=(*result.doubts, doubt))
        if not why:
            return result
        failure = Failure(
            where=_PROBE, kind=FailureKind.INVALID_OUTPUT, message=f"they are not those of the default: {why}"
        )
        return replace(result, failures=(*result.failures, failure))


@contextmanager
def comparing_outputs(
    study: Study, room: TrialExecutor, watch: Callable[[Event], None]
) -> Iterator[OutputComparison | None]:
    """Call the default once, and yield its outputs while trials are run; None if no outputs are compared.

    Raises:
        RequestError: the default returns nothing to compare with, or its own outputs do not pass.
    """
    if study.outputs is None:
        yield None
        return
    if any(plugins.serves(name) for name in backends(study)):
        raise RequestError(
            "A tolerance and verify are for a model that is called in a process; of a server, give requests "
            "with the outputs that are expected."
        )
    with own_folder("sweep") as folder:
        expected, actual = (Path(folder) / name for name in ("expected.npz", "actual.npz"))
        watch(Progressed(stage="calling the default, whose outputs the others must have"))
        job = job_at_point(study, study.default)
        only_outputs = replace(job, probes=(), inspection=StaticOptions(), observation=_around(job))
        reference = room(only_outputs, fresh=True)(_with_outputs(only_outputs, expected), watch=watch)
        if not expected.is_file():
            why = reference.failure.message if reference.failure else "it wrote none"
            raise RequestError(f"The default has no outputs that others could be compared with: {why}.")
        if why := judge_files(expected, expected, study.outputs):
            raise RequestError(
                f"The default's outputs do not pass beside themselves: {why}; mend the function."
            )
        yield OutputComparison(check=study.outputs, expected=expected, actual=actual)


def _around(job: Job) -> ProbeOptions:
    return ProbeOptions(preprocess=job.observation.preprocess, postprocess=job.observation.postprocess)


def _with_outputs(job: Job, path: Path) -> Job:
    probes = tuple(dict.fromkeys((*job.probes, _PROBE)))
    return replace(job, probes=probes, observation=replace(job.observation, outputs=str(path)))
