"""Versions of MLflow's registry as models: what is fetched, what is found in it, what is said else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

import pytest
import yaml
from tests.support.mlflow_store import add_version, new_store
from tests.support.packages import skip_module_without

from modeldyno.base.errors import MissingExtra, RequestError
from modeldyno.engine.environment.mlflow_client import mlflow_client
from modeldyno.profiling.mlflow_version import fetch_mlflow_version, find_model
from modeldyno.profiling.resolve_model import resolve_reference

if TYPE_CHECKING:
    from collections.abc import Callable

skip_module_without("mlflow")

ONNX = {"onnx": {"data": "model.onnx"}, "python_function": {"loader_module": "mlflow.onnx"}}


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with the model net: version 1 of ONNX, which is @champion, and version 2."""
    folder = tmp_path_factory.mktemp("mlflow")
    made = new_store(folder)
    for number in (1, 2):
        add_version(made, "net", folder / f"v{number}", ONNX, {"model.onnx": b"%d" % number})
    with mlflow_client(made, "the test") as client:
        client.set_registered_model_alias("net", "champion", "1")
    return made


@pytest.fixture(autouse=True)
def store(uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return uri


@pytest.fixture
def version(tmp_path: Path) -> Callable[..., Path]:
    """Give a function that writes the files of a version to a folder."""

    def write(flavors: Any, *files: str) -> Path:
        folder = tmp_path / "version"
        folder.mkdir()
        for file in files:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_bytes(b"x")
        (folder / "MLmodel").write_text(yaml.safe_dump({"flavors": flavors}))
        return folder

    return write


@pytest.mark.parametrize(
    ("text", "number", "content"),
    [
        ("models:/net/1", 1, b"1"),
        ("models:/net/2", 2, b"2"),
        ("models:/net@champion", 1, b"1"),
        ("models:/net", 2, b"2"),
    ],
)
def test_a_version_is_named_as_in_mlflow(text: str, number: int, content: bytes) -> None:
    """By its number, by an alias, or by the name alone, which is the newest one."""
    fetched = fetch_mlflow_version(text)

    assert (fetched.reference, fetched.run) == (f"models:/net/{number}", "")
    assert fetched.ref.scheme == "onnx"
    assert Path(fetched.ref.locator).read_bytes() == content


def test_its_reference_is_that_of_its_file_for_every_command() -> None:
    assert resolve_reference("models:/net/1") == fetch_mlflow_version("models:/net/1").ref
    assert resolve_reference("models:/net@champion").registered == "models:/net/1"


def test_a_version_is_fetched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = fetch_mlflow_version("models:/net/1")
    monkeypatch.setattr("mlflow.artifacts.download_artifacts", None)

    assert fetch_mlflow_version("models:/net@champion").ref == first.ref


def test_a_fetch_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*, artifact_uri: str, dst_path: str) -> None:
        (Path(dst_path) / "part").touch()
        raise OSError(f"{artifact_uri} is away")

    monkeypatch.setattr("mlflow.artifacts.download_artifacts", fail)

    with pytest.raises(RequestError, match=r"files of models:/net/1 cannot be fetched: .* is away"):
        fetch_mlflow_version("models:/net/1")
    assert list((tmp_path / "cache" / "modeldyno" / "mlflow").iterdir()) == []


def test_its_name_is_no_part_of_a_path(uri: str, tmp_path: Path) -> None:
    add_version(uri, "%2e%2e%2fout", tmp_path / "made", ONNX, {"model.onnx": b"x"})

    locator = fetch_mlflow_version("models:/%2e%2e%2fout/1").ref.locator
    assert Path(locator).resolve().is_relative_to(tmp_path / "cache" / "modeldyno" / "mlflow")
    assert "out" not in locator.removeprefix(str(tmp_path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("models:/net/9", r"MLflow cannot use the store of MLFLOW_TRACKING_URI: .*version=9.* not found"),
        ("models:/net@nobody", "alias nobody not found"),
        ("models:/other", "no version of other"),
        ("models:/net/Staging", "names no version of MLflow; write models:/name/3"),
        ("models:net", "names no version of MLflow"),
        ("models:/it's", "names no version of MLflow"),
    ],
)
def test_a_version_that_is_not_there_is_told(text: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        fetch_mlflow_version(text)


def test_without_mlflow_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("modeldyno.base.plugins.find_spec", lambda name: None if name == "mlflow" else name)

    with pytest.raises(MissingExtra, match="pip install mlflow-skinny"):
        fetch_mlflow_version("models:/net/1")


@pytest.mark.parametrize(
    ("flavors", "file", "scheme"),
    [
        ({"onnx": {"data": "model.onnx"}}, "model.onnx", "onnx"),
        ({"sklearn": {"pickled_model": "model.pkl"}}, "model.pkl", "sklearn"),
        ({"xgboost": {"data": "model.ubj"}}, "model.ubj", "xgboost"),
        ({"lightgbm": None}, "model.lgb", "lightgbm"),
        ({"keras": {"data": "data"}}, "data/model.keras", "keras"),
    ],
)
def test_a_flavor_says_which_file_is_the_model(
    version: Callable[..., Path], flavors: Any, file: str, scheme: str
) -> None:
    ref = find_model(version(flavors, file, "conda.yaml"), "it")

    assert (ref.scheme, ref.locator.endswith(f"/{file}")) == (scheme, True)


def test_a_torchscript_archive_of_the_flavor_pytorch_is_one(version: Callable[..., Path]) -> None:
    folder = version({"python_function": {}, "pytorch": {"model_data": "data"}}, "data/model.pth")
    with ZipFile(folder / "data" / "model.pth", "w") as archive:
        archive.writestr("model/constants.pkl", b"")
        archive.writestr("model/code/net.py", b"")

    assert find_model(folder, "it").scheme == "torchscript"


def test_a_pickled_module_is_told_with_what_to_write(version: Callable[..., Path]) -> None:
    folder = version({"pytorch": {"model_data": "data"}}, "data/model.pth")

    with pytest.raises(RequestError, match=r"pickled.* mlflow\.pytorch\.load_model\('models:/net/1'\)"):
        find_model(folder, "models:/net/1")


def test_a_flavor_that_nothing_loads_is_told_with_what_is_there(version: Callable[..., Path]) -> None:
    folder = version({"python_function": {}, "spacy": {}}, *(f"f{number}" for number in range(9)))

    with pytest.raises(RequestError, match=r"flavors python_function, spacy and .* and 2 more; .* onnx, py"):
        find_model(folder, "it")


def test_a_version_without_a_description_is_told_with_what_is_there(version: Callable[..., Path]) -> None:
    folder = version([], "weights.bin")

    with pytest.raises(RequestError, match=r"no file MLmodel .* MLmodel, weights\.bin"):
        find_model(folder, "it")


def test_a_file_that_its_flavor_names_and_is_not_there_is_told(version: Callable[..., Path]) -> None:
    folder = version({"onnx": {"data": "gone.onnx"}}, "other.onnx")

    with pytest.raises(RequestError, match=r"not its file gone\.onnx, only MLmodel, other\.onnx"):
        find_model(folder, "it")


@pytest.mark.parametrize("name", ["../../secret.onnx", "/etc/passwd"])
def test_a_description_leads_nowhere_else(version: Callable[..., Path], name: str) -> None:
    with pytest.raises(RequestError, match="outside its folder"):
        find_model(version({"onnx": {"data": name}}), "it")
