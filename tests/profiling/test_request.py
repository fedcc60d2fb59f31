from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from click.testing import CliRunner
from tests.support.stand_ins import use_plugin

from modeldyno.base import plugins
from modeldyno.base.errors import MissingExtra, RequestError, UnknownName
from modeldyno.base.job.probe_options import ProbeOptions
from modeldyno.base.job.static_options import Mode, StaticOptions
from modeldyno.base.metrics.constraints import Constraint
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.result.cost import Price
from modeldyno.cli import cli
from modeldyno.profiling import resolve_model
from modeldyno.profiling.request import Request, parse_function
from modeldyno.profiling.resolve_model import resolve_reference

if TYPE_CHECKING:
    from collections.abc import Callable

DIGITS = str(Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx")

STEADY = "call:modeldyno.testing.known_latency:steady"


def a_request(**changes: object) -> Request:
    """Return a Request; `changes` replaces any part of it."""
    return Request(**{"model": STEADY, "settings": {}, "plan": Plan(), **changes})  # type: ignore[arg-type]


@pytest.fixture
def _absent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that the backend's package is missing."""
    backend = plugins.backend("python")
    absent = SimpleNamespace(requires=("no_such_package",), knobs=backend.knobs, check=backend.check)
    use_plugin(monkeypatch, "backend", absent)


@pytest.mark.usefixtures("_absent")
def test_to_look_at_a_model_needs_no_backend() -> None:
    """The backend's packages may be missing if nothing is called; its knobs are checked anyway."""
    job = a_request(probes=("static",), settings={"batch_size": 8}).job()

    assert job.config["batch_size"] == 8
    with pytest.raises(UnknownName, match="batchsize"):
        a_request(probes=("static",), settings={"batchsize": 8}).job()
    with pytest.raises(MissingExtra, match="no_such_package"):
        a_request(probes=("static", "latency")).job()


def test_an_inspection_is_part_of_the_job() -> None:
    """StaticOptions options are passed on, and checked before anything is loaded."""
    inspection = StaticOptions(vary={"batch": (1, 8)}, modules=True)

    assert a_request(inspection=inspection).job().inspection == inspection
    assert a_request().job().inspection == StaticOptions()
    with pytest.raises(RequestError, match="`memory`"):
        a_request(inspection=StaticOptions(memory=0)).job()


def test_probes_that_need_others_have_them() -> None:
    """Layers bring the static analysis, and observation options bring the probe that uses them."""
    layers = a_request(probes=("latency", "layers")).job()
    assert layers.probes == ("static", "latency", "layers")
    assert layers.inspection.modules
    assert layers.inspection.devices == ("here",)
    traced = a_request(probes=("latency",), observation=ProbeOptions(trace="trace.json")).job()
    assert traced.probes == ("latency", "ops")
    some = a_request(probes=("latency",), observation=ProbeOptions(layers=("attention",))).job()
    assert some.probes == ("static", "latency", "layers")
    assert some.inspection.modules
    for lengths in (ProbeOptions(prompts=(16,)), ProbeOptions(generated=(8, 16))):
        assert a_request(probes=("latency",), observation=lengths).job().probes == ("latency", "generate")
    assert a_request(probes=("latency",)).job().probes == ("latency",)


def test_a_trace_without_a_directory_is_refused() -> None:
    """A file that could not be written is refused before anything is measured."""
    with pytest.raises(RequestError, match=r"There is no directory '/absent' for the trace"):
        a_request(observation=ProbeOptions(trace="/absent/trace.json")).job()


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/absent/requests.csv", "There is no directory '/absent' for the records"),
        ("requests.txt", r"cannot be written as '\.txt'; known formats: \.csv, \.jsonl, \.npz"),
    ],
)
def test_records_that_cannot_be_written_are_refused(path: str, says: str) -> None:
    """A request log without a directory or with an unknown format is refused before measuring."""
    with pytest.raises(RequestError, match=says):
        a_request(observation=ProbeOptions(records=path)).job()


@pytest.mark.parametrize(
    ("probes", "observation", "named"),
    [
        (("layers",), ProbeOptions(), "layers"),
        (("training", "ops"), ProbeOptions(), "ops"),
        (("training",), ProbeOptions(trace="trace.json"), "ops"),
        (("training",), ProbeOptions(layers=("attention",)), "layers"),
    ],
)
def test_calls_are_not_held_to_the_costs_of_training_steps(
    probes: tuple[str, ...], observation: ProbeOptions, named: str
) -> None:
    """Dividing a call's time by a training step's operations would give a wrong rate."""
    trained = StaticOptions(mode=Mode.TRAIN)

    with pytest.raises(RequestError, match=rf"The probe '{named}' watches calls .* without `mode=train`"):
        a_request(probes=probes, observation=observation, inspection=trained).job()
    assert a_request(probes=("training",), inspection=trained).job().probes == ("training",)


def test_a_repository_entry_without_a_configuration_is_told_as_such(tmp_path: Path) -> None:
    """The message names the existing directory, what it lacks, and what to write."""
    (tmp_path / "text" / "1").mkdir(parents=True)
    with pytest.raises(RequestError, match=r"text' has no config\.pbtxt.* such as .*text/1/model\.onnx"):
        resolve_reference(f"{tmp_path}#text")
    with pytest.raises(RequestError, match="There is no file or directory"):
        resolve_reference(f"{tmp_path}#absent")


def test_the_stages_of_a_call_are_measured_where_the_model_runs(tmp_path: Path) -> None:
    """A function brings the probe; a server, training and raw data as labelled samples are refused."""
    before, labelled = ProbeOptions(preprocess="package.module:clean"), tmp_path / "x.npz"
    np.savez(labelled, x=np.zeros(2), labels=np.zeros(2, dtype=int))

    assert a_request(observation=before).job().probes == ("static", "latency", "throughput", "stages")
    with pytest.raises(RequestError, match="the backend 'triton' sends requests; leave out `pre` and `post`"):
        a_request(backend="triton", observation=before).job()
    with pytest.raises(RequestError, match="not training steps"):
        a_request(inspection=StaticOptions(mode=Mode.TRAIN), observation=before).job()
    with pytest.raises(RequestError, match="name the labelled samples of the model with `data`"):
        a_request(observation=replace(before, evaluate=("accuracy",)), inputs=(str(labelled),)).job()
    file = tmp_path / "f.py"
    file.touch()
    assert parse_function(f"call:{file}:clean", "pre") == f"{file}:clean"
    assert parse_function("package.module:clean", "pre") == "package.module:clean"
    assert parse_function(None, "pre") is None
    for text, message in (
        ("clean", "takes a function as"),
        ("nowhere.py:f", "there is no file 'nowhere.py'"),
    ):
        with pytest.raises(RequestError, match=f"`post`:? {message}"):
            parse_function(text, "post")


def test_a_bound_on_a_cost_needs_a_price() -> None:
    """It is refused before anything is measured, and with a price it is a bound like others."""
    with pytest.raises(RequestError, match=r"cost needs the price of the machine; add `price=1\.20/h`"):
        a_request(require=("cost <= 1",)).resolve()
    assert a_request(require=("cost <= 1",), price=Price(per_hour=1.0)).resolve().constraints


@pytest.mark.parametrize("arguments", [
    ("profile", DIGITS, "--max-time", "0.2s", "--require", "latency.p99 <= 9s"),
    ("profile", DIGITS, "--probe", "static", "--require", "parameters <= 1e9"),
    ("inspect", DIGITS),
    ("explain", DIGITS, "--max-time", "1"),
    ("sweep", DIGITS, "--space", "batch_size=1,2", "--max-trials", "1"),
], ids=lambda arguments: arguments[0])  # fmt: skip
def test_a_model_is_resolved_once_and_a_bound_is_parsed_once(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever looks a version up in MLflow, or fetches a file from an object store, does so once."""
    words: Counter[str] = Counter()

    def counted(function: Callable[[str], Any]) -> Callable[[str], Any]:
        def count(text: str) -> Any:
            words[text] += 1
            return function(text)

        return count

    for module in ("profiling.request", "serving.loadtest.explanation", "sweeps.build"):
        monkeypatch.setattr(f"modeldyno.{module}.resolve_model", counted(resolve_model.resolve_model))
    monkeypatch.setattr(Constraint, "parse", counted(Constraint.parse))
    CliRunner().invoke(cli, [*arguments, "--no-store"])

    assert words[DIGITS] == 1
    assert set(words.values()) == {1}
