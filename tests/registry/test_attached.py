"""Measurements under a registered model: by its content, and attached by people, Python and a Profiler."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from click.testing import CliRunner
from tests.support.registry import DIGEST
from tests.support.sample_explanations import an_explanation

import modeldyno
from modeldyno.base import codec, plugins
from modeldyno.base.document import MeasuredAt
from modeldyno.base.errors import RequestError
from modeldyno.base.job.model_ref import ModelIdentity
from modeldyno.base.job.version_name import VersionName
from modeldyno.cli import cli
from modeldyno.compat import modelci
from modeldyno.registry import attach, detach
from modeldyno.registry.overview import version_overview
from modeldyno.registry.register import Registration, register
from modeldyno.registry.views import version as version_view
from modeldyno.reports import terminal
from modeldyno.testing.sample_conversions import a_conversion
from modeldyno.testing.sample_results import a_result
from modeldyno.testing.sample_series import a_ladder
from modeldyno.testing.server import serve_in_subprocess

if TYPE_CHECKING:
    from pathlib import Path

    from modeldyno.registry.interface import Registry
    from modeldyno.registry.records.overview import VersionOverview
    from modeldyno.registry.records.records import Version

SAME = ModelIdentity(name="net", digest=DIGEST, framework="onnx")
PLACE: dict[str, Any] = {"host": "far", "device": "cuda:0", "engine": "triton", "batch_size": 8}


@pytest.fixture
def net(registry: Registry, model: Path) -> Version:
    """A registered version without tasks."""
    return register(Registration(model=str(model), convert=False, profile=False), registry).version


def overview(registry: Registry) -> VersionOverview:
    """Return what is known of it."""
    return version_overview(registry, VersionName.parse("net"))


def test_what_was_measured_of_the_same_content_is_listed_by_itself(registry: Registry, net: Version) -> None:
    """Results, loads and explanations, the newest first; of another model none, and no figure twice."""
    explained = an_explanation(
        id="e" * 12, created="2027-01-01", results={"in process": a_result(id="d" * 12, model=SAME)}
    )
    with plugins.store() as store:
        store.put(a_result(id="a" * 12, model=SAME, created="2025-01-01"), headline="fast")
        store.put(a_result(id="b" * 12), headline="another model")
        store.put_conclusion(
            replace(a_ladder(), id="c" * 12, model=SAME, created="2026-01-01"), headline="knee"
        )
        store.put_conclusion(explained, headline="framework")
    listed = overview(registry).measurements

    assert [(one.document[0], one.kind, one.attached) for one in listed] == [
        ("e", "explanation", False),
        ("c", "ladder", False),
        ("a", "result", False),
    ]
    text = " ".join(terminal.text(tuple(version_view.blocks(overview(registry))), width=200).split())
    assert "cccccc loads" in text
    assert net.name in text
    with plugins.store() as store:
        store.remove_conclusion("e" * 12)
    assert [one.document[0] for one in overview(registry).measurements] == ["c", "a"]


@pytest.mark.usefixtures("net")
def test_a_measurement_is_attached_replaced_and_detached(registry: Registry) -> None:
    """By host, device, engine and batch size; Results stay in the store, and the history has who did it."""
    first, second = a_result(id="1" * 12), a_result(id="2" * 12)
    attached = attach("net", first, **PLACE)
    assert (attached.version, attached.kind, attached.at) == ("net/1", "result", MeasuredAt(**PLACE))
    attach("net", second, **PLACE, replace=False)
    attach("net", a_result(id="3" * 12), **{**PLACE, "batch_size": 1})
    assert {one.document[0] for one in overview(registry).measurements} == {"1", "2", "3"}

    attach("net", "2" * 12, **PLACE, replace=True)
    assert {one.document[0] for one in overview(registry).measurements} == {"2", "3"}
    assert [one.document[0] for one in detach("net", host="far", batch_size=1)] == ["3"]
    assert [one.document[0] for one in modeldyno.registry.show("net").measurements] == ["2"]
    assert detach("net", "22")[0].at == MeasuredAt(**PLACE)
    assert overview(registry).measurements == ()
    with plugins.store() as store:
        assert [store.get(digit * 12).id[0] for digit in "123"] == ["1", "2", "3"]
    kinds = [event.kind for event in registry.events(subject="net/1")]
    assert kinds.count("result.attached") == 4
    assert kinds.count("result.detached") == 2
    assert registry.first_broken_event() is None


def test_a_document_or_a_version_that_is_removed_is_attached_to_nothing(
    registry: Registry, net: Version
) -> None:
    """Nothing of it is left."""
    attach("net", a_result(id="1" * 12), **PLACE)
    attach("net", replace(a_ladder(), id="2" * 12), **PLACE)
    with plugins.store() as store:
        store.remove("1" * 12)
        store.remove_conclusion("2" * 12)
    assert registry.attached(net) == []
    attach("net", a_result(id="3" * 12), **PLACE)
    registry.remove_version(net, "ada")
    assert registry.attached(net) == []


@pytest.mark.usefixtures("net")
@pytest.mark.parametrize(
    ("document", "place", "why"),
    [
        (a_conversion(), {}, "conversion has no figures"),
        ("nothing", {}, "There is no file, stored id or tag|no result whose id begins"),
        (a_result(), {"batch_size": 0}, "A batch has 1 sample or more, not 0"),
    ],
)
def test_what_cannot_be_listed_is_refused(document: Any, place: dict[str, Any], why: str) -> None:
    """In a sentence."""
    with pytest.raises(RequestError, match=why):
        attach("net", document, **place)


def test_what_is_not_attached_cannot_be_detached(net: Version) -> None:
    """Of the same content, it is listed until it is removed from the store."""
    with plugins.store() as store:
        store.put(a_result(id="a" * 12, model=SAME), headline="")
    refused: tuple[tuple[Any, dict[str, Any], str], ...] = (
        ("aaaaaaa", {}, r"of the same model as net/1.*modeldyno rm aaaaaa\."),
        ("b", {}, "'b' is not attached to net/1"),
        ((), {"device": "cuda:3"}, "Nothing of device cuda:3 is attached to net/1"),
        ((), {}, "Name what to detach from net/1"),
    )
    for documents, place, why in refused:
        with pytest.raises(RequestError, match=why):
            detach(net.name, documents, **place)


def test_nothing_is_stored_for_a_version_that_is_not_there(registry: Registry) -> None:
    """Its name is looked up first."""
    with pytest.raises(RequestError, match="'gone'"):
        attach("gone", a_result(id="1" * 12))
    assert registry.result("1" * 12) is None


@pytest.mark.usefixtures("net")
def test_the_commands_attach_files_and_ids(tmp_path: Path) -> None:
    """A file is stored first; `--replace` says in whose place it is."""
    path = tmp_path / "there.json"
    codec.write(path, codec.encode(a_result(id="1" * 12)))
    with plugins.store() as store:
        store.put(a_result(id="2" * 12), headline="quick")
    place = ["--host", "far", "--device", "cuda:0", "--engine", "triton", "-b", "8"]

    def run(*words: str) -> str:
        done = CliRunner().invoke(cli, ["registry", *words])
        assert done.exit_code == 0, done.output
        return " ".join(done.output.split())

    assert run("attach", "net", str(path), *place) == "111111 is listed under net/1"
    assert run("attach", "net", "222222", *place, "--replace") == (
        "222222 is listed under net/1, in place of 111111"
    )
    assert "222222 result (attached) far cuda:0 triton 8" in run("show", "net")
    assert run("detach", "net", "--device", "cuda:0") == (
        "222222 is not attached to net/1 any more, and stays in the store"
    )


def test_a_diagnosis_of_a_server_is_listed_under_its_version(registry: Registry, net: Version) -> None:
    """With host, engine and batch size, although the digest of a server's model is another."""
    with serve_in_subprocess("--service", "constant:0.001", "--model", "net") as server:
        profiler = modeldyno.compat.Profiler(
            net, f"http://127.0.0.1:{server.port}#net", data=np.ones(4, np.float32), progress=False
        )
        profiler.inspector.batch_num = 12
        by_size = profiler.diagnose_all_batches([1, 2], "cpu")
    listed = overview(registry).measurements

    assert {one.document: one.at.batch_size for one in listed} == {
        diagnosis.result.id: size for size, diagnosis in by_size.items()
    }
    assert {(one.at.host, one.at.device, one.at.engine) for one in listed} == {("127.0.0.1", "cpu", "onnx")}


def test_a_diagnosis_that_is_not_stored_is_not_listed(registry: Registry, net: Version) -> None:
    """And one of no registered version is listed nowhere."""
    with serve_in_subprocess("--service", "constant:0.001", "--model", "net") as server:
        url, item = f"http://127.0.0.1:{server.port}#net", np.ones(4, np.float32)
        for info, store in ((net, False), ({"name": "net", "engine": "onnx"}, True)):
            profiler = modeldyno.compat.Profiler(info, url, data=item, progress=False, store=store)
            profiler.inspector.batch_num = 12
            profiler.diagnose()
    assert overview(registry).measurements == ()


THEIRS = SimpleNamespace(
    ip="10.0.0.7",
    device_id="cuda:0",
    device_name="Tesla K40c",
    batch=8,
    memory=SimpleNamespace(total_memory=1000, memory_usage=400, utilization=0.5),
    latency=SimpleNamespace(
        init_latency=SimpleNamespace(avg=0, p50=0, p95=0, p99=0),
        preprocess_latency=SimpleNamespace(avg=0.001, p50=0, p95=0, p99=0),
        inference_latency=SimpleNamespace(avg=0.05, p50=0.04, p95=0.06, p99=0.07),
        postprocess_latency=None,
    ),
    throughput=SimpleNamespace(inference_throughput=160.0),
)


def test_profiling_results_of_modelci_are_listed_updated_and_deleted(
    registry: Registry, net: Version
) -> None:
    """Seconds, bytes and samples per second, and what is 0 there was not measured."""
    attached = modelci.register_dynamic_profiling_result(net, THEIRS)
    assert attached.at == MeasuredAt(host="10.0.0.7", device="cuda:0", engine="onnx", batch_size=8)
    result = registry.result(attached.document)
    assert result is not None
    assert result["latency@p95"] == 0.06
    assert result["throughput"] == 160.0
    assert result["stage_time@preprocess"] == 0.001
    assert result["device_used@cuda:0"] == 400
    assert result.find("load_time") is None
    assert "imported" in {doubt.code for doubt in result.doubts}

    faster = SimpleNamespace(**{**vars(THEIRS), "throughput": {"inference_throughput": {"avg": 200.0}}})
    updated = modelci.update_dynamic_profiling_result(net, faster)
    (only,) = overview(registry).measurements
    assert only.document == updated.document != attached.document
    assert registry.result(only.document)["throughput"] == 200.0  # type: ignore[index]

    other = SimpleNamespace(**{**vars(THEIRS), "batch": 1})
    with pytest.raises(
        RequestError, match=r"no measurement of 10\.0\.0\.7, cuda:0, onnx and batch size 1; give"
    ):
        modelci.update_dynamic_profiling_result(net, other)
    modelci.update_dynamic_profiling_result(net, other, force_insert=True)
    assert len(overview(registry).measurements) == 2

    assert len(modelci.delete_dynamic_profiling_result(net, "10.0.0.7", "cuda:0")) == 2
    assert overview(registry).measurements == ()
    with pytest.raises(RequestError, match=r"Nothing of host 10\.0\.0\.7, device cuda:0"):
        modelci.delete_dynamic_profiling_result(net, "10.0.0.7", "cuda:0")


def test_what_modelci_counts_is_listed_once(registry: Registry, net: Version) -> None:
    """Parameters, operations and bytes; the second takes the place of the first."""
    counts = {"parameters": 100, "flops": 2000, "memory": 64, "mread": 10, "mwrite": 6, "mrw": 16}
    modelci.register_static_profiling_result(net, {**counts, "flops": 1})
    attached = modelci.register_static_profiling_result(net, counts)
    (only,) = overview(registry).measurements
    result = registry.result(only.document)

    assert only.document == attached.document
    assert result is not None
    names = ("parameters", "flops", "activation_peak", "bytes_read", "bytes_written")
    assert [result[name] for name in names] == [100, 2000, 64, 10, 6]
    with pytest.raises(RequestError, match="no figure above 0"):
        modelci.register_static_profiling_result(net, {"parameters": 0})
    with pytest.raises(RequestError, match="'many' in the profiling result is no number"):
        modelci.register_static_profiling_result(net, {"parameters": "many"})


def test_a_result_of_ours_is_listed_by_modelcis_functions(registry: Registry, net: Version) -> None:
    """Where it says that it was measured."""
    attached = modelci.append_dynamic_profiling_result(net.name, a_result(id="1" * 12))

    assert attached.at.engine == a_result().job.backend
    assert [one.document for one in overview(registry).measurements] == ["1" * 12]
