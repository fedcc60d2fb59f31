"""Mapping a point to a Job: every kind of axis, and invalid points."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from modeldyno.base.errors import MissingExtra, RequestError, UnknownName
from modeldyno.base.job.load_spec import Arrivals, Load
from modeldyno.sweeps.point_to_job import backends, check_axes, check_dimensions, job_at_point, knob_of
from modeldyno.sweeps.study.search_space import Axis, Space
from modeldyno.testing.sample_studies import a_served_study, a_study

if TYPE_CHECKING:
    from modeldyno.base.job.knob import KnobValue


def test_a_knob_is_set_over_what_the_user_set() -> None:
    """A point overrides a setting, under any of its names; the backend's defaults are added."""
    study = a_served_study("max_batch_size=4,8", settings={"max_batch": 2, "instances": 3})
    config = job_at_point(study, {"max_batch_size": 8, "config.dynamic_batching.priority_levels": 2}).config

    assert (config["max_batch"], config["instances"], config["protocol"]) == (8, 3, "http-binary")
    assert config["config.dynamic_batching.priority_levels"] == "2"
    assert "max_batch_size" not in config


def test_values_get_the_types_of_their_knobs() -> None:
    """A number becomes text if the knob takes text."""
    assert (
        job_at_point(a_served_study("preferred_batch=4"), {"preferred_batch": 4}).config["preferred_batch"]
        == "4"
    )


def test_a_load_is_changed_and_the_rest_of_it_stays() -> None:
    """A concurrency means a closed loop; a rate opens it, or replaces that of an open loop."""
    study = a_served_study("concurrency=1,2")
    closed = replace(study, job=replace(study.job, load=Load(duration=5.0)))
    open_ = replace(study, job=replace(study.job, load=Load(arrivals=Arrivals.POISSON, rate=1.0)))

    assert job_at_point(closed, {"concurrency": 4}).load == Load(duration=5.0, concurrency=4)
    assert job_at_point(closed, {"rate": 50}).load == Load(
        arrivals=Arrivals.CONSTANT, rate=50.0, duration=5.0
    )
    assert job_at_point(open_, {"rate": 50.0}).load == Load(arrivals=Arrivals.POISSON, rate=50.0)
    assert job_at_point(open_, {"rate": 50.0, "concurrency": 4.0}).load == Load(
        arrivals=Arrivals.POISSON, rate=50.0, concurrency=4
    )


def test_a_concurrency_is_a_product_of_knobs() -> None:
    """Each point has its own load; a factor without a value is named, at the axis and at the point."""
    study = a_served_study("instances=1,3", "concurrency=2*instances*max_batch", settings={"max_batch": 8})
    check_axes(study)
    point: dict[str, KnobValue] = {"instances": 3, "concurrency": "2*instances*max_batch"}

    assert job_at_point(study, point).load == Load(concurrency=48)
    assert job_at_point(study, {**point, "instances": 1}).load == Load(concurrency=16)
    with pytest.raises(RequestError, match=r"concurrency=2\*queue_delay needs a number for queue_delay"):
        check_axes(a_served_study("instances=1,3", "concurrency=2*queue_delay"))
    with pytest.raises(RequestError, match="takes whole numbers from 1, not many"):
        check_axes(a_served_study("concurrency=many"))


def test_what_is_no_knob_sizes_a_dimension() -> None:
    """Any other name is a dimension of the inputs."""
    assert job_at_point(a_study("seq=16,32"), {"seq": 32}).sizes == {"seq": 32}


def test_another_backend_has_its_own_knobs_probes_and_load() -> None:
    """A point with a server measures requests under a load; one in a process measures calls."""
    study = a_study("backend=onnxruntime,triton", "instances=1,2 if backend=triton")
    here = job_at_point(study, {"backend": "onnxruntime"})
    there = job_at_point(study, {"backend": "triton", "instances": 2})

    assert (here.probes, here.load, here.config["graph_optimization"]) == (
        ("latency", "throughput"),
        None,
        "all",
    )
    assert (there.probes, there.load, there.config["instances"]) == (("load",), Load(), 2)
    assert job_at_point(a_served_study("backend=onnxruntime"), {"backend": "onnxruntime"}).probes == (
        "latency", "throughput",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("point", "message"),
    [
        ({"max_batch": 2, "batch_size": 4}, "Requests of batch_size=4 are larger than max_batch=2"),
        ({"max_batch": 0, "queue_delay": 100}, "turns batching off"),
        ({"instances": 0}, "instances takes a whole number from 1"),
        ({"backend": "onnxruntime", "instances": 2}, "backend 'onnxruntime' has no knob instances"),
        ({"backend": "onnxruntime", "concurrency": 2}, "where there is no concurrency"),
        ({"backend": "nothing"}, "no backend 'nothing'"),
        ({"concurrency": 1.5}, "takes whole numbers from 1, not 1.5"),
        ({"concurrency": "many"}, "takes whole numbers from 1, not many"),
        ({"rate": "fast"}, "takes requests per second, not fast"),
        ({"rate": -1}, "not positive"),
        ({"seq": 0}, "dimension seq of the inputs takes whole numbers from 1, not 0"),
        ({"seq": True}, "takes whole numbers from 1, not True"),
    ],
)
def test_what_cannot_be_is_refused(point: dict[str, Any], message: str) -> None:
    """A point that contradicts itself, or the server, is refused with one message."""
    study = a_served_study("backend=triton,onnxruntime", "instances=1,2")
    with pytest.raises(RequestError, match=message) as caught:
        job_at_point(study, point)

    assert "\n" not in str(caught.value)


def test_axes_are_checked_by_their_names_and_values() -> None:
    """Knobs and loads are checked completely; other names are returned, to be looked up in the model."""
    study = a_served_study("instances=1,2", "concurrency=1..64*2", "seq=16,32", "backend=triton")

    assert check_axes(study) == ("seq",)


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        (("instances=0,1",), "instances takes a whole number from 1"),
        (("max_batch=1,2", "max_batch_size=4"), "max_batch and max_batch_size are the same knob"),
        (("concurrency=0,1",), "takes whole numbers from 1, not 0"),
        (("rate=0",), "not positive"),
        (("backend=triton,onnxruntime", "concurrency=1,2"), "choose a server"),
        (("backend=triton,onnxruntime", "instances=1,2"), "instances=... if backend=triton"),
        (
            ("backend=onnxruntime", "batch_size=1", "a=1 if batch_size=1", "instances=1 if a=1"),
            "if backend=triton",
        ),
    ],
)
def test_wrong_axes_are_refused(axes: tuple[str, ...], message: str) -> None:
    """A value that does not fit its axis, or an axis that not all backends know, is refused at once."""
    with pytest.raises(RequestError, match=message):
        check_axes(a_served_study(*axes))


def test_infinity_is_no_value() -> None:
    """A number that cannot be written down is no valid value."""
    space = Space(axes=(Axis(name="seq", values=(1.0, float("inf"))),))
    with pytest.raises(RequestError, match="not a finite number"):
        check_axes(a_study(space=space))


def test_settings_must_fit_every_backend() -> None:
    """A setting must be known to all backends, or become an axis with a condition."""
    study = a_served_study("backend=triton,onnxruntime", settings={"instances": 2})
    with pytest.raises(RequestError, match="'onnxruntime' has no knob instances; give it an axis"):
        check_axes(study)
    with pytest.raises(UnknownName, match="no knob 'instnaces'; did you mean 'instances'"):
        check_axes(replace(study, settings={"instnaces": 2}))


def test_a_backend_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every backend of the space must be installed before anything is measured."""
    monkeypatch.setattr(
        "modeldyno.base.plugins.find_spec", lambda name: None if name == "torch" else object()
    )
    with pytest.raises(MissingExtra, match="torch"):
        check_axes(a_study("backend=onnxruntime,torch"))


def test_dimensions_are_checked_by_the_model() -> None:
    """A dimension of the model is an axis; a mistake gets a suggestion."""
    study = a_served_study("seq=16,32", "sek=1,2", "instances=1")
    check_dimensions(study, ("seq",), {"batch", "seq"})
    check_dimensions(study, ("seq", "sek"), None)
    with pytest.raises(UnknownName, match="no axis 'sek'; did you mean 'seq'"):
        check_dimensions(study, ("sek",), {"batch", "seq"})
    with pytest.raises(RequestError, match="whole numbers from 1, not a"):
        check_dimensions(a_study("seq=a,b"), ("seq",), None)


def test_which_backends_an_axis_is_for() -> None:
    """A condition on the backend limits an axis, and so does one on an axis that is limited itself."""
    study = a_served_study(
        "backend=onnxruntime,torch", "threads=1,2 if backend=torch", "precision=fp16 if threads=2"
    )

    assert backends(study) == ("triton", "onnxruntime", "torch")
    assert [backends(study, axis) for axis in study.space.axes] == [
        ("onnxruntime", "torch"), ("torch",), ("torch",),
    ]  # fmt: skip
    assert backends(a_study("batch_size=1"), a_study("batch_size=1").space.axes[0]) == ("onnxruntime",)


def test_names_of_knobs() -> None:
    """A knob is found by its name, an alias, and as a member of its family."""
    from modeldyno.serving.backends import triton

    names = [
        knob_of(name, triton.knobs) for name in ("max_batch", "max_batch_size", "config.a.b", "config", "a.b")
    ]

    assert [knob and knob.name for knob in names] == ["max_batch", "max_batch", "config", None, None]
