"""The default of a model in a repository is what its configuration says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import modeldyno
from modeldyno.base.yaml_file import FileConfig
from modeldyno.engine.environment import machine
from modeldyno.serving.backends.triton_ensembles import configurations
from modeldyno.serving.servers.triton_repository_reader import read_repository
from modeldyno.serving.servers.triton_written_knobs import written_knob
from modeldyno.sweeps.build import build_study
from modeldyno.sweeps.point_to_job import job_at_point

if TYPE_CHECKING:
    from pathlib import Path

    from modeldyno.base.job.knob import KnobValue

TENSORS = (
    'input [ { name: "x" data_type: TYPE_FP32 dims: [ 4 ] } ]\n'
    'output [ { name: "y" data_type: TYPE_FP32 dims: [ 4 ] } ]\n'
)
BATCHED = """
name: "text" backend: "python" max_batch_size: 16
instance_group [ { count: 2 kind: KIND_CPU } ]
dynamic_batching {
  max_queue_delay_microseconds: 500 preferred_batch_size: [ 4, 8 ] priority_levels: 2
}
"""
ENSEMBLE = """
name: "ocr" platform: "ensemble" max_batch_size: 16
ensemble_scheduling { step [ { model_name: "text" model_version: -1
  input_map { key: "x" value: "x" } output_map { key: "y" value: "y" } } ] }
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Write a repository with a model that batches, one that does not, and an ensemble of the first."""
    texts = {"text": BATCHED, "plain": 'name: "plain" backend: "python"\n', "ocr": ENSEMBLE}
    for name, text in texts.items():
        entry = tmp_path / name
        (entry / "1").mkdir(parents=True)
        (entry / "1" / "model.py").write_text("")
        (entry / "config.pbtxt").write_text(text + TENSORS)
    return tmp_path


@pytest.mark.parametrize(
    ("model", "knob", "value"),
    [
        ("text", "instances", 2),
        ("text", "max_batch", 16),
        ("text", "dynamic_batching", True),
        ("text", "queue_delay", 500),
        ("text", "preferred_batch", "4,8"),
        ("text", "device", "cpu"),
        ("text", "config.dynamic_batching.priority_levels", 2),
        ("text", "config.instance_group.count", 2),
        ("text", "config.instance_group.0.count", 2),
        ("text", "config.instance_group.7.count", None),
        ("text", "config.dynamic_batching", None),
        ("text", "batch_size", None),
        ("plain", "instances", 1),
        ("plain", "max_batch", 0),
        ("plain", "dynamic_batching", False),
        ("plain", "queue_delay", None),
        ("plain", "config.dynamic_batching.priority_levels", None),
        ("ocr", "instances", None),
        ("ocr", "composing.text.instances", 2),
        ("ocr", "composing.text.queue_delay", 500),
        ("ocr", "composing.other.instances", None),
    ],
)
def test_a_knob_is_read_from_the_file(
    repository: Path, model: str, knob: str, value: KnobValue | None
) -> None:
    """Of the model itself and of those that it consists of; what is not written has Triton's default."""
    assert written_knob(read_repository(repository, model), knob) == value


def test_the_default_of_a_sweep_is_what_is_deployed(repository: Path) -> None:
    """Its point has the batching of the file, with its delay, and is not called `dynamic_batching=false`."""
    study = modeldyno.sweep(
        f"repository:{repository}#text", backend="triton", dry_run=True, progress=False,
        space=("instances=1,2", "dynamic_batching=false,true", "max_batch=8,16 if dynamic_batching=true",
               "queue_delay=0,500 if dynamic_batching=true", "concurrency=1,8"),
    )  # fmt: skip

    assert study.default == {
        "instances": 2, "dynamic_batching": True, "max_batch": 16, "queue_delay": 500
    }  # fmt: skip


def test_the_default_of_a_part_is_a_value_of_its_axis(repository: Path) -> None:
    """Knobs of parts are text: the 2 of the file is the "2" of the axis, and no third value beside it."""
    study = modeldyno.sweep(
        f"repository:{repository}#ocr", backend="triton", dry_run=True, progress=False,
        space=("composing.text.instances=1,2", "composing.text.dynamic_batching=false,true"),
    )  # fmt: skip

    assert study.default["composing.text.instances"] == "2"
    assert study.space.holds({**study.default, "concurrency": 1})


def test_batching_that_a_file_turns_on_is_off_where_a_point_says_so(repository: Path) -> None:
    """What is not set leaves the file as it is; false takes the batching out of it."""
    study = modeldyno.sweep(
        f"repository:{repository}#text", backend="triton", dry_run=True, progress=False,
        space=("instances=1,2", "dynamic_batching=false,true"),
    )  # fmt: skip
    model = read_repository(repository, "text")
    on, off = (
        configurations(model, job_at_point(study, point).config)["text"]
        for point in ({"instances": 1}, {"instances": 1, "dynamic_batching": False})
    )

    assert on["dynamic_batching"]["max_queue_delay_microseconds"] == 500
    assert "dynamic_batching" not in off


def test_of_an_ensemble_the_knobs_of_its_models_are_varied(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of one in another one; an ensemble has none itself, so its own usual axes ended in an error."""
    monkeypatch.setattr(machine, "allowed_cores", lambda: (0, 1))
    outer = repository / "outer"
    (outer / "1").mkdir(parents=True)
    text = ENSEMBLE.replace('"text"', '"ocr" ').replace('name: "ocr" platform', 'name: "outer" platform')
    (outer / "config.pbtxt").write_text(text + TENSORS)
    for model in ("ocr", "outer"):
        tree: dict[str, Any] = {"model": f"{repository}#{model}", "backend": "triton"}
        study, chosen = build_study(FileConfig(tree=tree))
        assert [(axis.name, axis.values) for axis in chosen if axis.name.startswith("composing")] == [
            ("composing.text.instances", ("1", "2")),
            ("composing.text.dynamic_batching", ("false", "true")),
        ]
        assert study.default["composing.text.instances"] == "2"
    tree["set"] = {"composing.text.instances": "1"}
    assert [axis.name for axis in build_study(FileConfig(tree=tree))[1]][:1] == [
        "composing.text.dynamic_batching"
    ]
