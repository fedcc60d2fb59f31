"""Shell command that repeats a study."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from modeldyno.views.rerun_command import (
    input_options,
    observation_options,
    repeated_options,
    setting_options,
)

if TYPE_CHECKING:
    from modeldyno.core.study.study import Study


def sweep_command(study: Study) -> str:
    """Return the command line that repeats a study from its beginning."""
    job = study.job
    command = ["modeldyno", "sweep", job.model.argument, "--backend", job.backend]
    command += repeated_options("--space", study.space.axes)
    command += setting_options(study.settings)
    command += input_options(job)
    command += observation_options(job.observation)
    for objective in study.goal.objectives:
        command += ["--maximize" if objective.maximize else "--minimize", str(objective.query)]
    command += repeated_options("--require", study.goal.constraints)
    command += [] if study.goal.price is None else ["--price", str(study.goal.price)]
    command += ["--strategy", study.strategy, "--seed", str(study.seed)]
    return shlex.join(command)
