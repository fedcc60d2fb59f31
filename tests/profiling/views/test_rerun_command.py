"""The command that a page shows is read back by the command line itself."""

from __future__ import annotations

import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
import yaml

from modeldyno.base.codec import decode, encode
from modeldyno.base.errors import RequestError
from modeldyno.base.job.input_spec import InputSpec, parse_input
from modeldyno.base.job.job import SERVED_PROBES
from modeldyno.base.job.load_spec import Arrivals, Load
from modeldyno.base.job.model_ref import LIVE, ModelRef
from modeldyno.base.job.probe_options import ProbeOptions
from modeldyno.base.metrics.constraints import Constraint
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.yaml_file import FileConfig, parse_yaml_text
from modeldyno.cli import cli
from modeldyno.cli.actions import options as cli_options
from modeldyno.cli.load import command as load
from modeldyno.cli.profile import command as profile
from modeldyno.exchange.views.job_text import job_text
from modeldyno.profiling import request
from modeldyno.profiling.views.rerun_command import (
    advise_command_line,
    format_input_option,
    rerun_command_line,
)
from modeldyno.sweeps.build import build_study
from modeldyno.sweeps.views.sweep_command import sweep_command
from modeldyno.testing.reporters import HOSTILE, full_result
from modeldyno.testing.sample_results import a_job, a_result, an_inspection

if TYPE_CHECKING:
    from typing import Any

    import click


def read(using: click.Command, text: str) -> dict[str, Any]:
    """Parse a command line as a shell and click do."""
    arguments = shlex.split(text)
    assert arguments[:2] == ["modeldyno", using.name]
    return using.make_context(str(using.name), arguments[2:], **cli.context_settings).params


PLANS = (
    Plan(),
    Plan(min_runs=5, min_time=0.25, max_time=90.0, max_runs=1000, min_warmup=3, target="p95", precision=0.01),
    Plan(
        processes=5, seed=7, pin=(0, 2), timeout=600.0, memory_limit=3 * 2**30, percentiles=("p99", "p99.9")
    ),
)


@pytest.mark.parametrize("plan", PLANS, ids=range(len(PLANS)))
def test_a_profile_is_asked_for_again(plan: Plan) -> None:
    """Model, backend, knobs, probes, care and bounds come back as they were."""
    job = replace(
        a_job(), plan=plan, config={"batch_size": 4, "io_binding": False}, probes=("latency", "ops")
    )
    parameters = read(
        profile, rerun_command_line(a_result(job=job), [Constraint.parse("latency.p99 <= 50ms")])
    )

    assert parameters["model"] == str(job.model)
    assert parameters["backend"] == job.backend
    assert request.parse_settings(parameters["settings"]) == {"batch_size": "4", "io_binding": "false"}
    assert cli_options.split_names(parameters["probes"]) == job.probes
    assert cli_options.plan_from_options(parameters) == plan
    assert parameters["require"] == ("latency.p99 <= 50 ms",)


@pytest.mark.parametrize(
    "load_", [
        Load(concurrency=8, duration=30.0, drivers=2),
        Load(arrivals=Arrivals.POISSON, rate=100.0, requests=500, ramp=5.0, timeout=10.0, retries=1),
        Load(arrivals=Arrivals.BURST, rate=50.0, burst=8),
        Load(arrivals=Arrivals.GAMMA, rate=50.0, burstiness=0.5),
        Load(arrivals=Arrivals.TRACE, trace="due.txt"),
        Load(arrivals=Arrivals.TRACE, trace="due.txt", speed=2.5, window=600.0),
    ], ids=str,
)  # fmt: skip
def test_a_load_is_put_again(load_: Load) -> None:
    """Slots or rate, duration, requests, ramp, patience come back as they were."""
    parameters = read(
        load, rerun_command_line(a_result(job=replace(a_job(), load=load_, probes=SERVED_PROBES)))
    )

    assert parameters["concurrency"] == (str(load_.slots) if load_.closed else None)
    kinds = {Arrivals.POISSON: ":poisson", Arrivals.BURST: ":burst=8", Arrivals.GAMMA: ":gamma=0.5"}
    kind = kinds.get(load_.arrivals, "")
    assert parameters["rate"] == (f"{load_.rate:g}{kind}" if load_.rate else None)
    assert parameters["replay"] == load_.trace
    assert (parameters["replay_speed"] or 1, parameters["replay_window"]) == (load_.speed, load_.window)
    assert (parameters["duration"], parameters["requests"], parameters["ramp"]) == (
        load_.duration,
        load_.requests,
        load_.ramp,
    )
    assert (parameters["request_timeout"], parameters["retries"], parameters["drivers"]) == (
        load_.timeout, load_.retries, load_.drivers,
    )  # fmt: skip


@pytest.mark.parametrize(
    "spec", [
        InputSpec(name="ids", shape=(8, 128), dtype="int64", low=0.0, high=30521.0),
        InputSpec(name="x", shape=("batch", 8)),
        InputSpec(shape=(), dtype="float32"),
        InputSpec(name="x", source="data.npz"),
        InputSpec(source="data.jsonl"),
    ], ids=str,
)  # fmt: skip
def test_an_input_is_asked_for_again(spec: InputSpec) -> None:
    """What is written for an input is read as the same."""
    assert parse_input(format_input_option(spec)) == spec


@pytest.mark.parametrize("text", HOSTILE[:-1], ids=range(len(HOSTILE) - 1))
def test_a_shell_does_not_obey_names(text: str) -> None:
    """Whatever a model is called, it stays one word of the command."""
    job = replace(a_job(), name=text)
    arguments = shlex.split(rerun_command_line(a_result(job=job)))

    assert arguments[arguments.index("--name") + 1] == text


def test_an_inspection_is_asked_for_again() -> None:
    """What was looked at and not run is inspected."""
    assert rerun_command_line(an_inspection()).startswith("modeldyno inspect ")


def test_what_was_watched_is_watched_again() -> None:
    """Layers and tokens that were asked for stand in the command."""
    watched = ProbeOptions(
        layers=("attention", "mlp"),
        prompts=(32, 128),
        generated=(8,),
        preprocess="/f.py:clean",
        postprocess="m:g",
    )
    parameters = read(profile, rerun_command_line(a_result(job=replace(a_job(), observation=watched))))

    assert (parameters["layers"], parameters["prompt"], parameters["generate"]) == (
        "attention,mlp",
        "32,128",
        "8",
    )
    assert (parameters["pre"], parameters["post"]) == ("/f.py:clean", "m:g")
    assert "--layers" not in rerun_command_line(full_result())


def test_the_models_of_its_server_stand_beside_it_again(tmp_path: Path) -> None:
    """Each with its name, its load, its own settings and its inputs, whatever its path is called."""
    digits = Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"
    (tmp_path / "an other").mkdir()
    other = shutil.copy(digits, tmp_path / "an other" / "other.onnx")
    beside = (
        f"{digits} name=tagger rate=50:poisson concurrency=3 instances=2 input=1x1x8x8:float32",
        f"'{other}' concurrency=2",
        f"{digits} name=alike",
    )
    demanded = request.Request(
        model=str(digits), backend="triton", settings={}, plan=Plan(), load=Load(concurrency=8), beside=beside
    )
    job = demanded.job()
    command = rerun_command_line(a_result(job=job))
    parameters = read(load, command)

    assert replace(demanded, beside=parameters["beside"], name=parameters["name"]).job() == job
    assert parameters["beside"][1:] == (f"'onnx:{other}' concurrency=2", f"onnx:{digits} name=alike")
    assert yaml.safe_load(job_text(a_result(job=job)))["beside"] == list(parameters["beside"])


def test_a_sweep_of_several_models_of_a_server_is_asked_for_again() -> None:
    """Their settings are those of the study; a name and trust are given again, too."""
    digits = Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"
    config = {
        "model": str(digits), "backend": "triton", "name": "own", "set": {"tagger.instances": 2},
        "space": {"tagger.batch_size": [1, 2]}, "beside": [f"{digits} name=tagger concurrency=2"],
    }  # fmt: skip
    study, _ = build_study(FileConfig(tree=config))
    trusted = replace(study, job=replace(study.job, trust=True))
    words = shlex.split(sweep_command(trusted))
    again, _ = build_study(parse_yaml_text(job_text(study).replace("command: sweep\n", ""), "s.yaml"))

    assert words[words.index("--beside") + 1] == f"onnx:{digits} name=tagger concurrency=2"
    assert [words[words.index("--name") + 1], words[-1]] == ["own", "--trust"]
    assert (again.job.beside, again.settings, again.space) == (study.job.beside, study.settings, study.space)


def test_settings_of_a_backend_that_is_not_here_are_all_given() -> None:
    """Which of them are usual only it could say."""
    job = replace(a_job(), backend="gone", config={"batch_size": 1})
    several = replace(a_job(), load=Load(), probes=SERVED_PROBES, beside=(replace(job, name="b"),))

    assert "batch_size=1" in read(load, rerun_command_line(a_result(job=several)))["beside"][0]


VARIANT = ModelRef(scheme="onnx", locator="/store/models/ab12/model.onnx", registered="my net/3 onnx")


def test_a_registered_model_is_named_as_that() -> None:
    """Not by the store's copy of its file, nor by the inputs that lie there; its name follows."""
    inputs = (InputSpec(name="x", source="/store/models/ab12/inputs.npz"), parse_input("y=1x4:float32"))
    result = a_result(job=replace(a_job(), model=VARIANT, name="my net", inputs=inputs))
    command = rerun_command_line(result)
    parameters = read(profile, command)

    assert command.startswith("modeldyno profile 'my net/3 onnx' ")
    assert (parameters["model"], parameters["inputs"], parameters["name"]) == (
        "my net/3 onnx", ("y=1x4:float32",), None,
    )  # fmt: skip
    assert advise_command_line(replace(result.job, config={}), result.job.backend) == (
        "modeldyno advise 'my net/3 onnx' --input y=1x4:float32"
    )


@pytest.mark.parametrize("name", ["mine", "my"])
def test_another_name_of_a_registered_model_is_given(name: str) -> None:
    job = replace(a_job(), model=VARIANT, name=name)

    assert read(profile, rerun_command_line(a_result(job=job)))["name"] == name


def test_a_document_of_an_earlier_version_names_its_file() -> None:
    """It does not know of a registered name, and is read as it was."""
    document = msgspec.json.decode(encode(a_result(job=replace(a_job(), model=VARIANT))))
    del document["job"]["model"]["registered"]
    old = decode(msgspec.json.encode(document))

    assert old.job.model.registered is None
    assert read(profile, rerun_command_line(old))["model"] == "onnx:/store/models/ab12/model.onnx"
    assert decode(encode(replace(old, job=replace(old.job, model=VARIANT)))).job.model.argument == (
        "my net/3 onnx"
    )


def test_a_live_object_is_measured_again_by_a_call() -> None:
    """No command can name it, and no file."""
    job = replace(
        a_job(), model=ModelRef(scheme=LIVE, locator="Net-1"), inputs=(), config={"precision": "bf16"}
    )
    result = a_result(job=replace(job, probes=("latency", "ops")))

    assert rerun_command_line(result) == (
        "modeldyno.profile(model, example=..., precision='bf16', probes='latency,ops')"
    )
    with pytest.raises(RequestError, match="a live object, which no file can name; measure a factory of it"):
        job_text(result)


@pytest.mark.parametrize(
    ("seconds", "text"), [(1.10681453117, "1.11s"), (0.0123456, "12.3ms"), (30.0, "30s")]
)
def test_a_share_of_a_budget_is_told_without_the_digits_of_a_float(seconds: float, text: str) -> None:
    """The time limit of a run within a comparison is such a share."""
    plan = Plan(max_time=seconds, min_time=0.01)

    assert f"--max-time {text}" in rerun_command_line(a_result(job=replace(a_result().job, plan=plan)))
