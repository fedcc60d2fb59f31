"""The job of a result or a study as a file: read back, it asks for the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click
import pytest

from modeldyno.base.errors import RequestError
from modeldyno.base.job.job import SERVED_PROBES
from modeldyno.base.job.load_spec import Arrivals, Load
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.yaml_file import parse_yaml_text
from modeldyno.cli import cli
from modeldyno.cli.actions import options as cli_options
from modeldyno.cli.job_file import expand_job_file
from modeldyno.comparison.change.comparison import Comparison
from modeldyno.engine.trace.regions import SCRIPT
from modeldyno.exchange.views.job_text import job_text
from modeldyno.profiling.job_file import expand_jobs
from modeldyno.profiling.request import parse_settings
from modeldyno.sweeps.build import build_study
from modeldyno.sweeps.study.study import Budget, Study
from modeldyno.testing.sample_results import a_job, a_result

MODEL = str(Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx")


def test_a_profile_is_read_back(tmp_path: Path) -> None:
    """Model, backend, knobs, probes, plan and bounds."""
    plan = Plan(processes=5, seed=7, pin=(0, 2), memory_limit=3 * 2**30, percentiles=("p99", "p99.9"))
    job = replace(
        a_job(), plan=plan, config={"batch_size": 4, "io_binding": False}, probes=("latency", "ops")
    )
    path = tmp_path / "job.yaml"
    path.write_text(job_text(a_result(job=job), ["latency.p99 <= 50ms"]))
    ctx = click.Context(cli)
    command = cli.get_command(ctx, "profile")
    assert command is not None
    arguments = expand_job_file(command, ctx, (str(path),))
    parameters = command.make_context("profile", arguments, **cli.context_settings).params

    assert parameters["model"] == str(job.model)
    assert parse_settings(parameters["settings"]) == {"batch_size": "4", "io_binding": "false"}
    assert cli_options.split_names(parameters["probes"]) == job.probes
    assert cli_options.plan_from_options(parameters) == plan
    assert parameters["require"] == ("latency.p99 <= 50ms",)


def test_numbers_and_truth_values_stand_without_quotes() -> None:
    """As a user writes them."""
    job = replace(a_job(), config={"batch_size": 4, "io_binding": False})

    assert "  batch_size: 4\n  io_binding: false\n" in job_text(a_result(job=job))


def test_a_model_that_runs_code_is_allowed_by_hand() -> None:
    """The file says so in a comment; it cannot say it itself."""
    text = job_text(a_result(job=replace(a_job(), trust=True)))

    assert text.startswith("# its file runs code when it is loaded: allow that by --trust\n")
    assert "\ntrust" not in text


def a_study(load: Load | None = None) -> Study:
    """A study as a sweep of the digits builds it."""
    lines = [
        f"model: {MODEL}", "space: {batch_size: [1, 2, 4], threads: 1..2}", "set: {graph_optimization: all}",
        "minimize: {latency.p99: 2}", "maximize: throughput", "require: [latency.p99 <= 50ms]",
        "strategy: grid", "budget: {max_trials: 9, certain: 90%}",
        "plan: {max_time: 3s, min_runs: 7, seed: 5}",
    ]  # fmt: skip
    study, _ = build_study(parse_yaml_text("\n".join(lines), "s.yaml"))
    return study if load is None else replace(study, job=replace(study.job, load=load, probes=SERVED_PROBES))


def test_a_study_is_read_back() -> None:
    """Space, goal, strategy, budget, plan and seed."""
    study = a_study()
    again, _ = build_study(expand_jobs(parse_yaml_text(job_text(study), "s.yaml"))[0].options)

    assert again.space == study.space
    assert again.goal == study.goal
    assert again.settings == study.settings
    assert (again.strategy, again.seed, again.budget) == ("grid", 5, Budget(max_trials=9, certain=0.9))
    assert again.job.plan == study.job.plan
    assert again.job.probes == study.job.probes


@pytest.mark.parametrize(
    ("load", "text"), [
        (Load(concurrency=8, requests=500), "load:\n  concurrency: 8\n  requests: 500\n"),
        (Load(arrivals=Arrivals.POISSON, rate=100.0), "load:\n  rate: 100:poisson\n"),
        (Load(arrivals=Arrivals.TRACE, trace="/t.csv", drivers=2), "load:\n  replay: /t.csv\n  drivers: 2\n"),
        (
            Load(arrivals=Arrivals.TRACE, trace="/t.csv", speed=2, window=600),
            "load:\n  replay: /t.csv\n  replay_speed: 2\n  replay_window: 600s\n",
        ),
    ],
)  # fmt: skip
def test_the_load_of_a_study_is_in_its_file(load: Load, text: str) -> None:
    """Where it is no axis."""
    assert text in job_text(a_study(load))


def test_what_is_no_job_is_refused() -> None:
    """A script, and what follows from several results; a study has bounds of its own."""
    script = a_result(job=replace(a_job(), model=ModelRef(scheme=SCRIPT, locator="train.py")))
    with pytest.raises(RequestError, match="measured in a script"):
        job_text(script)
    with pytest.raises(RequestError, match="ask for the job of one of them"):
        job_text(Comparison)
    with pytest.raises(RequestError, match="bounds of its own"):
        job_text(a_study(), ["latency.p99 <= 1s"])
