"""Writing a model's files beside configurations, in a child, and only of the measured model."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from modeldyno.base.errors import RequestError
from modeldyno.base.job.job import Job
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.serving.deploy_worker import write_deployments

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"
PYTHON = 'name: "m"\nbackend: "python"\n'
NATIVE = 'name: "m"\nbackend: "onnxruntime"\n'


def job(path: Path | str, scheme: str = "onnx", **changes: Any) -> Job:
    return Job(model=ModelRef(scheme=scheme, locator=str(path)), backend="triton", **changes)


def entry(folder: Path, name: str) -> Path:
    """Create a directory for a configuration."""
    (folder / name).mkdir()
    return folder / name


def test_each_entry_gets_what_its_configuration_asks_for(tmp_path: Path) -> None:
    """The model is copied, with the code that runs it where Triton's Python backend needs that."""
    python, native = entry(tmp_path, "a"), entry(tmp_path, "b")
    write_deployments(job(DIGITS), {python: PYTHON, native: NATIVE}, "")

    assert {path.name for path in (python / "1").iterdir()} == {"model.onnx", "model.py", "runner.py"}
    assert {path.name for path in (native / "1").iterdir()} == {"model.onnx"}
    assert (native / "1" / "model.onnx").read_bytes() == DIGITS.read_bytes()
    assert not (native / "1" / "model.onnx").samefile(DIGITS)
    assert {path.name for path in native.iterdir()} == {"1"}


def test_a_model_of_a_repository_gets_our_runner_where_its_configuration_wants_it(tmp_path: Path) -> None:
    """The Python backend runs an ONNX file of the repository by our runner; a native one needs none."""
    (tmp_path / "models" / "m" / "2").mkdir(parents=True)
    shutil.copyfile(DIGITS, tmp_path / "models" / "m" / "2" / "model.onnx")
    python, native = entry(tmp_path, "m_1"), entry(tmp_path, "m_default")
    write_deployments(job(f"{tmp_path}/models#m", "repository"), {python: PYTHON, native: NATIVE}, "")

    assert {path.name for path in (python / "2").iterdir()} == {"model.onnx", "model.py", "runner.py"}
    assert {path.name for path in (native / "2").iterdir()} == {"model.onnx"}


def test_another_model_by_now_is_refused(tmp_path: Path) -> None:
    """Configurations found for one model are not combined with another."""
    with pytest.raises(RequestError, match="not the model that was measured"):
        write_deployments(job(DIGITS), {entry(tmp_path, "a"): NATIVE}, "sha256:of-another")
    assert not (tmp_path / "a" / "1").exists()


def test_what_cannot_be_written_is_told_in_a_sentence(tmp_path: Path) -> None:
    """A missing file, a backend without deployment, and an invalid directory."""
    gone = shutil.copyfile(DIGITS, tmp_path / "gone.onnx")
    Path(gone).unlink()
    with pytest.raises(RequestError, match=r"gone\.onnx"):
        write_deployments(job(gone), {entry(tmp_path, "a"): NATIVE}, "")
    other = Job(model=ModelRef(scheme="onnx", locator=str(DIGITS)), backend="onnxruntime")
    with pytest.raises(RequestError, match="'onnxruntime' cannot write deployable"):
        write_deployments(other, {tmp_path / "a": NATIVE}, "")
    with pytest.raises(RequestError, match="could not be written"):
        write_deployments(job(DIGITS), {tmp_path / "nowhere": NATIVE}, "")
