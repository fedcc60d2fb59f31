"""The chart that runs a job file on a cluster: its values, its script, and what its templates give."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from modeldyno.base.yaml_file import parse_yaml_text
from modeldyno.sweeps.build import build_study

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm" / "modeldyno"
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"
TEMPLATES = "".join(path.read_text() for path in sorted((CHART / "templates").glob("*.yaml")))
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
GO_PACKAGES = Path("/usr/share/gocode")


def test_templates_use_every_value_and_no_other() -> None:
    """A value that nothing reads, or one that is not there, is a mistake of the chart."""
    used = set(re.findall(r"\.Values\.(\w+)", TEMPLATES))

    assert used == set(VALUES)


def test_its_job_file_is_a_sweep() -> None:
    """As `modeldyno sweep` reads it."""
    here = VALUES["job"].replace("/models/model.onnx", str(DIGITS))
    study, chosen = build_study(parse_yaml_text(here, "job.yaml"))

    assert not chosen  # the file names all that is varied
    assert study.job.backend == "triton"
    assert [axis.name for axis in study.space.axes] == ["instances", "concurrency"]


@pytest.fixture
def started(tmp_path: Path) -> Any:
    """Run the script of the pod with a command in the place of modeldyno, which notes how it is called."""
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "modeldyno"
    command.write_text(
        '#!/bin/sh\n[ "$1" = list ] && cat listed && exit 0\necho "$(basename "$PWD")" "$@" >> ../called\n'
    )
    command.chmod(0o755)
    script = TEMPLATES[TEMPLATES.index("mkdir -p") : TEMPLATES.index("      env:")]
    script = re.sub(r"\{\{.*?\}\}", "", script).replace("/results", str(tmp_path))

    def start() -> str:
        environment = {
            "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
            "JOB": "night-1",
            "COMMAND": "sweep",
            "REPORT": "r.html",
        }
        subprocess.run(["/bin/sh", "-c", script], env=environment, check=True)
        return (tmp_path / "called").read_text().splitlines()[-1]

    return start


def test_a_pod_that_was_evicted_continues_its_sweep(started: Any, tmp_path: Path) -> None:
    """If it had measured something; each job has a directory of its own."""
    assert started() == "night-1 sweep /job/job.yaml -o r.html"

    own = tmp_path / "night-1"
    (own / "store.db").touch()
    (own / "listed").write_text("The store is empty.\n")
    assert started() == "night-1 sweep /job/job.yaml -o r.html"

    (own / "listed").write_text("study   created           model   summary\n126e2d  2026-11-26\n")
    assert started() == "night-1 sweep --resume -o r.html"


@pytest.fixture(scope="module")
def render(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Build what renders the chart as Helm does."""
    if shutil.which("go") is None or not (GO_PACKAGES / "src/github.com/Masterminds/sprig").is_dir():
        pytest.skip("needs the Debian packages golang-go and golang-github-masterminds-sprig-dev")
    program = tmp_path_factory.mktemp("render") / "render"
    source = Path(__file__).with_name("render.go")
    environment = {**os.environ, "GO111MODULE": "off", "GOPATH": str(GO_PACKAGES)}
    subprocess.run(["go", "build", "-o", program, source], env=environment, check=True)

    def rendered(**changes: Any) -> list[Any]:
        command = [str(program), str(CHART), json.dumps({**VALUES, **changes})]
        return list(yaml.safe_load_all(subprocess.run(command, check=True, capture_output=True).stdout))

    return rendered


@pytest.mark.engine
def test_it_gives_a_job_with_the_file(render: Any) -> None:
    """Neither root nor privileges, whole cores, and no second try where the answer is no."""
    config, job = render()

    assert yaml.safe_load(config["data"]["job.yaml"])["model"] == "/models/model.onnx"
    assert (job["kind"], job["metadata"]["name"]) == ("Job", "nightly")
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert (
        container["resources"]["limits"]
        == container["resources"]["requests"]
        == {"cpu": "2", "memory": "4Gi"}
    )
    assert "sweep --resume" in container["args"][0]
    (first, _) = job["spec"]["podFailurePolicy"]["rules"]
    assert first["onExitCodes"]["values"] == [1, 2, 3, 5]
    assert {volume["name"] for volume in pod["volumes"]} == {
        each["name"] for each in container["volumeMounts"]
    }


@pytest.mark.engine
def test_values_change_what_it_gives(render: Any) -> None:
    """A schedule, a GPU, claims, a store elsewhere, and where it may run."""
    _, job = render(
        schedule="0 2 * * *",
        command="profile",
        resources={"cpu": "4", "memory": "8Gi", "gpus": 1},
        models={"claim": "models", "hostPath": ""},
        results={"claim": "", "hostPath": "/srv/results"},
        storeSecret="store",
        nodeSelector={"gpu": "a100"},
        tolerations=[{"key": "gpu", "operator": "Exists"}],
        runtimeClassName="nvidia",
    )

    assert (job["kind"], job["spec"]["schedule"]) == ("CronJob", "0 2 * * *")
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert "--resume" not in container["args"][0]
    volumes = {volume.pop("name"): volume for volume in pod["volumes"]}
    assert volumes["models"] == {"persistentVolumeClaim": {"claimName": "models"}}
    assert volumes["results"]["hostPath"]["path"] == "/srv/results"
    secrets = [one["valueFrom"].get("secretKeyRef") for one in container["env"] if "valueFrom" in one]
    assert {"name": "store", "key": "url"} in secrets
    assert (pod["nodeSelector"], pod["runtimeClassName"]) == ({"gpu": "a100"}, "nvidia")
    assert pod["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
