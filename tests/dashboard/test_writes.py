"""What the forms of the dashboard do."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.dashboard.conftest import PORT, fill_registry, put, visitor_of
from tests.support.sample_registry import a_version

from modeldyno.base import plugins
from modeldyno.base.job.model_ref import ModelIdentity, ModelRef
from modeldyno.base.job.version_name import VersionName
from modeldyno.dashboard import app as application
from modeldyno.dashboard import registry_writes
from modeldyno.registry.records.policy import DEFAULT
from modeldyno.registry.records.records import TaskKind, TaskState
from modeldyno.registry.register import located
from modeldyno.testing.sample_results import a_result

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.dashboard.conftest import Visitor

    from modeldyno.registry.records.records import Version

RESULT = "0123456789ab"
DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
FORMS: dict[str, dict[str, Any]] = {
    "/models": {"name": "x"},
    "/models/digits/compare": {"version": ["1", "2"], "batch": "1"},
    "/models/digits/2/measure": {"recipe": "source", "batch": "1"},
    f"/results/{RESULT}/again": {"target": "x"},
    "/compare": {"with": [RESULT]},
    f"/results/{RESULT}/tags": {"do": "add", "tag": "x"},
    "/models/digits/aliases": {"do": "move", "alias": "best", "number": "1"},
    "/tasks": {"do": "cancel", "task": "2"},
}


def identity_of(version: Version) -> ModelIdentity:
    return ModelIdentity(name=version.model, digest=version.digest, framework=version.framework)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the folder of a store with a result and a registry, of which each test has a copy."""
    folder = tmp_path_factory.mktemp("written")
    with plugins.store(f"sqlite:///{folder}/store.db") as store:
        put(store, a_result(id=RESULT, model=identity_of(a_version())))
        fill_registry(store)
    return folder


@pytest.fixture
def operator(written: Path, tmp_path: Path) -> Iterator[Visitor]:
    """Look at a store of one's own."""
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    with plugins.store(f"sqlite:///{tmp_path}/store.db") as store:
        yield visitor_of(store)


def test_a_result_is_tagged(operator: Visitor) -> None:
    """A tag is added and removed, and the page of the result shows it."""
    answer = operator.send(f"/results/{RESULT}/tags", f"/results/{RESULT}", do="add", tag="nightly")
    assert answer.status_code == 303
    assert answer.headers["location"] == f"/results/{RESULT}"
    assert "tag: nightly" in operator.read(f"/results/{RESULT}")

    operator.send(f"/results/{RESULT}/tags", f"/results/{RESULT}", do="remove", tag="nightly")
    assert operator.store.find()[0].tags == ()


def test_an_alias_is_set_and_rolled_back_and_removed(operator: Visitor) -> None:
    """As modeldyno registry alias does."""
    for form, named in (
        ({"do": "move", "alias": "champion", "number": "1"}, {"champion": 1}),
        ({"do": "back", "alias": "champion"}, {"champion": 2}),
        ({"do": "remove", "alias": "champion"}, {}),
    ):
        answer = operator.send("/models/digits/aliases", "/models/digits", **form)
        assert answer.headers["location"] == "/models/digits"
        assert operator.store.registry.aliases("digits") == named


def test_tasks_are_cancelled_and_queued_again(operator: Visitor) -> None:
    """Those that were ticked."""
    registry = operator.store.registry
    chosen = [str(task.id) for task in registry.tasks(states=(TaskState.QUEUED,))]

    operator.send("/tasks", "/tasks", do="cancel", task=chosen)
    assert registry.tasks(states=(TaskState.QUEUED,)) == []

    operator.send("/tasks", "/tasks?all=yes", do="retry", task=chosen[:1])
    assert [str(task.id) for task in registry.tasks(states=(TaskState.QUEUED,))] == chosen[:1]


def test_a_measurement_is_queued(operator: Visitor) -> None:
    """Of a version that is registered, on a target that is known, before everything else."""
    registry = operator.store.registry
    (here, *_) = registry.targets()
    form = {"recipe": "source", "batch": "3", "target": here.id}

    answer = operator.send("/models/digits/2/measure", "/models/digits/2", do="measure", **form)

    assert answer.headers["location"] == "/tasks?model=digits%2F2"
    first = registry.tasks(states=(TaskState.QUEUED,))[0]
    assert (first.label, first.target) == ("digits/2 source: batch 3", here.id)
    assert first.measure is not None
    assert first.measure.probes == DEFAULT.probes


def test_what_a_result_measured_is_queued_again(operator: Visitor) -> None:
    """With its settings; of a model that is not registered, the page says how it becomes possible."""
    registry = operator.store.registry
    (here, *_) = registry.targets()
    put(operator.store, a_result(id="d" * 12))

    answer = operator.send(f"/results/{RESULT}/again", f"/results/{RESULT}", do="again", target=here.id)

    assert answer.headers["location"] == "/tasks?model=digits%2F1"
    measured = operator.store.get(RESULT).job
    settings = {name: value for name, value in measured.config.items() if name != "device"}
    queued = [task.measure for task in registry.tasks(states=(TaskState.QUEUED,)) if task.number == 1]
    assert [(m.settings, m.probes) for m in queued if m is not None] == [(settings, measured.probes)]
    assert f"modeldyno registry add {measured.model}" in operator.read(f"/results/{'d' * 12}")
    assert operator.send(f"/results/{'d' * 12}/again", "/models", target=here.id).status_code == 400


def test_what_cannot_be_registered_is_not_suggested(operator: Visitor) -> None:
    """A live object has no file, and the model of a server has no version."""
    for letter, scheme, locator in (("e", "object", "Linear"), ("f", "url", "http://127.0.0.1:1#m")):
        result = a_result(id=letter * 12)
        ref = ModelRef(scheme=scheme, locator=locator)
        put(operator.store, replace(result, job=replace(result.job, model=ref)))

        assert "registry add" not in operator.read(f"/results/{letter * 12}")


def test_a_comparison_is_queued(operator: Visitor) -> None:
    """Of versions of a model, and of what results are of; the second worker that looks finds it once."""
    registry = operator.store.registry
    (here, *_) = registry.targets()
    put(operator.store, a_result(id="d" * 12, model=identity_of(a_version(number=2))))
    versions = {"version": ["2", "1", ""], "batch": "4", "target": here.id}
    for _ in range(2):
        assert operator.send("/models/digits/compare", "/models/digits", **versions).status_code == 303
    form = {"with": [RESULT, "d" * 12], "target": here.id}

    answer = operator.send("/compare", f"/compare?with={RESULT}&with={'d' * 12}", **form)

    assert answer.headers["location"] == "/tasks"
    labels = [task.label for task in registry.tasks() if task.kind is TaskKind.COMPARE]
    assert sorted(label.partition(":")[0] for label in labels) == ["digits/1 source", "digits/2 source"]
    assert "digits/2 source: batch 4 beside digits/1 source" in labels


def test_a_file_is_registered(operator: Visitor) -> None:
    """Under the name that is told; its own is no path, and the same content is the same version."""
    for file in ("../../digits.onnx", "C:\\models\\digits.onnx"):
        answer = operator.send_file((file, DIGITS.read_bytes()), name="seven", task="digits")
        assert answer.headers["location"] == "/models/seven/1"

    version = operator.store.registry.version(VersionName(model="seven"))
    assert version.reference == "onnx:..-..-digits.onnx"
    assert [file.path for file in version.files] == ["model.onnx"]
    assert located(version, operator.store.registry).scheme == "onnx"


@pytest.mark.parametrize("name", ["x.pt", "x.pkl", "x.py", "x.onnx.zip", "x", "x.onnx\0.pt", "x.keras"])
def test_a_file_that_could_run_code_is_refused(operator: Visitor, name: str) -> None:
    """Whatever is in it, it is not even read."""
    answer = operator.send_file((name, DIGITS.read_bytes()), name="seven")

    assert answer.status_code == 400
    assert [entry.name for entry in operator.store.registry.models()] == ["digits"]


def test_a_file_that_is_no_model_is_said_so(operator: Visitor) -> None:
    """By its own name, not by that of the copy."""
    answer = operator.send_file(("mine.onnx", b"nothing"))

    assert answer.status_code == 400
    assert "mine.onnx is not an ONNX model" in answer.text
    assert tempfile.gettempdir() + "/" not in answer.text


def test_a_file_that_is_too_long_is_refused(operator: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is sent, and before it fills the disk."""
    monkeypatch.setattr(application, "_LARGEST_FILE", 1000)

    assert operator.send_file(("x.onnx", b"x" * 2000)).status_code == 413


@pytest.mark.parametrize("path", FORMS)
@pytest.mark.parametrize("token", [None, "", "0" * 64, "é"])
def test_a_form_without_its_token_is_refused(operator: Visitor, path: str, token: str | None) -> None:
    """And nothing is written."""
    operator.read("/")
    before = operator.store.change_mark()
    form = FORMS[path] if token is None else {**FORMS[path], "token": token}

    answer = operator.client.post(path, data=form, headers={"origin": f"http://127.0.0.1:{PORT}"})

    assert answer.status_code == 403
    assert operator.store.change_mark() == before


@pytest.mark.parametrize("path", FORMS)
def test_a_token_is_worth_nothing_in_another_browser(operator: Visitor, path: str) -> None:
    """It belongs to the cookie of the page that it stood on."""
    text = operator.read("/tasks")
    token = text.partition('name="token" value="')[2].partition('"')[0]
    operator.client.cookies.clear()
    before = operator.store.change_mark()

    assert operator.client.post(path, data={**FORMS[path], "token": token}).status_code == 403
    assert operator.store.change_mark() == before


@pytest.mark.parametrize("site", ["cross-site", "same-site", "none"])
def test_a_page_of_another_site_cannot_write(operator: Visitor, site: str) -> None:
    """As the browser itself says where the request comes from."""
    answer = operator.client.post("/tasks", data=FORMS["/tasks"], headers={"sec-fetch-site": site})

    assert answer.status_code == 403


@pytest.mark.parametrize(
    ("path", "form"),
    [
        (f"/results/{RESULT}/tags", {"do": "add", "tag": ""}),
        (f"/results/{RESULT}/tags", {"do": "delete", "tag": "x"}),
        ("/results/none/tags", {"do": "add", "tag": "x"}),
        ("/models/digits/aliases", {"do": "move", "alias": "../x", "number": "1"}),
        ("/models/digits/aliases", {"do": "move", "alias": "best", "number": "99"}),
        ("/models/digits/aliases", {"do": "move", "alias": "best", "number": "x"}),
        ("/models/none/aliases", {"do": "back", "alias": "best"}),
        ("/models/digits/aliases", {"alias": "best"}),
        ("/tasks", {"do": "cancel"}),
        ("/tasks", {"do": "cancel", "task": "1; DROP TABLE tasks"}),
        ("/tasks", {"do": "run", "task": "1"}),
        ("/models", {"name": "x"}),
        ("/models/digits/compare", {"version": ["1"], "batch": "1"}),
        ("/models/digits/compare", {"version": ["1", "2"], "batch": "1", "target": "nowhere"}),
        ("/models/digits/compare", {"version": ["1", "2"], "batch": "0"}),
        ("/models/digits/2/measure", {"recipe": "onnx-int8", "batch": "1"}),
        ("/models/digits/2/measure", {"recipe": "$(id)", "batch": "1"}),
        ("/models/digits/9/measure", {"recipe": "source", "batch": "1"}),
        (f"/results/{RESULT}/again", {"target": "torch:os:system"}),
        ("/results/none/again", {"target": "x"}),
        ("/compare", {"with": RESULT}),
        ("/compare", {}),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(
    operator: Visitor, path: str, form: dict[str, str]
) -> None:
    """With 400, and nothing is written."""
    shown_at = "/models"
    events = len(operator.store.registry.events())

    answer = operator.send_file(None, **form) if path == "/models" else operator.send(path, shown_at, **form)

    assert answer.status_code == 400
    assert "<h1>That cannot be done</h1>" in answer.text
    assert len(operator.store.registry.events()) == events


@pytest.mark.parametrize("kind", ["application/json", "multipart/form-data; boundary=x", "text/plain", ""])
def test_only_forms_are_taken(operator: Visitor, kind: str) -> None:
    """Another kind of body is refused before it is read."""
    answer = operator.client.post("/tasks", content=b"do=cancel&task=2", headers={"content-type": kind})

    assert answer.status_code == 413


def test_a_long_form_is_refused(operator: Visitor) -> None:
    """Whoever sends a megabyte does not fill the memory."""
    assert operator.client.post("/tasks", data={"task": "1" * 1_000_000}).status_code == 413


def test_a_bomb_is_ended(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two megabytes that unfold to a hundred thousand operators, nothing stays but a sentence."""
    onnx = pytest.importorskip("onnx")
    monkeypatch.setattr(registry_writes, "_FEWEST_BYTES", 0)
    before = visitor.json("/models")["items"]
    node = onnx.helper.make_node("Identity", ["v"], ["v"])
    graph = onnx.helper.make_graph([node] * 100_000, "g", [], [])

    answer = visitor.send_file(("bomb.onnx", onnx.helper.make_model(graph).SerializeToString()), name="bomb")

    assert answer.status_code == 400
    assert "bomb.onnx cannot be loaded: it used " in answer.text
    assert " of memory, more than the limit of " in answer.text
    assert visitor.json("/models")["items"] == before
