"""What the page on job files claims."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

import modeldyno
from modeldyno.cli import main
from modeldyno.profiling.job_file import read_jobs

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "howto" / "write-job-files.md").read_text(encoding="utf-8")
FILES = {match[1]: match[2] for match in re.finditer(r"```yaml\n# (\S+)\n(.*?)```", PAGE, re.DOTALL)}
COMMANDS = re.findall(r"^\$ (modeldyno .*)$", PAGE, re.MULTILINE)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the files of the page and the examples."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("MODELDYNO_STORE", f"sqlite:///{tmp_path}/store.db")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("here")
def test_the_files_are_as_many_jobs_as_the_page_says() -> None:
    """The matrix is four, and the inspection the fifth; the last key varies fastest."""
    jobs = read_jobs("jobs.yaml")

    assert len(read_jobs("job.yaml")) == 1
    assert [job.command for job in jobs] == ["profile"] * 4 + ["inspect"]
    assert jobs[1].label == "digits.onnx batch_size=1 threads=2"


@pytest.mark.parametrize(
    ("name", "schema"), [("job.yaml", "job"), ("job.yaml", "profile"), ("jobs.yaml", "job")]
)
def test_the_files_fit_their_schema(name: str, schema: str) -> None:
    """An editor finds no mistake in them, and finds one in a key that is none."""
    document: dict[str, Any] = yaml.safe_load(FILES[name])
    jsonschema.validate(document, modeldyno.schema(schema))

    if "jobs" not in document:
        with pytest.raises(jsonschema.ValidationError, match="bach"):
            jsonschema.validate({**document, "bach": 1}, modeldyno.schema(schema))


@pytest.mark.pages
@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_of_the_page_work(command: str) -> None:
    """As they stand."""
    with pytest.raises(SystemExit) as left:
        main(shlex.split(command)[1:])

    assert left.value.code in {0, 1, 5}


@pytest.mark.pages
@pytest.mark.usefixtures("here")
def test_the_python_of_the_page_works() -> None:
    """Four measured jobs, and the job of a result."""
    names: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(code, "page", "exec"), names)

    assert set(names["batches"]) == {1, 8}
    assert "batch_size: 4" in names["text"]
