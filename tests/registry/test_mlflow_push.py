"""Versions go to and from MLflow's registry, with their figures as tags."""

from __future__ import annotations

from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.mlflow_store import add_version, new_store
from tests.support.packages import skip_module_without
from tests.support.registry import DIGEST, ONCE

import modeldyno
from modeldyno.base.errors import MissingExtra, RequestError, UnknownName
from modeldyno.cli import main
from modeldyno.engine.environment.mlflow_client import mlflow_client
from modeldyno.registry.changes import change_alias
from modeldyno.registry.mlflow_push import push_version
from modeldyno.registry.register import Registration, located, register
from modeldyno.registry.worker import run_worker

if TYPE_CHECKING:
    from modeldyno.registry.interface import Registry
    from modeldyno.registry.records.records import Version

skip_module_without("mlflow")


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    return new_store(tmp_path_factory.mktemp("mlflow"))


@pytest.fixture(autouse=True)
def store(uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return uri


@pytest.fixture
def named(request: pytest.FixtureRequest) -> str:
    """Give each test a model of its own in the store."""
    return str(request.node.name).partition("[")[0] + str(request.node.callspec.id)


@pytest.fixture
def measured_net(registry: Registry, model: Path, measured: object, named: str) -> Version:
    """A version that is measured at batch sizes 1, 8 and 32, and is champion."""
    del measured
    version = register(Registration(model=str(model), name=named, convert=False), registry).version
    run_worker(ONCE)
    change_alias(registry, version.name, "champion")
    return version


def there(uri: str, reference: str) -> Any:
    """The version of a reference in MLflow."""
    name, _, number = reference.removeprefix("models:/").rpartition("/")
    with mlflow_client(uri, "the test") as client:
        return client.get_model_version(name, number)


def test_a_version_of_mlflow_is_registered_under_its_name_with_its_source(
    registry: Registry, model: Path, store: str, named: str, tmp_path: Path
) -> None:
    del model
    add_version(store, named, tmp_path / "made", {"onnx": {"data": "m.onnx"}}, {"m.onnx": b"weights"})

    version = register(Registration(model=f"models:/{named}"), registry).version

    assert version.name == f"{named}/1"
    assert version.labels["mlflow.version"] == f"models:/{named}/1"
    assert version.labels["mlflow.created"].endswith("+00:00")
    assert [file.path for file in version.files] == ["m.onnx"]


def test_it_stays_although_the_fetched_files_are_gone(
    registry: Registry, model: Path, store: str, named: str, tmp_path: Path
) -> None:
    del model
    add_version(store, named, tmp_path / "made", {"onnx": {"data": "m.onnx"}}, {"m.onnx": b"weights"})
    version = register(Registration(model=f"models:/{named}/1", name="other"), registry).version
    rmtree(tmp_path / "cache")

    assert version.name == "other/1"
    assert Path(located(version, registry).locator).read_bytes() == b"weights"


def test_a_model_that_was_registered_before_learns_where_it_is_in_mlflow(
    registry: Registry, model: Path, store: str, named: str, tmp_path: Path
) -> None:
    register(Registration(model=str(model), name=named, labels={"team": "vision"}), registry)
    add_version(store, named, tmp_path / "made", {"onnx": {"data": "m.onnx"}}, {"m.onnx": b"weights"})

    again = register(Registration(model=f"models:/{named}/1"), registry)

    assert not again.new
    assert again.version.labels["team"] == "vision"
    assert push_version(registry, named).reference == f"models:/{named}/1"


def test_the_figures_of_the_best_variant_become_tags(
    registry: Registry, measured_net: Version, store: str
) -> None:
    pushed = push_version(registry, measured_net.name)

    assert pushed.new
    (target,) = pushed.targets
    tags = there(store, pushed.reference).tags
    assert tags == pushed.tags
    assert tags["modeldyno.digest"] == DIGEST
    batch = int(tags[f"modeldyno.configuration/{target}"].removeprefix("source, batch "))
    p50 = f"{2.0 * batch:#.3g}"
    assert tags[f"modeldyno.latency.p50/{target}"] == f"{p50} ms ({p50} to {p50} ms with 95% certainty)"
    assert tags[f"modeldyno.throughput/{target}"].endswith("/s with 95% certainty)")
    assert registry.result(tags[f"modeldyno.result/{target}"]) is not None
    assert "cpu" in tags[f"modeldyno.target/{target}"]


@pytest.mark.slow
def test_its_aliases_are_set_there(measured_net: Version, registry: Registry, store: str) -> None:
    pushed = push_version(registry, measured_net.name)

    assert pushed.aliases == ("champion",)
    with mlflow_client(store, "the test") as client:
        version = client.get_model_version_by_alias(measured_net.model, "champion")
    assert f"models:/{version.name}/{version.version}" == pushed.reference


def test_pushed_twice_it_is_one_version_without_the_tags_of_before(
    measured_net: Version, registry: Registry, store: str
) -> None:
    first = push_version(registry, measured_net.name)
    with mlflow_client(store, "the test") as client:
        client.set_model_version_tag(measured_net.model, "1", "modeldyno.latency.p50/gone", "1 ms")
        client.set_model_version_tag(measured_net.model, "1", "team", "vision")
    again = push_version(registry, f"{measured_net.model}@champion")

    assert (first.new, again.new) == (True, False)
    assert again.reference == first.reference
    assert there(store, first.reference).tags == {**first.tags, "team": "vision"}


def test_what_came_from_mlflow_goes_back_to_its_version(
    registry: Registry, model: Path, store: str, named: str, tmp_path: Path
) -> None:
    del model
    for folder in ("a", "b"):
        add_version(store, named, tmp_path / folder, {"onnx": {"data": "m.onnx"}}, {"m.onnx": b"weights"})
    version = register(Registration(model=f"models:/{named}/2", name="mine"), registry).version

    pushed = push_version(registry, version.name)

    assert (pushed.reference, pushed.new, pushed.targets) == (f"models:/{named}/2", False, ())
    assert there(store, f"models:/{named}/2").tags["modeldyno.version"] == "mine/1"
    assert there(store, f"models:/{named}/1").tags == {}


def test_another_store_with_the_same_name_and_number_is_left_alone(
    registry: Registry, model: Path, store: str, named: str, tmp_path: Path
) -> None:
    del model
    add_version(store, named, tmp_path / "a", {"onnx": {"data": "m.onnx"}}, {"m.onnx": b"weights"})
    labels = {"mlflow.created": "2020-01-01T00:00:00+00:00"}
    request = Registration(model=f"models:/{named}/1", labels=labels)
    version = register(request, registry).version

    assert push_version(registry, version.name).reference == f"models:/{named}/2"
    assert there(store, f"models:/{named}/1").tags == {}


def test_an_alias_that_mlflow_reserves_is_told(measured_net: Version, registry: Registry) -> None:
    change_alias(registry, measured_net.name, "latest")

    with pytest.raises(RequestError, match=r"MLflow cannot use .* 'latest' alias name .* reserved"):
        push_version(registry, measured_net.name)


def test_a_target_of_another_tool_is_refused(registry: Registry) -> None:
    with pytest.raises(UnknownName, match="mlflow"):
        push_version(registry, "net", to="wandb:somewhere")
    with pytest.raises(RequestError, match="names no store; write mlflow:URI"):
        push_version(registry, "net", to="mlflow:")


def test_without_mlflow_it_says_what_to_install(
    measured_net: Version, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("modeldyno.base.plugins.find_spec", lambda name: None if name == "mlflow" else name)

    with pytest.raises(MissingExtra, match="pip install mlflow-skinny"):
        push_version(registry, measured_net.name)


def test_the_command_says_what_it_has_written(
    measured_net: Version, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(["registry", "push", f"{measured_net.model}@champion", "--to", f"mlflow:{store}"])

    assert left.value.code == 0
    out = capsys.readouterr().out
    assert out.startswith(f"models:/{measured_net.model}/1, which is new, has figures of ")
    assert "the alias champion" in out
    assert not modeldyno.registry.push(measured_net.name).new


def test_a_version_without_fresh_figures_is_pushed_and_told(
    registry: Registry, model: Path, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    register(Registration(model=str(model), name=named), registry)

    with pytest.raises(SystemExit) as left:
        main(["registry", "push", named])

    output = capsys.readouterr()
    assert left.value.code == 0
    assert f"models:/{named}/1, which is new, has its digest of {named}/1" in output.out
    assert "modeldyno worker measures what is missing" in output.err
