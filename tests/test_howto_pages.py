"""The pages on other frameworks and on evaluation run as they stand, with short measurements."""

from __future__ import annotations

import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.mlflow_store import add_version, new_store
from tests.support.openvino_module import import_openvino

import modeldyno
from modeldyno.base.yaml_file import parse_yaml_text
from modeldyno.cli import main
from modeldyno.engine.environment.mlflow_client import mlflow_client
from modeldyno.registry.records.policy import DEFAULT
from modeldyno.sweeps.model_set import split_models

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "howto" / "other-frameworks.md").read_text(encoding="utf-8")
QUICK = '[profile]\nmax_time = "0.5s"\nmin_time = "0.02s"\nprecision = "90%"\n'

pytestmark = pytest.mark.pages


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Give a function that runs the commands of a section, in a copy of the examples."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (tmp_path / "modeldyno.toml").write_text(QUICK)
    monkeypatch.chdir(tmp_path)

    def commands_of(section: str) -> None:
        commands = re.findall(r"^\$ (modeldyno .*)$", section, re.MULTILINE)
        assert commands
        for command in commands:
            with pytest.raises(SystemExit) as left:
                main(shlex.split(command)[1:])
            assert left.value.code == 0, command

    return commands_of


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def code(title: str) -> str:
    (block,) = re.findall(r"```python\n(.*?)```", section(title), re.DOTALL)
    return str(block)


def test_the_commands_of_the_page_on_evaluation_work(run: Callable[[str], None]) -> None:
    """Each of its commands measures the digits and ends well."""
    run((ROOT / "docs" / "howto" / "evaluate.md").read_text(encoding="utf-8"))


def test_the_commands_of_the_page_on_the_registry_work(
    run: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of its commands does what it says, but for the answer, which a busy machine may not know."""
    make_workers_quick(tmp_path, monkeypatch)
    put_digits_into_mlflow(tmp_path, monkeypatch)
    page = (ROOT / "docs" / "howto" / "register-models.md").read_text(encoding="utf-8")
    policy = re.findall(r"```yaml\n# nightly.yaml\n(.*?)```", page, re.DOTALL)[0]
    (tmp_path / "nightly.yaml").write_text(policy)
    answers = [line for line in page.splitlines() if "registry answer" in line and line.startswith("$")]
    assert answers

    run("\n".join(line for line in page.splitlines() if line not in answers))

    for question in answers:
        with pytest.raises(SystemExit) as left:
            main(shlex.split(question)[2:])
        assert left.value.code in {0, 5}
    monkeypatch.setattr(modeldyno.registry, "work", lambda **_: None)
    (python,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(python, {})


def make_workers_quick(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers measure one short figure in a store of its own, however busy the machine is."""
    quick = replace(DEFAULT, convert=(), batch_sizes=(1,), max_time=0.3)
    monkeypatch.setattr("modeldyno.registry.policies.DEFAULT", quick)
    monkeypatch.setattr("modeldyno.engine.environment.idle.busy_reason", lambda _device, _rule: None)
    monkeypatch.setattr("modeldyno.engine.environment.device_lock._folder", lambda: folder)
    monkeypatch.setenv("MODELDYNO_STORE", f"sqlite:///{folder}/store.db")


def test_the_commands_of_the_page_for_users_of_modelci_work(
    run: Callable[[str], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its YAML is registered, measured, converted and found again."""
    import_openvino()
    make_workers_quick(tmp_path, monkeypatch)
    page = (ROOT / "docs" / "howto" / "come-from-modelci.md").read_text(encoding="utf-8")
    (yaml_text,) = re.findall(r"```yaml\n# model.yaml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "model.yaml").write_text(yaml_text)

    run(page)

    capsys.readouterr()
    exec(re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0], {})
    assert capsys.readouterr().out == "Digits/1 {'acc': 0.992}\n"


def put_digits_into_mlflow(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a store of MLflow in a folder, where the digits are digits@champion."""
    pytest.importorskip("mlflow")
    uri = new_store(folder / "mlflow")
    content = (ROOT / "examples" / "digits" / "digits.onnx").read_bytes()
    add_version(uri, "digits", folder / "made", {"onnx": {"data": "model.onnx"}}, {"model.onnx": content})
    with mlflow_client(uri, "the test") as client:
        client.set_registered_model_alias("digits", "champion", "1")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))


def test_the_script_of_the_page_on_evaluation_works() -> None:
    """It evaluates a live model by a name and a function."""
    pytest.importorskip("torch")
    page = (ROOT / "docs" / "howto" / "evaluate.md").read_text(encoding="utf-8")
    (script,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    exec(script, names)
    assert 1 / 3 <= names["result"]["confidence"] <= 1


_NETWORK = """
import torch

def make():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()).eval(), torch.randn(2, 64)
"""


def test_the_commands_of_the_page_on_conversion_work(run: Callable[[str], None], tmp_path: Path) -> None:
    """Its commands convert the digits, which agree or are close; its Python does the same."""
    import_openvino()
    page = (ROOT / "docs" / "howto" / "convert.md").read_text(encoding="utf-8")
    (tmp_path / "net.py").write_text(_NETWORK)
    run(page.replace("--max-time 90s", "--max-time 10s"))

    assert (tmp_path / "variants" / "openvino" / "model.xml").is_file()
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(block, names)
    assert names["scores"].shape == (1, 10)


def test_the_commands_for_openvino_work(run: Callable[[str], None]) -> None:
    """The digits run on OpenVINO."""
    import_openvino()
    run(section("OpenVINO"))


def test_the_section_on_estimators_works(run: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its Python saves what its commands profile."""
    for package in ("sklearn", "xgboost", "lightgbm"):
        pytest.importorskip(package)
    profile = modeldyno.profile
    monkeypatch.setattr(
        modeldyno, "profile", lambda *args, **_: profile(*args, max_time=0.5, min_time=0.0, precision=0.9)
    )
    exec(code("Estimators"), {})
    run(section("Estimators"))


def test_the_section_on_jax_works(run: Callable[[str], None], tmp_path: Path) -> None:
    """Its file is the one that its command names."""
    pytest.importorskip("jax")
    (tmp_path / "network.py").write_text(code("JAX"))
    run(section("JAX"))


# TensorFlow and Keras warn of each other's and of NumPy's old names.
@pytest.mark.filterwarnings("ignore")
def test_the_section_on_keras_works(
    run: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its Python saves what its commands profile."""
    pytest.importorskip("tensorflow")
    profile = modeldyno.profile
    monkeypatch.setattr(
        modeldyno, "profile", lambda *args, **_: profile(*args, max_time=0.5, min_time=0.0, precision=0.9)
    )
    (tmp_path / "digits.py").write_text(code("Keras and TensorFlow"))
    exec(code("Keras and TensorFlow"), {"__name__": "__main__"})
    run(section("Keras and TensorFlow"))


def test_the_commands_for_tensorflow_lite_work(run: Callable[[str], None], tmp_path: Path) -> None:
    """The models of the tests run on LiteRT."""
    pytest.importorskip("ai_edge_litert")
    shutil.copytree(ROOT / "tests" / "golden" / "tflite", tmp_path / "tests" / "golden" / "tflite")
    run(section("TensorFlow Lite"))


def test_the_commands_of_the_page_for_users_of_model_analyzer_work(
    run: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Named configurations are shown, reported and compared; charts are drawn; two models are ranked."""
    folder = tmp_path / "examples" / "digits"
    shutil.copy(folder / "digits.onnx", folder / "other.onnx")
    shutil.copy(tmp_path / "modeldyno.toml", folder)
    (folder / "config.yaml").write_text("model_repository: models\nprofile_models: [add]\ngpus: all\n")
    monkeypatch.chdir(folder)

    run((ROOT / "docs" / "howto" / "come-from-model-analyzer.md").read_text(encoding="utf-8"))

    assert "digits_default" in (folder / "detailed.html").read_text(encoding="utf-8")
    assert list((folder / "pictures").glob("throughput-against-batch-size*.svg"))


def test_a_study_set_of_the_page_for_users_of_model_analyzer_is_read() -> None:
    """Its models have keys of their own over the common ones."""
    page = (ROOT / "docs" / "howto" / "come-from-model-analyzer.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```yaml\n(models:.*?)```", page, re.DOTALL)

    add, sub = split_models(parse_yaml_text(text, "sweep.yaml"))

    assert add.tree == {
        "model": "models#add", "name": "add", "space": {"instances": ["1", "2"]}, "maximize": "throughput",
    }  # fmt: skip
    assert sub.tree["require"] == "latency.p99 <= 5ms"
